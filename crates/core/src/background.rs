//! Commands that run while nobody waits for them: started, looked at, read from any offset, fed, signalled, waited for, by any
//! process that can reach the sandbox.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::backend::{Backend, SandboxId};
use crate::command::{Ending, Invocation, StreamName};
use crate::env::EnvMap;
use crate::error::{Error, Result};
use crate::file::GuestPath;
use crate::output::{OutputLimit, Timeout};

/// A background command of a sandbox, shown as `c1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u64);

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

impl FromStr for CommandId {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes, and nothing else: a command has one name.
    fn from_str(text: &str) -> Result<Self> {
        let number = text.strip_prefix('c').and_then(|number| number.parse().ok()).map(Self);
        number.filter(|id| id.to_string() == text).ok_or_else(|| {
            Error::invalid("name a background command", format!("{text:?} is not a command such as c1"))
        })
    }
}

/// A command to start.
#[derive(Debug, Clone)]
pub struct BackgroundRequest {
    /// What to run.
    pub invocation: Invocation,
    /// After this the command and its descendants are ended; without one they end with the sandbox.
    pub timeout: Option<Timeout>,
    /// The tail of each stream that is kept for readers to come.
    pub output_limit: OutputLimit,
    /// Whether standard input stays open for [`Background::write_stdin`]; otherwise it is at its end.
    pub stdin: bool,
    /// Working directory; the sandbox's own if absent.
    pub workdir: Option<GuestPath>,
    /// Variables on top of the spec's.
    pub env: EnvMap,
}

/// Where a background command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandState {
    /// It runs.
    Running,
    /// It has ended; what it left in the background may go on.
    Ended(Ending),
}

/// A background command as it stands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandStatus {
    /// Which one.
    pub id: CommandId,
    /// Whether it runs.
    pub state: CommandState,
    /// How long ago it was started.
    pub age: Duration,
    /// All bytes it has written to standard output.
    pub stdout_bytes: u64,
    /// All bytes it has written to standard error.
    pub stderr_bytes: u64,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputChunk {
    /// Where in the stream it begins: later than asked for where what stood there has been dropped.
    pub offset: u64,
    /// The bytes; none where there are no new ones yet.
    pub bytes: Bytes,
    /// Whether nothing comes after these bytes.
    pub end: bool,
}

/// A backend that runs commands nobody waits for. They live until they end, are ended, or the sandbox ends; what is known of the
/// ended ones is kept until the sandbox ends or newer ones need the room. Output ends with the command: what it left in the
/// background writes for nobody.
#[async_trait]
pub trait Background: Backend {
    /// Starts a command and returns once it runs.
    ///
    /// # Errors
    /// As [`Backend::run_command`]. A program that cannot be executed is an error here: there is no result yet that could say so.
    async fn start_command(&self, sandbox: &SandboxId, request: BackgroundRequest) -> Result<CommandId>;

    /// Returns the commands of a sandbox that are known, in the order of their start.
    ///
    /// # Errors
    /// [`ErrorKind::SandboxLost`](crate::ErrorKind::SandboxLost).
    async fn list_commands(&self, sandbox: &SandboxId) -> Result<Vec<CommandStatus>>;

    /// Returns where a command stands once it has ended or `patience` has passed; zero asks without waiting.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) for a command that is not known, or not any more.
    async fn wait_command(
        &self,
        sandbox: &SandboxId,
        command: CommandId,
        patience: Duration,
    ) -> Result<CommandStatus>;

    /// Returns output from `offset` on, at most 64 KiB, once there is some, it has come to its end or `patience` has passed.
    ///
    /// # Errors
    /// As [`Self::wait_command`].
    async fn read_output(
        &self,
        sandbox: &SandboxId,
        command: CommandId,
        stream: StreamName,
        offset: u64,
        patience: Duration,
    ) -> Result<OutputChunk>;

    /// Writes to standard input and returns how many bytes were taken before `patience` had passed; with `end`, closes it after
    /// the last of them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) where it is not open.
    async fn write_stdin(
        &self,
        sandbox: &SandboxId,
        command: CommandId,
        bytes: &[u8],
        end: bool,
        patience: Duration,
    ) -> Result<usize>;

    /// Sends a signal to the command's first process, unless that has ended; with `None` ends it and all its descendants, also those
    /// that outlived it, and returns when they are gone. How a command has ended stays as it was.
    ///
    /// # Errors
    /// As [`Self::wait_command`]; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a number that is no signal.
    async fn signal_command(
        &self,
        sandbox: &SandboxId,
        command: CommandId,
        signal: Option<i32>,
    ) -> Result<()>;
}
