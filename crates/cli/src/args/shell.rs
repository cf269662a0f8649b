//! `ringfence shell`.

use std::ffi::OsString;

use clap::Args;

use super::SpecArgs;

pub(super) const HELP: &str = "\
Examples:
  ringfence shell
  ringfence shell --memory 1GiB --pids 64
  ringfence shell -- python3

Exit status: as of `ringfence run`, with the shell as the command.";

/// Arguments of `shell`.
#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// A program to run instead of the sandbox's shell, and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}
