//! The object that `inspect --json` prints.

use ringfence::{CommandState, CommandStatus, Ending, Process};
use serde_json::{Value, json};

use super::Report;
use super::text::words;
use crate::shown;

/// The version of the form.
const VERSION: u32 = 1;

/// Returns the object.
pub(super) fn document(report: &Report) -> Value {
    let Report { handle, found, spec, commands, now } = report;
    let mut object = shown::sandbox(handle, &found.info, *now);
    object.insert("version".to_owned(), json!(VERSION));
    object.insert("tags".to_owned(), json!(found.info.tagged.tags));
    object.insert("tags_version".to_owned(), json!(found.info.tagged.version));
    object.insert("spec".to_owned(), spec.clone());
    object.insert("statement".to_owned(), json!(found.statement));
    let usage = json!({
        "memory_bytes": found.usage.memory_bytes,
        "cpu_seconds": found.usage.cpu_time.map(shown::seconds),
        "pids": found.usage.pids,
        "disk_bytes": found.usage.disk_bytes,
    });
    object.insert("usage".to_owned(), usage);
    object.insert("processes".to_owned(), found.processes.iter().map(process).collect());
    let commands = commands.as_ref().map(|commands| commands.iter().map(command).collect::<Vec<_>>());
    object.insert("commands".to_owned(), json!(commands));
    Value::Object(object)
}

fn process(process: &Process) -> Value {
    json!({"pid": process.pid, "parent": process.parent, "command": words(&process.command)})
}

fn command(status: &CommandStatus) -> Value {
    let ending = match status.state {
        CommandState::Running => None,
        CommandState::Ended(ending) => Some(ending),
    };
    let (exit_code, signal) = match ending {
        Some(Ending::Exited(code)) => (Some(code), None),
        Some(Ending::Signalled(signal)) => (None, Some(signal)),
        _ => (None, None),
    };
    json!({
        "id": status.id.to_string(),
        "running": ending.is_none(),
        "ending": ending.map(|ending| ending.name()),
        "exit_code": exit_code,
        "signal": signal,
        "age_seconds": shown::seconds(status.age),
        "stdout_bytes": status.stdout_bytes,
        "stderr_bytes": status.stderr_bytes,
    })
}
