//! One entry put into a text of JSON or TOML, all else left as it is, comments and blanks included.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use toml_edit::{DocumentMut, Item, Table, value};

/// Where the entries are, by the name of the table that has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Json(&'static str),
    Toml(&'static str),
}

/// The value of a key of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    List(Vec<String>),
    Flag(bool),
    /// A number; one that is there and is no smaller stays.
    AtLeast(u64),
}

impl Value {
    /// Whether the number that is there will do.
    fn is_met_by(&self, now: Option<f64>) -> bool {
        matches!((self, now), (Self::AtLeast(least), Some(now)) if now >= *least as f64)
    }
}

/// What became of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Updated,
    None,
}

/// Returns the text with the entry in it. Keys of an entry that is there already and that `fields` does not name are kept.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn with_entry(
    text: &str,
    place: &Place,
    fields: &[(&'static str, Value)],
    name: &str,
) -> Result<(String, Change), String> {
    match place {
        Place::Json(section) => in_json(text, section, fields, name),
        Place::Toml(section) => in_toml(text, section, fields, name),
    }
}

fn in_json(
    text: &str,
    section: &str,
    fields: &[(&'static str, Value)],
    name: &str,
) -> Result<(String, Change), String> {
    // What the clients read is JSON with comments; anything looser they would not read themselves.
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
    };
    let root = CstRootNode::parse(text, &options).map_err(|error| format!("not JSON: {error}"))?;
    let not_an_object = |what: &str| format!("{what} is not an object");
    let document = root.object_value_or_create().ok_or_else(|| not_an_object("the document"))?;
    let servers =
        document.object_value_or_create(section).ok_or_else(|| not_an_object(&format!("\"{section}\"")))?;
    let change = match servers.get(name) {
        None => {
            let entry =
                fields.iter().map(|(key, value)| ((*key).to_owned(), json_value(value))).collect::<Vec<_>>();
            servers.append(name, CstInputValue::Object(entry));
            Change::Added
        }
        Some(_) => {
            let entry = servers.object_value(name).ok_or_else(|| not_an_object(&format!("\"{name}\"")))?;
            update_json(&entry, fields)
        }
    };
    let mut after = root.to_string();
    if !after.ends_with('\n') {
        after.push('\n');
    }
    Ok((after, change))
}

fn update_json(entry: &CstObject, fields: &[(&'static str, Value)]) -> Change {
    let mut change = Change::None;
    for (key, value) in fields {
        match entry.get(key) {
            Some(property) => {
                let now = property.value().and_then(|node| node.to_serde_value());
                let met = value.is_met_by(now.as_ref().and_then(serde_json::Value::as_f64));
                if !met && now != Some(serde_value(value)) {
                    property.set_value(json_value(value));
                    change = Change::Updated;
                }
            }
            None => {
                entry.append(key, json_value(value));
                change = Change::Updated;
            }
        }
    }
    change
}

fn json_value(value: &Value) -> CstInputValue {
    match value {
        Value::Text(text) => CstInputValue::String(text.clone()),
        Value::List(words) => {
            CstInputValue::Array(words.iter().cloned().map(CstInputValue::String).collect())
        }
        Value::Flag(flag) => CstInputValue::Bool(*flag),
        Value::AtLeast(number) => CstInputValue::Number(number.to_string()),
    }
}

fn serde_value(value: &Value) -> serde_json::Value {
    match value {
        Value::Text(text) => text.as_str().into(),
        Value::List(words) => words.as_slice().into(),
        Value::Flag(flag) => (*flag).into(),
        Value::AtLeast(number) => (*number).into(),
    }
}

fn in_toml(
    text: &str,
    section: &str,
    fields: &[(&'static str, Value)],
    name: &str,
) -> Result<(String, Change), String> {
    let mut document: DocumentMut = text.parse().map_err(|error| format!("not TOML: {error}"))?;
    let servers = document.entry(section).or_insert_with(implicit_table);
    let servers = servers.as_table_like_mut().ok_or_else(|| format!("{section} is not a table"))?;
    let existed = servers.contains_key(name);
    let entry = servers.entry(name).or_insert_with(|| Item::Table(Table::new()));
    let entry = entry.as_table_like_mut().ok_or_else(|| format!("{section}.{name} is not a table"))?;
    let mut change = if existed { Change::None } else { Change::Added };
    for (key, wanted) in fields {
        let now = entry.get(key);
        let met = wanted.is_met_by(now.and_then(number));
        let wanted = toml_value(wanted);
        let same = met || now.is_some_and(|now| plain(now) == plain(&wanted));
        if same {
            continue;
        }
        match entry.get_mut(key) {
            // Put in place, so that a comment on the key's line stays.
            Some(now) => {
                let decor = now.as_value().map(|now| now.decor().clone());
                *now = wanted;
                if let (Some(now), Some(decor)) = (now.as_value_mut(), decor) {
                    *now.decor_mut() = decor;
                }
            }
            None => drop(entry.insert(key, wanted)),
        }
        if existed {
            change = Change::Updated;
        }
    }
    Ok((document.to_string(), change))
}

/// A table without a heading of its own: `[mcp_servers.name]` says it all.
fn implicit_table() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

fn toml_value(wanted: &Value) -> Item {
    match wanted {
        Value::Text(text) => value(text),
        Value::List(words) => value(words.iter().collect::<toml_edit::Array>()),
        Value::Flag(flag) => value(*flag),
        Value::AtLeast(number) => value(i64::try_from(*number).unwrap_or(i64::MAX)),
    }
}

fn number(item: &Item) -> Option<f64> {
    let value = item.as_value()?;
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

/// Returns what a value says, without blanks and comments.
fn plain(item: &Item) -> Option<String> {
    let mut value = item.as_value()?.clone();
    value.decor_mut().clear();
    if let Some(array) = value.as_array_mut() {
        array.fmt();
    }
    Some(value.to_string())
}
