//! One module per subcommand.

pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod run;
pub(crate) mod shell;

use tokio::runtime::{Builder, Runtime};

use crate::console;
use crate::exit;
use crate::failure::{Failure, Result};

/// Returns a runtime on this thread alone: starting others costs more than they would save here.
fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("start the runtime: {error}")))
}

/// Prints what was asked for and returns `status`, or the status for a reader that has gone.
fn print(text: &str, status: u8) -> u8 {
    match console::stdout(text.as_bytes()) {
        Ok(()) => status,
        Err(console::Closed) => exit::READER_GONE,
    }
}

/// Prints a JSON document on lines of its own.
fn print_json(value: &serde_json::Value, status: u8) -> u8 {
    print(&format!("{value:#}\n"), status)
}
