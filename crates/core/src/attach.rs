//! Sandboxes that more than one process uses: found by name, described, kept, and marked with tags that are written
//! conditionally. Who may hold one is decided by the rules of [`claim`](crate::claim), written once over these calls.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::backend::{Backend, Created, SandboxId};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Events, EventsFrom};
use crate::spec::SandboxSpec;
use crate::statement::EnforcementStatement;

/// Names and values attached to a sandbox: the spec's labels, and what Ringfence itself has to remember under names that begin
/// with [`RESERVED_PREFIX`].
pub type Tags = BTreeMap<String, String>;

/// How the tags of Ringfence itself begin; labels may not.
pub const RESERVED_PREFIX: &str = "ringfence_";

/// The most bytes of all tags of a sandbox together, names and values.
pub const MAX_TAG_BYTES: usize = 16 << 10;

/// Returns the bytes of all names and values.
#[must_use]
pub fn tag_bytes(tags: &Tags) -> usize {
    tags.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// Tags as they were at some moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tagged {
    /// Grows with each write.
    pub version: u64,
    /// The tags.
    pub tags: Tags,
}

/// Who besides its creator can reach a sandbox, and whether it outlives that. Each includes what stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Reach {
    /// Only its creator, and it dies with that.
    #[default]
    Private,
    /// Other processes of the same user find it; it dies with its creator.
    Listed,
    /// It stands until its clocks run out or somebody destroys it, whoever is left.
    Kept,
}

impl Reach {
    /// Returns the outside name, which stays the same from version to version.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Listed => "listed",
            Self::Kept => "kept",
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The lifetime of a kept sandbox whose spec has none.
pub const DEFAULT_KEPT_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// A sandbox as it stands in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxInfo {
    /// Its name.
    pub id: SandboxId,
    /// When it was made.
    pub created_at: SystemTime,
    /// Who can reach it.
    pub reach: Reach,
    /// What is left of its lifetime; `None` where that is not limited.
    pub remaining: Option<Duration>,
    /// What is left until it ends because nobody uses it, if nobody does from now on; `None` where that is not limited.
    pub remaining_idle: Option<Duration>,
    /// Its tags.
    pub tagged: Tagged,
}

/// The sandboxes that a backend found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SandboxList {
    /// How each stands, oldest first.
    pub sandboxes: Vec<SandboxInfo>,
    /// Those that are there and of which nobody can say how they stand, by name. They are no leftovers.
    pub silent: Vec<SilentSandbox>,
}

/// A sandbox that could not be asked how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentSandbox {
    /// Its name.
    pub id: SandboxId,
    /// Why not, and what may help.
    pub fault: String,
}

/// All there is to know about a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// What a list shows too.
    pub info: SandboxInfo,
    /// What was asked for. Values of variables are in it: mind what is shown.
    pub spec: SandboxSpec,
    /// What is enforced, by what, and how that is known.
    pub statement: EnforcementStatement,
    /// What it uses now.
    pub usage: Usage,
    /// The processes in it but the backend's own, by number.
    pub processes: Vec<Process>,
}

/// What a sandbox uses; `None` where the backend cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes of memory, writable files in memory included.
    pub memory_bytes: Option<u64>,
    /// CPU time since its creation.
    pub cpu_time: Option<Duration>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Bytes stored.
    pub disk_bytes: Option<u64>,
}

/// A process of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number inside.
    pub pid: u32,
    /// Its parent's number inside.
    pub parent: u32,
    /// Program and arguments, cut to a few hundred bytes. Chosen by code nobody has read.
    pub command: Vec<u8>,
}

/// What is left of a sandbox that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The sandbox it belonged to.
    pub id: SandboxId,
    /// What it is, such as the path of a record or of a control group.
    pub what: String,
    /// Whether it is gone now; false where it was only looked for.
    pub removed: bool,
    /// Why it could not be removed.
    pub fault: Option<String>,
}

/// A backend whose sandboxes other processes can find and use. Calls of [`Backend`] take the id of any of them, whoever created
/// it, and through a [fenced](SandboxId::fenced) id they fail with [`ErrorKind::ClaimLost`] once
/// another fence stands in the tags, or nobody holds the sandbox.
#[async_trait]
pub trait Attachable: Backend {
    /// Creates a sandbox that others reach as `reach` says; [`Backend::create`] is this with [`Reach::Private`], or with
    /// [`Reach::Listed`] for a spec with labels or an owner. A kept sandbox whose spec has no lifetime gets
    /// [`DEFAULT_KEPT_LIFETIME`].
    ///
    /// # Errors
    /// As [`Backend::create`].
    async fn create_reachable(&self, spec: &SandboxSpec, reach: Reach) -> Result<Created>;

    /// Returns the tags. Where the backend keeps time itself, the tag of the expiry is made anew each time.
    ///
    /// # Errors
    /// [`ErrorKind::SandboxLost`], also for one that never was.
    async fn tags(&self, sandbox: &SandboxId) -> Result<Tagged>;

    /// Replaces all tags if they still have the version `expected`, and returns the new version. From then on operations with
    /// another fence than the one in the tags ([`claim`](crate::claim)) are refused.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if somebody else was faster; nothing is changed then.
    async fn set_tags(&self, sandbox: &SandboxId, expected: u64, tags: &Tags) -> Result<u64>;

    /// Returns the living sandboxes that can be reached. One that cannot be asked keeps nobody from seeing the others, and is named.
    ///
    /// # Errors
    /// What kept the backend from looking.
    async fn list(&self) -> Result<SandboxList>;

    /// Returns all there is to know about a sandbox.
    ///
    /// # Errors
    /// [`ErrorKind::SandboxLost`], also for one that never was.
    async fn inspect(&self, sandbox: &SandboxId) -> Result<Inspection>;

    /// Lets the sandbox live for `lifetime` from now on, longer or shorter than before; `None` gives it its first lifetime again.
    /// Returns what it has now.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a sandbox without lifetime and none given.
    async fn renew(&self, sandbox: &SandboxId, lifetime: Option<Duration>) -> Result<Duration>;

    /// Removes what is left of sandboxes that are gone, once it is proved to be this user's and nobody's any more; with
    /// `dry_run` only looks. Returns what was found.
    ///
    /// # Errors
    /// What kept the backend from looking. What could not be removed is in the list.
    async fn prune(&self, dry_run: bool) -> Result<Vec<Leftover>>;

    /// Returns events of reachable sandboxes, also of those that have ended, from a place in the record on: so many at a time that it
    /// takes little memory, without waiting for any.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where no record is kept, as the provided one says;
    /// [`ErrorKind::InvalidArgument`] for a place that is none of this backend's.
    async fn events(&self, _from: &EventsFrom) -> Result<Events> {
        let message = "this backend keeps no record of what happens to its sandboxes";
        Err(Error::new(ErrorKind::Unsupported, self.name(), "read the audit record", message))
    }
}
