//! The backend is not compiled in. Its settings are carried unread, so that one settings file serves several machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence_core::{Backend, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::registry::Availability;

/// Settings of the local backend, unread because this build lacks it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LocalConfig(BTreeMap<String, serde_json::Value>);

pub(crate) const AVAILABILITY: Availability = if cfg!(target_os = "linux") {
    Availability::NeedsFeature("local")
} else {
    Availability::NeedsSystem("Linux")
};

pub(crate) fn open(_config: &LocalConfig) -> Result<Arc<dyn Backend>> {
    Err(Error::new(ErrorKind::Unsupported, "local", "open the backend", "this build lacks it"))
}
