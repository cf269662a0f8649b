//! An interactive command on a terminal inside the sandbox.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::command::{Ending, Invocation};
use crate::env::EnvMap;
use crate::error::Result;
use crate::file::GuestPath;

/// The size of a terminal in character cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters per line.
    pub columns: u16,
}

/// What to start on the terminal.
#[derive(Debug, Clone)]
pub struct TerminalRequest {
    /// What to run; the sandbox's shell, interactive, if absent.
    pub invocation: Option<Invocation>,
    /// The size at the start.
    pub size: TerminalSize,
    /// Working directory; the sandbox's own if absent.
    pub workdir: Option<GuestPath>,
    /// Variables on top of the spec's, such as `TERM`.
    pub env: EnvMap,
}

/// A running interactive command. Dropping it ends the command.
pub struct Terminal {
    /// What the user types.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
    /// What the user sees; ends when the command has.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// Resizing and waiting.
    pub control: Arc<dyn TerminalControl>,
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").field("control", &self.control).finish_non_exhaustive()
    }
}

/// The side of a terminal that is not its bytes.
#[async_trait]
pub trait TerminalControl: Send + Sync + fmt::Debug {
    /// Tells the command that the size changed.
    ///
    /// # Errors
    /// The terminal is gone.
    fn resize(&self, size: TerminalSize) -> Result<()>;

    /// Waits for the end of the command.
    ///
    /// # Errors
    /// The sandbox was lost.
    async fn wait(&self) -> Result<Ending>;
}
