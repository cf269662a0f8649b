//! What several test files need.

use ringfence_core::memory::RecordingBackend;
use ringfence_core::{Backend, Error, GuestPath, SandboxId, SandboxSpec, Timeout};

/// Returns what an error says, as the one text a reader sees.
pub(crate) fn shown<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("an error").to_string()
}

pub(crate) fn path(path: impl Into<Vec<u8>>) -> GuestPath {
    GuestPath::new(path).expect("an acceptable path")
}

pub(crate) fn spec(json: &str) -> Result<SandboxSpec, serde_json::Error> {
    serde_json::from_str(json)
}

pub(crate) fn seconds(seconds: f64) -> Timeout {
    Timeout::from_secs_f64(seconds).expect("an acceptable timeout")
}

/// Returns a backend whose sandboxes can be claimed, and one of them: of owner `dag/run`, with the label `team`.
pub(crate) async fn owned() -> (RecordingBackend, SandboxId) {
    let backend = RecordingBackend::new().with_attach();
    let spec = spec(r#"{"owner": "dag/run", "labels": {"team": "data"}, "lifetime_seconds": 3600}"#);
    let sandbox = backend.create(&spec.expect("a spec")).await.expect("a sandbox").id;
    (backend, sandbox)
}
