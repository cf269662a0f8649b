//! Names of sandboxes and commands, as people and programs pass them on.

use ringfence::{CommandHandle, CommandId, Handle};

/// What is accepted is written in one way only, and so what is shown is what was read.
pub(super) fn target(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(handle) = text.parse::<Handle>() {
        assert_eq!(handle.to_string(), text);
        assert_eq!(Handle::new(handle.scheme(), handle.sandbox()).ok().as_ref(), Some(&handle));
        assert!(!text.contains(['/', '\n', ' ', '\0']));
    }
    if let Ok(handle) = text.parse::<CommandHandle>() {
        assert_eq!(handle.to_string(), text);
        assert_eq!(text.matches('/').count(), 1);
    }
    if let Ok(command) = text.parse::<CommandId>() {
        assert_eq!(command.to_string(), text);
    }
}
