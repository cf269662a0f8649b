//! `ringfence run`: one command in a sandbox that exists for it alone.

mod inputs;
mod json;

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence::{
    Backend, CommandRequest, CommandResult, Created, Ending, ErrorKind, Invocation, OutputLimit, Registry,
    SandboxId, SandboxSpec, Timeout,
};

use self::inputs::StagedFile;
use crate::args::RunArgs;
use crate::commands::{print_json, runtime};
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::settings::{RunFlags, Settings, Source, Sourced};
use crate::signals::{Interrupt, Signals};
use crate::stdin;
use crate::streamer::Streamer;

/// How long after the timeout a stalled reader of our output is still waited for: the command itself has been ended by then.
const READER_GRACE: Duration = Duration::from_secs(3);

/// Everything that is decided before there is a sandbox.
struct Job {
    backend: Arc<dyn Backend>,
    settings: Settings,
    spec: SandboxSpec,
    inputs: Vec<StagedFile>,
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
    Interrupted(Interrupt),
    ReaderGone,
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
    let json = args.json;
    let result = prepare(args, environment, started).and_then(|job| {
        // Never dropped: whatever a backend tidies up then, the end of this process does too, and sooner.
        std::mem::forget(Arc::clone(&job.backend));
        let runtime = runtime()?;
        let result = runtime.block_on(execute(job));
        // A thread blocked in a read of standard input is not waited for.
        runtime.shutdown_background();
        result
    });
    match result {
        Err(failure) if json => {
            console::failure(&failure);
            let status = failure.status();
            Ok(print_json(&json::failure(&failure), status))
        }
        other => other,
    }
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
        output_limit: if args.json { settings.output_limit()? } else { OutputLimit::new(1)? },
        json: args.json,
        settings,
        started,
    })
}

async fn execute(job: Job) -> Result<u8> {
    let mut signals = Signals::new()?;
    let deadline = Instant::now().checked_add(job.timeout.value.get() + READER_GRACE);
    let streamer = Arc::new(Streamer::new(signals.take_pending(), deadline));
    let mut timings = Timings { before: job.started.elapsed(), ..Timings::default() };
    let mut interrupt = None;

    let clock = Instant::now();
    let created = signals.shield(&mut interrupt, job.backend.create(&job.spec)).await;
    timings.create = clock.elapsed();
    let created = match (created, interrupt) {
        (Some(Ok(created)), _) => created,
        (None | Some(Err(_)), Some(signal)) => return Ok(ended_early(&job, signal.status())),
        (Some(Err(error)), None) => return Err(job.settings.explain(error)),
        // Only a signal abandons it.
        (None, None) => return Ok(exit::OURS),
    };

    let clock = Instant::now();
    let outcome = match interrupt {
        Some(signal) => Outcome::Interrupted(signal),
        None => tokio::select! {
            biased;
            signal = signals.next() => Outcome::Interrupted(signal),
            () = streamer.reader_gone() => Outcome::ReaderGone,
            outcome = inside(&job, &created.id, &streamer) => outcome,
        },
    };
    timings.run = clock.elapsed();
    if let Outcome::Interrupted(signal) = outcome {
        interrupt = Some(signal);
    }

    let clock = Instant::now();
    let destroyed = signals.shield(&mut interrupt, job.backend.destroy(&created.id)).await;
    timings.destroy = clock.elapsed();
    if let Some(Err(error)) = destroyed {
        console::notice(&format!("the sandbox {} may still exist: {error}", created.id));
    }
    report(&job, &created, outcome, interrupt, &streamer, timings)
}

/// Copies the inputs in and runs the command.
async fn inside(job: &Job, sandbox: &SandboxId, streamer: &Arc<Streamer>) -> Outcome {
    if let Err(failure) = inputs::stage(&job.inputs, &*job.backend, sandbox).await {
        return Outcome::Failed(failure);
    }
    let invocation = Invocation::Program(job.program.clone());
    let mut request =
        CommandRequest::new(invocation, job.timeout.value, job.output_limit).with_stdin(stdin::for_command());
    if !job.json {
        request.observer = Some(streamer.clone());
    }
    match job.backend.run_command(sandbox, request).await {
        Ok(result) => Outcome::Ended(result),
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::NotFound => exit::NOT_FOUND,
                ErrorKind::PermissionDenied
                | ErrorKind::IsADirectory
                | ErrorKind::NotADirectory
                | ErrorKind::NotARegularFile => exit::NOT_EXECUTABLE,
                _ => exit::OURS,
            };
            Outcome::Failed(Failure::from(error).with_status(status))
        }
    }
}

fn report(
    job: &Job,
    created: &Created,
    outcome: Outcome,
    interrupt: Option<Interrupt>,
    streamer: &Streamer,
    timings: Timings,
) -> Result<u8> {
    // A signal that came while the sandbox was being destroyed counts too, but the result is there and is not hidden.
    let result = match outcome {
        Outcome::Interrupted(signal) => return Ok(ended_early(job, signal.status())),
        Outcome::ReaderGone => return Ok(exit::READER_GONE),
        Outcome::Failed(failure) => return Err(failure),
        Outcome::Ended(result) => result,
    };
    let outlived = result.sandbox_lost
        && job.spec.lifetime().is_some_and(|lifetime| timings.create + timings.run >= lifetime);
    let status = match interrupt {
        Some(signal) => signal.status(),
        None if outlived => exit::TIMED_OUT,
        None => exit::status_of(result.ending),
    };
    if let Some(lifetime) = job.spec.lifetime().filter(|_| outlived) {
        console::notice(&format!(
            "the sandbox ended with its lifetime of {}",
            humantime::format_duration(lifetime)
        ));
    } else if let Some(text) = ending_notice(job, &result) {
        console::notice(&text);
    }
    if streamer.dropped() {
        console::notice("output was dropped because its reader had stalled");
    }
    if job.json {
        return Ok(print_json(&json::result(job, created, &result, status, timings), status));
    }
    Ok(status)
}

/// Returns the status of a run that a signal ended; in JSON it is an object of its own.
fn ended_early(job: &Job, status: u8) -> u8 {
    if job.json { print_json(&json::interrupted(status), status) } else { status }
}

/// Says how the command ended where its status alone would not tell.
fn ending_notice(job: &Job, result: &CommandResult) -> Option<String> {
    let mut text = match result.ending {
        Ending::TimedOut => {
            let timeout =
                humantime::format_duration(result.applied_timeout.unwrap_or(job.timeout.value.get()));
            match job.timeout.origin.source {
                Source::Default => {
                    format!("timed out after {timeout}, which applies where no --timeout is given")
                }
                _ => format!("timed out after {timeout}"),
            }
        }
        Ending::MemoryExceeded => match job.spec.limits().memory {
            Some(limit) => format!("the memory limit of {limit} ended the command"),
            None => "the memory limit ended the command".to_owned(),
        },
        Ending::PidsExceeded => match job.spec.limits().pids {
            Some(limit) => format!("the limit of {limit} processes kept the command from going on"),
            None => "the limit of processes kept the command from going on".to_owned(),
        },
        Ending::Unknown => "it is not known how the command ended".to_owned(),
        _ if result.sandbox_lost => "the sandbox was lost".to_owned(),
        _ => return None,
    };
    if result.sandbox_lost && result.ending == Ending::Unknown {
        text.push_str(": the sandbox was lost");
    }
    Some(text)
}
