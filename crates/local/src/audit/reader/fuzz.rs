//! Lines of the audit record, and places in it.

#![expect(clippy::expect_used, reason = "what does not hold is said by panicking")]

use std::time::SystemTime;

use ringfence_core::EventPosition;
use serde_json::{Map, Value};

use super::{decode, encode, event};

/// Each line is tried as either.
pub(crate) fn target(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        check_event(line);
        if let Ok(text) = str::from_utf8(line)
            && let Some(marks) = decode(&EventPosition::new(text))
        {
            assert_eq!(decode(&encode(&marks)), Some(marks));
        }
    }
}

/// What is told of a line is what stands there, and all of it.
fn check_event(line: &[u8]) {
    let Some(event) = event(line) else { return };
    let mut written = event.facts;
    let at = event.at.duration_since(SystemTime::UNIX_EPOCH).expect("not before 1970").as_millis();
    written.insert("at_millis".to_owned(), u64::try_from(at).expect("as it was read").into());
    written.insert("sandbox".to_owned(), event.sandbox.as_str().into());
    written.insert("event".to_owned(), event.event.into());
    assert_eq!(serde_json::from_slice::<Map<String, Value>>(line).expect("an object"), written);
}
