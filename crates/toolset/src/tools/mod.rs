//! One file per tool: its arguments, the words the model sees, and how a result is rendered. No lifecycle here.

pub(crate) mod list_directory;
pub(crate) mod read_file;
pub(crate) mod run_command;
pub(crate) mod write_file;

use ringfence_core::{Capabilities, Error, ErrorKind, GuestPath, Result, SandboxSpec};
use serde::Serialize;

use crate::config::Bounds;
use crate::kit::Whose;
use crate::outcome::ToolOutput;

/// What descriptions are made from; fixed when the toolset is built, or when a sandbox is attached to (TD-18, AT-19).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) spec: &'a SandboxSpec,
    pub(crate) capabilities: &'a Capabilities,
    pub(crate) bounds: &'a Bounds,
    /// The prefix with its `_`, or nothing.
    pub(crate) prefix: &'a str,
    /// Whether output is masked.
    pub(crate) masks: bool,
    /// Whose sandbox it is.
    pub(crate) whose: &'a Whose<'a>,
}

/// Joins the two forms of a result.
pub(crate) fn output(text: String, structure: &impl Serialize) -> Result<ToolOutput> {
    let structured = serde_json::to_value(structure).map_err(|error| {
        Error::new(ErrorKind::Unexpected, "", "render the result", "it has no JSON form").source(error)
    })?;
    Ok(ToolOutput { text, structured })
}

/// Checks a path the model gave.
pub(crate) fn guest_path(path: &str) -> Result<GuestPath, String> {
    GuestPath::new(path).map_err(|error| format!("`path`: {}", error.message()))
}
