//! The log of the libraries, on standard error. Off unless asked for: setting it up costs a one-shot run time it is judged by.

use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::console;
use crate::environment::{self, Environment};
use crate::failure::{Failure, Result};

/// Starts the log if `RINGFENCE_LOG` says what goes into it.
pub(crate) fn start(environment: &Environment) -> Result<()> {
    let Some(directives) = environment.get(environment::LOG) else { return Ok(()) };
    let filter: Targets = directives.parse().map_err(|error| {
        Failure::new(format!("{}: {error}", environment::LOG))
            .hint("a level such as debug, or targets with levels such as ringfence_toolset=debug,warn")
    })?;
    install(filter)
}

/// Starts a log of warnings for a command that has no other way to show them, unless there is a log already.
pub(crate) fn start_warnings(environment: &Environment) -> Result<()> {
    if environment.get(environment::LOG).is_some() {
        return Ok(());
    }
    // What the MCP library warns of is what its client has been answered.
    install(Targets::new().with_default(LevelFilter::WARN).with_target("rmcp", LevelFilter::ERROR))
}

/// Takes whole lines to where everything of ours is written, so that a stalled reader of the log cannot hold anything up.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        console::stderr(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn install(filter: Targets) -> Result<()> {
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Lines).with_ansi(false);
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(|error| Failure::new(format!("start the log: {error}")))
}
