use ringfence_core::{EnforcementRow, EnforcementStatement, Evidence, SpecField};

#[test]
fn a_statement_has_one_row_for_every_field_in_order() {
    let statement = EnforcementStatement::build(None, |_| EnforcementRow::not_asked(SpecField::Env));
    let fields: Vec<SpecField> = statement.rows.iter().map(|row| row.field).collect();
    assert_eq!(fields, SpecField::ALL, "whatever the rows said of themselves");
    assert_eq!(
        statement.row(SpecField::Disk),
        Some(&EnforcementRow::new(SpecField::Disk, "not asked", Evidence::NotAsked))
    );
}

#[test]
fn a_statement_round_trips_through_json() {
    let statement =
        EnforcementStatement::build(Some("2026-01-02T03:04:05Z".to_owned()), |field| EnforcementRow {
            strength: Some("name".to_owned()),
            ..EnforcementRow::new(field, "x", Evidence::ReadBack)
        });
    let json = serde_json::to_value(&statement).expect("JSON");
    assert_eq!(json["version"], 1);
    assert_eq!(
        json["rows"][0],
        serde_json::json!({"field": "env", "mechanism": "x", "strength": "name", "evidence": "read_back"})
    );
    assert_eq!(serde_json::from_value::<EnforcementStatement>(json).expect("a statement"), statement);
}

#[test]
fn field_names_are_the_outside_names() {
    for field in SpecField::ALL.iter().copied() {
        assert_eq!(serde_json::to_value(field).expect("JSON"), field.to_string());
    }
}

/// The key of a field is where the document of a spec that asks for it has a value.
#[test]
fn sp_03_the_key_of_a_field_is_the_one_in_the_document() {
    let document = serde_json::to_value(super::spec::full()).expect("JSON");
    for field in SpecField::ALL.iter().copied() {
        let pointer = format!("/{}", field.key().replace('.', "/"));
        assert!(document.pointer(&pointer).is_some(), "{pointer}");
        assert_eq!(SpecField::from_key(field.key()), Some(field));
    }
    assert_eq!(SpecField::from_key("memory"), None);
}
