//! What a backend can do on this machine, in one form for all backends.

use ringfence_core::SpecField;
use serde::Serialize;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// It works here.
    Works,
    /// Sandboxes work without it, but a spec that asks for it is refused.
    Absent,
    /// Without it this backend makes no sandboxes here.
    Failed,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeCheck {
    /// A short name, such as `user namespace`.
    pub name: String,
    /// How it went.
    pub outcome: ProbeOutcome,
    /// The mechanism found, or what failed and how.
    pub detail: String,
    /// What to do where it does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The spec fields that depend on it.
    pub fields: Vec<SpecField>,
}

/// Everything that was tried for one backend, in a fixed order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The scheme of the backend.
    pub backend: String,
    /// Whether sandboxes can be created.
    pub can_isolate: bool,
    /// The single checks.
    pub checks: Vec<ProbeCheck>,
}

impl Probe {
    /// Returns the probe made of `checks`. No check at all proves nothing, so it counts as a failure.
    #[must_use]
    pub fn new(backend: impl Into<String>, checks: Vec<ProbeCheck>) -> Self {
        let can_isolate =
            !checks.is_empty() && checks.iter().all(|check| check.outcome != ProbeOutcome::Failed);
        Self { backend: backend.into(), can_isolate, checks }
    }

    /// Returns the probe of a backend that cannot even be asked.
    pub(crate) fn failed(
        backend: impl Into<String>,
        name: &str,
        detail: impl Into<String>,
        remedy: Option<String>,
    ) -> Self {
        let check = ProbeCheck {
            name: name.to_owned(),
            outcome: ProbeOutcome::Failed,
            detail: detail.into(),
            remedy,
            fields: Vec::new(),
        };
        Self::new(backend, vec![check])
    }
}
