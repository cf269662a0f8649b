//! A session for code that is not asynchronous (LC-15).

use ringfence_core::{Error, ErrorKind, Result, SandboxId};
use serde_json::Value;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::outcome::{ToolError, ToolOutput};
use crate::session::Session;
use crate::toolset::Toolset;

/// A [`Session`] with a runtime of its own, whose one thread keeps the backend's background work going between calls.
///
/// Every method blocks the calling thread; they may be called from several threads. Dropping it closes it and waits,
/// except inside asynchronous code, where waiting is not possible: there the sandbox is destroyed in the background on the
/// surrounding runtime.
#[derive(Debug)]
pub struct BlockingSession {
    session: Option<Session>,
    runtime: Option<Runtime>,
}

impl BlockingSession {
    pub(crate) fn new(toolset: &Toolset) -> Result<Self> {
        refuse_inside_a_runtime(toolset.backend().name())?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ringfence-toolset")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(
                    ErrorKind::Unexpected,
                    toolset.backend().name(),
                    "open a session",
                    "no thread could be started",
                )
                .source(error)
                .terminal()
            })?;
        Ok(Self { session: Some(toolset.open()), runtime: Some(runtime) })
    }

    /// As [`Session::call`].
    ///
    /// # Errors
    /// As [`Session::call`]; terminal inside asynchronous code.
    pub fn call(&self, name: &str, arguments: &Value) -> Result<ToolOutput, ToolError> {
        let (session, runtime) = self.parts().map_err(ToolError::Terminal)?;
        runtime.block_on(session.call(name, arguments))
    }

    /// As [`Session::prepare`].
    ///
    /// # Errors
    /// As [`Session::prepare`]; terminal inside asynchronous code.
    pub fn prepare(&self) -> Result<SandboxId> {
        let (session, runtime) = self.parts()?;
        runtime.block_on(session.prepare())
    }

    /// As [`Session::close`].
    pub fn close(self) {
        drop(self);
    }

    fn parts(&self) -> Result<(&Session, &Runtime)> {
        match (&self.session, &self.runtime) {
            (Some(session), Some(runtime)) => {
                refuse_inside_a_runtime(session.toolset().backend().name())?;
                Ok((session, runtime))
            }
            // Both are there until the drop.
            _ => {
                Err(Error::new(ErrorKind::Unexpected, "", "call a tool", "the session is not open")
                    .terminal())
            }
        }
    }
}

impl Drop for BlockingSession {
    fn drop(&mut self) {
        let (Some(session), Some(runtime)) = (self.session.take(), self.runtime.take()) else { return };
        if Handle::try_current().is_ok() {
            // A runtime may neither be waited for nor dropped inside another one.
            drop(session);
            runtime.shutdown_background();
            return;
        }
        runtime.block_on(session.close());
    }
}

fn refuse_inside_a_runtime(backend: &str) -> Result<()> {
    if Handle::try_current().is_ok() {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            backend,
            "open a session",
            "a blocking session would stall the asynchronous runtime it is called on",
        )
        .hint("use Toolset::open there")
        .terminal());
    }
    Ok(())
}
