//! The four tools over one backend, ready to be run any number of times.

use std::sync::Arc;

use ringfence_core::{Backend, Plan, Result, SandboxSpec};

use crate::blocking::BlockingSession;
use crate::config::{Bounds, ToolsetConfig};
use crate::definition::{MAX_CORRECTIONS, Tool, ToolDefinition};
use crate::mask::Masker;
use crate::provision::Provisioner;
use crate::session::Session;
use crate::tools::{Setting, list_directory, read_file, run_command, write_file};

/// A checked configuration and a shared backend. Cheap to clone; clones share the backend and never a sandbox, which
/// belongs to a [`Session`] (LC-06, TC-17).
#[derive(Debug, Clone)]
pub struct Toolset {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    backend: Arc<dyn Backend>,
    config: ToolsetConfig,
    bounds: Bounds,
    masker: Arc<Masker>,
    /// The prefix with its `_`, or nothing.
    tool_prefix: String,
    definitions: Vec<ToolDefinition>,
}

impl Toolset {
    /// Checks the configuration. Touches nothing outside this process (TC-16).
    ///
    /// Whether the backend can enforce the spec is not decided here but when a sandbox is created: a toolset may be built
    /// on another machine than the one that runs it. Ask [`Self::judge`] to know earlier.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ringfence_core::ErrorKind::InvalidArgument) or
    /// [`ErrorKind::Refused`](ringfence_core::ErrorKind::Refused) that names the parameter and its value, for the first
    /// fault in the order of TC-14.
    pub fn new(backend: Arc<dyn Backend>, config: ToolsetConfig) -> Result<Self> {
        let bounds = config.bounds()?;
        let masker =
            Masker::new(config.spec.env(), &config.public_env, config.secrets.iter().map(Vec::as_slice));
        let tool_prefix =
            if config.prefix.is_empty() { String::new() } else { format!("{}_", config.prefix) };
        let capabilities = backend.capabilities();
        let setting = Setting {
            spec: &config.spec,
            capabilities: &capabilities,
            bounds: &bounds,
            prefix: &tool_prefix,
            masks: !masker.is_empty(),
            has_inputs: !config.inputs.is_empty(),
        };
        // Made once, so that they are the same bytes at every step (TD-18).
        let definitions = Tool::ALL.into_iter().map(|tool| define(tool, setting)).collect();
        let masker = Arc::new(masker);
        Ok(Self { inner: Arc::new(Inner { backend, config, bounds, masker, tool_prefix, definitions }) })
    }

    /// Returns the four tools in the order in which they are offered (TD-01).
    #[must_use]
    pub fn definitions(&self) -> &[ToolDefinition] {
        &self.inner.definitions
    }

    /// Returns the identity `sandbox-<backend>`, with a prefix `sandbox-<backend>-<prefix>` (TC-18).
    #[must_use]
    pub fn identity(&self) -> String {
        let backend = self.inner.backend.name();
        match self.inner.config.prefix.as_str() {
            "" => format!("sandbox-{backend}"),
            prefix => format!("sandbox-{backend}-{prefix}"),
        }
    }

    /// Asks the backend, without I/O, whether it would take the spec.
    ///
    /// # Errors
    /// The backend's refusal, naming the field.
    pub fn judge(&self) -> Result<Plan> {
        self.inner.backend.judge(&self.inner.config.spec)
    }

    /// Opens a run. Provisions nothing (LC-01). May be done any number of times, at once or in turn (LC-05).
    #[must_use]
    pub fn open(&self) -> Session {
        Session::new(self.clone())
    }

    /// Opens a run for code that is not asynchronous (LC-15).
    ///
    /// # Errors
    /// No thread could be started.
    pub fn open_blocking(&self) -> Result<BlockingSession> {
        BlockingSession::new(self)
    }

    /// Returns the backend.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.backend
    }

    /// Returns the spec of every sandbox.
    #[must_use]
    pub fn spec(&self) -> &SandboxSpec {
        &self.inner.config.spec
    }

    /// Returns the checked bounds.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.inner.bounds
    }

    pub(crate) fn masker(&self) -> &Arc<Masker> {
        &self.inner.masker
    }

    pub(crate) fn tool_prefix(&self) -> &str {
        &self.inner.tool_prefix
    }

    pub(crate) fn tool_named(&self, name: &str) -> Option<Tool> {
        self.inner.definitions.iter().find(|definition| definition.name == name).map(|d| d.tool)
    }

    pub(crate) fn provisioner(&self) -> Provisioner {
        let inner = &self.inner;
        Provisioner::new(
            Arc::clone(&inner.backend),
            inner.config.spec.clone(),
            inner.config.inputs.clone(),
            Arc::clone(&inner.masker),
        )
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
