//! `ringfence prune`.

use clap::Args;

use super::BackendArgs;

pub(super) const HELP: &str = "\
Examples:
  ringfence prune --dry-run
  ringfence prune

Removes what is left of sandboxes that are gone, as after a kill -9 of everything: records, control
groups, directories. What belongs to a sandbox that lives, or to another user, is not touched.

Exit status: 0 nothing is left, or with --dry-run it was only looked for; 1 something could not be
removed; 2 bad arguments; 125 ringfence failed.";

/// Arguments of `prune`.
#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Show what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
}
