//! The backend is compiled in.

use std::sync::Arc;

use ringfence_core::{Backend, Result};
use ringfence_local::{Check, LocalBackend, Outcome, SCHEME};

use crate::probe::{Probe, ProbeCheck, ProbeOutcome};
use crate::registry::Availability;

pub use ringfence_local::LocalConfig;

pub(crate) const AVAILABILITY: Availability = Availability::Available;

#[expect(clippy::unnecessary_wraps, reason = "the disabled twin fails")]
pub(crate) fn open(config: &LocalConfig) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(LocalBackend::new(config.clone())))
}

pub(crate) async fn probe(config: &LocalConfig) -> Probe {
    match LocalBackend::new(config.clone()).probe().await {
        Ok(report) => Probe::new(SCHEME, report.checks.into_iter().map(translate).collect()),
        Err(error) => {
            Probe::failed(SCHEME, "launcher", error.to_string(), error.hint_text().map(str::to_owned))
        }
    }
}

fn translate(check: Check) -> ProbeCheck {
    ProbeCheck {
        name: check.name,
        outcome: match check.outcome {
            Outcome::Works => ProbeOutcome::Works,
            Outcome::Absent => ProbeOutcome::Absent,
            Outcome::Failed => ProbeOutcome::Failed,
        },
        detail: check.detail,
        remedy: check.remedy,
        fields: check.fields,
    }
}
