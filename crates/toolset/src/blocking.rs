//! A session for code that is not asynchronous (LC-15).

use std::sync::{Arc, mpsc};

use ringfence_core::{Error, ErrorKind, Result, SandboxId};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::outcome::{ToolError, ToolOutput};
use crate::session::{CallOptions, Session};
use crate::toolset::Toolset;

/// A [`Session`] with a runtime of its own, whose one thread does all the work, also between calls.
///
/// Every method blocks the calling thread and may be called from any thread, several at once included. Inside asynchronous
/// code that works too, but stalls it; use [`Toolset::open`] there. Dropping a blocking session closes it and waits.
#[derive(Debug)]
pub struct BlockingSession {
    session: Arc<Session>,
    /// There until the drop.
    runtime: Option<Runtime>,
}

impl BlockingSession {
    pub(crate) fn new(toolset: &Toolset) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ringfence-toolset")
            .enable_all()
            .build()
            .map_err(|error| stalled(toolset, "no thread could be started").source(error))?;
        Ok(Self { session: Arc::new(toolset.open()), runtime: Some(runtime) })
    }

    /// As [`Session::call`].
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn call(&self, name: &str, arguments: &Value) -> Result<ToolOutput, ToolError> {
        self.call_with(name, arguments, CallOptions::default())
    }

    /// As [`Session::call_with`].
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn call_with(
        &self,
        name: &str,
        arguments: &Value,
        options: CallOptions,
    ) -> Result<ToolOutput, ToolError> {
        let (session, name, arguments) = (Arc::clone(&self.session), name.to_owned(), arguments.clone());
        self.wait(async move { session.call_with(&name, &arguments, options).await })
            .map_err(ToolError::Terminal)?
    }

    /// As [`Session::prepare`].
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn prepare(&self) -> Result<SandboxId> {
        let session = Arc::clone(&self.session);
        self.wait(async move { session.prepare().await })?
    }

    /// As [`Session::close`]: waits, may be called more than once and from any thread, and later calls fail.
    pub fn close(&self) {
        let session = Arc::clone(&self.session);
        // How the destruction ended is in the log (LC-04).
        drop(self.wait(async move { session.close().await }));
    }

    /// Runs a future on our own thread and waits for it. Entering the runtime from here instead would panic wherever
    /// another runtime is entered already.
    fn wait<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        if let Some(runtime) = &self.runtime {
            drop(runtime.spawn(async move {
                // The receiver waits below, so there is one.
                drop(sender.send(future.await));
            }));
        }
        receiver.recv().map_err(|_| stalled(self.session.toolset(), "the backend panicked"))
    }
}

impl Drop for BlockingSession {
    fn drop(&mut self) {
        self.close();
        if let Some(runtime) = self.runtime.take() {
            // Waiting for the thread would panic inside asynchronous code; it has nothing left to do.
            runtime.shutdown_background();
        }
    }
}

fn stalled(toolset: &Toolset, why: &str) -> Error {
    Error::new(ErrorKind::Unexpected, toolset.backend().name(), "use a blocking session", why).terminal()
}
