//! What the model is told about a sandbox of somebody else (AT-17, AT-18). Made once, when it is attached to (AT-19).

use std::time::{Duration, SystemTime};

use ringfence_core::{Capabilities, NetworkPolicy, Tags, claim};

use crate::network_note::network_note;
use crate::text::{counted, shown_name};

/// What the tags of an attached sandbox said when it was claimed.
#[derive(Debug)]
pub(crate) struct Found {
    owner: String,
    workdir: Option<String>,
    network: Option<NetworkPolicy>,
    left: Option<Duration>,
}

impl Found {
    /// Reads the tags. A network policy that is not readable is not known, and is warned about (AT-10).
    pub(crate) fn new(sandbox: &str, tags: &Tags, now: SystemTime) -> Self {
        let network = match claim::network(tags).transpose() {
            Ok(network) => network,
            Err(error) => {
                tracing::warn!(sandbox, "the network policy on sandbox {sandbox} is not readable: {error}");
                None
            }
        };
        Self {
            owner: tags.get(claim::OWNER).cloned().unwrap_or_default(),
            workdir: tags.get(claim::WORKDIR).cloned(),
            network,
            left: claim::remaining(tags, now),
        }
    }

    pub(crate) fn workdir(&self) -> Option<&str> {
        self.workdir.as_deref()
    }

    pub(crate) fn network_policy(&self) -> Option<&NetworkPolicy> {
        self.network.as_ref()
    }

    /// Says whose sandbox it is, and that others come before and after.
    pub(crate) fn origin(&self) -> String {
        format!(
            "The sandbox is separate from the machine you are called from. It belongs to {} and was set up by an earlier task: look \
             at what is there before you change it. Files that you leave in it stay for a later task.",
            shown_name(self.owner.as_bytes())
        )
    }

    /// Says what the network is, as its creator wrote it down.
    pub(crate) fn network(&self, capabilities: &Capabilities) -> String {
        match &self.network {
            Some(policy) => network_note(policy, capabilities),
            None => "Its network is whatever the creator allowed; test what you need before relying on it."
                .to_owned(),
        }
    }

    /// Says how long it lasts, in minutes rounded half to even (AT-18).
    pub(crate) fn clock(&self) -> String {
        const MINUTE: Duration = Duration::from_secs(60);
        match self.left {
            None => "It is not known when the sandbox ends.".to_owned(),
            Some(left) if left < MINUTE => {
                "When you were given these tools, the sandbox had under a minute left; when it ends, its files are gone.".to_owned()
            }
            Some(left) => format!(
                "When you were given these tools, the sandbox had about {} left; when it ends, its files are gone.",
                counted(whole_minutes(left), "minute", "minutes")
            ),
        }
    }
}

fn whole_minutes(left: Duration) -> u64 {
    const NANOS: u128 = 60 * 1_000_000_000;
    let (minutes, rest) = (left.as_nanos() / NANOS, left.as_nanos() % NANOS);
    let up = rest * 2 > NANOS || (rest * 2 == NANOS && minutes % 2 == 1);
    u64::try_from(minutes + u128::from(up)).unwrap_or(u64::MAX)
}
