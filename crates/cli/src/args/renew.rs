//! `ringfence renew`.

use std::time::Duration;

use clap::Args;
use ringfence::Handle;

use crate::parse;

pub(super) const HELP: &str = "\
Examples:
  ringfence renew local:sb-0123456789ab
  ringfence renew --lifetime 30m local:sb-0123456789ab

Prints what is left now. A sandbox that has only an --idle time gets a lifetime with --lifetime.

Exit status: 0; 2 bad arguments; 125 there is no such sandbox, it has no lifetime and none was
given, or ringfence failed.";

/// Arguments of `renew`.
#[derive(Debug, Args)]
pub(crate) struct RenewArgs {
    /// Let it live for this time from now on, more or less than before: seconds, or 30s, 2m, 1d, at most 365d [default: its
    /// first lifetime]
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, allow_hyphen_values = true)]
    pub(crate) lifetime: Option<Duration>,
    /// The sandbox
    #[arg(value_name = "HANDLE", value_parser = parse::handle)]
    pub(crate) handle: Handle,
}
