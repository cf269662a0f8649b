//! `ringfence shell`: a terminal in a sandbox that ends with it.

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use ringfence::{
    Backend, Ending, EnvMap, Invocation, OutputObserver, Registry, SandboxId, StreamName, Terminal,
    TerminalRequest, TerminalSize,
};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::AsyncReadExt;

use crate::args::ShellArgs;
use crate::commands::runtime;
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::settings::{RunFlags, Settings};
use crate::signals::{Interrupt, Resizes, Signals};
use crate::stdin::StdinReader;
use crate::streamer::Streamer;

/// Takes back what a program may have asked of the terminal and not undone: other screen, hidden cursor, mouse reports, bracketed
/// paste, keypad and cursor key modes, colours. Each is without effect where nothing was changed.
const RESET: &[u8] =
    b"\x1b[?1047l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m";
/// What is read from the sandbox's terminal at once.
const CHUNK_BYTES: usize = 16 << 10;

/// Opens the shell and returns the exit status.
pub(crate) fn run(args: ShellArgs, environment: &Environment) -> Result<u8> {
    let settings = Settings::load(&args.spec, RunFlags::default(), environment)?;
    let spec = settings.spec().map_err(|failure| settings.explain(failure))?;
    if !isatty(rustix::stdio::stdin()) || !isatty(rustix::stdio::stdout()) {
        return Err(Failure::new("shell needs a terminal on standard input and standard output")
            .hint("ringfence run -- sh, which reads its commands from a pipe"));
    }
    let backend = Registry::new(settings.backend_settings()?).open(settings.backend())?;
    backend.judge(&spec).map_err(|error| settings.explain(error))?;
    let program: Vec<Vec<u8>> = args.command.into_iter().map(OsStringExt::into_vec).collect();
    let request = TerminalRequest {
        invocation: (!program.is_empty()).then_some(Invocation::Program(program)),
        size: size(),
        env: EnvMap::new(environment.term.iter().map(|term| ("TERM", term.as_str())))?,
    };
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let mut interrupt = None;
        let created = match signals.shield(&mut interrupt, backend.create(&spec)).await {
            Some(Ok(created)) => created,
            Some(Err(error)) if interrupt.is_none() => return Err(settings.explain(error)),
            _ => return Ok(interrupt.map_or(exit::OURS, Interrupt::status)),
        };
        let result = match interrupt {
            Some(signal) => Ok(signal.status()),
            None => interact(&*backend, &created.id, request, &mut signals, &mut interrupt).await,
        };
        if let Some(Err(error)) = signals.shield(&mut interrupt, backend.destroy(&created.id)).await {
            console::notice(&format!("the sandbox {} may still exist: {error}", created.id));
        }
        result
    });
    runtime.shutdown_background();
    result
}

async fn interact(
    backend: &dyn Backend,
    sandbox: &SandboxId,
    request: TerminalRequest,
    signals: &mut Signals,
    interrupt: &mut Option<Interrupt>,
) -> Result<u8> {
    let resets_screen = request.env.get("TERM").is_some_and(|term| term != "dumb");
    let resizes = Resizes::new()?;
    let Terminal { mut input, mut output, control } = backend.open_terminal(sandbox, request).await?;
    let streamer = Arc::new(Streamer::new(signals.take_pending(), None));
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
            streamer.output(StreamName::Stdout, offset, &chunk[..count]);
            offset += count as u64;
        }
        control.wait().await
    };
    let ending = tokio::select! {
        biased;
        signal = signals.next() => {
            *interrupt = Some(signal);
            drop(raw);
            return Ok(signal.status());
        }
        () = streamer.reader_gone() => Ok(None),
        ending = shown => ending.map(Some),
        () = typed => Ok(None),
        () = resized => Ok(None),
    };
    drop(raw);
    match ending? {
        None => Ok(exit::READER_GONE),
        Some(Ending::Unknown) => {
            console::notice("it is not known how the shell ended");
            Ok(exit::OURS)
        }
        Some(Ending::MemoryExceeded) => {
            console::notice("the memory limit ended the shell");
            Ok(exit::status_of(Ending::MemoryExceeded))
        }
        Some(ending) => Ok(exit::status_of(ending)),
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
        if self.resets_screen && console::stdout(RESET).is_err() {
            // The terminal is gone, and with it what was to be restored.
        }
    }
}

fn restore(saved: &Termios) {
    if tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, saved).is_err() {
        // The terminal is gone.
    }
}
