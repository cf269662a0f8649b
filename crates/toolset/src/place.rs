//! Where the calls of a session go: a sandbox of its own, or somebody else's.

use std::sync::Arc;

use ringfence_core::{Error, Result};

use crate::hold::Hold;
use crate::provision::{Attempt, Live, Provisioner};

#[derive(Debug)]
pub(crate) enum Place {
    Own(Provisioner),
    Attached(Hold),
}

impl Place {
    /// Takes the caller's place at the sandbox, which may be created for that.
    pub(crate) fn acquire(&self) -> Result<Attempt> {
        match self {
            Self::Own(provisioner) => provisioner.acquire(),
            Self::Attached(hold) => hold.live().map(Attempt::Done),
        }
    }

    /// Returns the sandbox once it stands.
    pub(crate) async fn wait(&self, attempt: Attempt) -> Result<Arc<Live>> {
        match self {
            Self::Own(provisioner) => provisioner.wait(attempt).await,
            Self::Attached(hold) => hold.live(),
        }
    }

    /// Returns the sandbox that stands now.
    pub(crate) fn current(&self) -> Option<Arc<Live>> {
        match self {
            Self::Own(provisioner) => provisioner.current(),
            Self::Attached(hold) => hold.live().ok(),
        }
    }

    /// Returns why no call can be made any more, if so.
    pub(crate) fn fault(&self) -> Option<Error> {
        match self {
            Self::Own(provisioner) => provisioner.is_closed().then(|| provisioner.not_open()),
            Self::Attached(hold) => hold.live().err(),
        }
    }
}
