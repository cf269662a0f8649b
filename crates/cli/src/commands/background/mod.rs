//! Commands in the background: started by one process, and from then on anybody's who reaches the sandbox.

pub(crate) mod kill;
pub(crate) mod output;
pub(crate) mod start;
pub(crate) mod stdin;
pub(crate) mod wait;

use std::sync::Arc;
use std::time::Duration;

use ringfence::{Backend, Background, CommandHandle, CommandId, CommandStatus, Error, ErrorKind, SandboxId};

use crate::commands::runtime;
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::loss::Watch;
use crate::reached::{self, backend_of};
use crate::signals::Signals;

/// One wait of many: a backend need not have more patience.
const STEP: Duration = Duration::from_secs(600);

/// A command that is there.
#[derive(Debug)]
struct Target {
    backend: Arc<dyn Backend>,
    handle: CommandHandle,
}

impl Target {
    fn open(handle: CommandHandle, environment: &Environment) -> Result<Self> {
        Ok(Self { backend: backend_of(&handle.sandbox, environment)?, handle })
    }

    fn background(&self) -> Result<&dyn Background> {
        background(&*self.backend)
    }

    fn sandbox(&self) -> &SandboxId {
        self.handle.sandbox.sandbox()
    }

    fn command(&self) -> CommandId {
        self.handle.command
    }

    fn failed(&self, error: &Error) -> Failure {
        match error.kind() {
            ErrorKind::NotFound => Failure::new(format!("there is no command {}", self.handle))
                .with_kind(error.kind().name())
                .hint(format!("`ringfence inspect {}` shows those there are", self.handle.sandbox)),
            _ => reached::failed(&self.handle.sandbox, error),
        }
    }
}

/// Returns the backend as one that runs commands in the background.
fn background(backend: &dyn Backend) -> Result<&dyn Background> {
    backend.background().ok_or_else(|| {
        let message = "it runs no commands in the background";
        Error::new(ErrorKind::Unsupported, backend.name(), "find the command", message).into()
    })
}

/// Why it did not come to an end.
enum Stop {
    /// This was not said by the command.
    Failed(Error),
    /// A status or failure of ours.
    Ours(Result<u8>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Does something with a command, which stands so at the beginning, until that has come to its end or a signal comes, and returns the
/// exit status.
fn attend(
    target: &Target,
    work: impl AsyncFnOnce(&dyn Background, CommandStatus) -> std::result::Result<u8, Stop>,
) -> Result<u8> {
    let background = target.background()?;
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let signals = Signals::new()?;
        let done = async {
            let watch = Watch::begin(&*target.backend, target.sandbox()).await;
            let now = background.wait_command(target.sandbox(), target.command(), Duration::ZERO).await;
            let now = now.map_err(|error| target.failed(&error))?;
            match work(background, now).await {
                Ok(status) => Ok(status),
                Err(Stop::Ours(result)) => result,
                // It was there a moment ago.
                Err(Stop::Failed(error)) if *error.kind() == ErrorKind::SandboxLost => {
                    Err(watch.reason().await.explain(target.failed(&error)))
                }
                Err(Stop::Failed(error)) => Err(target.failed(&error)),
            }
        };
        tokio::select! {
            biased;
            signal = signals.next() => Ok(signal.status()),
            status = done => status,
        }
    });
    // A thread blocked in a read of standard input is not waited for.
    runtime.shutdown_background();
    result
}

/// The status of whoever wrote to somebody who had stopped reading.
const NOBODY_READS: u8 = exit::READER_GONE;
