//! `ringfence mcp`: the four tools for an MCP client, over standard input and output.

mod install;
mod streams;

use std::sync::Arc;

use ringfence::toolset::{DEFAULT_MAX_COMMAND_TIMEOUT_SECONDS, Toolset, ToolsetConfig};
use ringfence::{Error, Pool, Registry};
use ringfence_server::mcp::Server;

use crate::args::{McpArgs, McpCommand, ToolsetArgs};
use crate::commands::runtime;
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::inputs;
use crate::log;
use crate::settings::{RunFlags, Settings, Source};
use crate::signals::{Interrupt, Signals};

/// Serves, or does what the subcommand says.
pub(crate) fn run(args: McpArgs, environment: &Environment) -> Result<u8> {
    match &args.command {
        Some(McpCommand::Install(install)) => install::run(install, environment),
        None => serve(&args, environment),
    }
}

/// Serves until the client is gone, whichever way it goes: it closes its end of either stream, or sends a signal. Then the
/// sandbox is destroyed. (A client that kills this process takes the sandbox with it too: the launcher sees to that.)
fn serve(args: &McpArgs, environment: &Environment) -> Result<u8> {
    // A sandbox that could not be destroyed is named in a warning of the toolset.
    log::start_warnings(environment)?;
    let Served { toolset, pool } = served(args, environment)?;
    let server = Server::new(toolset);
    if streams::stdin_is_a_terminal() {
        console::notice("this is for programs that speak MCP; `ringfence mcp install` adds it to one");
    }
    let runtime = runtime()?;
    let status = runtime.block_on(async {
        let signals = Signals::new()?;
        if let Some(pool) = &pool {
            pool.fill();
        }
        let mut interrupt = None;
        let served = tokio::select! {
            biased;
            signal = signals.next() => {
                interrupt = Some(signal);
                Ok(())
            }
            () = streams::nobody_reads()? => Ok(()),
            served = server.serve(streams::reader(), streams::writer()) => served,
        };
        let closing = async {
            match &pool {
                Some(pool) => drop(tokio::join!(server.close(), pool.close())),
                None => server.close().await,
            }
        };
        signals.shield(&mut interrupt, closing).await;
        served.map_err(|error| Failure::new(error.to_string()))?;
        Ok(interrupt.map_or(exit::OK, Interrupt::status))
    });
    // A thread blocked in a read of standard input is not waited for.
    runtime.shutdown_background();
    status
}

/// What a client gets.
struct Served {
    toolset: Toolset,
    /// Where its sandboxes wait; the backend of the toolset.
    pool: Option<Arc<Pool>>,
}

/// Returns what the arguments ask for. What the backend cannot enforce is refused here, before a client could see a tool that never
/// works.
fn served(args: &McpArgs, environment: &Environment) -> Result<Served> {
    let flags = RunFlags { pool: args.pool, ..RunFlags::default() };
    let settings = Settings::load(&args.spec, flags, environment)?;
    let spec = settings.spec().map_err(|failure| settings.explain(failure))?;
    let config = config(&args.toolset, &settings)?.spec(spec.clone());
    let backend = Registry::new(settings.backend_settings()?).open(settings.backend())?;
    let toolset = Toolset::new(Arc::clone(&backend), config.clone())?;
    toolset.judge().map_err(|error| settings.explain(error))?;
    let Some(size) = settings.pool() else { return Ok(Served { toolset, pool: None }) };
    // Of a sandbox that is asked for, its caller hears; of one that is made in advance, the log.
    let pool = Pool::new(backend, spec, size)
        .map_err(|error| settings.explain(error))?
        .reporting_to(|error| tracing::warn!("in the pool of sandboxes: {error}"));
    let pool = Arc::new(pool);
    let toolset = Toolset::new(Arc::<Pool>::clone(&pool), config)?;
    Ok(Served { toolset, pool: Some(pool) })
}

fn config(args: &ToolsetArgs, settings: &Settings) -> Result<ToolsetConfig> {
    let mut config = ToolsetConfig::new();
    if let Some(prefix) = &args.tool_prefix {
        config = config.prefix(prefix);
    }
    if let Some(timeout) = args.command_timeout {
        config = config.default_command_timeout_seconds(timeout.get().as_secs_f64());
    }
    // A timeout in the settings is a ceiling somebody wanted; it lowers what the model can ask for, and never raises it.
    let settings_timeout = settings.timeout()?;
    let ceiling = (settings_timeout.origin.source != Source::Default)
        .then(|| settings_timeout.value.get().as_secs_f64().min(DEFAULT_MAX_COMMAND_TIMEOUT_SECONDS));
    if let Some(seconds) = args.max_command_timeout.map(|timeout| timeout.get().as_secs_f64()).or(ceiling) {
        config = config.max_command_timeout_seconds(seconds);
    }
    if let Some(lines) = args.max_output_lines {
        config = config.max_output_lines(lines);
    }
    if let Some(size) = args.max_output {
        config = config.max_output_bytes(usize::try_from(size.get()).unwrap_or(usize::MAX));
    }
    if let Some(size) = args.max_read {
        config = config.max_read_bytes(size.get());
    }
    for name in &args.public_env {
        config = config.public_env(name);
    }
    if args.input.is_empty() {
        return Ok(config);
    }
    // Looked for now, so that what is missing is said before a client sees a tool, and again for each sandbox.
    inputs::collect(&args.input)?;
    let input = args.input.clone();
    Ok(config.inputs_found_by(move || {
        inputs::collect(&input).map_err(|failure| {
            let error = Error::invalid("find the inputs", failure.to_string());
            match failure.hint_text() {
                Some(hint) => error.hint(hint),
                None => error,
            }
        })
    }))
}
