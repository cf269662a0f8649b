//! What a backend can do, as data, and the refusal of everything else.

use std::borrow::Cow;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::network::{NetworkPolicy, NetworkStrength};
use crate::spec::{Isolation, SandboxSpec};
use crate::statement::SpecField;

/// The only answer to "can it?". The default claims nothing; what is not claimed is refused by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Capabilities {
    /// Blocks all egress, DNS included.
    pub block_network: bool,
    /// Leaves egress open on request.
    pub open_network: bool,
    /// Strength of an allowlist of host names; `None` when there is none.
    pub host_allowlist: Option<NetworkStrength>,
    /// Allows egress to address ranges.
    pub cidr_allowlist: bool,
    /// Memory ceiling over all processes.
    pub memory_limit: bool,
    /// CPU ceiling.
    pub cpu_limit: bool,
    /// Ceiling on processes and threads.
    pub pids_limit: bool,
    /// Ceiling on what can be stored.
    pub disk_limit: bool,
    /// The wall between sandbox and host.
    pub isolation: Isolation,
    /// Takes an image reference.
    pub image: bool,
    /// Ends a sandbox after its lifetime, whoever is left.
    pub lifetime: bool,
    /// Ends a sandbox after idling.
    pub idle: bool,
    /// Sandboxes can be attached to by another process ([`Backend::attachable`](crate::Backend::attachable)).
    pub attach: bool,
    /// Commands can run while nobody waits for them ([`Backend::background`](crate::Backend::background)).
    pub background: bool,
    /// Keeps the labels of a sandbox where others can look for it.
    pub labels: bool,
    /// A command's standard input can be given.
    pub stdin: bool,
    /// Output can be observed while the command runs.
    pub streaming: bool,
    /// Interactive terminals can be opened.
    pub terminal: bool,
    /// The shell that runs [`Invocation::Shell`](crate::Invocation::Shell), as the model is told, e.g. `bash`.
    pub shell: Cow<'static, str>,
}

impl Capabilities {
    /// Refuses the first field of `spec` that asks for what is not claimed here (SP-08). A backend's `judge` calls
    /// this before its own, finer checks, so that no field can be forgotten.
    ///
    /// `env` and `workdir` are owed by every backend and have no capability.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused), terminal, with the fact `field`, what the backend lacks, and
    /// as a hint the ways out (contract 11.5).
    pub fn refuse_unclaimed(&self, backend_name: &str, spec: &SandboxSpec) -> Result<()> {
        let refuse =
            |field, message: String, hint: &str| Err(Error::refused(backend_name, field, message).hint(hint));
        if spec.owner().is_some() && !self.attach {
            return refuse(
                SpecField::Owner,
                "no other process can attach to its sandboxes, so an owner could not be read back and checked".into(),
                "drop the owner, or use a backend that can be attached to",
            );
        }
        if spec.isolation() > self.isolation {
            return refuse(
                SpecField::Isolation,
                format!("its wall is {}, the spec accepts no less than {}", self.isolation, spec.isolation()),
                "accept the weaker wall in the spec, or use a backend with a stronger one",
            );
        }
        self.refuse_unclaimed_network(backend_name, spec.network())?;

        let limits = spec.limits();
        let ceilings = [
            (SpecField::Memory, limits.memory.is_some() && !self.memory_limit, "the memory of a sandbox"),
            (SpecField::Cpus, limits.cpus.is_some() && !self.cpu_limit, "the cpu time of a sandbox"),
            (
                SpecField::Pids,
                limits.pids.is_some() && !self.pids_limit,
                "the number of processes in a sandbox",
            ),
            (SpecField::Disk, limits.disk.is_some() && !self.disk_limit, "what a sandbox stores"),
        ];
        for (field, unclaimed, what) in ceilings {
            if unclaimed {
                return refuse(
                    field,
                    format!("it cannot limit {what}, and a limit is a ceiling, not a hint"),
                    "drop the limit, or use a backend that enforces it",
                );
            }
        }
        if spec.image().is_some() && !self.image {
            return refuse(
                SpecField::Image,
                "it takes no image".into(),
                "drop the image, or use a backend that runs images",
            );
        }
        if spec.lifetime().is_some() && !self.lifetime {
            return refuse(
                SpecField::Lifetime,
                "it cannot end a sandbox after a lifetime when nobody is left to ask for it".into(),
                "drop the lifetime, or use a backend that enforces it",
            );
        }
        if spec.idle().is_some() && !self.idle {
            return refuse(
                SpecField::Idle,
                "it cannot end a sandbox that is not used".into(),
                "drop the idle time, or use a backend that enforces it",
            );
        }
        if !spec.labels().is_empty() && !self.labels {
            return refuse(
                SpecField::Labels,
                "it keeps no labels, so nobody could find the sandbox by them".into(),
                "drop the labels, or use a backend that keeps them",
            );
        }
        Ok(())
    }

    fn refuse_unclaimed_network(&self, backend_name: &str, network: &NetworkPolicy) -> Result<()> {
        let refuse =
            |field, message: String, hint: &str| Err(Error::refused(backend_name, field, message).hint(hint));
        let list = match network {
            NetworkPolicy::Blocked if !self.block_network => {
                return refuse(
                    SpecField::Network,
                    "it cannot deny outbound access, and the spec blocks the network".into(),
                    "open the network explicitly, or use a backend that can block it",
                );
            }
            NetworkPolicy::Open if !self.open_network => {
                return refuse(
                    SpecField::Network,
                    "it cannot leave outbound access open".into(),
                    "list the hosts or address ranges that are needed, block the network, or use a backend that can \
                     open it",
                );
            }
            NetworkPolicy::Blocked | NetworkPolicy::Open => return Ok(()),
            NetworkPolicy::Allow(list) => list,
        };
        if !list.hosts().is_empty() {
            match self.host_allowlist {
                None => {
                    return refuse(
                        SpecField::AllowEgressTo,
                        "it has no allowlist of host names".into(),
                        if self.cidr_allowlist {
                            "list address ranges in allow_egress_to_cidrs, block the network completely, or use a \
                             backend that can tell host names apart"
                        } else {
                            "block or open the network completely, or use a backend that can tell host names apart"
                        },
                    );
                }
                Some(strength) if strength < list.least_strength() => {
                    return refuse(
                        SpecField::AllowEgressTo,
                        format!(
                            "its allowlist of host names has the strength `{strength}` ({}), the spec accepts no less \
                             than `{}`",
                            strength.remaining_hole(),
                            list.least_strength(),
                        ),
                        if self.cidr_allowlist {
                            "lower least_network_strength to accept that, list address ranges in \
                             allow_egress_to_cidrs, or block the network completely"
                        } else {
                            "lower least_network_strength to accept that, or block the network completely"
                        },
                    );
                }
                Some(_) => {}
            }
        }
        if !list.cidrs().is_empty() && !self.cidr_allowlist {
            return refuse(
                SpecField::AllowEgressToCidrs,
                "it has no rules for address ranges".into(),
                if self.host_allowlist.is_some() {
                    "list host names in allow_egress_to, block the network completely, or use a backend with such rules"
                } else {
                    "block or open the network completely, or use a backend with such rules"
                },
            );
        }
        Ok(())
    }
}
