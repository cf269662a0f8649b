//! An event as people and as programs read it, each on a line of its own.

use ringfence::{Event, Handle};
use serde_json::{Value, json};

use crate::commands::json_line;
use crate::console::printable;
use crate::shown::{moment_millis, quoted};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Returns the line for people.
pub(super) fn text(handle: &Handle, event: &Event) -> String {
    let mut words = vec![moment_millis(event.at).unwrap_or_else(|| "-".to_owned()), handle.to_string()];
    words.push(quoted(&event.event));
    for (name, value) in &event.facts {
        let value = match value {
            Value::String(text) => quoted(text),
            other => other.to_string(),
        };
        words.push(format!("{}={value}", quoted(name)));
    }
    format!("{}\n", printable(&words.join("  ")))
}

/// Returns the line for programs. What a backend tells besides is apart, so that it cannot take the place of anything.
pub(super) fn json(handle: &Handle, event: &Event) -> String {
    json_line(&json!({
        "version": VERSION,
        "at": moment_millis(event.at),
        "handle": handle.to_string(),
        "event": event.event,
        "facts": event.facts,
    }))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use ringfence::SandboxId;
    use serde_json::Map;

    use super::*;

    #[test]
    fn no_event_can_forge_a_line_or_a_fact() {
        let id = SandboxId::new("sb-1").unwrap();
        let facts = json!({"program": "x\n2001 \u{1b}[2J a=b", "status": 0, "handle": "other", "labels": {"a": "\u{202e}"}});
        let event = Event {
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000_000_007),
            sandbox: id.clone(),
            event: "command".to_owned(),
            facts: facts.as_object().cloned().unwrap_or_default(),
        };
        let handle = Handle::new("local", &id).unwrap();
        assert_eq!(
            text(&handle, &event),
            "2001-09-09T01:46:40.007Z  local:sb-1  command  handle=other  labels={\"a\":\"\\u{202e}\"}  \
             program=\"x\\n2001 \\u{1b}[2J a=b\"  status=0\n"
        );
        let line = json(&handle, &event);
        assert!(line.ends_with("}\n") && !line.trim_end().contains(['\n', '\u{1b}', '\u{202e}']), "{line:?}");
        let read: Value = serde_json::from_str(&line).unwrap();
        let whole = json!({
            "version": 1, "at": "2001-09-09T01:46:40.007Z", "handle": "local:sb-1", "event": "command", "facts": facts,
        });
        assert_eq!(read, whole);
        let plain = Event { facts: Map::new(), ..event };
        assert_eq!(text(&handle, &plain), "2001-09-09T01:46:40.007Z  local:sb-1  command\n");
    }
}
