//! Sandboxes made in advance, so that whoever asks for one does not wait for its making.

mod shelf;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::attach::Attachable;
use crate::backend::{Backend, Created, Plan, SandboxId};
use crate::background::Background;
use crate::capability::Capabilities;
use crate::command::{CommandRequest, CommandResult};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{GuestPath, ListRequest, Listing};
use crate::pool::shelf::Shelf;
use crate::probe::ProbeReport;
use crate::spec::SandboxSpec;
use crate::statement::SpecField;
use crate::terminal::{Terminal, TerminalRequest};
use crate::tree::TreeGate;

/// The most sandboxes that a pool holds.
pub const MAX_SIZE: usize = 256;

/// What lies between the first creation that failed and the next; each further failure doubles it, up to [`LONGEST_PAUSE`].
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest that lies between two creations of which the first failed.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After so many failures in a row nothing more is made in advance until somebody asks for a sandbox again.
pub const MAX_FAILURES: u32 = 8;

/// A backend that holds some sandboxes of one spec ready and hands them out by [`Backend::create`]. Each is handed out once. Everything
/// else, other specs included, goes to the backend behind it.
///
/// Refilled in the background, one sandbox after the other, and never waited for: where none is ready, [`Backend::create`] makes
/// one itself, and fails as the backend fails. Clocks of a sandbox that is not handed out stand still ([`Backend::create_parked`]).
///
/// [`Self::close`] destroys what was not handed out. A pool that is dropped does so in the background, on the current tokio runtime
/// or else on the one that filled it; if neither runs, they are left to the backend's own clean-up.
///
/// ```
/// use std::num::NonZeroUsize;
/// use std::sync::Arc;
/// use ringfence_core::{Backend, Pool, SandboxSpec, memory::RecordingBackend};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ringfence_core::Result<()> {
/// let spec = SandboxSpec::new();
/// let pool = Pool::new(Arc::new(RecordingBackend::new()), spec.clone(), NonZeroUsize::MIN)?;
/// pool.fill();
/// // From here on a backend like any other, such as for a toolset.
/// let sandbox = pool.create(&spec).await?.id;
/// pool.destroy(&sandbox).await?;
/// pool.close().await;
/// # Ok(())
/// # }
/// ```
pub struct Pool {
    shelf: Arc<Shelf>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("backend", &self.shelf.backend)
            .field("size", &self.shelf.size)
            .field("ready", &self.ready())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Returns an empty pool for `size` sandboxes of `spec`. Does nothing yet (BK-01): see [`Self::fill`].
    ///
    /// # Errors
    /// What [`Backend::judge`] says of the spec. [`ErrorKind::Refused`] for a spec with an owner or labels: somebody could claim or find such
    /// a sandbox before it is handed out. [`ErrorKind::InvalidArgument`] for more than [`MAX_SIZE`].
    pub fn new(backend: Arc<dyn Backend>, spec: SandboxSpec, size: NonZeroUsize) -> Result<Self> {
        if size.get() > MAX_SIZE {
            let fault = format!("a pool holds at most {MAX_SIZE} sandboxes, not {size}");
            return Err(Error::invalid("make a pool", fault));
        }
        for (field, what) in [(SpecField::Owner, "claim"), (SpecField::Labels, "find and use")] {
            if spec.asks_for(field) {
                let fault =
                    format!("somebody could {what} a sandbox that waits in a pool before it is handed out");
                return Err(Error::refused(backend.name(), field, fault)
                    .hint(format!("drop the {field}, or create without a pool")));
            }
        }
        backend.judge(&spec)?;
        Ok(Self { shelf: Arc::new(Shelf::new(backend, spec, size.get())) })
    }

    /// Has `observer` told what could not be made in advance, or not destroyed at the end. It is called from the background, must not
    /// block, and is not told what a caller learns from [`Backend::create`].
    #[must_use]
    pub fn reporting_to(self, observer: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        // Only set before anything is filled: a second call replaces the first observer.
        self.shelf.report_to(Arc::new(observer));
        self
    }

    /// Starts to fill the pool in the background of the current tokio runtime. Without one nothing happens before the first
    /// [`Backend::create`].
    pub fn fill(&self) {
        Shelf::refill(&self.shelf);
    }

    /// Returns how many sandboxes are ready now.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.shelf.ready()
    }

    /// Destroys what was not handed out and waits for that; a creation in flight is waited for as well. Never fails: what could not be
    /// destroyed is reported to the observer. From then on nothing is made in advance any more; the pool is only the backend behind it.
    /// May be called more than once; dropping the future does not stop what it began.
    pub async fn close(&self) {
        Shelf::close(&self.shelf).await;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        Shelf::abandon(&self.shelf);
    }
}

// A wrapper that forgot a method would silently offer the provided one instead of the backend's own.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for Pool {
    fn name(&self) -> &str {
        self.shelf.backend.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.shelf.backend.capabilities()
    }

    fn judge(&self, spec: &SandboxSpec) -> Result<Plan> {
        self.shelf.backend.judge(spec)
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Created> {
        if *spec != self.shelf.spec {
            return self.shelf.backend.create(spec).await;
        }
        while let Some(taken) = Shelf::take(&self.shelf) {
            match self.shelf.backend.unpark(taken.id()).await {
                Ok(()) => {
                    let created = taken.hand_out();
                    Shelf::refill(&self.shelf);
                    return Ok(created);
                }
                Err(error) if *error.kind() == ErrorKind::SandboxLost => taken.forget(),
                // Whether it stands is not known, so that it is destroyed rather than trusted.
                Err(error) => self.shelf.report(&error),
            }
        }
        let created = self.shelf.backend.create(spec).await;
        Shelf::refill(&self.shelf);
        created
    }

    async fn run_command(&self, sandbox: &SandboxId, request: CommandRequest) -> Result<CommandResult> {
        self.shelf.backend.run_command(sandbox, request).await
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<()> {
        self.shelf.backend.destroy(sandbox).await
    }

    async fn read_file(&self, sandbox: &SandboxId, path: &GuestPath, limit_bytes: u64) -> Result<Vec<u8>> {
        self.shelf.backend.read_file(sandbox, path, limit_bytes).await
    }

    async fn write_file(&self, sandbox: &SandboxId, path: &GuestPath, content: &[u8]) -> Result<()> {
        self.shelf.backend.write_file(sandbox, path, content).await
    }

    async fn list_directory(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        request: ListRequest,
    ) -> Result<Listing> {
        self.shelf.backend.list_directory(sandbox, path, request).await
    }

    async fn export_file(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        limit_bytes: u64,
        sink: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        self.shelf.backend.export_file(sandbox, path, limit_bytes, sink).await
    }

    async fn import_file(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        size: u64,
        executable: bool,
        source: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        self.shelf.backend.import_file(sandbox, path, size, executable, source).await
    }

    async fn export_tree(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        gate: &mut TreeGate<'_>,
    ) -> Result<()> {
        self.shelf.backend.export_tree(sandbox, path, gate).await
    }

    async fn probe(&self) -> Result<ProbeReport> {
        self.shelf.backend.probe().await
    }

    fn attachable(&self) -> Option<&dyn Attachable> {
        self.shelf.backend.attachable()
    }

    fn background(&self) -> Option<&dyn Background> {
        self.shelf.backend.background()
    }

    async fn create_parked(&self, spec: &SandboxSpec) -> Result<Created> {
        self.shelf.backend.create_parked(spec).await
    }

    async fn unpark(&self, sandbox: &SandboxId) -> Result<()> {
        self.shelf.backend.unpark(sandbox).await
    }

    async fn open_terminal(&self, sandbox: &SandboxId, request: TerminalRequest) -> Result<Terminal> {
        self.shelf.backend.open_terminal(sandbox, request).await
    }
}
