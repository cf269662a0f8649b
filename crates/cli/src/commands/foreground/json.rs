//! The object that `run --json` and `exec --json` print.

use ringfence::{Captured, CommandResult, Ending, StreamName};
use serde_json::{Value, json};

use super::tail::Tail;
use super::{Job, Timings};
use crate::base64::text_or_base64;
use crate::commands::place::{Place, Sandbox};
use crate::failure::Failure;

/// The version of the form.
const VERSION: u32 = 1;

/// Returns the object of a run that came to a result.
pub(super) fn result(
    job: &Job,
    sandbox: &Sandbox,
    result: &CommandResult,
    status: u8,
    timings: Timings,
) -> Value {
    let (exit_code, signal) = match result.ending {
        Ending::Exited(code) => (Some(code), None),
        Ending::Signalled(signal) => (None, Some(signal)),
        _ => (None, None),
    };
    let milliseconds = |duration: std::time::Duration| (duration.as_secs_f64() * 1e6).round() / 1e3;
    let mut value = json!({
        "version": VERSION,
        "backend": job.backend.name(),
        "sandbox": sandbox.id,
        "ending": result.ending.name(),
        "exit_code": exit_code,
        "signal": signal,
        "status": status,
        "timeout_seconds": result.applied_timeout.unwrap_or(job.timeout.value.get()).as_secs_f64(),
        "timeout_from": job.timeout.origin.to_string(),
        "sandbox_lost": result.sandbox_lost,
        "stdout": stream(&result.stdout),
        "stderr": stream(&result.stderr),
        "timings_ms": { "before": milliseconds(timings.before), "run": milliseconds(timings.run) },
    });
    match &job.place {
        Place::Standing(handle) => value["handle"] = handle.to_string().into(),
        Place::Fresh(_) => {
            value["timings_ms"]["create"] = milliseconds(timings.create).into();
            value["timings_ms"]["destroy"] = milliseconds(timings.destroy).into();
            value["statement"] = json!(sandbox.statement);
        }
    }
    value
}

/// Returns the object of a run that failed.
pub(super) fn failure(failure: &Failure) -> Value {
    json!({"version": VERSION, "status": failure.status(), "error": failure.to_json()})
}

/// Returns the object of arguments that are not understood.
pub(super) fn usage_fault(status: u8, message: &str, hint: Option<&str>) -> Value {
    let error = json!({"kind": "invalid_argument", "message": message, "hint": hint});
    json!({"version": VERSION, "status": status, "error": error})
}

/// Returns the object of a run that a signal to ringfence itself ended before the command was started.
pub(super) fn interrupted(status: u8) -> Value {
    json!({"version": VERSION, "status": status, "error": {"kind": "interrupted", "message": "ended by a signal"}})
}

/// Returns the object of a command that a signal to ringfence itself ended, with what it had written.
pub(super) fn interrupted_command(
    job: &Job,
    sandbox: &Sandbox,
    seen: &Tail,
    status: u8,
    timings: Timings,
) -> Value {
    let partial = CommandResult {
        ending: Ending::Unknown,
        stdout: seen.captured(StreamName::Stdout),
        stderr: seen.captured(StreamName::Stderr),
        applied_timeout: None,
        sandbox_lost: false,
    };
    let mut value = result(job, sandbox, &partial, status, timings);
    value["ending"] = "interrupted".into();
    value["error"] = interrupted(status)["error"].take();
    value
}

/// A stream as text, or as base64 where it is not UTF-8; exactly one of the two keys is there.
fn stream(captured: &Captured) -> Value {
    let mut value = json!({"truncated": captured.truncated, "total_bytes": captured.total_bytes});
    text_or_base64(&mut value, ["text", "base64"], &captured.bytes);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_36_a_stream_that_is_not_text_keeps_its_bytes() {
        assert_eq!(
            stream(&Captured::complete(&b"\xff\xfe\x00ok"[..])),
            json!({"truncated": false, "total_bytes": 5, "base64": "//4Ab2s="})
        );
        assert_eq!(
            stream(&Captured::complete(&b"a\nb"[..])),
            json!({"truncated": false, "total_bytes": 3, "text": "a\nb"})
        );
    }
}
