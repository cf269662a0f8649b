//! A terminal in a sandbox, for a shell or a program in its place.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence::{
    Backend, Ending, EnvMap, Error, ErrorKind, GuestPath, Invocation, OutputObserver, SandboxId, StreamName,
    Terminal, TerminalRequest, TerminalSize, Timeout,
};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::AsyncReadExt;

use crate::commands::place::{Entered, Place};
use crate::commands::{ending_notice, failure_to_start, runtime, timeout_notice};
use crate::console::{self, READER_GRACE};
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::reached;
use crate::settings::Sourced;
use crate::signals::{Interrupt, Resizes, Signals};
use crate::stdin::StdinReader;
use crate::streamer::Streamer;

/// Takes back what a program may have asked of the terminal and not undone: other screen, hidden cursor, mouse reports, bracketed
/// paste, keypad and cursor key modes, colours. Each is without effect where nothing was changed.
const RESET: &[u8] =
    b"\x1b[?1047l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m";
/// What is read from the sandbox's terminal at once.
const CHUNK_BYTES: usize = 16 << 10;
/// How long output is still shown after the end of the shell, where something in the background keeps the terminal open. What
/// the shell itself wrote is there by then.
const DRAIN_GRACE: Duration = Duration::from_millis(100);

/// Everything that is decided before the terminal is opened.
pub(crate) struct Job {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) place: Place,
    /// The sandbox's shell where there is none.
    pub(crate) invocation: Option<Invocation>,
    pub(crate) workdir: Option<GuestPath>,
    pub(crate) env: EnvMap,
    pub(crate) timeout: Option<Sourced<Timeout>>,
}

/// Makes sure that there is a terminal on our side; `what` needs it, and `instead` needs none.
pub(crate) fn needs_terminal(what: &str, instead: &str) -> Result<()> {
    if isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stdout()) {
        return Ok(());
    }
    let told = format!("{what} needs a terminal on standard input and standard output");
    Err(Failure::new(told).hint(instead))
}

/// Opens the terminal and returns the exit status.
pub(crate) fn run(job: Job, environment: &Environment) -> Result<u8> {
    // Its kind is ours, unless somebody says otherwise.
    let term = environment.term.iter().map(|term| ("TERM", term.as_str()));
    let request = TerminalRequest {
        invocation: job.invocation.clone(),
        size: size(),
        workdir: job.workdir.clone(),
        env: EnvMap::new(term.chain(job.env.iter().map(|(name, value)| (name.as_str(), value.as_str()))))?,
    };
    let runtime = runtime()?;
    let result = runtime.block_on(execute(&job, request));
    runtime.shutdown_background();
    result
}

async fn execute(job: &Job, request: TerminalRequest) -> Result<u8> {
    let signals = Signals::new()?;
    let mut interrupt = None;
    let clock = Instant::now();
    let sandbox = match job.place.enter(&*job.backend, &signals, &mut interrupt).await? {
        Entered::Sandbox(sandbox) => sandbox,
        Entered::Interrupted(status) => return Ok(status),
    };
    let lookout = job.place.watch(&*job.backend).await;
    let ended = match interrupt {
        Some(signal) => Ok(Ended::Ours(signal.status())),
        None => interact(job, &sandbox.id, request, &signals, &mut interrupt).await,
    };
    let lived = clock.elapsed();
    job.place.leave(&*job.backend, &sandbox.id, &signals, &mut interrupt).await;
    let (ending, showed_nothing) = match ended {
        Ok(Ended::Ours(status)) => return Ok(status),
        Ok(Ended::TimedOut(timeout)) => {
            console::notice(&timeout_notice(timeout, None));
            return Ok(exit::TIMED_OUT);
        }
        Ok(Ended::Inside { ending, showed_nothing }) => (ending, showed_nothing),
        Err(lost) if lost.kind() == ErrorKind::SandboxLost.name() => {
            return Err(lookout.loss(lived, true).await.explain(lost));
        }
        Err(failure) => return Err(failure),
    };
    let what = if job.invocation.is_some() { "the command" } else { "the shell" };
    let spec = match &job.place {
        Place::Fresh(fresh) => Some(&fresh.spec),
        Place::Standing(_) => None,
    };
    let start = job.invocation.as_ref().filter(|_| showed_nothing);
    let doubt = start.and_then(|invocation| start_doubt(ending, invocation));
    if let Some(text) = ending_notice(ending, spec, what).or(doubt) {
        console::notice(&text);
    }
    Ok(exit::status_of(ending))
}

/// How the interaction ended.
enum Ended<'a> {
    /// By something on our side that has this exit status.
    Ours(u8),
    /// By this timeout.
    TimedOut(&'a Sourced<Timeout>),
    /// With the shell, or the program in its place.
    Inside { ending: Ending, showed_nothing: bool },
}

/// Says what two exit statuses mean by which a program that could not be started looks like one that was.
fn start_doubt(ending: Ending, invocation: &Invocation) -> Option<String> {
    let (status, why) = match ending {
        Ending::Exited(status @ 126) => (status, "it cannot be executed"),
        Ending::Exited(status @ 127) => (status, "it was not found"),
        _ => return None,
    };
    let name = match invocation {
        Invocation::Program(words) => words.first().map(Vec::as_slice).unwrap_or_default(),
        Invocation::Shell(text) => text.as_bytes(),
    };
    let name = String::from_utf8_lossy(name);
    Some(format!(
        "status {status} of {name}, which showed nothing: {why}, unless it ended with this status itself"
    ))
}

async fn interact<'a>(
    job: &'a Job,
    sandbox: &SandboxId,
    request: TerminalRequest,
    signals: &Signals,
    interrupt: &mut Option<Interrupt>,
) -> Result<Ended<'a>> {
    let resets_screen = request.env.get("TERM").is_some_and(|term| term != "dumb");
    let resizes = Resizes::new()?;
    let Terminal { mut input, mut output, control } =
        job.backend.open_terminal(sandbox, request).await.map_err(|error| job.failed(error))?;
    let streamer = Arc::new(Streamer::new(None));
    let showed_nothing = AtomicBool::new(true);
    let raw = RawMode::enter(resets_screen)?;
    let typed = async {
        let mut stdin = StdinReader::default();
        // What cannot be typed any more is of no use to anybody; the end shows on the other side.
        tokio::io::copy(&mut stdin, &mut input).await.ok();
        std::future::pending::<()>().await;
    };
    let resized = async {
        loop {
            resizes.next().await;
            if control.resize(size()).is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let shown = async {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        while let Ok(count @ 1..) = output.read(&mut chunk).await {
            showed_nothing.store(false, Ordering::Relaxed);
            streamer.output(StreamName::Stdout, offset, &chunk[..count]);
            offset += count as u64;
        }
    };
    let timed_out = async {
        match &job.timeout {
            Some(timeout) => {
                tokio::time::sleep(timeout.value.get()).await;
                timeout
            }
            None => std::future::pending().await,
        }
    };
    // The end of the output is not the end of the shell: whatever it left in the background holds the terminal open.
    let ended = async {
        let mut shown = pin!(shown);
        let mut end = pin!(control.wait());
        tokio::select! {
            biased;
            ending = &mut end => {
                tokio::time::timeout(DRAIN_GRACE, shown).await.ok();
                ending
            }
            () = &mut shown => end.await,
        }
    };
    let result = tokio::select! {
        biased;
        signal = signals.next() => {
            *interrupt = Some(signal);
            Ok(Ended::Ours(signal.status()))
        }
        result = streamer.broken() => result.map(Ended::Ours),
        ending = ended => match ending {
            Ok(ending) => Ok(Ended::Inside { ending, showed_nothing: showed_nothing.load(Ordering::Relaxed) }),
            Err(error) => Err(job.failed(error)),
        },
        timeout = timed_out => Ok(Ended::TimedOut(timeout)),
        () = typed => Ok(Ended::Ours(exit::OURS)),
        () = resized => Ok(Ended::Ours(exit::OURS)),
    };
    drop(raw);
    result
}

impl Job {
    fn failed(&self, error: Error) -> Failure {
        match &self.place {
            Place::Standing(handle) if *error.kind() == ErrorKind::SandboxLost => {
                reached::failed(handle, &error)
            }
            _ => failure_to_start(error),
        }
    }
}

fn size() -> TerminalSize {
    match tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            TerminalSize { rows: size.ws_row, columns: size.ws_col }
        }
        _ => TerminalSize { rows: 24, columns: 80 },
    }
}

/// The terminal passes every key on while this lives, and is as it was afterwards, also after a panic.
struct RawMode {
    saved: Termios,
    resets_screen: bool,
}

impl RawMode {
    fn enter(resets_screen: bool) -> Result<Self> {
        let fault = |error: rustix::io::Errno| Failure::new(format!("set up the terminal: {error}"));
        let saved = tcgetattr(rustix::stdio::stdin()).map_err(fault)?;
        let mut raw = saved.clone();
        raw.make_raw();
        let for_panic = saved.clone();
        let hook = std::panic::take_hook();
        // A release build aborts on panic and drops nothing.
        std::panic::set_hook(Box::new(move |info| {
            restore(&for_panic);
            hook(info);
        }));
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw).map_err(fault)?;
        Ok(Self { saved, resets_screen })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore(&self.saved);
        if self.resets_screen && console::stdout(RESET, Instant::now().checked_add(READER_GRACE)).is_err() {
            // The terminal is gone, and with it what was to be restored.
        }
    }
}

fn restore(saved: &Termios) {
    if tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, saved).is_err() {
        // The terminal is gone.
    }
}
