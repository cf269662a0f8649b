//! `ringfence read`.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use ringfence::{ByteSize, GuestPath, Handle};

use crate::parse;

pub(super) const HELP: &str = "\
Examples:
  ringfence read local:sb-0123456789ab report.pdf > report.pdf
  ringfence read \"$box\" /workspace/out/log.txt | tail

The file is copied to standard output as it is, in bounded memory. Directories are for `ringfence cp`.
What is shown on a terminal can drive that: a file of a sandbox was written by the code in it.

Exit status:
  0    all of it was copied
  1    there is no such file, it is not a regular file, it may not be read, or it is too large
  2    bad arguments    125  ringfence failed, or there is no such sandbox
  130  SIGINT, 143  SIGTERM    141  nobody reads standard output any more";

/// Arguments of `read`.
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// Refuse a file that is larger [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::size, allow_hyphen_values = true)]
    pub(crate) limit: Option<ByteSize>,
    /// The sandbox
    #[arg(value_name = "HANDLE", value_parser = parse::handle)]
    pub(crate) handle: Handle,
    /// The file; a relative path starts at the sandbox's working directory
    #[arg(value_name = "PATH", value_parser = OsStringValueParser::new().try_map(parse::guest_path))]
    pub(crate) path: GuestPath,
}
