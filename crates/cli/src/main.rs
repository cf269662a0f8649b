//! The ringfence command line: the only part of ringfence that reads the environment, HOME and the terminal.

mod args;
mod commands;
mod console;
mod environment;
mod exit;
mod failure;
mod host_file;
mod log;
mod parse;
mod settings;
mod signals;
mod stdin;
mod streamer;

use std::process::ExitCode;
use std::time::Instant;

use clap::error::ErrorKind;

use crate::args::Command;
use crate::environment::Environment;

fn main() -> ExitCode {
    let started = Instant::now();
    let status = match args::parse() {
        Ok(command) => dispatch(command, started),
        Err(error) => refuse_arguments(&error),
    };
    ExitCode::from(status)
}

fn dispatch(command: Command, started: Instant) -> u8 {
    let result = Environment::read().and_then(|environment| {
        log::start(&environment)?;
        match command {
            Command::Run(args) => commands::run::run(*args, &environment, started),
            Command::Shell(args) => commands::shell::run(*args, &environment),
            Command::Demo(args) => commands::demo::run(&args, &environment),
            Command::Doctor(args) => commands::doctor::run(&args, &environment),
            Command::Config(args) => commands::config::run(&args, &environment),
            Command::Completions(args) => Ok(commands::completions::run(&args)),
        }
    });
    result.unwrap_or_else(|failure| {
        console::failure(&failure);
        failure.status()
    })
}

/// Shows what clap has to say. Subcommands that return the status of a command use 125, so that none is imitated.
fn refuse_arguments(error: &clap::Error) -> u8 {
    let text = error.render();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match console::stdout(text.to_string().as_bytes()) {
            Ok(()) => exit::OK,
            Err(console::Closed) => exit::READER_GONE,
        };
    }
    console::stderr(text.to_string().as_bytes());
    let runs_a_command = std::env::args_os().nth(1).is_some_and(|name| name == "run" || name == "shell");
    if runs_a_command { exit::OURS } else { exit::USAGE }
}
