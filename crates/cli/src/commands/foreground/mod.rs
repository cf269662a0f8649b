//! A command that is waited for: in a sandbox that exists for it alone, or in one that stands already. There is one path for both,
//! so that streams, signals, statuses and the JSON form cannot differ.

mod json;
mod missing;
mod tail;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence::{
    Backend, CommandRequest, CommandResult, Ending, EnvMap, Error, ErrorKind, GuestPath, Invocation,
    OutputLimit, SandboxId, SandboxSpec, Timeout,
};

use self::tail::Tail;
use crate::commands::place::{Entered, Lookout, Place, Sandbox};
use crate::commands::{ending_notice, failure_to_start, print_json, runtime, timeout_notice};
use crate::console::{self, READER_GRACE};
use crate::exit;
use crate::failure::{Failure, Result};
use crate::inputs;
use crate::loss::Loss;
use crate::reached;
use crate::settings::{Settings, Sourced};
use crate::signals::{Interrupt, Signals};
use crate::stdin;
use crate::streamer::Streamer;

/// Everything that is decided before the command is started.
pub(crate) struct Job {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) place: Place,
    pub(crate) program: Vec<Vec<u8>>,
    pub(crate) workdir: Option<GuestPath>,
    pub(crate) env: EnvMap,
    pub(crate) timeout: Sourced<Timeout>,
    pub(crate) output_limit: OutputLimit,
    pub(crate) json: bool,
    pub(crate) started: Instant,
}

/// What happened in the sandbox.
enum Outcome {
    Ended(CommandResult),
    Failed(Failure),
    Interrupted,
    /// Output has no place to go: nobody reads it, or it cannot be stored.
    Broken(Result<u8>),
}

/// How long each part took.
#[derive(Debug, Default, Clone, Copy)]
struct Timings {
    /// From the start of the process to the request for a sandbox.
    before: Duration,
    create: Duration,
    /// Staging of inputs included.
    run: Duration,
    destroy: Duration,
}

/// Runs the command and returns the exit status.
pub(crate) fn run(job: Job) -> Result<u8> {
    // Kept to the end of the process. What the backend has started sees that end by itself, and what of it could still run
    // untrusted code was waited for when the sandbox was destroyed: nobody has to wait for the rest.
    std::mem::forget(Arc::clone(&job.backend));
    let runtime = runtime()?;
    let result = runtime.block_on(execute(job));
    // A thread blocked in a read of standard input is not waited for.
    runtime.shutdown_background();
    result
}

/// Checks the words of a command.
pub(crate) fn program(words: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    if words.first().is_none_or(Vec::is_empty) {
        return Err(Failure::new("the program has an empty name").with_status(exit::NOT_FOUND));
    }
    Ok(words)
}

/// Returns how much of each stream is kept: what the JSON form shows, or what is looked at here.
pub(crate) fn output_limit(settings: &Settings, json: bool) -> Result<OutputLimit> {
    if json { settings.output_limit() } else { Ok(OutputLimit::new(missing::SEEN_BYTES)?) }
}

/// Says what failed, in JSON too, and returns the exit status.
pub(crate) fn print_failure(failure: &Failure) -> Result<u8> {
    console::failure(failure);
    if failure.kind() == console::OUTPUT {
        return Ok(failure.status());
    }
    print_json(&json::failure(failure), failure.status(), grace())
}

/// Prints the object of arguments that are not understood; `text` is what standard error has been told.
pub(crate) fn print_usage_fault(text: &str, hint: Option<&str>) -> Result<u8> {
    let message = text.lines().next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    print_json(&json::usage_fault(exit::OURS, message, hint), exit::OURS, grace())
}

/// Until when a stalled reader is waited for where nothing else is.
fn grace() -> Option<Instant> {
    Instant::now().checked_add(READER_GRACE)
}

async fn execute(job: Job) -> Result<u8> {
    let signals = Signals::new()?;
    let mut timings = Timings { before: job.started.elapsed(), ..Timings::default() };
    let mut interrupt = None;

    let clock = Instant::now();
    let sandbox = match job.place.enter(&*job.backend, &signals, &mut interrupt).await? {
        Entered::Sandbox(sandbox) => sandbox,
        Entered::Interrupted(status) => return ended_early(&job, status),
    };
    timings.create = clock.elapsed();

    let clock = Instant::now();
    let lookout = job.place.watch(&*job.backend).await;
    let mut seen = None;
    let outcome = match interrupt {
        Some(_) => Outcome::Interrupted,
        None => inside(&job, &sandbox.id, &signals, &mut interrupt, &mut seen).await,
    };
    timings.run = clock.elapsed();

    let clock = Instant::now();
    job.place.leave(&*job.backend, &sandbox.id, &signals, &mut interrupt).await;
    timings.destroy = clock.elapsed();
    let known = known_of(&job, lookout, &outcome, timings).await;
    report(&job, Finished { sandbox, outcome, interrupt, seen, timings, known })
}

/// Who sees the output of the command while it runs.
#[derive(Debug, Clone)]
struct Seen {
    streamer: Arc<Streamer>,
    /// With `--json`, instead of the streamer.
    tail: Option<Arc<Tail>>,
    /// From here on no reader is waited for.
    deadline: Option<Instant>,
}

/// Copies the inputs in and runs the command.
async fn inside(
    job: &Job,
    sandbox: &SandboxId,
    signals: &Signals,
    interrupt: &mut Option<Interrupt>,
    seen: &mut Option<Seen>,
) -> Outcome {
    if let Place::Fresh(fresh) = &job.place {
        let staged = tokio::select! {
            biased;
            signal = signals.next() => {
                *interrupt = Some(signal);
                return Outcome::Interrupted;
            }
            staged = inputs::stage(&fresh.inputs, &*job.backend, sandbox, job.timeout.value) => staged,
        };
        if let Err(failure) = staged {
            return Outcome::Failed(failure);
        }
    }
    let deadline = Instant::now().checked_add(job.timeout.value.get() + READER_GRACE);
    let seen = seen.insert(Seen {
        streamer: Arc::new(Streamer::new(deadline)),
        tail: job.json.then(|| Arc::new(Tail::new(job.output_limit))),
        deadline,
    });
    tokio::select! {
        biased;
        signal = signals.next() => {
            *interrupt = Some(signal);
            Outcome::Interrupted
        }
        result = seen.streamer.broken() => Outcome::Broken(result),
        result = command(job, sandbox, seen) => match result {
            Ok(result) => Outcome::Ended(result),
            Err(error) => Outcome::Failed(match &job.place {
                Place::Standing(handle) if *error.kind() == ErrorKind::SandboxLost => reached::failed(handle, &error),
                _ => failure_to_start(error),
            }),
        },
    }
}

async fn command(job: &Job, sandbox: &SandboxId, seen: &Seen) -> std::result::Result<CommandResult, Error> {
    let invocation = Invocation::Program(job.program.clone());
    let mut request =
        CommandRequest::new(invocation, job.timeout.value, job.output_limit).with_stdin(stdin::for_command());
    request.workdir = job.workdir.clone();
    request.env = job.env.clone();
    request.observer = Some(match &seen.tail {
        Some(tail) => tail.clone(),
        None => seen.streamer.clone(),
    });
    job.backend.run_command(sandbox, request).await
}

/// Everything there is to report.
struct Finished {
    sandbox: Sandbox,
    outcome: Outcome,
    interrupt: Option<Interrupt>,
    seen: Option<Seen>,
    timings: Timings,
    known: Known,
}

/// What is known of the sandbox behind the command.
#[derive(Default)]
struct Known {
    /// Why it was lost, if it was.
    loss: Option<Loss>,
    /// What it was asked to guarantee, where that explains the end of the command.
    spec: Option<SandboxSpec>,
}

/// Finds out what the end of the command does not say itself.
async fn known_of(job: &Job, lookout: Lookout<'_>, outcome: &Outcome, timings: Timings) -> Known {
    let lived = timings.create + timings.run;
    let result = match outcome {
        Outcome::Failed(failure) => {
            let lost = failure.kind() == ErrorKind::SandboxLost.name();
            let loss = if lost { Some(lookout.loss(lived, false).await) } else { None };
            return Known { loss, spec: None };
        }
        Outcome::Ended(result) => result,
        Outcome::Interrupted | Outcome::Broken(_) => return Known::default(),
    };
    let loss = if result.sandbox_lost { Some(lookout.loss(lived, true).await) } else { None };
    let limited = matches!(result.ending, Ending::MemoryExceeded | Ending::PidsExceeded);
    let spec = match (&job.place, job.backend.attachable()) {
        (Place::Fresh(fresh), _) => Some(fresh.spec.clone()),
        (Place::Standing(handle), Some(attachable)) if limited => {
            attachable.inspect(handle.sandbox()).await.ok().map(|found| found.spec)
        }
        (Place::Standing(_), _) => None,
    };
    Known { loss, spec }
}

fn report(job: &Job, finished: Finished) -> Result<u8> {
    let Finished { sandbox, outcome, interrupt, seen, timings, known: Known { loss, spec } } = finished;
    // A signal that came while the sandbox was being destroyed counts too, but the result is there and is not hidden.
    let result = match outcome {
        Outcome::Interrupted => {
            let status = interrupt.map_or(exit::OURS, Interrupt::status);
            return match seen.as_ref().and_then(|seen| seen.tail.as_ref()) {
                Some(tail) => {
                    let object = json::interrupted_command(job, &sandbox, tail, status, timings);
                    print_json(&object, status, grace())
                }
                None => ended_early(job, status),
            };
        }
        Outcome::Broken(result) => return result,
        Outcome::Failed(failure) => {
            return Err(match loss {
                Some(loss) => loss.explain(failure),
                None => failure,
            });
        }
        Outcome::Ended(result) => result,
    };
    if let Some(seen) = &seen {
        seen.streamer.check_stored()?;
    }
    let status = match (interrupt, loss) {
        (Some(signal), _) => signal.status(),
        (None, Some(Loss::Lifetime(_))) => exit::TIMED_OUT,
        (None, _) => exit::status_of(result.ending),
    };
    let notice = match (loss, result.ending) {
        (Some(loss @ Loss::Lifetime(_)), _) => Some(loss.text()),
        (_, Ending::TimedOut) => Some(timeout_notice(&job.timeout, result.applied_timeout)),
        (Some(loss), ending) => match ending_notice(ending, spec.as_ref(), "the command") {
            Some(text) if ending == Ending::Unknown => Some(format!("{text}: {}", loss.text())),
            None => Some(loss.text()),
            other => other,
        },
        (None, ending) => ending_notice(ending, spec.as_ref(), "the command"),
    };
    if let Some(text) = notice {
        console::notice(&text);
    }
    if !job.json
        && let Some(text) = missing::advice(job, &result)
    {
        console::advice(text);
    }
    if seen.as_ref().is_some_and(|seen| seen.streamer.dropped()) {
        console::notice("output was dropped because its reader had stalled");
    }
    if job.json {
        let deadline = match interrupt {
            Some(_) => grace(),
            None => seen.and_then(|seen| seen.deadline).max(grace()),
        };
        return print_json(&json::result(job, &sandbox, &result, status, timings), status, deadline);
    }
    Ok(status)
}

/// Returns the status of a run that a signal ended before the command was started; in JSON it is an object of its own.
fn ended_early(job: &Job, status: u8) -> Result<u8> {
    if job.json { print_json(&json::interrupted(status), status, grace()) } else { Ok(status) }
}
