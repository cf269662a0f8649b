//! The four tools as a model and its framework see them (TD).

use std::fmt;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde::Serialize;
use serde_json::Value;

/// How often a tool may answer with a correction before the run ends (TD-07).
pub const MAX_CORRECTIONS: u32 = 2;

/// One of the four tools (TD-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    /// Runs a shell command.
    RunCommand,
    /// Reads a text file.
    ReadFile,
    /// Writes a file.
    WriteFile,
    /// Lists a directory.
    ListDirectory,
}

impl Tool {
    /// All tools, in the order in which they are offered.
    pub const ALL: [Self; 4] = [Self::RunCommand, Self::ReadFile, Self::WriteFile, Self::ListDirectory];

    /// Returns the name without a prefix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RunCommand => "run_command",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::ListDirectory => "list_directory",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Says that an argument of a tool is code (TD-06).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CodeSurface {
    /// The argument.
    pub argument: &'static str,
    /// Its language.
    pub language: &'static str,
}

/// A tool as it is offered. The same bytes at every step of a run, so that prompts stay cached (TD-18).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolDefinition {
    /// Which tool it is.
    #[serde(skip)]
    pub tool: Tool,
    /// The name, with the prefix.
    pub name: String,
    /// The name for people.
    pub title: &'static str,
    /// What the model is told.
    pub description: String,
    /// JSON Schema (2020-12) of the arguments.
    pub input_schema: Value,
    /// JSON Schema (2020-12) of [`ToolOutput::structured`](crate::ToolOutput::structured).
    pub output_schema: Value,
    /// Whether calls must be made one at a time and in order (TD-05): later calls depend on earlier ones.
    pub sequential: bool,
    /// Corrections allowed in a row before the run ends (TD-07, ER-06).
    pub max_corrections: u32,
    /// Whether the tool leaves the sandbox as it is.
    pub read_only: bool,
    /// The argument that is code, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_surface: Option<CodeSurface>,
}

/// Returns the schema of a type as plain as can be: nested types inlined, no number formats that model interfaces stumble
/// over, no titles that repeat type names.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(|schema: &mut schemars::Schema| {
        schema.remove("format");
        schema.remove("title");
    })
    .transform(&mut schema);
    // What the type is for is said by the tool's own description, under the name it has here.
    schema.remove("description");
    schema.to_value()
}
