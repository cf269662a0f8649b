//! The four tools in a sandbox that somebody else created.

use std::sync::Arc;

use ringfence_core::{Backend, Error, ErrorKind, Inspection, Result, SandboxId, SandboxSpec, claim::claim};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::attached_note::Found;
use crate::blocking::BlockingSession;
use crate::config::{AttachedSandbox, Bounds, ToolsetConfig};
use crate::hold::Hold;
use crate::kit::{self, Kit, Whose};
use crate::mask::Masker;
use crate::place::Place;
use crate::session::Session;

const ATTACH: &str = "attach to a sandbox";

/// A checked configuration for runs in sandboxes that somebody else created, and a shared backend. Cheap to clone.
///
/// [`Self::attach`] claims a sandbox and gives it back when its session is closed. Nothing is ever created or destroyed, also not when
/// the sandbox ends under a call (AT-14, AT-16).
///
/// ```
/// use std::sync::Arc;
/// use ringfence_core::{Backend, Claimant, SandboxSpec, memory::RecordingBackend};
/// use ringfence_toolset::{AttachedToolset, ToolsetConfig};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = Arc::new(RecordingBackend::new().with_attach());
/// let sandbox = backend.create(&SandboxSpec::new().with_owner("etl/2026-10-05")?).await?.id;
///
/// // Perhaps in another process, which got the sandbox's name and knows whose it is.
/// let claimant = Claimant::new("etl/2026-10-05")?.with_holder("etl/2026-10-05/report")?;
/// let toolset = AttachedToolset::new(backend, ToolsetConfig::attached(claimant))?;
/// let session = toolset.attach(sandbox.as_str()).await?;
/// assert!(session.definitions()[0].description.contains("belongs to etl/2026-10-05"));
/// session.call("run_command", &json!({"command": "ls"})).await?;
/// session.close().await;
/// # Ok(())
/// # }
/// ```
///
/// What makes no sense in a sandbox of somebody else does not compile: a spec (TC-07) or inputs, which are its creator's to decide,
///
/// ```compile_fail,E0599
/// # use ringfence_core::{Claimant, SandboxSpec};
/// # use ringfence_toolset::ToolsetConfig;
/// # let claimant = Claimant::new("me").unwrap();
/// ToolsetConfig::attached(claimant).spec(SandboxSpec::new());
/// ```
///
/// an owner to present without a sandbox to attach to (TC-10), or a session that was not claimed.
///
/// ```compile_fail,E0308
/// # use std::sync::Arc;
/// # use ringfence_core::{Claimant, memory::RecordingBackend};
/// # use ringfence_toolset::{Toolset, ToolsetConfig};
/// # let claimant = Claimant::new("me").unwrap();
/// Toolset::new(Arc::new(RecordingBackend::new()), ToolsetConfig::attached(claimant));
/// ```
///
/// ```compile_fail,E0599
/// # fn example(toolset: ringfence_toolset::AttachedToolset) {
/// toolset.open();
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AttachedToolset {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    backend: Arc<dyn Backend>,
    config: ToolsetConfig<AttachedSandbox>,
    bounds: Bounds,
}

impl AttachedToolset {
    /// Checks the configuration. Touches nothing outside this process (TC-16).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] that names the parameter and its value, for the first fault in the order of TC-14; the last is a
    /// backend that cannot be attached to (TC-06).
    pub fn new(backend: Arc<dyn Backend>, config: ToolsetConfig<AttachedSandbox>) -> Result<Self> {
        let bounds = config.bounds(&*backend)?;
        Ok(Self { inner: Arc::new(Inner { backend, config, bounds }) })
    }

    /// Claims a sandbox and opens a run in it, before a model has spent anything (AT-12). `handle` is the name of the sandbox,
    /// with or without that of the backend in front: `sb-0123456789ab`, `local:sb-0123456789ab`.
    ///
    /// The tools are those of the [session](Session::definitions): what the model is told about the sandbox is read now and stays the same
    /// until the session is closed (AT-19). The lease of the claim is renewed in the background of the current runtime meanwhile. A
    /// future that is dropped leaves no claim behind.
    ///
    /// # Errors
    /// All terminal, and nothing is created (AT-13): [`ErrorKind::InvalidArgument`] for a handle that is empty or `None`, which is what an
    /// unset value is rendered to; those of [`claim`].
    pub async fn attach(&self, handle: &str) -> Result<Session> {
        let fault =
            |kind, message: String| Error::new(kind, self.inner.backend.name(), ATTACH, message).terminal();
        let scheme = format!("{}:", self.inner.backend.name());
        let Some(sandbox) = SandboxId::new(handle.strip_prefix(&scheme).unwrap_or(handle)) else {
            let message = format!("its name is {handle:?}, which is what an unset value is rendered to");
            return Err(fault(ErrorKind::InvalidArgument, message)
                .hint("pass the name of a sandbox that stands; none is created here"));
        };
        let Ok(runtime) = Handle::try_current() else {
            let message = "it must be done inside a tokio runtime; use attach_blocking elsewhere".to_owned();
            return Err(fault(ErrorKind::InvalidArgument, message));
        };
        // In a task of its own, so that a caller that stops waiting leaves no claim behind: a session that nobody takes is dropped.
        let (sender, receiver) = oneshot::channel();
        let opening = open(Arc::clone(&self.inner), sandbox, runtime.clone());
        drop(runtime.spawn(async move { drop(sender.send(opening.await)) }));
        receiver.await.unwrap_or_else(|_| {
            let message = "the runtime ended or the backend panicked half-way".to_owned();
            Err(fault(ErrorKind::Unexpected, message))
        })
    }

    /// Claims a sandbox for code that is not asynchronous (LC-15).
    ///
    /// # Errors
    /// As [`Self::attach`]; no thread could be started.
    pub fn attach_blocking(&self, handle: &str) -> Result<BlockingSession> {
        let (toolset, handle) = (self.clone(), handle.to_owned());
        BlockingSession::open(self.inner.backend.name(), async move { toolset.attach(&handle).await })
    }

    /// Returns the identity `sandbox-<backend>`, with a prefix `sandbox-<backend>-<prefix>` (TC-18).
    #[must_use]
    pub fn identity(&self) -> String {
        kit::identity(&*self.inner.backend, &self.inner.config.prefix)
    }

    /// Returns the backend.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.backend
    }

    /// Returns the checked bounds.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.inner.bounds
    }
}

async fn open(inner: Arc<Inner>, sandbox: SandboxId, runtime: Handle) -> Result<Session> {
    let Inner { backend, config, bounds } = &*inner;
    let mode = &config.mode;
    let masker = |spec: &SandboxSpec| {
        Masker::new(spec.env(), &config.public_env, config.secrets.iter().map(Vec::as_slice))
    };
    let no_spec = SandboxSpec::default();
    let hidden = masker(&no_spec);
    let attachable = backend.attachable().ok_or_else(|| {
        let fault = "the backend is not attachable any more";
        Error::new(ErrorKind::Unsupported, backend.name(), ATTACH, fault)
    })?;
    // Looked at before it is claimed: what its creator put into the environment is hidden from this model as well, and whatever fails here
    // leaves nothing to give back.
    let inspection = match attachable.inspect(&sandbox).await {
        Ok(inspection) => Some(inspection),
        Err(error) if *error.kind() == ErrorKind::Unsupported => None,
        Err(error) => return Err(hidden.error(unreadable(backend.name(), &sandbox, error))),
    };
    let claimed = claim(attachable, &sandbox, &mode.claimant, mode.lease, mode.clock.now()).await;
    let claim = claimed.map_err(|error| hidden.error(error))?;
    let (spec, statement) = match inspection {
        Some(Inspection { spec, statement, .. }) => (spec, Some(statement)),
        None => (no_spec, None),
    };
    let found = Found::new(sandbox.as_str(), claim.tags(), mode.clock.now());
    let masker = masker(&spec);
    let kit = Kit::new(Arc::clone(backend), spec, *bounds, masker, &config.prefix, &Whose::Attached(&found));
    tracing::debug!(sandbox = sandbox.as_str(), backend = backend.name(), "sandbox claimed");
    let hold = Hold::new(
        Arc::clone(backend),
        claim,
        statement,
        mode.clock.clone(),
        Arc::clone(&kit.masker),
        runtime,
    );
    Ok(Session::new(Arc::new(kit), Place::Attached(hold)))
}

/// A sandbox that cannot be looked at cannot be used either (AT-12).
fn unreadable(backend_name: &str, sandbox: &SandboxId, error: Error) -> Error {
    if error.is_terminal() {
        return error;
    }
    let wrapped =
        Error::new(error.kind().clone(), backend_name, ATTACH, "the sandbox could not be looked at");
    wrapped.context("sandbox", sandbox.as_str()).retry(error.retry_policy()).source(error).terminal()
}
