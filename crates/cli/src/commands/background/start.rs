//! `ringfence exec --detach`.

use std::sync::Arc;

use ringfence::{
    Backend, BackgroundRequest, CommandHandle, EnvMap, ErrorKind, GuestPath, Handle, Invocation, OutputLimit,
    Timeout,
};

use super::background;
use crate::commands::{failure_to_start, print, runtime};
use crate::console;
use crate::exit;
use crate::failure::Result;
use crate::reached;
use crate::signals::{Interrupt, Signals};

/// Everything that is decided before the command is started.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) sandbox: Handle,
    pub(crate) program: Vec<Vec<u8>>,
    pub(crate) workdir: Option<GuestPath>,
    pub(crate) env: EnvMap,
    pub(crate) timeout: Option<Timeout>,
    pub(crate) output_limit: OutputLimit,
    pub(crate) stdin: bool,
}

/// Starts the command and prints its handle. One that nobody is told of is not left running.
pub(crate) fn run(start: Start) -> Result<u8> {
    let Start { backend, sandbox: handle, program, workdir, env, timeout, output_limit, stdin } = start;
    let request = BackgroundRequest {
        invocation: Invocation::Program(program),
        timeout,
        output_limit,
        stdin,
        workdir,
        env,
    };
    runtime()?.block_on(async {
        let signals = Signals::new()?;
        let background = background(&*backend)?;
        let mut interrupt = None;
        let started =
            signals.shield(&mut interrupt, background.start_command(handle.sandbox(), request)).await;
        let command = match started {
            Some(Ok(command)) => command,
            Some(Err(error)) if interrupt.is_none() => {
                return Err(match error.kind() {
                    ErrorKind::SandboxLost => reached::failed(&handle, &error),
                    _ => failure_to_start(error),
                });
            }
            _ => return Ok(interrupt.map_or(exit::OURS, Interrupt::status)),
        };
        let named = CommandHandle { sandbox: handle, command };
        let told = match interrupt {
            Some(signal) => Ok(signal.status()),
            None => print(&format!("{named}\n"), exit::OK, None),
        };
        if !matches!(told, Ok(exit::OK)) {
            let ended = background.signal_command(named.sandbox.sandbox(), command, None);
            if let Some(Err(error)) = signals.shield(&mut interrupt, ended).await {
                console::notice(&format!("{named} may still run: {error}"));
            }
        }
        told
    })
}
