//! A command: what is asked, what came of it.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;

use crate::env::EnvMap;
use crate::file::GuestPath;
use crate::output::{OutputLimit, Timeout};

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// Text for a fresh shell of the sandbox (which one: [`Capabilities::shell`](crate::Capabilities::shell)); no
    /// login profile is read.
    Shell(String),
    /// A program, looked up in the sandbox's `PATH`, and its arguments; no shell in between. Never empty.
    Program(Vec<Vec<u8>>),
}

/// What a command reads on its standard input.
#[derive(Default)]
pub enum Stdin {
    /// End of file at once.
    #[default]
    Closed,
    /// These bytes, then end of file. A command that does not read them is not an error (P43).
    Bytes(Bytes),
    /// Whatever the reader yields, as it comes.
    Reader(Pin<Box<dyn AsyncRead + Send>>),
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("Closed"),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Reader(_) => f.write_str("Reader"),
        }
    }
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamName {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Sees output while the command runs. Called from the task that reads the streams: it must not block for long,
/// because the command waits meanwhile.
pub trait OutputObserver: Send + Sync + fmt::Debug {
    /// Takes the next bytes of a stream. They follow each other without a gap: `offset` is how many bytes of the stream came
    /// before, by which a reader that was away knows what it missed.
    fn output(&self, stream: StreamName, offset: u64, bytes: &[u8]);
}

/// A command to run and its bounds.
#[derive(Debug)]
pub struct CommandRequest {
    /// What to run.
    pub invocation: Invocation,
    /// After this the command and all its descendants are ended; partial output is kept.
    pub timeout: Timeout,
    /// The tail of each stream that is kept.
    pub output_limit: OutputLimit,
    /// Standard input.
    pub stdin: Stdin,
    /// Working directory; the sandbox's own if absent.
    pub workdir: Option<GuestPath>,
    /// Variables on top of the spec's.
    pub env: EnvMap,
    /// Sees the output as it comes, in full, also beyond `output_limit`.
    pub observer: Option<Arc<dyn OutputObserver>>,
}

impl CommandRequest {
    /// Returns a request for a shell command with closed standard input.
    #[must_use]
    pub fn shell(command: impl Into<String>, timeout: Timeout, output_limit: OutputLimit) -> Self {
        Self::new(Invocation::Shell(command.into()), timeout, output_limit)
    }

    /// Returns a request for `invocation` with closed standard input.
    #[must_use]
    pub fn new(invocation: Invocation, timeout: Timeout, output_limit: OutputLimit) -> Self {
        Self {
            invocation,
            timeout,
            output_limit,
            stdin: Stdin::Closed,
            workdir: None,
            env: EnvMap::default(),
            observer: None,
        }
    }

    /// Sets standard input.
    #[must_use]
    pub fn with_stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// It exited with this status, 0 to 255.
    Exited(i32),
    /// This signal ended it; distinct from exiting with 128 + n (P48).
    Signalled(i32),
    /// It was ended because its timeout passed.
    TimedOut,
    /// The sandbox's memory limit ended it, or what it passes on the end of (P115). Not where it exits with another status:
    /// that is its own choice, and reported as it is.
    MemoryExceeded,
    /// The sandbox's process limit kept it from being started or from going on, as far as its end tells: many a program fails with a
    /// status that says nothing of the reason, and then only its standard error does (P114).
    PidsExceeded,
    /// It is not known, for example because the sandbox was lost.
    Unknown,
}

impl Ending {
    /// Returns the outside name, which stays the same from version to version.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exited(_) => "exited",
            Self::Signalled(_) => "signalled",
            Self::TimedOut => "timed_out",
            Self::MemoryExceeded => "memory_exceeded",
            Self::PidsExceeded => "pids_exceeded",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the status as a shell would show it: n, 128 + signal, 124 for a timeout, 137 for memory, -1 unknown.
    #[must_use]
    pub fn shell_status(self) -> i32 {
        match self {
            Self::Exited(status) => status,
            Self::Signalled(signal) => 128 + signal,
            Self::TimedOut => 124,
            Self::MemoryExceeded => 137,
            Self::PidsExceeded => 1,
            Self::Unknown => -1,
        }
    }
}

/// The kept tail of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// The last bytes of the stream, exactly as written, at most the request's limit.
    pub bytes: Bytes,
    /// Whether earlier bytes were dropped.
    pub truncated: bool,
    /// All bytes the command wrote to the stream.
    pub total_bytes: u64,
}

impl Captured {
    /// Wraps a complete stream.
    #[must_use]
    pub fn complete(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { truncated: false, total_bytes: bytes.len() as u64, bytes }
    }

    /// Returns the bytes as text: what is not UTF-8 is replaced (BK-09). Of a truncated stream, the rest of a character
    /// that the cut split is left out, because the program never wrote that.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        let is_continuation = |byte: &&u8| **byte & 0xc0 == 0x80;
        let split = match self.truncated {
            true => self.bytes.iter().take(3).take_while(is_continuation).count(),
            false => 0,
        };
        String::from_utf8_lossy(&self.bytes[split..])
    }
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandResult {
    /// How it ended.
    pub ending: Ending,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// The timeout really applied, where it differs from the one asked or the backend reports it.
    pub applied_timeout: Option<Duration>,
    /// The sandbox did not survive; its handle is of no further use.
    pub sandbox_lost: bool,
}

impl CommandResult {
    /// Returns the result of a command that exited with `status` and whose output is complete.
    #[must_use]
    pub fn exited(status: i32, stdout: impl Into<Bytes>, stderr: impl Into<Bytes>) -> Self {
        Self {
            ending: Ending::Exited(status),
            stdout: Captured::complete(stdout),
            stderr: Captured::complete(stderr),
            applied_timeout: None,
            sandbox_lost: false,
        }
    }
}
