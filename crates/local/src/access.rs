//! A sandbox as the holder of one id may use it: the fence of that id goes with every request.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{Error, ErrorKind, Fence, Result, SandboxId, claim};
use serde_json::Value;

use crate::SCHEME;
use crate::audit;
use crate::create::whole_millis;
use crate::error::{lost, unexpected};
use crate::link::{self, is_gone};
use crate::sandbox::Sandbox;
use crate::transport::{self, Channel};
use crate::wire::{AgentRequest, Fenced, Reply, SandboxReply, SandboxRequest};

/// A sandbox and a fence.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    sandbox: Arc<Sandbox>,
    fence: Option<Fence>,
}

impl Deref for Access {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

impl Access {
    /// Puts both together.
    pub(crate) fn new(sandbox: Arc<Sandbox>, fence: Option<Fence>) -> Self {
        Self { sandbox, fence }
    }

    /// The sandbox as its holder names it.
    pub(crate) fn named(&self) -> SandboxId {
        match self.fence {
            Some(fence) => self.id.clone().fenced(fence),
            None => self.id.clone(),
        }
    }

    /// Sends a request with a socket of its own and returns our end of that. `fds` follow the socket.
    pub(crate) async fn ask(
        &self,
        operation: &'static str,
        request: AgentRequest,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Channel> {
        let (ours, theirs) =
            transport::pair().map_err(|error| unexpected(operation, "create a socket", error))?;
        let fds: Vec<BorrowedFd<'_>> = [theirs.as_fd()].into_iter().chain(fds.iter().copied()).collect();
        let request = Fenced { fence: self.fence.map_or(0, Fence::get), request };
        match transport::send(self.agent.as_fd(), &request, &fds).await {
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

    /// The error of an answer that says that the claim is over.
    pub(crate) fn check_fence(&self, operation: &'static str, reply: &Reply) -> Result<()> {
        match reply {
            Reply::Fenced => Err(claim::lost(SCHEME, operation, &self.id)),
            _ => Ok(()),
        }
    }

    /// Writes down what was done, where the sandbox has a record.
    pub(crate) fn note(&self, event: &'static str, facts: impl FnOnce() -> Value) {
        if self.audit.is_none() {
            return;
        }
        let mut facts = facts();
        if let Some(fence) = self.fence {
            facts["fence"] = fence.get().into();
        }
        self.record(event, facts);
    }

    /// Begins its clocks anew; returns its lifetime from now on.
    pub(crate) async fn renew(
        &self,
        operation: &'static str,
        lifetime: Option<Duration>,
    ) -> Result<Option<Duration>> {
        let request = SandboxRequest::Renew { lifetime_millis: lifetime.map_or(0, whole_millis) };
        match self.link.ask(operation, &self.named(), request).await?.0 {
            SandboxReply::Renewed(0) => Ok(None),
            SandboxReply::Renewed(millis) => Ok(Some(Duration::from_millis(millis))),
            other => Err(link::refusal(operation, &self.id, &other)),
        }
    }

    /// Ends the sandbox and waits until nothing of it is left. Under a claim that is over nothing is ended.
    pub(crate) async fn destroy(&self) -> Result<()> {
        const OPERATION: &str = "destroy the sandbox";
        let ended = self.sandbox.end(OPERATION, &self.named()).await;
        self.note("destroy", || audit::outcome(&ended));
        ended
    }
}
