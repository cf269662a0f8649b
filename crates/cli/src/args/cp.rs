//! `ringfence cp`.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use ringfence::ByteSize;

use crate::operand::{Operand, operand};
use crate::parse;

pub(super) const HELP: &str = "\
Examples:
  ringfence cp data.csv local:sb-0123456789ab:
  ringfence cp src local:sb-0123456789ab:/workspace
  ringfence cp local:sb-0123456789ab:/workspace/report.pdf .
  ringfence cp local:sb-0123456789ab:/workspace/. result
  ringfence cp local:sb-0123456789ab:out - | tar tv
  git archive HEAD | ringfence cp - local:sb-0123456789ab:repository

One of the two is in a sandbox: HANDLE:PATH, where PATH starts at the working directory unless it
begins with a slash. The other is here, or - for a tar archive on standard input or output.

A file or directory goes into DST where that is a directory, else it is called DST. With SRC/. what
is in the directory goes, not the directory. A DST in a sandbox is made with its parents. Files
that are there are replaced, directories are merged. A packed file such as a .tar.gz stays one.

Links are copied as links, and only if they are relative and stay inside what is copied. No link
is followed but on the paths as you typed them. Of modes only whether a file can be executed is
kept. Devices, FIFOs and sockets are not copied. What was not copied is said.

Exit status:
  0    all was copied
  1    some of it was not, which is said on standard error
  2    bad arguments
  125  ringfence failed or a limit was met: what was copied until then stays
  130  SIGINT, 143  SIGTERM    141  nobody reads standard output any more";

/// The largest number of entries without `--max-entries`.
pub(crate) const MAX_ENTRIES: u64 = 250_000;

/// Arguments of `cp`.
#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// What is copied
    #[arg(value_name = "SRC", value_parser = OsStringValueParser::new().try_map(operand))]
    pub(crate) source: Operand,
    /// Where it goes
    #[arg(value_name = "DST", value_parser = OsStringValueParser::new().try_map(operand))]
    pub(crate) target: Operand,
    /// Copy at most this much [default: 4GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::size, allow_hyphen_values = true)]
    pub(crate) max_size: Option<ByteSize>,
    /// Copy at most so many files, directories and links
    #[arg(long, value_name = "NUMBER", default_value_t = MAX_ENTRIES)]
    pub(crate) max_entries: u64,
}
