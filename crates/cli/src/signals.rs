//! SIGINT and SIGTERM as events: the first one ends the sandbox, a second one does not wait for that.
//!
//! Each signal arrives as a byte in a socket of its own, so that it can be awaited by the runtime and also wake a plain
//! `poll`: output is written from the task that reads the command's streams, and a reader that has stalled must
//! not be able to hold off Ctrl-C.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM, SIGWINCH, SIGXFSZ};
use tokio::net::UnixStream;

use crate::exit;
use crate::failure::{Failure, Result};

/// A signal that ends ringfence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Interrupt {
    /// Returns the exit status that says so.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Interrupt => exit::INTERRUPTED,
            Self::Terminate => exit::TERMINATED,
        }
    }
}

/// A descriptor that is readable while its signal has not been taken by [`Signals::next`].
pub(crate) type Pending = (Interrupt, OwnedFd);

/// From when [`Signals`] exist. Until then a signal ends the process as it ends any other.
static PENDING: OnceLock<[Pending; 2]> = OnceLock::new();

/// Returns what a wait outside of the runtime has to watch besides what it waits for.
pub(crate) fn pending() -> &'static [Pending] {
    PENDING.get().map_or(&[], <[Pending; 2]>::as_slice)
}

/// Lets a write beyond the limit on the size of files fail, where it would end the process without a word. A handler
/// and not "ignored", which programs started from here would inherit.
pub(crate) fn survive_file_size_limit() -> Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))
        .map(|_| ())
        .map_err(|error| Failure::io("catch signals", &error))
}

/// The signals that end ringfence. Made inside the runtime, once.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: UnixStream,
    terminate: UnixStream,
}

impl Signals {
    /// Takes over the two signals.
    pub(crate) fn new() -> Result<Self> {
        Self::open().map_err(|error| Failure::io("catch signals", &error))
    }

    fn open() -> io::Result<Self> {
        let (interrupt, interrupt_pending) = subscribe(SIGINT)?;
        let (terminate, terminate_pending) = subscribe(SIGTERM)?;
        let pending = [(Interrupt::Interrupt, interrupt_pending), (Interrupt::Terminate, terminate_pending)];
        PENDING.set(pending).map_err(|_| io::Error::other("they are caught already"))?;
        Ok(Self { interrupt, terminate })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&self) -> Interrupt {
        tokio::select! {
            biased;
            () = one_byte(&self.interrupt) => Interrupt::Interrupt,
            () = one_byte(&self.terminate) => Interrupt::Terminate,
        }
    }

    /// Drives `future` to its end. A first signal is noted in `first` and does not disturb it; the next one abandons it.
    pub(crate) async fn shield<T>(
        &self,
        first: &mut Option<Interrupt>,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                biased;
                signal = self.next() => {
                    if first.replace(signal).is_some() {
                        return None;
                    }
                }
                value = &mut future => return Some(value),
            }
        }
    }
}

/// Changes of the terminal's size.
#[derive(Debug)]
pub(crate) struct Resizes(UnixStream);

impl Resizes {
    /// Takes over SIGWINCH.
    pub(crate) fn new() -> Result<Self> {
        let (stream, _) = subscribe(SIGWINCH).map_err(|error| Failure::io("catch signals", &error))?;
        Ok(Self(stream))
    }

    /// Waits for the next change.
    pub(crate) async fn next(&self) {
        one_byte(&self.0).await;
    }
}

fn subscribe(signal: i32) -> io::Result<(UnixStream, OwnedFd)> {
    let (reader, writer) = StdStream::pair()?;
    signal_hook::low_level::pipe::register(signal, writer)?;
    reader.set_nonblocking(true)?;
    let pending = OwnedFd::from(reader.try_clone()?);
    Ok((UnixStream::from_std(reader)?, pending))
}

async fn one_byte(stream: &UnixStream) {
    loop {
        if stream.readable().await.is_err() {
            // The write end lives as long as the process, so this does not happen; never report a signal that was not sent.
            std::future::pending::<()>().await;
        }
        if matches!(stream.try_read(&mut [0; 1]), Ok(1)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn the_first_signal_is_noted_and_the_second_abandons_what_still_runs() {
        let signals = Signals::new().unwrap();
        let mut first = None;
        kill_process(getpid(), Signal::INT).unwrap();
        let finished = signals.shield(&mut first, async {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            7
        });
        assert_eq!((finished.await, first), (Some(7), Some(Interrupt::Interrupt)));
        let abandoned = signals.shield(&mut first, async {
            kill_process(getpid(), Signal::TERM).unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!((abandoned.await, first), (None, Some(Interrupt::Terminate)));
    }
}
