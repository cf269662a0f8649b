//! The trait that every place to run code implements.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::attach::Attachable;
use crate::background::Background;
use crate::capability::Capabilities;
use crate::command::{CommandRequest, CommandResult};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{GuestPath, ListRequest, Listing};
use crate::probe::ProbeReport;
use crate::shell;
use crate::spec::SandboxSpec;
use crate::statement::{EnforcementStatement, SpecField};
use crate::terminal::{Terminal, TerminalRequest};
use crate::tree::{self, TreeGate};

/// The name under which a backend knows one of its sandboxes, and in the hands of whoever has claimed it the fence of that
/// claim. Two ids are equal if they name the same sandbox; as text an id is the name alone, so a claim cannot be passed on by it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxId {
    name: String,
    fence: Option<Fence>,
}

/// Counts the claims of a sandbox. Operations that carry the fence of a claim that is over are refused (S54).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(NonZeroU64);

impl Fence {
    /// Wraps a count; `None` for 0, which is no claim.
    #[must_use]
    pub fn new(count: u64) -> Option<Self> {
        NonZeroU64::new(count).map(Self)
    }

    /// Returns the count.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl SandboxId {
    /// Wraps an id that a backend handed out. Returns `None` for what can only be a rendering accident:
    /// the empty string and `None` (SP-14).
    pub fn new(id: impl Into<String>) -> Option<Self> {
        let name = id.into();
        (!name.is_empty() && name != "None").then_some(Self { name, fence: None })
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Returns the same sandbox as its holder names it: what is done through this id is refused once the claim is over.
    #[must_use]
    pub fn fenced(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// Returns the same sandbox as whoever does not hold it names it.
    #[must_use]
    pub fn unfenced(mut self) -> Self {
        self.fence = None;
        self
    }

    /// Returns the fence of the claim under which this id is used.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.fence
    }
}

impl PartialEq for SandboxId {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SandboxId {}

impl Hash for SandboxId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PartialOrd for SandboxId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SandboxId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl TryFrom<String> for SandboxId {
    type Error = String;

    fn try_from(id: String) -> std::result::Result<Self, String> {
        let refused = format!("{id:?} is not a sandbox id");
        Self::new(id).ok_or(refused)
    }
}

impl From<SandboxId> for String {
    fn from(id: SandboxId) -> Self {
        id.name
    }
}

/// Returns a name for a sandbox that a backend lets its caller choose: `ringfence-` and 12 random hexadecimal digits
/// (SP-15).
#[must_use]
pub fn unique_name() -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("ringfence-{}", &random[..12])
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What a backend would do for a spec, decided without I/O.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One row per spec field; evidence is what is known before creation.
    pub statement: EnforcementStatement,
}

/// A sandbox that was created, with what is enforced on it.
#[derive(Debug, Clone)]
pub struct Created {
    /// The handle for all further calls.
    pub id: SandboxId,
    /// One row per spec field, with evidence gathered at creation.
    pub statement: EnforcementStatement,
}

/// A place that runs code nobody has read.
///
/// Constructors of implementations perform no I/O (BK-01). All methods may be called concurrently, also for one
/// sandbox. Dropping the future of [`Self::run_command`] ends that command and its descendants where the backend
/// can do so, and never leaves the caller's process waiting.
///
/// File operations of every backend follow the rules that [`shell`] states for links, parents, modes and lost sandboxes;
/// the provided ones are those of that module.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// Returns the name used in messages and handles, such as `local`.
    fn name(&self) -> &str;

    /// Returns what this backend can do; what is not claimed is refused.
    fn capabilities(&self) -> Capabilities;

    /// Decides, without I/O, whether the spec can be enforced (SP-04, SP-08).
    ///
    /// # Errors
    /// [`ErrorKind::Refused`], naming the field and the way out.
    fn judge(&self, spec: &SandboxSpec) -> Result<Plan>;

    /// Judges the spec again and creates a sandbox.
    ///
    /// # Errors
    /// A refusal, or a failure after which nothing is left behind. Every error is terminal (BK-03).
    async fn create(&self, spec: &SandboxSpec) -> Result<Created>;

    /// Runs one command to its end, its timeout, or the end of the sandbox. A non-zero exit is a result (BK-10).
    ///
    /// # Errors
    /// Only what kept the command from being run or its result from being known.
    async fn run_command(&self, sandbox: &SandboxId, request: CommandRequest) -> Result<CommandResult>;

    /// Ends the sandbox and everything in it. "Already gone" is success (BK-04).
    ///
    /// # Errors
    /// The sandbox may still exist.
    async fn destroy(&self, sandbox: &SandboxId) -> Result<()>;

    /// Reads a whole regular file of at most `limit_bytes`.
    ///
    /// # Errors
    /// Typed by [`ErrorKind`]: missing, directory, not regular, too large, lost sandbox.
    async fn read_file(&self, sandbox: &SandboxId, path: &GuestPath, limit_bytes: u64) -> Result<Vec<u8>> {
        shell::read_file(self, sandbox, path, limit_bytes).await
    }

    /// Replaces or creates a file, and its parent directories, atomically; an existing file keeps its mode.
    ///
    /// # Errors
    /// Typed by [`ErrorKind`].
    async fn write_file(&self, sandbox: &SandboxId, path: &GuestPath, content: &[u8]) -> Result<()> {
        shell::write_file(self, sandbox, path, content).await
    }

    /// Lists a directory in byte order of the names, without `.` and `..`, at most `request.max_entries` of it.
    ///
    /// # Errors
    /// Typed by [`ErrorKind`].
    async fn list_directory(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        request: ListRequest,
    ) -> Result<Listing> {
        shell::list_directory(self, sandbox, path, request).await
    }

    /// Copies a regular file of at most `limit_bytes` into `sink` in bounded memory and returns its size.
    /// A size that changes while copying is an error, never a short file (EX-18).
    ///
    /// # Errors
    /// Typed by [`ErrorKind`]; a failing sink is reported as the source.
    async fn export_file(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        limit_bytes: u64,
        sink: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        shell::export_file(self, sandbox, path, limit_bytes, sink).await
    }

    /// Replaces or creates a file as [`Self::write_file`] does, out of `source`, which has to yield exactly `size` bytes and then
    /// its end. With `executable` the file can be executed afterwards by whoever can read it; without, an existing file keeps its mode.
    ///
    /// The provided one holds the content in memory and takes at most [`shell::MAX_IMPORT_BYTES`].
    ///
    /// # Errors
    /// Typed by [`ErrorKind`]; of a source that fails or has another size, the file is unchanged.
    async fn import_file(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        size: u64,
        executable: bool,
        source: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        shell::import_file(self, sandbox, path, size, executable, source).await
    }

    /// Tells `gate` the directory, and everything in it, or the file at `path`. Links are followed on the path, and in the tree none
    /// is. What cannot be read, changes meanwhile, or is neither file, directory nor link is told as skipped.
    /// [`tree::export`] is the usual way to call it.
    ///
    /// The provided one goes through [`Self::list_directory`] and [`Self::export_file`]. It can read no links, does not know what can
    /// be executed, and holds files in memory whose size a listing does not tell.
    ///
    /// # Errors
    /// Typed by [`ErrorKind`], and those of the gate.
    async fn export_tree(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        gate: &mut TreeGate<'_>,
    ) -> Result<()> {
        tree::export_tree(self, sandbox, path, gate).await
    }

    /// Tries what this backend can do here, once; may take seconds and must leave nothing behind (P90). What does not work is
    /// in the report. The provided one tries nothing and returns the empty report, of which
    /// [`ProbeReport::can_isolate`] is false: nothing was seen to work.
    ///
    /// # Errors
    /// What kept anything from being tried at all.
    async fn probe(&self) -> Result<ProbeReport> {
        Ok(ProbeReport::default())
    }

    /// Returns this backend as one whose sandboxes other processes can find and use. The provided one says that they cannot;
    /// agrees with [`Capabilities::attach`].
    fn attachable(&self) -> Option<&dyn Attachable> {
        None
    }

    /// Returns this backend as one that runs commands nobody waits for. The provided one says that it does not; agrees with
    /// [`Capabilities::background`].
    fn background(&self) -> Option<&dyn Background> {
        None
    }

    /// Creates a sandbox for later use, as [`Self::create`] does, whose clocks (lifetime, idle) stand still until
    /// [`Self::unpark`]. The provided one can do so for a spec without clocks.
    ///
    /// # Errors
    /// As [`Self::create`]; a refusal of the clock that cannot be stopped.
    async fn create_parked(&self, spec: &SandboxSpec) -> Result<Created> {
        for field in [SpecField::Lifetime, SpecField::Idle] {
            if spec.asks_for(field) {
                let message = "its clock starts when the sandbox is created, so none can be made in advance";
                return Err(Error::refused(self.name(), field, message).hint("drop it, or create on demand"));
            }
        }
        self.create(spec).await
    }

    /// Starts the clocks of a parked sandbox and makes sure that it still stands, without any effect inside.
    ///
    /// # Errors
    /// [`ErrorKind::SandboxLost`] for one that is gone.
    async fn unpark(&self, _sandbox: &SandboxId) -> Result<()> {
        Ok(())
    }

    /// Starts an interactive command on a terminal of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] unless [`Capabilities::terminal`] is claimed.
    async fn open_terminal(&self, _sandbox: &SandboxId, _request: TerminalRequest) -> Result<Terminal> {
        Err(Error::new(
            ErrorKind::Unsupported,
            self.name(),
            "open a terminal",
            "this backend has no interactive terminals",
        ))
    }
}
