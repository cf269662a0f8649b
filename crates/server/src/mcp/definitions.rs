//! The toolset's definitions in the protocol's form.

use std::sync::Arc;

use ringfence::NetworkPolicy;
use ringfence::toolset::{self, Session, ToolDefinition};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::Value;

/// Returns the tools in the order of the toolset. Made once, so that every answer has the same bytes (TD-18, AT-19).
pub(super) fn tools(session: &Session) -> Vec<Tool> {
    // A network that is not known may be open.
    let reaches_out = session.network() != Some(&NetworkPolicy::Blocked);
    session.definitions().iter().map(|definition| tool(definition, reaches_out)).collect()
}

fn tool(definition: &ToolDefinition, reaches_out: bool) -> Tool {
    let mut tool = Tool::new(
        definition.name.clone(),
        definition.description.clone(),
        Arc::new(object(&definition.input_schema)),
    );
    tool.title = Some(definition.title.to_owned());
    tool.output_schema = Some(Arc::new(object(&definition.output_schema)));
    tool.annotations = Some(annotations(definition, reaches_out));
    tool
}

/// Returns what clients decide by whether to ask the person.
///
/// Nothing is called destructive: what can be lost was made by these tools, in a sandbox that is thrown away anyway. Codex, where it
/// cannot ask, refuses what is.
fn annotations(definition: &ToolDefinition, reaches_out: bool) -> ToolAnnotations {
    let is_command = definition.tool == toolset::Tool::RunCommand;
    ToolAnnotations::with_title(definition.title)
        .read_only(definition.read_only)
        .destructive(false)
        .idempotent(!is_command)
        .open_world(is_command && reaches_out)
}

fn object(schema: &Value) -> JsonObject {
    schema.as_object().cloned().unwrap_or_default()
}
