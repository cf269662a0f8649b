//! `ringfence demo`.

use clap::Args;

use super::SpecArgs;

pub(super) const HELP: &str = "\
Example:
  ringfence demo

Exit status: 0 if every step came out as it should, else 1.";

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}
