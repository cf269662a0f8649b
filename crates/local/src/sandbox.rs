//! One living sandbox: its agent's socket and what every request to it needs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ringfence_core::{Error, ErrorKind, Result, SandboxId};
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::sync::RwLock;

use crate::SCHEME;
use crate::cgroup::Counter;
use crate::error::{lost, unexpected};
use crate::launcher::Launcher;
use crate::transport::{self, Channel};
use crate::wire::{AgentRequest, LauncherRequest};

/// How long a file operation may take (BD-08).
pub(crate) const FILE_DEADLINE: Duration = Duration::from_secs(120);

/// How long the launcher may take to put a sandbox away.
const DESTROY_DEADLINE: Duration = Duration::from_secs(30);

/// A sandbox of this process. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    pub(crate) token: u64,
    pub(crate) launcher: Arc<Launcher>,
    /// Belongs to no runtime: requests may come from any.
    pub(crate) agent: OwnedFd,
    /// `NAME=value` for every command.
    pub(crate) environment: Vec<(String, String)>,
    /// The shell of [`ringfence_core::Invocation::Shell`].
    pub(crate) shell: &'static str,
    /// The version of Landlock that confines it; 0 where the kernel has none.
    pub(crate) landlock_abi: u32,
    /// Kills by the memory limit.
    pub(crate) memory: Option<Counter>,
    /// Forks refused by the process limit.
    pub(crate) pids: Option<Counter>,
    /// Held for reading by each request that has a process inside; for writing by one that may end all others.
    pub(crate) requests: Arc<RwLock<()>>,
    /// Whether the last command found no room for its processes, although it was the only request.
    pub(crate) full: AtomicBool,
}

impl Sandbox {
    /// Sends a request with a socket of its own and returns our end of that. `fds` follow the socket.
    pub(crate) async fn ask(
        &self,
        operation: &'static str,
        request: &AgentRequest,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Channel> {
        let (ours, theirs) =
            transport::pair().map_err(|error| unexpected(operation, "create a socket", error))?;
        let fds: Vec<BorrowedFd<'_>> = [theirs.as_fd()].into_iter().chain(fds.iter().copied()).collect();
        match transport::send(self.agent.as_fd(), request, &fds).await {
            Ok(()) => Channel::new(ours).map_err(|error| unexpected(operation, "wait for a socket", error)),
            Err(error) if is_gone(&error) => Err(lost(operation, &self.id)),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                Err(Error::new(
                    ErrorKind::InvalidArgument,
                    SCHEME,
                    operation,
                    "command and environment together are larger than 8 MiB",
                ))
            }
            Err(error) => Err(unexpected(operation, "ask the sandbox", error)),
        }
    }

    /// Whether the first process of the sandbox is still there.
    pub(crate) fn is_alive(&self) -> bool {
        let mut watch = [PollFd::new(&self.agent, PollFlags::empty())];
        // Only hang-ups are looked for; those are always reported.
        match rustix::event::poll(&mut watch, Some(&Timespec::default())) {
            Ok(_) => !watch[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
            Err(_) => true,
        }
    }

    /// Ends the sandbox and waits until nothing of it is left.
    pub(crate) async fn destroy(&self) -> Result<()> {
        let operation = "destroy the sandbox";
        let (ours, theirs) =
            transport::pair().map_err(|error| unexpected(operation, "create a socket", error))?;
        let request = LauncherRequest::Destroy { token: self.token };
        let sent = tokio::time::timeout(DESTROY_DEADLINE, self.launcher.send(&request, theirs)).await;
        match sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => {}
            // Without its launcher no sandbox lives.
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(unexpected(operation, "ask the launcher", error)),
        }
        let ours = crate::sys::watch(ours, tokio::io::Interest::READABLE)
            .map_err(|error| unexpected(operation, "wait for a socket", error))?;
        let mut answer = [0u8; 1];
        let wait = ours.async_io(tokio::io::Interest::READABLE, |fd| {
            rustix::io::read(fd, &mut answer).map_err(io::Error::from)
        });
        match tokio::time::timeout(DESTROY_DEADLINE, wait).await {
            Ok(Ok(1)) if answer[0] != 0 => Err(Error::new(
                ErrorKind::Unexpected,
                SCHEME,
                operation,
                "its processes are gone, but a cgroup directory of it could not be removed",
            )
            .context("sandbox", self.id.as_str())),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(unexpected(operation, "hear from the launcher", error)),
            Err(_) => Err(Error::new(
                ErrorKind::DeadlineExceeded,
                SCHEME,
                operation,
                format!("the kernel did not end it within {} s", DESTROY_DEADLINE.as_secs()),
            )
            .context("sandbox", self.id.as_str())),
        }
    }
}

/// Whether an error says that the other side does not exist any more.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
    )
}
