//! The ringfence command line: the only part of ringfence that reads the environment, HOME and the terminal.
//!
//! A library so that its parsers can be tried without the program around them. It offers nothing to others: what the facade
//! `ringfence` is for.

mod args;
mod base64;
mod commands;
mod console;
mod environment;
mod exit;
mod failure;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod host_file;
mod inputs;
mod log;
mod loss;
mod marks;
mod operand;
mod parse;
mod reached;
mod settings;
mod shown;
mod signals;
mod stdin;
mod streamer;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use clap::error::ErrorKind;

use crate::args::Command;
use crate::environment::Environment;
use crate::failure::Result;

/// Does what the arguments of the process say, and returns its exit status.
pub fn main() -> ExitCode {
    let started = Instant::now();
    let result = signals::survive_file_size_limit().and_then(|()| match args::parse() {
        Ok(command) => dispatch(command, started),
        Err(error) => refuse_arguments(error),
    });
    let status = result.unwrap_or_else(|failure| {
        console::failure(&failure);
        failure.status()
    });
    ExitCode::from(status)
}

fn dispatch(command: Command, started: Instant) -> Result<u8> {
    let json = match &command {
        Command::Run(args) => args.json,
        Command::Exec(args) => args.json,
        _ => false,
    };
    let result = Environment::read().and_then(|environment| {
        log::start(&environment)?;
        match command {
            Command::Run(args) => commands::run::run(*args, &environment, started),
            Command::Shell(args) => commands::shell::run(*args, &environment),
            Command::Create(args) => commands::create::run(*args, &environment),
            Command::Exec(args) => commands::exec::run(*args, &environment, started),
            Command::Cp(args) => commands::cp::run(args, &environment),
            Command::Ps(args) => commands::ps::run(&args, &environment),
            Command::Read(args) => commands::files::read::run(&args, &environment),
            Command::Write(args) => commands::files::write::run(&args, &environment),
            Command::Ls(args) => commands::files::ls::run(&args, &environment),
            Command::Inspect(args) => commands::inspect::run(&args, &environment),
            Command::Renew(args) => commands::renew::run(&args, &environment),
            Command::Rm(args) => commands::rm::run(args, &environment),
            Command::Prune(args) => commands::prune::run(&args, &environment),
            Command::Logs(args) => commands::logs::run(args, &environment),
            Command::Wait(args) => commands::background::wait::run(args, &environment),
            Command::Kill(args) => commands::background::kill::run(args, &environment),
            Command::Stdin(args) => commands::background::stdin::run(args, &environment),
            Command::Demo(args) => commands::demo::run(&args, &environment),
            Command::Doctor(args) => commands::doctor::run(&args, &environment),
            Command::Mcp(args) => commands::mcp::run(*args, &environment),
            Command::Config(args) => commands::config::run(&args, &environment),
            Command::Completions(args) => commands::completions::run(&args),
        }
    });
    match result {
        Err(failure) if json => commands::foreground::print_failure(&failure),
        other => other,
    }
}

/// Shows what clap has to say. Subcommands that return the status of a command use 125, so that none is imitated.
fn refuse_arguments(mut error: clap::Error) -> Result<u8> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return commands::print(&error.render().to_string(), exit::OK, None);
    }
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let advice = usage::advise(&mut error, &args);
    let text = error.render().to_string();
    console::stderr(console::printable_lines(&text).as_bytes());
    let is = |known: &[&str]| args.first().is_some_and(|name| known.iter().any(|known| name == known));
    if is(&["run", "exec"]) && args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json") {
        return commands::foreground::print_usage_fault(&text, advice.as_deref());
    }
    Ok(if is(&["run", "exec", "shell", "wait"]) { exit::OURS } else { exit::USAGE })
}
