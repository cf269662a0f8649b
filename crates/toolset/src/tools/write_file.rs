//! `write_file`: arguments, wording, rendering (WF).

use ringfence_core::{GuestPath, Result};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::guest_path;
use crate::arguments::Arguments;
use crate::definition::schema_of;
use crate::mask::Masker;
use crate::outcome::ToolOutput;
use crate::text::quoted_path;

pub(crate) const TITLE: &str = "Write a file";

/// What the model is told about the tool.
pub(crate) const DESCRIPTION: &str = "Writes a text file of the sandbox: creates it, and its parent directories, or \
     replaces its whole content. An existing file keeps its mode. Make a new script executable with chmod, or name its \
     interpreter.";

/// The arguments of `write_file`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the JSON form; `WriteFile::parse` takes it")]
struct WriteFileArguments {
    /// The file, absolute or relative to the working directory.
    path: String,
    /// The whole new content.
    content: String,
}

/// What was written.
#[derive(Debug, Serialize, JsonSchema)]
struct WriteFileStructure {
    /// The file.
    path: String,
    /// How many bytes it has now.
    bytes_written: u64,
}

pub(crate) fn input_schema() -> Value {
    schema_of::<WriteFileArguments>()
}

pub(crate) fn output_schema() -> Value {
    schema_of::<WriteFileStructure>()
}

/// A checked call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteFile {
    pub(crate) shown_path: String,
    pub(crate) path: GuestPath,
    pub(crate) content: String,
}

impl WriteFile {
    /// Takes the arguments (TD-03). A text of JSON has no unpaired surrogates here, so it always encodes (WF-04).
    pub(crate) fn parse(arguments: &Value) -> Result<Self, String> {
        let mut arguments = Arguments::of(arguments);
        let path = arguments.text("path");
        let content = arguments.text("content");
        arguments.finish()?;
        Ok(Self { path: guest_path(&path)?, shown_path: path, content })
    }

    /// Renders the confirmation (WF-01 to WF-03).
    pub(crate) fn render(&self, masker: &Masker) -> Result<ToolOutput> {
        let path = masker.text(&self.shown_path);
        let bytes = self.content.len() as u64;
        let structure = WriteFileStructure { path: path.clone().into_owned(), bytes_written: bytes };
        super::output(format!("Wrote {bytes} bytes to {}.", quoted_path(&path)), &structure)
    }
}
