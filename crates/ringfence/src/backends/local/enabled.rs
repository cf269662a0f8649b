//! The backend is compiled in.

use std::sync::Arc;

use ringfence_core::{Backend, Result};
use ringfence_local::LocalBackend;

use crate::registry::Availability;

pub use ringfence_local::LocalConfig;

pub(crate) const AVAILABILITY: Availability = Availability::Available;

#[expect(clippy::unnecessary_wraps, reason = "the disabled twin fails")]
pub(crate) fn open(config: &LocalConfig) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(LocalBackend::new(config.clone())))
}
