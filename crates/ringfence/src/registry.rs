//! From a scheme to a backend.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ringfence_core::{Backend, Check, Error, ErrorKind, Outcome, ProbeReport, Result};

use crate::backends::{self, BackendSettings};
use crate::handle::Handle;

/// The backend that is used where none is named.
pub const DEFAULT_SCHEME: &str = "local";

/// Makes a backend. Performs no I/O (BK-01).
pub type Constructor = Arc<dyn Fn() -> Result<Arc<dyn Backend>> + Send + Sync>;

/// Whether a scheme can be opened in this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Availability {
    /// It can.
    Available,
    /// The build left it out: the named feature of this crate brings it back.
    NeedsFeature(&'static str),
    /// It exists for the named operating system only.
    NeedsSystem(&'static str),
}

impl Availability {
    fn missing(self, scheme: &str) -> Option<(String, &'static str)> {
        match self {
            Self::Available => None,
            Self::NeedsFeature(feature) => Some((
                format!("the backend needs feature `{feature}`, which this build was made without"),
                "build with that feature, or choose another backend",
            )),
            Self::NeedsSystem(system) => Some((
                format!("{scheme} sandboxes need {system}"),
                "choose a hosted backend, or run inside a Linux machine",
            )),
        }
    }
}

/// Knows every backend by its scheme.
pub struct Registry {
    settings: BackendSettings,
    registered: BTreeMap<String, Constructor>,
}

impl Registry {
    /// Returns a registry of the built-in backends. Performs no I/O.
    #[must_use]
    pub fn new(settings: BackendSettings) -> Self {
        Self { settings, registered: BTreeMap::new() }
    }

    /// Adds a backend of your own; it replaces a built-in one of the same scheme.
    #[must_use]
    pub fn with_backend(mut self, scheme: impl Into<String>, constructor: Constructor) -> Self {
        self.registered.insert(scheme.into(), constructor);
        self
    }

    /// Returns every scheme that is known, also those this build cannot open, in byte order.
    #[must_use]
    pub fn schemes(&self) -> Vec<(String, Availability)> {
        let mut schemes: BTreeMap<String, Availability> =
            backends::BUILT_IN.iter().map(|entry| (entry.scheme.to_owned(), entry.availability)).collect();
        schemes.extend(self.registered.keys().map(|scheme| (scheme.clone(), Availability::Available)));
        schemes.into_iter().collect()
    }

    /// Makes the backend of a scheme. Performs no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a scheme that this build lacks, saying what it needs;
    /// [`ErrorKind::InvalidArgument`] for one that nobody knows, listing those that are.
    pub fn open(&self, scheme: &str) -> Result<Arc<dyn Backend>> {
        if let Some(constructor) = self.registered.get(scheme) {
            return constructor();
        }
        let entry = self.built_in(scheme)?;
        match entry.availability.missing(scheme) {
            None => (entry.open)(&self.settings),
            Some((message, hint)) => {
                Err(Error::new(ErrorKind::Unsupported, scheme, "open the backend", message).hint(hint))
            }
        }
    }

    /// Makes the backend that has a sandbox. Performs no I/O, and so does not know whether that exists.
    ///
    /// # Errors
    /// As [`Self::open`], with the fact `sandbox`.
    pub fn open_for(&self, handle: &Handle) -> Result<Arc<dyn Backend>> {
        self.open(handle.scheme()).map_err(|error| error.context("sandbox", handle.to_string()))
    }

    /// Tries here what a backend can do. One that cannot even be asked, because this build lacks it or for any other reason,
    /// is a check that failed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a scheme that nobody knows.
    pub async fn probe(&self, scheme: &str) -> Result<ProbeReport> {
        let failed = |name: &str, error: &Error| ProbeReport {
            checks: vec![Check::of_error(name, Outcome::Failed, error, Vec::new())],
        };
        if !self.registered.contains_key(scheme) {
            self.built_in(scheme)?;
        }
        let backend = match self.open(scheme) {
            Ok(backend) => backend,
            Err(error) => return Ok(failed("backend", &error)),
        };
        Ok(backend.probe().await.unwrap_or_else(|error| failed("probe", &error)))
    }

    fn built_in(&self, scheme: &str) -> Result<&'static backends::BuiltIn> {
        backends::BUILT_IN.iter().find(|entry| entry.scheme == scheme).ok_or_else(|| {
            let known: Vec<String> = self.schemes().into_iter().map(|(scheme, _)| scheme).collect();
            Error::invalid("open the backend", format!("there is no backend {scheme:?}"))
                .hint(format!("known: {}", known.join(", ")))
        })
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("settings", &self.settings)
            .field("registered", &self.registered.keys())
            .finish()
    }
}
