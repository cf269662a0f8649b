//! The way to the launcher of one sandbox: through the launcher's owner, or over the socket by which the sandbox is found.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{Error, ErrorKind, Fence, Result, Retry, SandboxId, claim};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::SCHEME;
use crate::directory;
use crate::error::{lost, unexpected};
use crate::launcher::Launcher;
use crate::transport::{self, Channel};
use crate::wire::{Fenced, LauncherRequest, SandboxReply, SandboxRequest};

/// How long the launcher may take to answer. It takes microseconds, and longer only to put a large sandbox away.
const DEADLINE: Duration = Duration::from_secs(30);

/// Where requests about a sandbox go.
#[derive(Debug)]
pub(crate) enum Link {
    /// To the launcher of this process.
    Own(Arc<Launcher>),
    /// To somebody else's.
    Others(Connection),
}

/// A connection of this process alone.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    /// The sandbox's record, locked as long as the sandbox is there; without one it is just being made, or gone.
    pub(crate) record: Option<OwnedFd>,
}

impl Connection {
    /// Whether the sandbox is there although nothing comes over the connection any more.
    fn outlived(&self) -> bool {
        let locked = |record: &OwnedFd| rustix::fs::flock(record, FlockOperation::NonBlockingLockShared);
        match &self.record {
            // One that was killed has it for a moment longer than its sockets.
            Some(record) if locked(record).is_err() => !directory::was_killed(record),
            Some(_) | None => false,
        }
    }
}

impl Link {
    /// Asks and waits for the answer. A launcher that is gone has no sandboxes: that is the answer [`SandboxReply::Gone`].
    pub(crate) async fn ask(
        &self,
        operation: &'static str,
        sandbox: &SandboxId,
        request: SandboxRequest,
    ) -> Result<(SandboxReply, Vec<OwnedFd>)> {
        let (ours, theirs) =
            transport::pair().map_err(|error| unexpected(operation, "create a socket", error))?;
        // It names whoever asks as well as what is asked about.
        let request = Fenced { fence: sandbox.fence().map_or(0, Fence::get), request };
        let asked = async {
            match self {
                Self::Own(launcher) => {
                    let request = LauncherRequest::About(sandbox.as_str().as_bytes().to_vec(), request);
                    launcher.send(&request, &[theirs.as_fd()]).await?;
                }
                Self::Others(others) => {
                    transport::send(others.socket.as_fd(), &request, &[theirs.as_fd()]).await?;
                }
            }
            drop(theirs);
            Channel::new(ours)?.receive::<SandboxReply>().await
        };
        match tokio::time::timeout(DEADLINE, asked).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) if self.is_closed_only() => Err(closed(operation, sandbox)),
            Ok(Err(error)) if is_gone(&error) && self.is_closed_only() => Err(closed(operation, sandbox)),
            Ok(Ok(None)) => Ok((SandboxReply::Gone, Vec::new())),
            Ok(Err(error)) if is_gone(&error) => Ok((SandboxReply::Gone, Vec::new())),
            Ok(Err(error)) => Err(unexpected(operation, "ask the launcher", error)),
            Err(_) => Err(Error::new(
                ErrorKind::DeadlineExceeded,
                SCHEME,
                operation,
                format!("the launcher did not answer within {} s", DEADLINE.as_secs()),
            )
            .context("sandbox", sandbox.as_str())),
        }
    }
}

impl Link {
    /// Whether only the connection is closed, and not the sandbox gone.
    fn is_closed_only(&self) -> bool {
        matches!(self, Self::Others(others) if others.outlived())
    }
}

/// A launcher that lives and does not listen.
fn closed(operation: &'static str, sandbox: &SandboxId) -> Error {
    let message = "its launcher closed the connection: it has too many of them, or was started by another version of ringfence";
    Error::new(ErrorKind::Unavailable, SCHEME, operation, message)
        .context("sandbox", sandbox.as_str())
        .hint("try again when fewer use the sandbox, or with the version that made it")
        .retry(Retry::Safe)
}

/// The error of an answer that is not the expected one.
pub(crate) fn refusal(operation: &'static str, sandbox: &SandboxId, reply: &SandboxReply) -> Error {
    match reply {
        SandboxReply::Gone | SandboxReply::CgroupLeft => lost(operation, sandbox),
        SandboxReply::Fenced => claim::lost(SCHEME, operation, sandbox),
        SandboxReply::Failed(errno) if Errno::from_raw_os_error(*errno) == Errno::NOTCONN => Error::new(
            ErrorKind::Unsupported,
            SCHEME,
            operation,
            "the sandbox was made for its creator alone",
        )
        .context("sandbox", sandbox.as_str())
        .hint("create it to be listed or kept"),
        SandboxReply::Failed(errno) => {
            unexpected(operation, "act on the sandbox", io::Error::from_raw_os_error(*errno))
        }
        _ => unexpected(operation, "understand the launcher", io::ErrorKind::InvalidData.into()),
    }
}

/// Whether an error says that the other side does not exist any more.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
    )
}

/// What the answer to a destruction means.
pub(crate) fn destroyed(operation: &'static str, sandbox: &SandboxId, reply: &SandboxReply) -> Result<()> {
    match reply {
        SandboxReply::Gone => Ok(()),
        SandboxReply::CgroupLeft => Err(Error::new(
            ErrorKind::Unexpected,
            SCHEME,
            operation,
            "its processes are gone, but a cgroup directory of it could not be removed",
        )
        .context("sandbox", sandbox.as_str())),
        other => Err(refusal(operation, sandbox, other)),
    }
}
