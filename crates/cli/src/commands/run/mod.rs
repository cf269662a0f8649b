//! `ringfence run`: one command in a sandbox that exists for it alone.

mod json;
mod missing;
mod tail;

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence::toolset::Input;
use ringfence::{
    Backend, CommandRequest, CommandResult, Created, Ending, Error, ErrorKind, Invocation, OutputLimit,
    Registry, SandboxId, SandboxSpec, Timeout,
};

use self::tail::Tail;
use crate::args::RunArgs;
use crate::commands::{ending_notice, failure_to_start, lifetime_notice, print_json, runtime};
use crate::console::{self, READER_GRACE};
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::inputs;
use crate::settings::{RunFlags, Settings, Source, Sourced};
use crate::signals::{Interrupt, Signals};
use crate::stdin;
use crate::streamer::Streamer;

/// Everything that is decided before there is a sandbox.
struct Job {
    backend: Arc<dyn Backend>,
    settings: Settings,
    spec: SandboxSpec,
    inputs: Vec<Input>,
    program: Vec<Vec<u8>>,
    timeout: Sourced<Timeout>,
    output_limit: OutputLimit,
    json: bool,
    started: Instant,
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
pub(crate) fn run(args: RunArgs, environment: &Environment, started: Instant) -> Result<u8> {
    let job = prepare(args, environment, started)?;
    // Kept to the end of the process. What the backend has started sees that end by itself, and what of it could still run
    // untrusted code was waited for when the sandbox was destroyed: nobody has to wait for the rest.
    std::mem::forget(Arc::clone(&job.backend));
    let runtime = runtime()?;
    let result = runtime.block_on(execute(job));
    // A thread blocked in a read of standard input is not waited for.
    runtime.shutdown_background();
    result
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

fn prepare(args: RunArgs, environment: &Environment, started: Instant) -> Result<Job> {
    let run_flags = RunFlags { timeout: args.timeout, output_limit: args.output_limit };
    let settings = Settings::load(&args.spec, run_flags, environment)?;
    let spec = settings.spec().map_err(|failure| settings.explain(failure))?;
    let backend = Registry::new(settings.backend_settings()?).open(settings.backend())?;
    backend.judge(&spec).map_err(|error| settings.explain(error))?;
    let program: Vec<Vec<u8>> = args.command.into_iter().map(OsStringExt::into_vec).collect();
    if program.first().is_none_or(Vec::is_empty) {
        return Err(Failure::new("the program has an empty name").with_status(exit::NOT_FOUND));
    }
    Ok(Job {
        backend,
        spec,
        inputs: inputs::collect(&args.input)?,
        program,
        timeout: settings.timeout()?,
        output_limit: if args.json {
            settings.output_limit()?
        } else {
            OutputLimit::new(missing::SEEN_BYTES)?
        },
        json: args.json,
        settings,
        started,
    })
}

async fn execute(job: Job) -> Result<u8> {
    let signals = Signals::new()?;
    let mut timings = Timings { before: job.started.elapsed(), ..Timings::default() };
    let mut interrupt = None;

    let clock = Instant::now();
    let created = signals.shield(&mut interrupt, job.backend.create(&job.spec)).await;
    timings.create = clock.elapsed();
    let created = match (created, interrupt) {
        (Some(Ok(created)), _) => created,
        (None | Some(Err(_)), Some(signal)) => return ended_early(&job, signal.status()),
        (Some(Err(error)), None) => return Err(job.settings.explain(error)),
        // Only a signal abandons it.
        (None, None) => return Ok(exit::OURS),
    };

    let clock = Instant::now();
    let mut seen = None;
    let outcome = match interrupt {
        Some(_) => Outcome::Interrupted,
        None => inside(&job, &created.id, &signals, &mut interrupt, &mut seen).await,
    };
    timings.run = clock.elapsed();

    let clock = Instant::now();
    let destroyed = signals.shield(&mut interrupt, job.backend.destroy(&created.id)).await;
    timings.destroy = clock.elapsed();
    if let Some(Err(error)) = destroyed {
        console::notice(&format!("the sandbox {} may still exist: {error}", created.id));
    }
    report(&job, &created, outcome, interrupt, seen, timings)
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
    let staged = tokio::select! {
        biased;
        signal = signals.next() => {
            *interrupt = Some(signal);
            return Outcome::Interrupted;
        }
        staged = inputs::stage(&job.inputs, &*job.backend, sandbox, job.timeout.value) => staged,
    };
    if let Err(failure) = staged {
        return Outcome::Failed(failure);
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
            Err(error) => Outcome::Failed(failure_to_start(error)),
        },
    }
}

async fn command(job: &Job, sandbox: &SandboxId, seen: &Seen) -> std::result::Result<CommandResult, Error> {
    let invocation = Invocation::Program(job.program.clone());
    let mut request =
        CommandRequest::new(invocation, job.timeout.value, job.output_limit).with_stdin(stdin::for_command());
    request.observer = Some(match &seen.tail {
        Some(tail) => tail.clone(),
        None => seen.streamer.clone(),
    });
    job.backend.run_command(sandbox, request).await
}

fn report(
    job: &Job,
    created: &Created,
    outcome: Outcome,
    interrupt: Option<Interrupt>,
    seen: Option<Seen>,
    timings: Timings,
) -> Result<u8> {
    let outlived = job.spec.lifetime().filter(|lifetime| timings.create + timings.run >= *lifetime);
    // A signal that came while the sandbox was being destroyed counts too, but the result is there and is not hidden.
    let result = match outcome {
        Outcome::Interrupted => {
            let status = interrupt.map_or(exit::OURS, Interrupt::status);
            return match seen.as_ref().and_then(|seen| seen.tail.as_ref()) {
                Some(tail) => {
                    let object = json::interrupted_command(job, created, tail, status, timings);
                    print_json(&object, status, grace())
                }
                None => ended_early(job, status),
            };
        }
        Outcome::Broken(result) => return result,
        Outcome::Failed(failure) => {
            return Err(match outlived.filter(|_| failure.kind() == ErrorKind::SandboxLost.name()) {
                Some(lifetime) => Failure::new(lifetime_notice(lifetime))
                    .with_kind(failure.kind())
                    .with_status(exit::TIMED_OUT),
                None => failure,
            });
        }
        Outcome::Ended(result) => result,
    };
    if let Some(seen) = &seen {
        seen.streamer.check_stored()?;
    }
    let outlived = outlived.filter(|_| result.sandbox_lost);
    let status = match interrupt {
        Some(signal) => signal.status(),
        None if outlived.is_some() => exit::TIMED_OUT,
        None => exit::status_of(result.ending),
    };
    let notice = match (outlived, result.ending) {
        (Some(lifetime), _) => Some(lifetime_notice(lifetime)),
        (None, Ending::TimedOut) => Some(timeout_notice(job, &result)),
        (None, ending) => match ending_notice(ending, &job.spec, "the command") {
            Some(text) if result.sandbox_lost && ending == Ending::Unknown => {
                Some(format!("{text}: the sandbox was lost"))
            }
            None if result.sandbox_lost => Some("the sandbox was lost".to_owned()),
            other => other,
        },
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
        return print_json(&json::result(job, created, &result, status, timings), status, deadline);
    }
    Ok(status)
}

/// Returns the status of a run that a signal ended before the command was started; in JSON it is an object of its own.
fn ended_early(job: &Job, status: u8) -> Result<u8> {
    if job.json { print_json(&json::interrupted(status), status, grace()) } else { Ok(status) }
}

/// Says that the timeout passed, and whose it is where nobody asked for one.
fn timeout_notice(job: &Job, result: &CommandResult) -> String {
    let timeout = humantime::format_duration(result.applied_timeout.unwrap_or(job.timeout.value.get()));
    match job.timeout.origin.source {
        Source::Default => format!("timed out after {timeout}, which applies where no --timeout is given"),
        _ => format!("timed out after {timeout}"),
    }
}
