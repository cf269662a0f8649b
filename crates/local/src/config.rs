//! What the operator decides for all sandboxes of this backend.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the local backend; every field has a default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LocalConfig {
    /// Which shell runs commands: `bash`, `sh`, or an absolute path inside the sandbox. Default: bash where the host has
    /// it, else sh.
    pub shell: Option<String>,
    /// Host files and directories shown read-only at the same path, on top of the system directories. Default: none.
    pub read_only_paths: Vec<PathBuf>,
}
