//! `ringfence config`.

use serde_json::{Value, json};

use crate::args::ConfigArgs;
use crate::commands::{print, print_json};
use crate::console::printable;
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::settings::{Row, RunFlags, Settings};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Shows every setting.
pub(crate) fn run(args: &ConfigArgs, environment: &Environment) -> Result<u8> {
    let rows = Settings::load(&args.spec, RunFlags::default(), environment)?.rows()?;
    if args.json {
        let settings: Vec<Value> = rows.iter().map(to_json).collect();
        return print_json(&json!({"version": VERSION, "settings": settings}), exit::OK, None);
    }
    let cells: Vec<[String; 3]> = rows
        .iter()
        .map(|row| [&row.key, &shown(&row.value), &row.origin.place].map(|cell| printable(cell)))
        .collect();
    let width = |column: usize| cells.iter().map(|cell| cell[column].chars().count()).max().unwrap_or(0);
    let (keys, values) = (width(0), width(1));
    let lines = cells.iter().map(|[key, value, origin]| format!("{key:keys$}  {value:values$}  {origin}\n"));
    print(&lines.collect::<String>(), exit::OK, None)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

fn to_json(row: &Row) -> Value {
    json!({
        "key": row.key,
        "value": row.value,
        "source": row.origin.source.as_str(),
        "place": row.origin.place,
    })
}
