//! `ringfence mcp`: the four tools for an MCP client, over standard input and output.

mod install;
mod streams;

use std::sync::Arc;

use ringfence::toolset::{AttachedToolset, DEFAULT_MAX_COMMAND_TIMEOUT_SECONDS, Toolset, ToolsetConfig};
use ringfence::{Claimant, Error, ErrorKind, Handle, Pool, Registry};
use ringfence_server::mcp::Server;

use crate::args::{McpArgs, McpCommand, SpecArgs, ToolsetArgs};
use crate::commands::runtime;
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::inputs;
use crate::log;
use crate::reached;
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
/// sandbox is destroyed. (A client that kills this process takes the sandbox with it too: the launcher sees to that.) One that was
/// attached to is given back instead; the claim of a process that was killed runs out.
fn serve(args: &McpArgs, environment: &Environment) -> Result<u8> {
    // A sandbox that could not be destroyed or given back is named in a warning of the toolset.
    log::start_warnings(environment)?;
    let served = served(args, environment)?;
    if streams::stdin_is_a_terminal() {
        console::notice("this is for programs that speak MCP; `ringfence mcp install` adds it to one");
    }
    let runtime = runtime()?;
    let status = runtime.block_on(async {
        let signals = Signals::new()?;
        let mut interrupt = None;
        // A signal meanwhile is heard when it is known whether there is something to give back.
        let Some(opened) = signals.shield(&mut interrupt, served.open()).await else {
            return Ok(interrupt.map_or(exit::OK, Interrupt::status));
        };
        let (server, pool) = opened?;
        if let Some(interrupt) = interrupt {
            server.close().await;
            return Ok(interrupt.status());
        }
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
enum Served {
    /// Tools in a sandbox of the server's own, and where such sandboxes wait: the backend of the toolset.
    Own(Toolset, Option<Arc<Pool>>),
    /// Tools in a sandbox that is there.
    Attached(AttachedToolset, Handle),
}

impl Served {
    /// Begins: fills the pool, or claims the sandbox (AT-12).
    async fn open(self) -> Result<(Server, Option<Arc<Pool>>)> {
        match self {
            Self::Own(toolset, pool) => {
                if let Some(pool) = &pool {
                    pool.fill();
                }
                Ok((Server::new(toolset), pool))
            }
            Self::Attached(toolset, handle) => {
                let attached = Server::attach(&toolset, handle.sandbox().as_str()).await;
                Ok((attached.map_err(|error| not_attached(&handle, &error))?, None))
            }
        }
    }
}

/// Says why a sandbox was not claimed.
fn not_attached(handle: &Handle, error: &Error) -> Failure {
    let failure = reached::failed(handle, error);
    match error.kind() {
        ErrorKind::Conflict => failure.hint(
            "wait until that one gives it back or its claim runs out; --holder with the same name takes it over, as after a crash",
        ),
        ErrorKind::PermissionDenied => failure.hint(format!(
            "`ringfence inspect {handle}` shows the owner, for --owner; one without is made anew: `ringfence create --keep --owner NAME`"
        )),
        _ => failure,
    }
}

/// Returns what the arguments ask for. What the backend cannot enforce is refused here, before a client could see a tool that never
/// works. No sandbox is touched.
fn served(args: &McpArgs, environment: &Environment) -> Result<Served> {
    match &args.attach {
        Some(handle) => attached(args, handle, environment),
        None => own(args, environment),
    }
}

fn attached(args: &McpArgs, handle: &Handle, environment: &Environment) -> Result<Served> {
    // The project's file has no say in where sandboxes are, as for every command that takes a handle.
    let spec = SpecArgs { owner: args.spec.owner.clone(), ignore_project_file: true, ..SpecArgs::default() };
    let settings = Settings::load(&spec, RunFlags::default(), environment)?;
    let spec = settings.spec().map_err(|failure| settings.explain(failure))?;
    // A handle alone is never enough (AT-02, AT-11).
    let owner = spec.owner().ok_or_else(|| {
        Failure::new("--attach needs to be told whose the sandbox is")
            .hint("--owner NAME, as when it was created")
    })?;
    // Two servers exclude each other, whoever started them: a second one, as a client starts it to see whether it can, must not
    // take over what the first is working in.
    let holder = args.holder.clone().unwrap_or_else(|| format!("{owner}/mcp-{}", std::process::id()));
    let claimant = Claimant::new(owner).and_then(|claimant| claimant.with_holder(holder))?;
    let config = config(ToolsetConfig::attached(claimant), &args.toolset, &settings)?;
    let backend = Registry::new(settings.backend_settings()?).open_for(handle)?;
    Ok(Served::Attached(AttachedToolset::new(backend, config)?, handle.clone()))
}

fn own(args: &McpArgs, environment: &Environment) -> Result<Served> {
    let flags = RunFlags { pool: args.pool, ..RunFlags::default() };
    let settings = Settings::load(&args.spec, flags, environment)?;
    let spec = settings.spec().map_err(|failure| settings.explain(failure))?;
    let config = config(ToolsetConfig::new(), &args.toolset, &settings)?;
    let config = with_inputs(config, &args.toolset)?.spec(spec.clone());
    let backend = Registry::new(settings.backend_settings()?).open(settings.backend())?;
    let toolset = Toolset::new(Arc::clone(&backend), config.clone())?;
    toolset.judge().map_err(|error| settings.explain(error))?;
    let Some(size) = settings.pool() else { return Ok(Served::Own(toolset, None)) };
    // Of a sandbox that is asked for, its caller hears; of one that is made in advance, the log.
    let pool = Pool::new(backend, spec, size)
        .map_err(|error| settings.explain(error))?
        .reporting_to(|error| tracing::warn!("in the pool of sandboxes: {error}"));
    let pool = Arc::new(pool);
    let toolset = Toolset::new(Arc::<Pool>::clone(&pool), config)?;
    Ok(Served::Own(toolset, Some(pool)))
}

fn config<M>(
    mut config: ToolsetConfig<M>,
    args: &ToolsetArgs,
    settings: &Settings,
) -> Result<ToolsetConfig<M>> {
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
    Ok(config)
}

fn with_inputs(config: ToolsetConfig, args: &ToolsetArgs) -> Result<ToolsetConfig> {
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
