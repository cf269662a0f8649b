//! What the calls of a run need besides its sandbox.

use std::sync::Arc;

use ringfence_core::{Backend, NetworkPolicy, SandboxSpec};

use crate::attached_note::Found;
use crate::config::Bounds;
use crate::definition::{MAX_CORRECTIONS, Tool, ToolDefinition};
use crate::mask::Masker;
use crate::tools::{Setting, list_directory, read_file, run_command, write_file};

#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) backend: Arc<dyn Backend>,
    /// What the sandbox was asked to guarantee, as far as that is known.
    pub(crate) spec: SandboxSpec,
    /// What the sandbox's network is, where that is known (AT-10).
    pub(crate) network: Option<NetworkPolicy>,
    pub(crate) bounds: Bounds,
    pub(crate) masker: Arc<Masker>,
    /// The prefix with its `_`, or nothing.
    pub(crate) tool_prefix: String,
    /// Made once, so that they are the same bytes at every step (TD-18).
    pub(crate) definitions: Vec<ToolDefinition>,
}

/// Whose sandbox the tools work in, as far as descriptions say.
#[derive(Debug)]
pub(crate) enum Whose<'a> {
    /// The run's own, with or without files of the caller in it.
    Own { has_inputs: bool },
    /// Somebody else's.
    Attached(&'a Found),
}

impl Kit {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        spec: SandboxSpec,
        bounds: Bounds,
        masker: Masker,
        prefix: &str,
        whose: &Whose<'_>,
    ) -> Self {
        let tool_prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}_") };
        let capabilities = backend.capabilities();
        let setting = Setting {
            spec: &spec,
            capabilities: &capabilities,
            bounds: &bounds,
            prefix: &tool_prefix,
            masks: !masker.is_empty(),
            whose,
        };
        let definitions = Tool::ALL.into_iter().map(|tool| define(tool, setting)).collect();
        let network = match whose {
            Whose::Own { .. } => Some(spec.network().clone()),
            Whose::Attached(found) => found.network_policy().cloned(),
        };
        Self { backend, spec, network, bounds, masker: Arc::new(masker), tool_prefix, definitions }
    }

    pub(crate) fn tool_named(&self, name: &str) -> Option<Tool> {
        self.definitions.iter().find(|definition| definition.name == name).map(|d| d.tool)
    }
}

/// Returns the identity `sandbox-<backend>`, with a prefix `sandbox-<backend>-<prefix>` (TC-18).
pub(crate) fn identity(backend: &dyn Backend, prefix: &str) -> String {
    match prefix {
        "" => format!("sandbox-{}", backend.name()),
        prefix => format!("sandbox-{}-{prefix}", backend.name()),
    }
}

fn define(tool: Tool, setting: Setting<'_>) -> ToolDefinition {
    let (title, description, input_schema, output_schema) = match tool {
        Tool::RunCommand => (
            run_command::TITLE,
            run_command::description(setting),
            run_command::input_schema(),
            run_command::output_schema(),
        ),
        Tool::ReadFile => (
            read_file::TITLE,
            read_file::description(setting),
            read_file::input_schema(),
            read_file::output_schema(),
        ),
        Tool::WriteFile => (
            write_file::TITLE,
            write_file::DESCRIPTION.to_owned(),
            write_file::input_schema(),
            write_file::output_schema(),
        ),
        Tool::ListDirectory => (
            list_directory::TITLE,
            list_directory::description(setting),
            list_directory::input_schema(),
            list_directory::output_schema(),
        ),
    };
    ToolDefinition {
        tool,
        name: format!("{}{tool}", setting.prefix),
        title,
        description,
        input_schema,
        output_schema,
        sequential: true,
        max_corrections: MAX_CORRECTIONS,
        read_only: matches!(tool, Tool::ReadFile | Tool::ListDirectory),
        code_surface: (tool == Tool::RunCommand).then_some(run_command::CODE_SURFACE),
    }
}
