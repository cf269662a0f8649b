//! `ringfence inspect`.

use clap::Args;
use ringfence::Handle;

use crate::parse;

pub(super) const HELP: &str = "\
Examples:
  ringfence inspect local:sb-0123456789ab
  ringfence inspect --json local:sb-0123456789ab | jq .usage

Exit status: 0; 2 bad arguments; 125 there is no such sandbox, or ringfence failed.";

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the values of variables too, which may be secret
    #[arg(long)]
    pub(crate) show_env: bool,
    /// The sandbox
    #[arg(value_name = "HANDLE", value_parser = parse::handle)]
    pub(crate) handle: Handle,
}
