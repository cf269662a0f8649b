use bytes::Bytes;
use ringfence_core::{
    Captured, CommandRequest, CommandResult, Ending, EnvMap, Invocation, OutputLimit, SandboxId, Stdin,
};

use super::support::seconds;

/// The defaults are the success case.
#[test]
fn er_07_a_result_carries_everything() {
    assert_eq!(
        CommandResult::exited(0, "out\n", ""),
        CommandResult {
            ending: Ending::Exited(0),
            stdout: Captured { bytes: Bytes::from("out\n"), truncated: false, total_bytes: 4 },
            stderr: Captured { bytes: Bytes::new(), truncated: false, total_bytes: 0 },
            applied_timeout: None,
            sandbox_lost: false,
        }
    );
}

#[test]
fn p_48_endings_keep_signals_and_statuses_apart() {
    assert_ne!(Ending::Exited(137), Ending::Signalled(9));
    let statuses = [
        Ending::Exited(3),
        Ending::Signalled(9),
        Ending::TimedOut,
        Ending::MemoryExceeded,
        Ending::PidsExceeded,
        Ending::Unknown,
    ]
    .map(Ending::shell_status);
    assert_eq!(statuses, [3, 137, 124, 137, 1, -1]);
}

#[test]
fn mk_06_debug_of_a_request_shows_no_values() {
    let mut request = CommandRequest::shell("true", seconds(1.0), OutputLimit::new(10).expect("a limit"));
    request.env = EnvMap::new([("TOKEN", "hunter2")]).expect("env");
    request.stdin = Stdin::Bytes(Bytes::from("hunter2"));
    let shown = format!("{request:?}");
    assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
    assert_eq!(request.invocation, Invocation::Shell("true".to_owned()));
}

#[test]
fn sp_14_what_only_a_rendering_accident_makes_is_no_id() {
    for text in ["", "None"] {
        assert_eq!(SandboxId::new(text), None);
        assert!(serde_json::from_value::<SandboxId>(text.into()).is_err(), "{text:?} in JSON");
    }
    for json in ["null", "42", "[]"] {
        assert!(serde_json::from_str::<SandboxId>(json).is_err(), "{json}");
    }
    for text in [" ", "sb-1", "none"] {
        let id = SandboxId::new(text).expect("an id");
        assert_eq!((id.as_str(), id.to_string()), (text, text.to_owned()));
        let json = serde_json::to_value(&id).expect("JSON");
        assert_eq!((json.clone(), serde_json::from_value(json).ok()), (text.into(), Some(id)));
    }
}

#[test]
fn sp_15_names_are_unique_and_of_one_form() {
    let names: std::collections::BTreeSet<String> =
        (0..100).map(|_| ringfence_core::backend::unique_name()).collect();
    assert_eq!(names.len(), 100);
    for name in names {
        let digits = name.strip_prefix("ringfence-").expect("the prefix");
        assert!(digits.len() == 12 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    }
}
