//! The four agent tools of Ringfence: `run_command`, `read_file`, `write_file`, `list_directory`.
//!
//! A [`Toolset`] is a checked [`ToolsetConfig`] over any [`Backend`](ringfence_core::Backend). Its
//! [`definitions`](Toolset::definitions) are what a model is offered; a [`Session`] is one run: it provisions a sandbox at
//! the first call, shares it among all calls, and destroys it at the end whatever happened. An [`AttachedToolset`] works in a sandbox
//! of someone else instead, which it claims and gives back.
//!
//! ```
//! use std::sync::Arc;
//! use ringfence_core::memory::RecordingBackend; // or any other backend
//! use ringfence_toolset::{Toolset, ToolsetConfig};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let toolset = Toolset::new(Arc::new(RecordingBackend::new()), ToolsetConfig::new())?;
//! assert_eq!(toolset.definitions()[0].name, "run_command");
//!
//! let session = toolset.open();
//! let output = session.call("run_command", &json!({"command": "echo out"})).await?;
//! assert_eq!(output.text, "[stdout]\nout");
//! assert_eq!(output.structured["exit_code"], 0);
//! session.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! All text that a model reads is made here, and only here: wording, rendering, cutting, masking of secrets. This crate
//! knows no concrete backend and reads nothing of its surroundings but the input files it is told to stage.
//!
//! Exporting files is not offered yet.

mod arguments;
mod attach;
mod attached_note;
mod blocking;
mod budget;
mod config;
mod definition;
mod hold;
mod inputs;
mod kit;
mod mask;
mod network_note;
mod outcome;
mod place;
mod provision;
mod session;
mod text;
mod tools;
mod toolset;
mod watch;

pub use attach::AttachedToolset;
pub use blocking::BlockingSession;
pub use config::{
    AttachedSandbox, Bounds, DEFAULT_COMMAND_TIMEOUT_SECONDS, DEFAULT_MAX_COMMAND_TIMEOUT_SECONDS,
    DEFAULT_MAX_EXPORT_BYTES, DEFAULT_MAX_OUTPUT_BYTES, DEFAULT_MAX_OUTPUT_LINES, DEFAULT_MAX_READ_BYTES,
    MAX_PREFIX_BYTES, OwnSandbox, ToolsetConfig,
};
pub use definition::{CodeSurface, MAX_CORRECTIONS, Tool, ToolDefinition};
pub use inputs::{Input, InputSource, MAX_INPUT_BYTES, stage};
pub use mask::{LEAST_ENV_SECRET_BYTES, MASK};
pub use outcome::{Correction, ToolError, ToolOutput};
pub use session::{CallOptions, Session};
pub use toolset::Toolset;
pub use watch::{Glimpse, Watch};
