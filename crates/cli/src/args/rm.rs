//! `ringfence rm`.

use clap::Args;
use ringfence::Handle;

use crate::parse;

pub(super) const HELP: &str = "\
Examples:
  ringfence rm local:sb-0123456789ab
  ringfence rm --all
  ringfence ps -q --label job=build | xargs -r ringfence rm -f

A sandbox that somebody holds, see HOLDER in `ringfence ps`, stays unless -f is given. One that
cannot be removed does not keep the others from it.

Exit status: 0 all are gone; 2 bad arguments; 125 without -f, one was not there or is held; or one
could not be removed; 130 or 143 after SIGINT or SIGTERM.";

/// Arguments of `rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Remove those that somebody holds too, and do not mind those that are not there
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Remove every sandbox that `ps` shows
    #[arg(long, conflicts_with = "handles")]
    pub(crate) all: bool,
    /// The sandboxes
    #[arg(value_name = "HANDLE", required_unless_present = "all", value_parser = parse::handle)]
    pub(crate) handles: Vec<Handle>,
    /// With --all: of this backend [default: as for create]
    #[arg(long, value_name = "NAME", conflicts_with = "handles")]
    pub(crate) backend: Option<String>,
}
