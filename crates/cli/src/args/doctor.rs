//! `ringfence doctor`.

use clap::Args;

pub(super) const HELP: &str = "\
Examples:
  ringfence doctor
  ringfence doctor --json | jq '.backends[].checks[] | select(.outcome != \"works\")'

Exit status: 0 if at least one backend can isolate here, else 1.";

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
