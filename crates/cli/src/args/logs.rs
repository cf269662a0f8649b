//! `ringfence logs`.

use clap::Args;

use super::BackendArgs;
use crate::parse::{self, Logged};

pub(super) const HELP: &str = "\
Examples:
  ringfence logs
  ringfence logs -f local:sb-0123456789ab
  ringfence logs --json | jq -r 'select(.event == \"ended\") | [.handle, .facts.reason] | @tsv'
  ringfence logs -f local:sb-0123456789ab/c1
  ringfence logs --stdout --offset 4096 \"$job\"

Of sandboxes: what happened to sandboxes that others can find, those that have ended included, oldest first: who
used them how, and why they ended. A command is told by its first word and its status, a file by
its size; what files contain and commands print is never recorded. A command that began, with no
line of the same `call` that it ended, still runs, or its caller was killed and it with that. The
last 8 MiB or more are kept.

Of a command in the background, HANDLE/c1: what it printed, each stream on ours of the same name, as
far as it is kept; how much is, is said when it is started. What has been dropped is told. A reader
that was away goes on with --offset, the number of bytes that it has. What the command has left
running prints for nobody.

Exit status:
  0    all that there is was shown; with -f, the sandbox or the command has ended
  2    bad arguments    125  ringfence failed, there is neither that sandbox nor a word of it, or no
       such command, or its sandbox was lost (124 if its lifetime was over)
  130  SIGINT, 143  SIGTERM    141  nobody reads standard output any more";

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Go on with what happens from now on, until a signal, or the end of the sandbox or command that is named
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print a JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Of a command: its standard output alone
    #[arg(long, group = "stream")]
    pub(crate) stdout: bool,
    /// Of a command: its standard error alone
    #[arg(long, group = "stream")]
    pub(crate) stderr: bool,
    /// With --stdout or --stderr: leave out so many bytes at its beginning
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true, requires = "stream")]
    pub(crate) offset: u64,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    /// Of this sandbox alone, or of this command
    #[arg(value_name = "HANDLE", value_parser = parse::logged, conflicts_with = "backend")]
    pub(crate) of: Option<Logged>,
}
