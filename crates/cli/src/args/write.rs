//! `ringfence write`.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use ringfence::{ByteSize, GuestPath, Handle};

use crate::parse;

pub(super) const HELP: &str = "\
Examples:
  ringfence write local:sb-0123456789ab data.csv < data.csv
  pg_dump shop | ringfence write --limit 8GiB \"$box\" /workspace/shop.sql
  ringfence write -x \"$box\" bin/tool < tool

The file gets what is on standard input, all of it or nothing: until the input has come to its end
the file is as it was. Folders above it are made. A file that is there keeps its permissions, but
for -x. A pipe is held in memory first, and on this machine's disk where it is longer than 8 MiB.

Exit status:
  0    the file is written
  1    the sandbox cannot take it there, or the input is too large; the file is as it was
  2    bad arguments    125  ringfence failed, or there is no such sandbox
  130  SIGINT, 143  SIGTERM: the file is as it was";

/// Arguments of `write`.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Let the file be executed
    #[arg(short = 'x', long)]
    pub(crate) executable: bool,
    /// Refuse an input that is larger [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::size, allow_hyphen_values = true)]
    pub(crate) limit: Option<ByteSize>,
    /// The sandbox
    #[arg(value_name = "HANDLE", value_parser = parse::handle)]
    pub(crate) handle: Handle,
    /// The file; a relative path starts at the sandbox's working directory
    #[arg(value_name = "PATH", value_parser = OsStringValueParser::new().try_map(parse::guest_path))]
    pub(crate) path: GuestPath,
}
