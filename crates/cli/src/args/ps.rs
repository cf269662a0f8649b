//! `ringfence ps`.

use clap::Args;

use super::BackendArgs;
use crate::parse::{self, LabelFilter};

pub(super) const HELP: &str = "\
Examples:
  ringfence ps
  ringfence ps --watch
  ringfence ps -q --label job=build | xargs -r ringfence rm
  ringfence ps --json | jq '.sandboxes[] | select(.holder == null).handle'

Your sandboxes that can be reached, oldest first: those made by `ringfence create`, and all with an
owner or a label. LEFT is what is left until the lifetime ends them, or, with `idle`, until they end
because nobody uses them. HOLDER is who has a claim that runs. One that is there and does not answer
is named on standard error.

Exit status: 0; 1 some do not answer; 2 bad arguments; 125 ringfence failed; with --watch 130 or 143 after SIGINT or
SIGTERM; 141 nobody reads standard output any more.";

/// Arguments of `ps`.
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Print one JSON object
    #[arg(long, conflicts_with_all = ["quiet", "watch"])]
    pub(crate) json: bool,
    /// Print handles alone
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Show them again every second, until a signal comes or nobody reads any more
    #[arg(long)]
    pub(crate) watch: bool,
    /// Show those with this label alone, or with this value of it. Can be repeated; all must fit
    #[arg(long = "label", value_name = "NAME[=VALUE]", value_parser = parse::label_filter)]
    pub(crate) labels: Vec<LabelFilter>,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
}
