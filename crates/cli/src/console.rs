//! The only place that writes to the terminal. Standard output carries what was asked for and nothing else; whatever
//! ringfence has to say itself goes to standard error behind a prefix.
//!
//! Writes go straight to the descriptors: no buffer of ours can be lost when the process ends early. Once signals are
//! caught, a reader that has stalled must not be able to hold off Ctrl-C. So every write waits for room together with
//! the sockets in which signals arrive, whoever it is that writes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::exit;
use crate::failure::{Failure, Result};
use crate::signals::{self, Interrupt};

/// How long a stalled reader is still waited for when there is nothing else left to wait for.
pub(crate) const READER_GRACE: Duration = Duration::from_secs(3);

/// What a pipe takes without blocking once it says it has room.
const PIPE_STEP_BYTES: usize = 4096;

/// The kind of a failure to write, which is not told once more where it happened.
pub(crate) const OUTPUT: &str = "output";

/// Why not everything was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// Nobody reads the stream any more.
    ReaderGone,
    /// The reader had taken nothing when the time was over.
    Stalled,
    /// A signal came while the reader took nothing.
    Interrupted(Interrupt),
    /// It cannot be stored.
    Failed(Errno),
}

impl Unwritten {
    /// Returns the exit status of whoever was to write that to standard output, or the failure.
    pub(crate) fn status(self) -> Result<u8> {
        match self {
            Self::ReaderGone => Ok(exit::READER_GONE),
            Self::Interrupted(signal) => Ok(signal.status()),
            Self::Stalled => {
                let told = "the rest of the output was dropped because its reader had stalled";
                Err(Failure::new(told).with_kind(OUTPUT))
            }
            Self::Failed(error) => Err(self::failed("standard output", error)),
        }
    }
}

/// Returns the failure to write to one of the two streams.
pub(crate) fn failed(stream: &str, error: Errno) -> Failure {
    let failure = Failure::new(format!("write to {stream}: {error}")).with_kind(OUTPUT);
    match error {
        Errno::FBIG => failure.hint(crate::failure::FILE_SIZE_HINT),
        _ => failure,
    }
}

/// One of our two output streams.
#[derive(Debug)]
pub(crate) struct Stream {
    fd: BorrowedFd<'static>,
    /// The same pipe or terminal, opened again so as not to block: the flag on `fd` itself is shared with whoever
    /// started us.
    nonblocking: Option<OwnedFd>,
    /// Never blocks for a reader, so it is written in one go.
    regular: bool,
    /// Its reader has stalled for as long as it was waited for; from then on it is not waited for again.
    stalled: AtomicBool,
}

impl Stream {
    /// Returns standard output.
    pub(crate) fn stdout() -> &'static Self {
        static STDOUT: OnceLock<Stream> = OnceLock::new();
        STDOUT.get_or_init(|| Self::new(rustix::stdio::stdout()))
    }

    /// Returns standard error.
    pub(crate) fn stderr() -> &'static Self {
        static STDERR: OnceLock<Stream> = OnceLock::new();
        STDERR.get_or_init(|| Self::new(rustix::stdio::stderr()))
    }

    fn new(fd: BorrowedFd<'static>) -> Self {
        let kind =
            rustix::fs::fstat(fd).map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode));
        let waits_for_a_reader =
            kind == FileType::Fifo || (kind == FileType::CharacterDevice && rustix::termios::isatty(fd));
        Self {
            fd,
            nonblocking: if waits_for_a_reader { reopen(fd) } else { None },
            regular: kind == FileType::RegularFile,
            stalled: AtomicBool::new(false),
        }
    }

    /// Writes all bytes; waits for room until the deadline or a signal.
    pub(crate) fn write_all(
        &self,
        mut bytes: &[u8],
        deadline: Option<Instant>,
    ) -> std::result::Result<(), Unwritten> {
        let fd = self.target();
        let whole = self.regular || self.nonblocking.is_some();
        while !bytes.is_empty() {
            let last_chance = if self.regular { None } else { self.wait_for_room(deadline)? };
            let step = if whole { bytes.len() } else { bytes.len().min(PIPE_STEP_BYTES) };
            match rustix::io::write(fd, &bytes[..step]) {
                Ok(0) => return Err(Unwritten::Failed(Errno::IO)),
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::PIPE) => return Err(Unwritten::ReaderGone),
                Err(error) => return Err(Unwritten::Failed(error)),
            }
            if let Some(why) = last_chance
                && !bytes.is_empty()
            {
                return Err(why);
            }
        }
        Ok(())
    }

    fn target(&self) -> BorrowedFd<'_> {
        self.nonblocking.as_ref().map_or(self.fd, AsFd::as_fd)
    }

    /// Waits until there is room. A value says that there is, and that nothing further is to be waited for.
    fn wait_for_room(&self, deadline: Option<Instant>) -> std::result::Result<Option<Unwritten>, Unwritten> {
        let signals = signals::pending();
        let mut fds = vec![PollFd::from_borrowed_fd(self.target(), PollFlags::OUT)];
        fds.extend(signals.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN)));
        loop {
            let left = deadline.map(|deadline| match self.stalled.load(Ordering::Relaxed) {
                true => Duration::ZERO,
                false => deadline.saturating_duration_since(Instant::now()),
            });
            // A wait too long for the kernel's type is no bound at all.
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => {
                    self.stalled.store(true, Ordering::Relaxed);
                    return Err(Unwritten::Stalled);
                }
                Ok(_) => {
                    // Errors and hang-ups are for the write to find.
                    let room = !fds[0].revents().is_empty();
                    let raised = signals.iter().zip(&fds[1..]).find(|(_, fd)| !fd.revents().is_empty());
                    let interrupted = raised.map(|((signal, _), _)| Unwritten::Interrupted(*signal));
                    return match interrupted {
                        Some(why) if !room => Err(why),
                        other => Ok(other),
                    };
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(Unwritten::Failed(error)),
            }
        }
    }
}

fn reopen(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd;
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // Without /proc, or where the pipe is another user's, small steps have to do.
    rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()).ok()
}

/// Writes all bytes to standard output; a stalled reader is waited for until the deadline or a signal.
pub(crate) fn stdout(bytes: &[u8], deadline: Option<Instant>) -> std::result::Result<(), Unwritten> {
    Stream::stdout().write_all(bytes, deadline)
}

/// Whether a pipe or socket on standard output has lost its reader, which otherwise only a write finds out.
pub(crate) fn nobody_reads() -> bool {
    // Errors and hang-ups are told without being asked for.
    let mut fds = [PollFd::from_borrowed_fd(Stream::stdout().target(), PollFlags::empty())];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

/// Writes all bytes to standard error. A standard error that does not take them cannot be reported anywhere.
pub(crate) fn stderr(bytes: &[u8]) {
    if Stream::stderr().write_all(bytes, Instant::now().checked_add(READER_GRACE)).is_err() {
        // Deliberately nothing.
    }
}

/// Says something on standard error, on one line.
pub(crate) fn notice(text: &str) {
    stderr(format!("ringfence: {}\n", printable(text)).as_bytes());
}

/// Says what failed and what to try.
pub(crate) fn failure(failure: &Failure) {
    notice(&failure.to_string());
    if let Some(hint) = failure.hint_text() {
        advice(hint);
    }
}

/// Says what to try, below what has been said before.
pub(crate) fn advice(text: &str) {
    stderr(format!("  try: {}\n", printable(text)).as_bytes());
}

/// Whether a character can break a line apart, rearrange it when shown, or drive a terminal.
pub(crate) fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
        )
}

/// Returns the text on one line and without anything that drives a terminal: messages quote names and values that
/// an untrusted program may have chosen, which must not be able to forge a line of ours.
pub(crate) fn printable(text: &str) -> String {
    escape(text, is_unprintable)
}

/// Returns the text as [`printable`] does, with its lines kept: for what consists of lines by its nature.
pub(crate) fn printable_lines(text: &str) -> String {
    escape(text, |character| character != '\n' && is_unprintable(character))
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_of_a_message_do_not_reach_the_terminal() {
        let text = "a\x1b[2Jb\r\n\u{9b}c\u{202e}d\u{2028}e\u{2067}f\u{200f}é\u{200d}";
        let escaped = "a\\u{1b}[2Jb\\r\\n\\u{9b}c\\u{202e}d\\u{2028}e\\u{2067}f\\u{200f}é\u{200d}";
        assert_eq!(printable(text), escaped);
        assert_eq!(printable_lines(text), escaped.replace("\\n", "\n"));
    }
}
