//! `ringfence wait`, `kill` and `stdin`: commands in the background, which `exec --detach` starts and `logs` shows.

use std::time::Duration;

use clap::Args;
use ringfence::CommandHandle;

use crate::parse;

pub(super) const WAIT_HELP: &str = "\
Examples:
  ringfence wait local:sb-0123456789ab/c1
  ringfence wait --timeout 30s \"$job\"

Any number of processes can wait for a command, and nothing happens to it if they stop.

Exit status: the command's own, as of `ringfence run`; 124 also where --timeout is over and it still
runs, or the sandbox's lifetime was over; 125 where ringfence failed, there is no such command, or
the sandbox was lost. Of ended commands the last 64 of a sandbox are known.";

pub(super) const KILL_HELP: &str = "\
Examples:
  ringfence kill local:sb-0123456789ab/c1
  ringfence kill -s INT \"$job\"

Without -s, the command and all its descendants are ended, those that left its session or outlived
it included, and gone when this returns. How the command had ended stays known. With -s, its first
process alone gets the signal, and nothing happens where that has ended.

Exit status: 0 done    2 bad arguments    125 ringfence failed, or there is no such command";

pub(super) const STDIN_HELP: &str = "\
Examples:
  ringfence stdin local:sb-0123456789ab/c1 < input.txt
  echo 'next' | ringfence stdin --keep-open \"$job\"

The command has to be started with `ringfence exec --detach --stdin`. What it does not read in time
holds this up, and nothing else.

Exit status:
  0    all of the input was taken; the command may not have read it yet
  2    bad arguments    125  ringfence failed, there is no such command, or its input is not open
  130  SIGINT, 143  SIGTERM    141  it stopped reading, or ended, before all was taken";

/// Arguments of `wait`.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Give up after this time: seconds, or 30s, 2m, "1h 30m"; 0 only looks
    #[arg(long, value_name = "DURATION", value_parser = parse::patience, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,
    /// The command
    #[arg(value_name = "HANDLE/COMMAND", value_parser = parse::command_handle)]
    pub(crate) command: CommandHandle,
}

/// Arguments of `kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// Send this signal, such as INT or 2, to its first process alone
    #[arg(short, long, value_name = "SIGNAL", value_parser = parse::signal, allow_hyphen_values = true)]
    pub(crate) signal: Option<i32>,
    /// The command
    #[arg(value_name = "HANDLE/COMMAND", value_parser = parse::killed)]
    pub(crate) command: CommandHandle,
}

/// Arguments of `stdin`.
#[derive(Debug, Args)]
pub(crate) struct StdinArgs {
    /// Leave its input open at the end of ours, for more to come
    #[arg(long)]
    pub(crate) keep_open: bool,
    /// The command
    #[arg(value_name = "HANDLE/COMMAND", value_parser = parse::command_handle)]
    pub(crate) command: CommandHandle,
}
