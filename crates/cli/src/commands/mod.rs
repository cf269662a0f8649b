//! One module per subcommand.

pub(crate) mod background;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cp;
pub(crate) mod create;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod foreground;
pub(crate) mod inspect;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod place;
pub(crate) mod prune;
pub(crate) mod ps;
pub(crate) mod renew;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod shell;
pub(crate) mod terminal;

use std::time::{Duration, Instant};

use ringfence::{Ending, ErrorKind, SandboxSpec, Timeout};
use tokio::runtime::{Builder, Runtime};

use crate::console::{self, is_unprintable};
use crate::exit;
use crate::failure::{Failure, Result};
use crate::settings::{Source, Sourced};

/// What the runtime, a launcher and a command with its streams have open; the runtime panics where its own do not fit.
const OPEN_FILES: u64 = 32;

/// Returns a runtime on this thread alone: starting others costs more than they would save here.
fn runtime() -> Result<Runtime> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(most) = most.filter(|most| *most < OPEN_FILES) {
        let error = rustix::io::Errno::MFILE.into();
        return Err(Failure::io(&format!("start with {most} open files at most"), &error));
    }
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("start the runtime", &error))
}

/// Prints what was asked for and returns `status`, or what comes of it where that cannot be written. A stalled reader is
/// waited for until the deadline or a signal.
pub(crate) fn print(text: &str, status: u8, deadline: Option<Instant>) -> Result<u8> {
    match console::stdout(text.as_bytes(), deadline) {
        Ok(()) => Ok(status),
        Err(why) => why.status(),
    }
}

/// Prints a JSON document on lines of its own.
pub(crate) fn print_json(value: &serde_json::Value, status: u8, deadline: Option<Instant>) -> Result<u8> {
    print(&json_text(value), status, deadline)
}

/// Returns the document with every character escaped that does something to a terminal; strings alone contain such.
fn json_text(value: &serde_json::Value) -> String {
    escaped_json(&format!("{value:#}\n"))
}

/// Returns the same on one line.
fn json_line(value: &serde_json::Value) -> String {
    escaped_json(&format!("{value}\n"))
}

fn escaped_json(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    for character in document.chars() {
        if character != '\n' && is_unprintable(character) {
            let mut units = [0; 2];
            text.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            text.push(character);
        }
    }
    text
}

/// Returns the failure of a program that could not be started, with the status that a shell would give.
fn failure_to_start(error: ringfence::Error) -> Failure {
    let status = match error.kind() {
        // It is not the program that is missing or closed.
        _ if error.is_terminal() || error.fact("workdir").is_some() => exit::OURS,
        ErrorKind::NotFound => exit::NOT_FOUND,
        // One that was found, and of a form that cannot be executed.
        ErrorKind::InvalidArgument if error.fact("program").is_some() => exit::NOT_EXECUTABLE,
        ErrorKind::PermissionDenied
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::NotARegularFile => exit::NOT_EXECUTABLE,
        _ => exit::OURS,
    };
    Failure::from(error).with_status(status)
}

/// Says how `what` ended where its status alone would not tell.
fn ending_notice(ending: Ending, spec: Option<&SandboxSpec>, what: &str) -> Option<String> {
    match ending {
        Ending::MemoryExceeded => Some(match spec.and_then(|spec| spec.limits().memory) {
            Some(limit) => format!("the memory limit of {limit} ended {what}"),
            None => format!("the memory limit ended {what}"),
        }),
        Ending::PidsExceeded => Some(match spec.and_then(|spec| spec.limits().pids) {
            Some(limit) => format!("the limit of {limit} processes kept {what} from going on"),
            None => format!("the limit of processes kept {what} from going on"),
        }),
        Ending::TimedOut => Some(format!("{what} timed out")),
        Ending::Unknown => Some(format!("it is not known how {what} ended")),
        _ => None,
    }
}

/// Says that the timeout passed, and whose it is where nobody asked for one.
fn timeout_notice(timeout: &Sourced<Timeout>, applied: Option<Duration>) -> String {
    let shown = humantime::format_duration(applied.unwrap_or(timeout.value.get()));
    match timeout.origin.source {
        Source::Default => format!("timed out after {shown}, which applies where no --timeout is given"),
        _ => format!("timed out after {shown}"),
    }
}
