//! What several test files need.

use ringfence_core::{Error, GuestPath, SandboxSpec, Timeout};

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
