//! What a call comes to.

use std::fmt;

use ringfence_core::Error;
use serde_json::Value;

/// The result of a call, twice: as text and as structure. Some clients show the model only one of them, so each carries
/// everything.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// What the model reads.
    pub text: String,
    /// The same as JSON, valid under the tool's output schema.
    pub structured: Value,
}

/// Why a call has no result.
#[derive(Debug)]
pub enum ToolError {
    /// The model may correct itself: this goes back to it, and the run goes on (ER-02).
    Correction(Correction),
    /// The run ends here (ER-03).
    Terminal(Error),
    /// There is no such tool; a fault of whoever offers the tools, not of the model (ER-04).
    UnknownTool {
        /// The name that was called.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
}

/// What the model is told to do better.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correction {
    /// The text: the tool's name and the cause.
    pub text: String,
    /// How many times in a row this tool has failed, this time included; at most
    /// [`MAX_CORRECTIONS`](crate::MAX_CORRECTIONS), because the next failure is terminal (ER-06). 0 where the caller does
    /// not count.
    pub failures: u32,
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Correction(correction) => f.write_str(&correction.text),
            Self::Terminal(error) => error.fmt(f),
            Self::UnknownTool { name, known } => {
                write!(f, "unknown tool {name:?}; there are {}", known.join(", "))
            }
        }
    }
}

impl std::error::Error for ToolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Terminal(error) => error.source(),
            Self::Correction(_) | Self::UnknownTool { .. } => None,
        }
    }
}
