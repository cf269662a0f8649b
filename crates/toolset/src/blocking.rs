//! A session for code that is not asynchronous (LC-15).

use std::sync::{Arc, mpsc};

use ringfence_core::{Error, ErrorKind, Result, SandboxId};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::definition::ToolDefinition;
use crate::outcome::{ToolError, ToolOutput};
use crate::session::{CallOptions, Session};

/// A [`Session`] with a runtime of its own, whose one thread does all the work, also between calls.
///
/// Every method blocks the calling thread and may be called from any thread, several at once included. Inside asynchronous
/// code that works too, but stalls it; use [`Toolset::open`](crate::Toolset::open) there. Dropping a blocking session closes it and waits.
#[derive(Debug)]
pub struct BlockingSession {
    session: Arc<Session>,
    /// There until the drop.
    runtime: Option<Runtime>,
}

impl BlockingSession {
    /// Opens a session on a runtime of its own.
    pub(crate) fn open(
        backend: &str,
        opening: impl Future<Output = Result<Session>> + Send + 'static,
    ) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ringfence-toolset")
            .enable_all()
            .build()
            .map_err(|error| stalled(backend, "no thread could be started").source(error))?;
        match wait(&runtime, backend, opening).and_then(|opened| opened) {
            Ok(session) => Ok(Self { session: Arc::new(session), runtime: Some(runtime) }),
            Err(error) => {
                // Waiting for the thread would panic inside asynchronous code; it has nothing left to do.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// As [`Session::definitions`].
    #[must_use]
    pub fn definitions(&self) -> &[ToolDefinition] {
        self.session.definitions()
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

    fn wait<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let backend = self.session.backend_name();
        match &self.runtime {
            Some(runtime) => wait(runtime, backend, future),
            None => Err(stalled(backend, "it is being dropped")),
        }
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

/// Runs a future on the runtime's own thread and waits for it. Entering the runtime from here instead would panic wherever
/// another runtime is entered already.
fn wait<T: Send + 'static>(
    runtime: &Runtime,
    backend: &str,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    drop(runtime.spawn(async move {
        // The receiver waits below, so there is one.
        drop(sender.send(future.await));
    }));
    receiver.recv().map_err(|_| stalled(backend, "the backend panicked"))
}

fn stalled(backend: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unexpected, backend, "use a blocking session", why).terminal()
}
