//! The built-in backends and their settings: one folder and one line each.

mod local;

use std::sync::Arc;

use ringfence_core::document::object;
use ringfence_core::{Backend, Result, object_only};
use serde::{Deserialize, Serialize};

use crate::registry::Availability;

pub use local::LocalConfig;

/// What the operator decides per backend. Every field has a default.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct BackendSettings {
    /// The embedded Linux backend.
    #[serde(deserialize_with = "object")]
    pub local: LocalConfig,
}

object_only!(BackendSettings);

/// A backend that the registry knows without being told.
pub(crate) struct BuiltIn {
    pub(crate) scheme: &'static str,
    pub(crate) availability: Availability,
    pub(crate) open: fn(&BackendSettings) -> Result<Arc<dyn Backend>>,
}

pub(crate) const BUILT_IN: &[BuiltIn] = &[BuiltIn {
    scheme: "local",
    availability: local::AVAILABILITY,
    open: |settings| local::open(&settings.local),
}];
