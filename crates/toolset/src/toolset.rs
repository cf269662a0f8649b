//! The four tools over one backend, ready to be run any number of times.

use std::sync::Arc;

use ringfence_core::{Backend, Plan, Result, SandboxSpec};

use crate::blocking::BlockingSession;
use crate::config::{Bounds, ToolsetConfig};
use crate::definition::ToolDefinition;
use crate::kit::{self, Kit, Whose};
use crate::mask::Masker;
use crate::place::Place;
use crate::provision::Provisioner;
use crate::session::Session;

/// A checked configuration and a shared backend. Cheap to clone; clones share the backend and never a sandbox, which
/// belongs to a [`Session`] (LC-06, TC-17).
///
/// For a sandbox that somebody else created there is [`AttachedToolset`](crate::AttachedToolset).
#[derive(Debug, Clone)]
pub struct Toolset {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ToolsetConfig,
    kit: Arc<Kit>,
}

impl Toolset {
    /// Checks the configuration. Touches nothing outside this process (TC-16).
    ///
    /// Whether the backend can enforce the spec is not decided here but when a sandbox is created: a toolset may be built
    /// on another machine than the one that runs it. Ask [`Self::judge`] to know earlier.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ringfence_core::ErrorKind::InvalidArgument) or
    /// [`ErrorKind::Refused`](ringfence_core::ErrorKind::Refused) that names the parameter and its value, for the first
    /// fault in the order of TC-14.
    pub fn new(backend: Arc<dyn Backend>, config: ToolsetConfig) -> Result<Self> {
        let bounds = config.bounds()?;
        let spec = config.mode.spec.clone();
        let masker = Masker::new(spec.env(), &config.public_env, config.secrets.iter().map(Vec::as_slice));
        let whose = Whose::Own { has_inputs: !config.mode.inputs.is_empty() };
        let kit = Arc::new(Kit::new(backend, spec, bounds, masker, &config.prefix, &whose));
        Ok(Self { inner: Arc::new(Inner { config, kit }) })
    }

    /// Returns the four tools in the order in which they are offered (TD-01).
    #[must_use]
    pub fn definitions(&self) -> &[ToolDefinition] {
        &self.inner.kit.definitions
    }

    /// Returns the identity `sandbox-<backend>`, with a prefix `sandbox-<backend>-<prefix>` (TC-18).
    #[must_use]
    pub fn identity(&self) -> String {
        kit::identity(&*self.inner.kit.backend, &self.inner.config.prefix)
    }

    /// Asks the backend, without I/O, whether it would take the spec.
    ///
    /// # Errors
    /// The backend's refusal, naming the field.
    pub fn judge(&self) -> Result<Plan> {
        self.inner.kit.backend.judge(self.spec())
    }

    /// Opens a run. Provisions nothing (LC-01). May be done any number of times, at once or in turn (LC-05).
    #[must_use]
    pub fn open(&self) -> Session {
        let kit = &self.inner.kit;
        let provisioner = Provisioner::new(
            Arc::clone(&kit.backend),
            kit.spec.clone(),
            self.inner.config.mode.inputs.clone(),
            Arc::clone(&kit.masker),
        );
        Session::new(Arc::clone(kit), Place::Own(provisioner))
    }

    /// Opens a run for code that is not asynchronous (LC-15).
    ///
    /// # Errors
    /// No thread could be started.
    pub fn open_blocking(&self) -> Result<BlockingSession> {
        let toolset = self.clone();
        BlockingSession::open(self.backend().name(), async move { Ok(toolset.open()) })
    }

    /// Returns the backend.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.kit.backend
    }

    /// Returns the spec of every sandbox.
    #[must_use]
    pub fn spec(&self) -> &SandboxSpec {
        &self.inner.kit.spec
    }

    /// Returns the checked bounds.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.inner.kit.bounds
    }
}
