//! Who may use somebody else's sandbox: the owner must match, one holder at a time, and the claim is a lease with a fence that
//! every operation of the holder carries (AT, S54).

/// Who may attach. The value of [`SandboxSpec::owner`](crate::SandboxSpec::owner).
pub const OWNER: &str = "ringfence_owner";
/// Who holds the sandbox.
pub const HOLDER: &str = "ringfence_holder";
/// Until when the holder does, in seconds since 1970.
pub const LEASE_UNTIL: &str = "ringfence_lease_until";
/// The count of claims; stays when a claim is released, so that a fence is never given twice.
pub const FENCE: &str = "ringfence_fence";
/// When the sandbox ends, in seconds since 1970.
pub const EXPIRES_AT: &str = "ringfence_expires_at";
/// The network policy as its canonical document (SP-09).
pub const NETWORK: &str = "ringfence_network";
/// Where relative paths start.
pub const WORKDIR: &str = "ringfence_workdir";
