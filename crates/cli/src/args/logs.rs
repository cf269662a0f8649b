//! `ringfence logs`.

use clap::Args;

use super::BackendArgs;
use crate::parse::{self, Logged};

pub(super) const HELP: &str = "\
Examples:
  ringfence logs
  ringfence logs -f local:sb-0123456789ab
  ringfence logs --json | jq -r 'select(.event == \"ended\") | [.handle, .facts.reason] | @tsv'

What happened to sandboxes that others can find, those that have ended included, oldest first: who
used them how, and why they ended. A command is told by its first word and its status, a file by
its size; what files contain and commands print is never recorded. The last 8 MiB or more are kept.

Exit status:
  0    all that there is was shown; with -f and a HANDLE the sandbox has ended
  2    bad arguments    125  ringfence failed, or there is neither that sandbox nor a word of it
  130  SIGINT, 143  SIGTERM    141  nobody reads standard output any more";

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Go on with what happens from now on, until a signal, or the end of the sandbox that is named
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print a JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    /// Of this sandbox alone
    #[arg(value_name = "HANDLE", value_parser = parse::logged, conflicts_with = "backend")]
    pub(crate) of: Option<Logged>,
}
