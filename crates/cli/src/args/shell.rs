//! `ringfence shell`.

use std::ffi::OsString;

use clap::Args;
use ringfence::Handle;

use super::SpecArgs;
use crate::parse;

pub(super) const HELP: &str = "\
Examples:
  ringfence shell
  ringfence shell --memory 1GiB --pids 64
  ringfence shell -- python3
  ringfence shell local:sb-0123456789ab

Without a HANDLE the sandbox ends with the shell. With one, the shell is in a sandbox that stays.

Exit status: as of `ringfence run`, with the shell as the command.";

/// Arguments of `shell`.
#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// A sandbox that is there, and stays; then nothing else can be asked of it
    #[arg(value_name = "HANDLE", value_parser = parse::shell_handle, conflicts_with = "SpecArgs")]
    pub(crate) handle: Option<Handle>,
    /// A program to run instead of the sandbox's shell, and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}
