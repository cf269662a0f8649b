use ringfence_core::Secret;
use serde_json::json;

#[test]
fn mk_06_a_secret_is_shown_nowhere_and_given_out_by_name() {
    let secret: Secret = serde_json::from_value(json!("hunter2")).expect("a secret");
    assert_eq!(secret, Secret::new("hunter2"));
    assert_eq!(secret.expose(), "hunter2");
    assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "*** Some(\n    ***,\n)");
    assert_eq!(serde_json::to_value(&secret).expect("JSON"), json!("***"));
}

#[test]
fn mk_06_what_is_shown_of_a_secret_is_not_taken_for_one() {
    for value in [json!("***"), json!(null), json!(1), json!(["hunter2"])] {
        let error = serde_json::from_value::<Secret>(value).expect_err("refused").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
