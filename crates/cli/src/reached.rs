//! Sandboxes that are there already: which backend has one, and what is said where it has not.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence::{Attachable, Backend, Error, ErrorKind, Handle, Registry};

use crate::args::SpecArgs;
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::settings::{RunFlags, Settings};

/// The backends, opened when they are first asked for.
#[derive(Debug)]
pub(crate) struct Backends {
    registry: Registry,
    default: String,
    opened: BTreeMap<String, Arc<dyn Backend>>,
}

impl Backends {
    /// Reads the settings of backends. `named` is the one that a flag names; without it the settings do.
    ///
    /// The project's file has no word in this, so it is not read: whatever is wrong with it must not be in the way of
    /// removing a sandbox.
    pub(crate) fn load(named: Option<&str>, environment: &Environment) -> Result<Self> {
        let args =
            SpecArgs { backend: named.map(str::to_owned), ignore_project_file: true, ..SpecArgs::default() };
        let settings = Settings::load(&args, RunFlags::default(), environment)?;
        Ok(Self {
            registry: Registry::new(settings.backend_settings()?),
            default: settings.backend().to_owned(),
            opened: BTreeMap::new(),
        })
    }

    /// Returns the backend that is asked where no handle says which.
    pub(crate) fn default(&self) -> Result<Arc<dyn Backend>> {
        self.registry.open(&self.default).map_err(Failure::from)
    }

    /// Returns the backend that has a sandbox.
    pub(crate) fn of(&mut self, handle: &Handle) -> Result<Arc<dyn Backend>> {
        if let Some(backend) = self.opened.get(handle.scheme()) {
            return Ok(Arc::clone(backend));
        }
        let backend = self.registry.open_for(handle)?;
        self.opened.insert(handle.scheme().to_owned(), Arc::clone(&backend));
        Ok(backend)
    }
}

/// Returns the backend of one sandbox.
pub(crate) fn backend_of(handle: &Handle, environment: &Environment) -> Result<Arc<dyn Backend>> {
    Backends::load(None, environment)?.of(handle)
}

/// Returns the backend as one whose sandboxes other processes find.
pub(crate) fn attachable(backend: &dyn Backend) -> Result<&dyn Attachable> {
    backend.attachable().ok_or_else(|| {
        let message = "other processes cannot reach its sandboxes";
        let error = Error::new(ErrorKind::Unsupported, backend.name(), "find a sandbox", message);
        Failure::from(error.hint("`ringfence run` and `ringfence shell`, whose sandboxes end with them"))
    })
}

/// Says what went wrong with a sandbox that was named by its handle.
pub(crate) fn failed(handle: &Handle, error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::SandboxLost => {
            let failure =
                Failure::new(format!("there is no sandbox {handle}")).with_kind(error.kind().name());
            match handle.sandbox().as_str().split_once(':') {
                // As `cp` has it.
                Some((sandbox, path)) => failure.hint(format!(
                    "a path is an argument of its own: {}:{sandbox} {path}; only `ringfence cp` takes both in one",
                    handle.scheme()
                )),
                None => failure
                    .hint("`ringfence ps` shows those there are; others have ended, as `ringfence logs` tells, or are another user's"),
            }
        }
        _ => Failure::from(error),
    }
}
