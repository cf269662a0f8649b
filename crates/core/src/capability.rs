//! What a backend can do, as data.

use serde::Serialize;

use crate::network::NetworkStrength;
use crate::spec::Isolation;

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
    /// Sandboxes can be attached to by another process.
    pub attach: bool,
    /// A command's standard input can be given.
    pub stdin: bool,
    /// Output can be observed while the command runs.
    pub streaming: bool,
    /// Interactive terminals can be opened.
    pub terminal: bool,
    /// The shell that runs [`Invocation::Shell`](crate::Invocation::Shell), as the model is told, e.g. `bash`.
    pub shell: &'static str,
}
