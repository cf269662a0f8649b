//! `ringfence shell`: a terminal in a sandbox that ends with it, or in one that stays.

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use ringfence::{Backend, EnvMap, Invocation, Registry};

use crate::args::{ShellArgs, SpecArgs};
use crate::commands::place::{Fresh, Place};
use crate::commands::terminal::{self, Job};
use crate::environment::Environment;
use crate::failure::Result;
use crate::reached::backend_of;
use crate::settings::{RunFlags, Settings};

/// Opens the shell and returns the exit status.
pub(crate) fn run(args: ShellArgs, environment: &Environment) -> Result<u8> {
    let (backend, place) = match args.handle {
        Some(handle) => {
            let instead = format!("ringfence exec {handle} -- sh, which reads its commands from a pipe");
            terminal::needs_terminal("shell", &instead)?;
            (backend_of(&handle, environment)?, Place::Standing(handle))
        }
        None => fresh(&args.spec, environment)?,
    };
    let program: Vec<Vec<u8>> = args.command.into_iter().map(OsStringExt::into_vec).collect();
    let invocation = (!program.is_empty()).then_some(Invocation::Program(program));
    let job = Job { backend, place, invocation, workdir: None, env: EnvMap::default(), timeout: None };
    terminal::run(job, environment)
}

/// Decides on a sandbox of its own.
fn fresh(args: &SpecArgs, environment: &Environment) -> Result<(Arc<dyn Backend>, Place)> {
    let settings = Settings::load(args, RunFlags::default(), environment)?;
    let spec = settings.spec().map_err(|failure| settings.explain(failure))?;
    terminal::needs_terminal("shell", "ringfence run -- sh, which reads its commands from a pipe")?;
    let backend = Registry::new(settings.backend_settings()?).open(settings.backend())?;
    backend.judge(&spec).map_err(|error| settings.explain(error))?;
    Ok((backend, Place::Fresh(Box::new(Fresh { settings, spec, inputs: Vec::new() }))))
}
