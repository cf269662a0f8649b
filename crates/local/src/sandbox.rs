//! One living sandbox: its agent's socket, its launcher, and what every request needs.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ringfence_core::{Result, SandboxId};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::Interest;
use tokio::sync::RwLock;

use crate::audit::Audit;
use crate::cgroup::Counter;
use crate::error::unexpected;
use crate::link::{self, Link};
use crate::note::Note;
use crate::wire::SandboxRequest;

/// How long a file operation may take (BD-08).
pub(crate) const FILE_DEADLINE: Duration = Duration::from_secs(120);

/// How often, and how far apart, it is looked whether a sandbox is gone of which a process is.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A sandbox that this process made or attached to. Dropping one that it made for itself alone ends it.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    pub(crate) link: Link,
    /// Its first process, where with that all of it ends: it has no control groups, and nothing by which others find it. Then nobody
    /// has to be asked to end it.
    pub(crate) first: Option<OwnedFd>,
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
    /// What is told of it where this process alone can: what others find has left that with its launcher.
    pub(crate) note: Option<Note>,
    /// Where what happens to it is written down, if others can find it.
    pub(crate) audit: Option<Audit>,
}

impl Sandbox {
    /// Whether the first process of the sandbox is still there.
    pub(crate) fn is_alive(&self) -> bool {
        let mut watch = [PollFd::new(&self.agent, PollFlags::empty())];
        // Only hang-ups are looked for; those are always reported.
        match rustix::event::poll(&mut watch, Some(&Timespec::default())) {
            Ok(_) => !watch[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
            Err(_) => true,
        }
    }

    /// Whether it is still there although one of its processes has just gone. A sandbox that ends takes all of them with it, and one that
    /// was made at that moment holds the agent's socket open for as long as the kernel needs to put it away.
    pub(crate) async fn survives(&self) -> bool {
        for _ in 0..LOOKS {
            if !self.is_alive() {
                return false;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        self.is_alive()
    }

    /// Ends the sandbox and waits until nothing of it is left.
    pub(crate) async fn destroy(&self) -> Result<()> {
        self.end("destroy the sandbox", &self.id).await
    }

    /// The same by whoever names it so: under a claim that is over nothing is ended.
    pub(crate) async fn end(&self, operation: &'static str, named: &SandboxId) -> Result<()> {
        // Where a surrounding filter does not know the call, the launcher has another way.
        if let Some(first) = self.first.as_ref().filter(|first| kill(first)) {
            return ended(first).await.map_err(|error| unexpected(operation, "wait for its end", error));
        }
        let (answer, _) = self.link.ask(operation, named, SandboxRequest::Destroy).await?;
        link::destroyed(operation, named, &answer)
    }

    /// Adds a line to the audit record. What was done stays done where it cannot be written down: that is said in the log.
    pub(crate) fn record(&self, event: &'static str, facts: Value) {
        if let Some(audit) = &self.audit
            && let Err(error) = audit.add(&self.id, event, facts)
        {
            tracing::warn!(sandbox = self.id.as_str(), event, "the audit record misses a line: {error}");
        }
    }
}

/// How long the kernel may take to put a sandbox away.
const DESTROY_DEADLINE: Duration = Duration::from_secs(30);

/// Ends the first process of a pid namespace, and with it the kernel all others; whether that could be asked of the kernel.
fn kill(first: &OwnedFd) -> bool {
    // It may have ended already.
    matches!(rustix::process::pidfd_send_signal(first, Signal::KILL), Ok(()) | Err(Errno::SRCH))
}

/// Waits for the end of the first process, which comes after all others'.
async fn ended(first: &OwnedFd) -> io::Result<()> {
    let ended = crate::sys::watch(first.try_clone()?, Interest::READABLE)?;
    match tokio::time::timeout(DESTROY_DEADLINE, ended.readable()).await {
        Ok(ready) => ready.map(drop),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
