//! Which backend is asked, for subcommands that do not get it from a handle.

use clap::Args;

/// The choice of a backend.
#[derive(Debug, Default, Args)]
pub(crate) struct BackendArgs {
    /// Ask this backend [default: as for create]
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
}
