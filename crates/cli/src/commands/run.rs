//! `ringfence run`: one command in a sandbox that exists for it alone.

use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

use ringfence::{EnvMap, Registry};

use crate::args::RunArgs;
use crate::commands::foreground::{self, Job};
use crate::commands::place::{Fresh, Place};
use crate::environment::Environment;
use crate::failure::Result;
use crate::inputs;
use crate::settings::{RunFlags, Settings};

/// Runs the command and returns the exit status.
pub(crate) fn run(args: RunArgs, environment: &Environment, started: Instant) -> Result<u8> {
    let run_flags = RunFlags { timeout: args.timeout, output_limit: args.output_limit, pool: None };
    let settings = Settings::load(&args.spec, run_flags, environment)?;
    let spec = settings.spec().map_err(|failure| settings.explain(failure))?;
    let backend = Registry::new(settings.backend_settings()?).open(settings.backend())?;
    backend.judge(&spec).map_err(|error| settings.explain(error))?;
    foreground::run(Job {
        backend,
        program: foreground::program(args.command.into_iter().map(OsStringExt::into_vec).collect())?,
        // The sandbox is made with both.
        workdir: None,
        env: EnvMap::default(),
        timeout: settings.timeout()?,
        output_limit: foreground::output_limit(&settings, args.json)?,
        json: args.json,
        started,
        place: Place::Fresh(Box::new(Fresh { spec, inputs: inputs::collect(&args.input)?, settings })),
    })
}
