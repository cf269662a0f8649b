//! `ringfence exec`: a command in a sandbox that stays.

use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

use ringfence::{Invocation, Registry};

use crate::args::{ExecArgs, SpecArgs};
use crate::commands::background::{self, start::Start};
use crate::commands::foreground::{self, Job};
use crate::commands::place::Place;
use crate::commands::terminal;
use crate::environment::Environment;
use crate::failure::Result;
use crate::settings::{self, RunFlags, Settings};

/// Runs the command and returns the exit status.
pub(crate) fn run(args: ExecArgs, environment: &Environment, started: Instant) -> Result<u8> {
    // The project's file has no say in where sandboxes are, as for every command that takes a handle.
    let spec = SpecArgs { ignore_project_file: true, ..SpecArgs::default() };
    let run_flags = RunFlags { timeout: args.timeout, output_limit: args.output_limit, pool: None };
    let settings = Settings::load(&spec, run_flags, environment)?;
    let program = foreground::program(args.command.into_iter().map(OsStringExt::into_vec).collect())?;
    let backend = Registry::new(settings.backend_settings()?).open_for(&args.handle)?;
    let env = settings::variables(args.env)?;
    if args.tty {
        terminal::needs_terminal("exec -t", "without -t, standard input and output can be anything")?;
        let job = terminal::Job {
            backend,
            place: Place::Standing(args.handle),
            invocation: Some(Invocation::Program(program)),
            workdir: args.workdir,
            env,
            timeout: args.timeout.map(|_| settings.timeout()).transpose()?,
        };
        return terminal::run(job, environment);
    }
    if args.detach {
        return background::start::run(Start {
            backend,
            sandbox: args.handle,
            program,
            workdir: args.workdir,
            env,
            // Nobody waits, so there is none by default.
            timeout: args.timeout,
            output_limit: settings.output_limit()?,
            stdin: args.stdin,
        });
    }
    foreground::run(Job {
        backend,
        program,
        workdir: args.workdir,
        env,
        timeout: settings.timeout()?,
        output_limit: foreground::output_limit(&settings, args.json)?,
        json: args.json,
        started,
        place: Place::Standing(args.handle),
    })
}
