//! What a backend can do here, found out by trying.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::object_only;
use crate::statement::SpecField;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It works here.
    Works,
    /// Sandboxes work without it, but a spec that asks for it is refused.
    Absent,
    /// Without it this backend makes no sandboxes here.
    Failed,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Check {
    /// A short name, such as `user namespace` or `memory limit`.
    pub name: String,
    /// How it went.
    pub outcome: Outcome,
    /// The mechanism found, or what failed and how.
    pub detail: String,
    /// What to do where it does not work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The spec fields that depend on it.
    pub fields: Vec<SpecField>,
}

impl Check {
    /// Returns the check of something that works, with the mechanism found.
    #[must_use]
    pub fn works(name: impl Into<String>, detail: impl Into<String>, fields: Vec<SpecField>) -> Self {
        Self { name: name.into(), outcome: Outcome::Works, detail: detail.into(), remedy: None, fields }
    }

    /// Returns the check of something that ended in an error: its message and causes are the detail, its hint the remedy.
    #[must_use]
    pub fn of_error(
        name: impl Into<String>,
        outcome: Outcome,
        error: &Error,
        fields: Vec<SpecField>,
    ) -> Self {
        let mut detail = error.message().to_owned();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            detail.push_str(": ");
            detail.push_str(&error.to_string());
            cause = error.source();
        }
        Self { name: name.into(), outcome, detail, remedy: error.hint_text().map(str::to_owned), fields }
    }
}

/// Everything that was tried, in a fixed order. Empty where a backend has nothing to try, as one whose machines are
/// elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ProbeReport {
    /// The single checks.
    pub checks: Vec<Check>,
}

object_only!(Check);
object_only!(ProbeReport);

impl ProbeReport {
    /// Returns whether it was seen that sandboxes can be made: something was tried, and nothing failed without which there
    /// are none. An empty report saw nothing, so it says no; that is no refusal, [`Backend::judge`](crate::Backend::judge)
    /// decides about specs.
    #[must_use]
    pub fn can_isolate(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.outcome != Outcome::Failed)
    }
}
