//! `run_command`: arguments, wording, rendering (RC).

use std::time::Duration;

use ringfence_core::clip::{self, ClipLimits, EARLIER_TRUNCATED};
use ringfence_core::{
    Captured, CommandRequest, CommandResult, Ending, OutputLimit, Result, SandboxSpec, Timeout,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::Setting;
use crate::arguments::Arguments;
use crate::config::Bounds;
use crate::definition::{CodeSurface, schema_of};
use crate::kit::Whose;
use crate::mask::Masker;
use crate::network_note::network_note;
use crate::outcome::ToolOutput;
use crate::text::{general_number, shown_name};

pub(crate) const TITLE: &str = "Run a shell command";
pub(crate) const CODE_SURFACE: CodeSurface = CodeSurface { argument: "command", language: "shell" };

const NO_OUTPUT: &str = "(no output)";
const REPLACEMENT_NOTE: &str =
    "[the sandbox was lost: its files and processes are gone, and the next call starts in a new one]";

const SEPARATE: &str = "The sandbox is separate from the machine you are called from and has none of its files, connections, \
                        credentials or environment variables.";
const WITH_INPUTS: &str = "The sandbox is separate from the machine you are called from: it has copies of the files it was given, which \
                           you find in the working directory or where you were told, and no other files, connections, credentials or \
                           environment variables of that machine. What you change in the copies stays in the sandbox.";

/// The least that a command gets, however soon the sandbox ends (AT-21).
const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// The arguments of `run_command`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the JSON form; `RunCommand::parse` takes it, more leniently")]
struct RunCommandArguments {
    /// The shell command to run.
    command: String,
    /// Seconds after which the command is ended. More than the maximum is shortened to it.
    #[schemars(default)]
    timeout_seconds: Option<f64>,
}

/// What came of the command.
#[derive(Debug, Serialize, JsonSchema)]
struct RunCommandStructure {
    /// How it ended: exited, signalled, timed_out, memory_exceeded, pids_exceeded or unknown.
    ending: &'static str,
    /// The exit code, if it exited.
    exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    signal: Option<i32>,
    /// Whether it was ended because its timeout passed.
    timed_out: bool,
    /// The timeout that applied, in seconds.
    timeout_seconds: f64,
    /// The last part of standard output.
    stdout: String,
    /// Whether earlier standard output is missing.
    stdout_truncated: bool,
    /// Size of all standard output in bytes, if known.
    stdout_total_bytes: Option<u64>,
    /// The last part of standard error.
    stderr: String,
    /// Whether earlier standard error is missing.
    stderr_truncated: bool,
    /// Size of all standard error in bytes, if known.
    stderr_total_bytes: Option<u64>,
    /// Whether the sandbox was lost: files and processes are gone, and the next call starts in a new one.
    sandbox_lost: bool,
    /// What else there is to know about the ending, in words.
    note: Option<String>,
}

pub(crate) fn input_schema() -> Value {
    schema_of::<RunCommandArguments>()
}

pub(crate) fn output_schema() -> Value {
    schema_of::<RunCommandStructure>()
}

/// Returns what the model is told about the tool.
pub(crate) fn description(setting: Setting<'_>) -> String {
    let shell = match &*setting.capabilities.shell {
        "" => "the sandbox's shell",
        shell => shell,
    };
    let (workdir, surroundings, network) = match setting.whose {
        Whose::Own { has_inputs } => (
            setting.spec.workdir(),
            if *has_inputs { WITH_INPUTS } else { SEPARATE }.to_owned(),
            network_note(setting.spec.network(), setting.capabilities),
        ),
        Whose::Attached(found) => (found.workdir(), found.origin(), found.network(setting.capabilities)),
    };
    let directory = match workdir {
        Some(workdir) => {
            let workdir = shown_name(workdir.as_bytes());
            format!("Relative paths start at the working directory {workdir}, as `pwd` shows.")
        }
        None => "Relative paths start at the working directory; `pwd` shows it.".to_owned(),
    };
    let bounds = setting.bounds;
    let mut parts = vec![
        format!(
            "Runs a command with {shell} in the sandbox and returns its standard output, its standard error and, unless \
             it is 0, its exit code. Pipes, redirection, && and globs work."
        ),
        surroundings,
        directory,
        "Each command runs in a fresh shell: files stay, but a changed directory, shell variables and functions do not \
         carry over. Standard input is closed, so use flags instead of prompts."
            .to_owned(),
        "A process left in the background lives on until the sandbox ends, but what it prints after its command has \
         ended is dropped: redirect it to a file."
            .to_owned(),
        format!(
            "A command is ended after {} s unless timeout_seconds says otherwise, at most {} s; files and earlier output \
             are kept. Of each stream the last {} lines or {} are returned.",
            seconds(bounds.default_timeout),
            seconds(bounds.max_timeout),
            bounds.max_output_lines,
            clip::format_size(bounds.max_output_bytes as u64),
        ),
    ];
    if setting.masks {
        parts.push(format!("Secret values are shown as {}.", crate::mask::MASK));
    }
    parts.push(network);
    if let Whose::Attached(found) = setting.whose {
        parts.push(found.clock());
    }
    parts.join(" ")
}

/// A checked call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunCommand {
    command: String,
    timeout: Timeout,
}

impl RunCommand {
    /// Takes the arguments (TD-03, TD-04) and bounds the timeout (RC-01, RC-02, RC-05).
    pub(crate) fn parse(arguments: &Value, bounds: &Bounds) -> Result<Self, String> {
        let mut arguments = Arguments::of(arguments);
        let command = arguments.text("command");
        let seconds = arguments.number("timeout_seconds");
        arguments.finish()?;
        if command.contains('\0') {
            return Err("`command` cannot contain a NUL character".to_owned());
        }
        let timeout = match seconds {
            None => bounds.default_timeout,
            Some(seconds) => bounded(seconds, bounds.max_timeout)?,
        };
        Ok(Self { command, timeout })
    }

    /// Shortens the timeout to what is left of the sandbox's life, but not below a second (RC-21, AT-21).
    pub(crate) fn within(&self, left: Option<Duration>) -> Result<Self> {
        let most = left.map_or(Timeout::MAX, |left| left.max(LEAST_TIMEOUT));
        Ok(Self { command: self.command.clone(), timeout: Timeout::new(self.timeout.get().min(most))? })
    }

    /// Returns the request, which asks for more of each tail than is shown when a secret might be torn by the cut.
    pub(crate) fn request(&self, bounds: &Bounds, masker: &Masker) -> Result<CommandRequest> {
        let bytes = bounds.max_output_bytes.saturating_add(masker.slack_bytes()).min(OutputLimit::MAX_BYTES);
        Ok(CommandRequest::shell(self.command.clone(), self.timeout, OutputLimit::new(bytes)?))
    }

    /// Renders a result for the model (RC-06 to RC-20). `outlived` is the sandbox's lifetime if that is over.
    pub(crate) fn render(
        &self,
        result: &CommandResult,
        spec: &SandboxSpec,
        outlived: Option<Duration>,
        bounds: &Bounds,
        masker: &Masker,
    ) -> Result<ToolOutput> {
        let limits = ClipLimits::new(bounds.max_output_lines, bounds.max_output_bytes)?;
        let stdout = Shown::of(&result.stdout, limits, masker);
        let stderr = Shown::of(&result.stderr, limits, masker);
        // RC-12: what the backend applied counts, if it says so.
        let applied = result.applied_timeout.unwrap_or(self.timeout.get()).as_secs_f64();
        let ending_note = ending_note(result, applied, spec, outlived);

        let mut sections: Vec<String> = Vec::new();
        sections.extend(stdout.section("stdout"));
        sections.extend(stderr.section("stderr"));
        if sections.is_empty() {
            sections.push(NO_OUTPUT.to_owned());
        }
        let mut notes: Vec<&str> = Vec::new();
        notes.extend(ending_note.as_deref());
        if result.sandbox_lost {
            notes.push(REPLACEMENT_NOTE);
        }
        if !notes.is_empty() {
            sections.push(notes.join(" "));
        }

        let structure = RunCommandStructure {
            ending: result.ending.name(),
            exit_code: match result.ending {
                Ending::Exited(status) => Some(status),
                _ => None,
            },
            signal: match result.ending {
                Ending::Signalled(signal) => Some(signal),
                _ => None,
            },
            timed_out: result.ending == Ending::TimedOut,
            timeout_seconds: applied,
            stdout: stdout.text,
            stdout_truncated: stdout.truncated,
            stdout_total_bytes: stdout.total_bytes,
            stderr: stderr.text,
            stderr_truncated: stderr.truncated,
            stderr_total_bytes: stderr.total_bytes,
            sandbox_lost: result.sandbox_lost,
            note: ending_note.map(|note| note.trim_matches(['[', ']']).to_owned()),
        };
        super::output(sections.join("\n"), &structure)
    }
}

/// Returns the timeout for a number of seconds, or what is wrong with it. Infinity has its own words: it is greater than
/// 0, so the rule for the others would mislead (section 21, item 12).
fn bounded(seconds: f64, maximum: Timeout) -> Result<Timeout, String> {
    let most = self::seconds(maximum);
    if seconds.is_nan() || seconds <= 0.0 {
        return Err(format!(
            "`timeout_seconds` must be greater than 0, not {}; leave it out for the default",
            general_number(seconds)
        ));
    }
    if seconds.is_infinite() {
        return Err(format!("`timeout_seconds` must be finite: a command gets at most {most} s"));
    }
    // A positive number too small for the clock is the shortest timeout there is, not an error (RC-03).
    let seconds = seconds.min(maximum.get().as_secs_f64()).max(1e-9);
    Timeout::from_secs_f64(seconds).map_err(|error| error.message().to_owned())
}

/// One stream as it is shown.
#[derive(Debug)]
struct Shown {
    /// Whole lines joined by LF, without the marker.
    text: String,
    /// Whether earlier output is missing, cut by the backend or here.
    truncated: bool,
    /// Whether there was any output: a lone newline is output although nothing is left to show of it (RC-16).
    any: bool,
    total_bytes: Option<u64>,
}

impl Shown {
    fn of(stream: &Captured, limits: ClipLimits, masker: &Masker) -> Self {
        let masked = masker.tail(&stream.bytes, stream.truncated, limits.max_bytes());
        // Of a cut stream, the rest of a split character was never written by the program (BK-09).
        let split = match stream.truncated {
            true => masked.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count(),
            false => 0,
        };
        let decoded = String::from_utf8_lossy(&masked[split..]);
        // Asked to mark in any case, the cutter's answer can be told from output that only looks like a marker.
        let marked = clip::tail(&decoded, limits, true);
        let kept = marked.strip_prefix(EARLIER_TRUNCATED).unwrap_or(&marked).strip_prefix('\n');
        let complete = match kept {
            Some(kept) => clip::lines(&decoded).eq(kept.split('\n')),
            None => decoded.is_empty(),
        };
        // A backend that cut and does not know the total repeats the size of what it kept.
        let total_known = !stream.truncated || stream.total_bytes > stream.bytes.len() as u64;
        Self {
            text: kept.unwrap_or_default().to_owned(),
            truncated: stream.truncated || !complete,
            any: !stream.bytes.is_empty(),
            total_bytes: total_known.then_some(stream.total_bytes),
        }
    }

    /// Returns the labelled stream, or nothing if there was no output. A truncated stream of which nothing is left is
    /// shown as that (RC-17 done right).
    fn section(&self, label: &str) -> Option<String> {
        if !self.any && !self.truncated {
            return None;
        }
        if !self.truncated {
            return Some(format!("[{label}]\n{}", self.text));
        }
        let total = match self.total_bytes {
            Some(total) => format!(
                " showing the last {} of {}",
                clip::format_size(self.text.len() as u64),
                clip::format_size(total)
            ),
            None => String::new(),
        };
        let text = if self.text.is_empty() { String::new() } else { format!("\n{}", self.text) };
        Some(format!("[{label}]\n{EARLIER_TRUNCATED}{total}{text}"))
    }
}

/// Returns the note on how the command ended; none for success, and none where the replacement note says it all.
fn ending_note(
    result: &CommandResult,
    applied_seconds: f64,
    spec: &SandboxSpec,
    outlived: Option<Duration>,
) -> Option<String> {
    let limits = spec.limits();
    Some(match result.ending {
        Ending::Exited(0) => return None,
        Ending::Exited(status) => format!("[exit code: {status}]"),
        Ending::Signalled(signal) => match signal_name(signal) {
            Some(name) => format!("[ended by signal {signal} ({name})]"),
            None => format!("[ended by signal {signal}]"),
        },
        Ending::TimedOut => format!("[timed out after {}s]", general_number(applied_seconds)),
        Ending::MemoryExceeded => match limits.memory {
            Some(memory) => format!("[killed: out of memory, the sandbox may use {memory}]"),
            None => "[killed: out of memory]".to_owned(),
        },
        Ending::PidsExceeded => match limits.pids {
            Some(pids) => format!("[failed: too many processes, the sandbox may have {pids}]"),
            None => "[failed: too many processes]".to_owned(),
        },
        _ if result.sandbox_lost => {
            let lifetime = outlived?.as_secs_f64();
            format!("[the sandbox's lifetime of {}s was over]", general_number(lifetime))
        }
        _ => "[exit code: unknown]".to_owned(),
    })
}

/// Returns the name of a Linux signal that commands commonly die of. Sandboxes run Linux, whatever we run on.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

fn seconds(timeout: Timeout) -> String {
    general_number(timeout.get().as_secs_f64())
}
