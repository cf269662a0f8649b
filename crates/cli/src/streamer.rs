//! Output of the command on its way to our own descriptors.
//!
//! It is written from the task that reads the command's streams, which also has to notice signals and timeouts. So before every
//! write the descriptor is asked whether it has room, together with the sockets in which signals arrive: a reader that has
//! stalled slows the command down, as in any pipeline, but it cannot keep ringfence from ending.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ringfence::{OutputObserver, StreamName};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use tokio::sync::Notify;

/// What a pipe takes without blocking once it says it has room.
const PIPE_STEP_BYTES: usize = 4096;

/// Copies the command's streams to ours.
#[derive(Debug)]
pub(crate) struct Streamer {
    stdout: Sink,
    stderr: Sink,
    /// Readable while a signal is pending.
    signals: Vec<OwnedFd>,
    /// From here on nobody is waited for.
    deadline: Option<Instant>,
    reader_gone: Notify,
}

#[derive(Debug)]
struct Sink {
    /// Cannot block, so it is written in one go.
    regular: bool,
    closed: AtomicBool,
    dropped: AtomicBool,
}

enum Room {
    Some,
    /// A signal is pending or the deadline has passed.
    NotInTime,
}

impl Streamer {
    /// Returns a streamer that stops waiting for readers when one of `signals` is readable or the deadline has passed.
    pub(crate) fn new(signals: Vec<OwnedFd>, deadline: Option<Instant>) -> Self {
        Self {
            stdout: Sink::new(rustix::stdio::stdout()),
            stderr: Sink::new(rustix::stdio::stderr()),
            signals,
            deadline,
            reader_gone: Notify::new(),
        }
    }

    /// Waits until nobody reads standard output any more.
    pub(crate) async fn reader_gone(&self) {
        self.reader_gone.notified().await;
    }

    /// Returns whether output was dropped because its reader had stalled.
    pub(crate) fn dropped(&self) -> bool {
        self.stdout.dropped.load(Ordering::Relaxed) || self.stderr.dropped.load(Ordering::Relaxed)
    }

    fn write(&self, sink: &Sink, fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let step = if sink.regular { bytes.len() } else { bytes.len().min(PIPE_STEP_BYTES) };
            if !sink.regular && matches!(self.wait_for_room(fd)?, Room::NotInTime) {
                sink.dropped.store(true, Ordering::Relaxed);
                return Ok(());
            }
            match rustix::io::write(fd, &bytes[..step]) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self, fd: BorrowedFd<'_>) -> Result<Room, Errno> {
        let mut fds = vec![PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
        fds.extend(self.signals.iter().map(|signal| PollFd::new(signal, PollFlags::IN)));
        loop {
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A wait too long for the kernel's type is no bound at all.
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut fds, timeout.as_ref()) {
                // Errors and hang-ups are for the write to find.
                Ok(_) if !fds[0].revents().is_empty() => return Ok(Room::Some),
                Ok(_) => return Ok(Room::NotInTime),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl OutputObserver for Streamer {
    fn output(&self, stream: StreamName, _offset: u64, bytes: &[u8]) {
        let (sink, fd) = match stream {
            StreamName::Stdout => (&self.stdout, rustix::stdio::stdout()),
            StreamName::Stderr => (&self.stderr, rustix::stdio::stderr()),
        };
        if sink.closed.load(Ordering::Relaxed) || self.write(sink, fd, bytes).is_ok() {
            return;
        }
        sink.closed.store(true, Ordering::Relaxed);
        if stream == StreamName::Stdout {
            self.reader_gone.notify_one();
        }
    }
}

impl Sink {
    fn new(fd: BorrowedFd<'_>) -> Self {
        let regular = rustix::fs::fstat(fd)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        Self { regular, closed: AtomicBool::new(false), dropped: AtomicBool::new(false) }
    }
}
