//! What this kernel grants, found out by trying.

use ringfence_core::SpecField;
use serde::Serialize;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It works here.
    Works,
    /// Sandboxes work without it, but a spec that asks for it is refused.
    Absent,
    /// Without it there are no sandboxes here.
    Failed,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A short name, such as `user namespace` or `memory limit`.
    pub name: String,
    /// How it went.
    pub outcome: Outcome,
    /// The mechanism found, or the failing step with its error.
    pub detail: String,
    /// What to do where it does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The spec fields that depend on it.
    pub fields: Vec<SpecField>,
}

/// Everything that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeReport {
    /// In a fixed order.
    pub checks: Vec<Check>,
}

impl ProbeReport {
    /// Returns whether sandboxes can be created here.
    #[must_use]
    pub fn can_isolate(&self) -> bool {
        self.checks.iter().all(|check| check.outcome != Outcome::Failed)
    }
}
