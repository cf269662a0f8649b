//! Output of the command on its way to our own descriptors.
//!
//! It is written from the task that reads the command's streams, which also has to notice signals and timeouts: a reader
//! that has stalled slows the command down, as in any pipeline, but it cannot keep ringfence from ending.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ringfence::{OutputObserver, StreamName};
use tokio::sync::Notify;

use crate::console::{self, Stream, Unwritten};
use crate::exit;
use crate::failure::Result;

/// Copies the command's streams to ours.
#[derive(Debug)]
pub(crate) struct Streamer {
    /// Streams that take nothing any more.
    closed: [AtomicBool; 2],
    dropped: AtomicBool,
    /// From here on nobody is waited for.
    deadline: Option<Instant>,
    broken: Notify,
    why: Mutex<Option<Broken>>,
}

/// Why output has no place to go.
type Broken = (StreamName, Unwritten);

impl Streamer {
    /// Returns a streamer that stops waiting for readers when a signal is pending or the deadline has passed.
    pub(crate) fn new(deadline: Option<Instant>) -> Self {
        Self {
            closed: Default::default(),
            dropped: AtomicBool::new(false),
            deadline,
            broken: Notify::new(),
            why: Mutex::new(None),
        }
    }

    /// Waits until nobody reads standard output any more, or output cannot be stored. Returns the exit status or the
    /// failure that this is.
    pub(crate) async fn broken(&self) -> Result<u8> {
        self.broken.notified().await;
        self.verdict().unwrap_or(Ok(exit::READER_GONE))
    }

    /// Returns the failure if output could not be stored, also where the command ended at the same moment.
    pub(crate) fn check_stored(&self) -> Result<()> {
        match self.verdict() {
            Some(Err(failure)) => Err(failure),
            _ => Ok(()),
        }
    }

    fn verdict(&self) -> Option<Result<u8>> {
        let why = *self.why.lock().unwrap_or_else(PoisonError::into_inner);
        why.map(|(name, why)| match (name, why) {
            (StreamName::Stderr, Unwritten::Failed(error)) => Err(console::failed("standard error", error)),
            (_, why) => why.status(),
        })
    }

    /// Returns whether output was dropped because its reader had stalled.
    pub(crate) fn dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl OutputObserver for Streamer {
    fn output(&self, name: StreamName, _offset: u64, bytes: &[u8]) {
        let (closed, stream) = match name {
            StreamName::Stdout => (&self.closed[0], Stream::stdout()),
            StreamName::Stderr => (&self.closed[1], Stream::stderr()),
        };
        if closed.load(Ordering::Relaxed) {
            return;
        }
        match stream.write_all(bytes, self.deadline) {
            Ok(()) => {}
            Err(Unwritten::Stalled | Unwritten::Interrupted(_)) => {
                self.dropped.store(true, Ordering::Relaxed)
            }
            Err(why) => {
                closed.store(true, Ordering::Relaxed);
                // Whoever does not want our standard error may go; the command's output is still wanted.
                if (name, why) != (StreamName::Stderr, Unwritten::ReaderGone) {
                    self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((name, why));
                    self.broken.notify_one();
                }
            }
        }
    }
}
