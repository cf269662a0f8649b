//! One entry put into a text of JSON or TOML, all else left as it is: comments, blanks, line ends, byte order mark.

use std::fmt;

use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use toml_edit::{DocumentMut, Item, Table, value};

/// What some editors put in front of a text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

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

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) ours: Vec<(&'static str, Value)>,
    /// Keys that only an entry with another transport has.
    pub(super) foreign: &'static [&'static str],
}

/// Why the text was left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// What is wrong with the text.
    Faulty(String),
    /// The entry of this name has another transport, as this key of it says.
    Taken(&'static str),
}

impl Refusal {
    /// Returns what the person can do about it.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Faulty(_) => "mend it, or add what `--print` shows by hand",
            Self::Taken(_) => "choose another --name, or remove that entry",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faulty(why) => f.write_str(why),
            Self::Taken(key) => {
                write!(f, "an entry of this name exists with another transport, as its `{key}` says")
            }
        }
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Faulty(why)
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
/// The text is not understood, or the name is taken.
pub(super) fn with_entry(
    text: &str,
    place: &Place,
    fields: &Fields,
    name: &str,
) -> Result<(String, Change), Refusal> {
    let (mark, body) = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(body) => (BYTE_ORDER_MARK, body),
        None => ("", text),
    };
    let (after, change) = match place {
        Place::Json(section) => in_json(body, section, fields, name)?,
        Place::Toml(section) => in_toml(body, section, fields, name)?,
    };
    Ok((format!("{mark}{}", with_line_ends_of(body, &after)), change))
}

/// Returns the new text with the old text's line ends: each its own in what is the same at the start and at the end, and those
/// of the first line in between.
fn with_line_ends_of(before: &str, after: &str) -> String {
    fn lines(text: &str) -> Vec<&str> {
        text.split_inclusive('\n').collect()
    }
    fn content(line: &str) -> &str {
        line.strip_suffix("\r\n").or_else(|| line.strip_suffix('\n')).unwrap_or(line)
    }
    let same = |(before, after): &(&&str, &&str)| content(before) == content(after);
    let (before, after) = (lines(before), lines(after));
    let end = match before.first() {
        Some(line) if line.ends_with("\r\n") => "\r\n",
        _ => "\n",
    };
    let head = before.iter().zip(&after).take_while(same).count();
    let tail = before[head..].iter().rev().zip(after[head..].iter().rev()).take_while(same).count();
    let mut out = String::new();
    for (index, line) in after.iter().enumerate() {
        let old = if index < head {
            Some(before[index])
        } else if index >= after.len() - tail {
            Some(before[before.len() - (after.len() - index)])
        } else {
            None
        };
        match old {
            Some(old) if old.ends_with('\n') == line.ends_with('\n') => out.push_str(old),
            _ => {
                out.push_str(content(line));
                if line.ends_with('\n') {
                    out.push_str(end);
                }
            }
        }
    }
    out
}

fn in_json(text: &str, section: &str, fields: &Fields, name: &str) -> Result<(String, Change), Refusal> {
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
    let new = root.value().is_none();
    let not_an_object = |what: &str| format!("{what} is not an object");
    let document = root.object_value_or_create().ok_or_else(|| not_an_object("the document"))?;
    only(&document, section)?;
    let servers =
        document.object_value_or_create(section).ok_or_else(|| not_an_object(&format!("\"{section}\"")))?;
    let change = match only(&servers, name)? {
        None => {
            let entry = fields
                .ours
                .iter()
                .map(|(key, value)| ((*key).to_owned(), json_value(value)))
                .collect::<Vec<_>>();
            servers.append(name, CstInputValue::Object(entry));
            Change::Added
        }
        Some(_) => {
            let entry = servers.object_value(name).ok_or_else(|| not_an_object(&format!("\"{name}\"")))?;
            update_json(&entry, fields)?
        }
    };
    let mut after = root.to_string();
    if change == Change::Added
        && let Some(moved) = below_comments(text, &after, section, &options)
    {
        after = moved;
    }
    if new && !after.ends_with('\n') {
        after.push('\n');
    }
    Ok((after, change))
}

/// Returns the new text with the section's new last entry below the comments that were the last thing in it. `after` has it above
/// them, behind the line of the entry that was the last one before. Nothing if there are no such comments.
fn below_comments(before: &str, after: &str, section: &str, options: &ParseOptions) -> Option<String> {
    let parsed = parse_to_ast(before, &CollectOptions::default(), options).ok()?.value?;
    let section = parsed.as_object()?.get_object(section)?;
    let (last, brace) = (section.properties.last()?.range.end, section.range.end - 1);
    let behind = &before[last..brace];
    let line_end = |newline: usize| newline - usize::from(behind[..newline].ends_with('\r'));
    let (first, end) = (line_end(behind.find('\n')?), line_end(behind.rfind('\n')?));
    let (line, comments, indent) = (&behind[..first], &behind[first..end], &behind[end..]);
    if comments.trim().is_empty() || !indent.trim().is_empty() {
        return None;
    }
    let (start, rest) = (&before[..last], &before[brace..]);
    let new = after.strip_prefix(start)?.strip_suffix(rest)?.strip_suffix(&behind[first..])?;
    let entry = new.strip_prefix(&format!(",{line}")).or_else(|| new.strip_prefix(line))?;
    let line = new.strip_suffix(entry)?;
    let own_lines = entry.starts_with(['\n', '\r']);
    own_lines.then(|| format!("{start}{line}{comments}{entry}{indent}{rest}"))
}

/// Returns the property of a name. Of several the clients take the last one, and others the first.
fn only(object: &CstObject, name: &str) -> Result<Option<CstObjectProp>, Refusal> {
    let is_it = |property: &CstObjectProp| {
        property.name().is_some_and(|key| key.decoded_value().is_ok_and(|key| key == name))
    };
    let mut found = object.properties().into_iter().filter(is_it);
    let first = found.next();
    match found.next() {
        None => Ok(first),
        Some(_) => Err(format!("\"{name}\" is there twice").into()),
    }
}

fn update_json(entry: &CstObject, fields: &Fields) -> Result<Change, Refusal> {
    for key in fields.foreign {
        if entry.get(key).is_some() {
            return Err(Refusal::Taken(key));
        }
    }
    let mut change = Change::None;
    for (key, value) in &fields.ours {
        match only(entry, key)? {
            Some(property) => {
                let now = property.value().and_then(|node| node.to_serde_value());
                let met = value.is_met_by(now.as_ref().and_then(serde_json::Value::as_f64));
                if met || now == Some(serde_value(value)) {
                    continue;
                }
                if *key == "type" {
                    return Err(Refusal::Taken("type"));
                }
                property.set_value(json_value(value));
            }
            None => drop(entry.append(key, json_value(value))),
        }
        change = Change::Updated;
    }
    Ok(change)
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

fn in_toml(text: &str, section: &str, fields: &Fields, name: &str) -> Result<(String, Change), Refusal> {
    let mut document: DocumentMut = text.parse().map_err(|error| format!("not TOML: {error}"))?;
    let servers = document.entry(section).or_insert_with(implicit_table);
    let servers = servers.as_table_like_mut().ok_or_else(|| format!("{section} is not a table"))?;
    let existed = servers.contains_key(name);
    let entry = servers.entry(name).or_insert_with(|| Item::Table(Table::new()));
    let entry = entry.as_table_like_mut().ok_or_else(|| format!("{section}.{name} is not a table"))?;
    for key in fields.foreign {
        if entry.contains_key(key) {
            return Err(Refusal::Taken(key));
        }
    }
    let mut change = if existed { Change::None } else { Change::Added };
    for (key, wanted) in &fields.ours {
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
    if !existed && !text.is_empty() {
        // Written behind all the rest, it moves no comment. Where the section is closed, in braces, it has to go inside.
        let (entry, _) = in_toml("", section, fields, name)?;
        let gap = match text {
            _ if text.ends_with("\n\n") || text.ends_with("\n\r\n") => "",
            _ if text.ends_with('\n') => "\n",
            _ => "\n\n",
        };
        let appended = format!("{text}{gap}{entry}");
        if appended.parse::<DocumentMut>().is_ok() {
            return Ok((appended, change));
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
