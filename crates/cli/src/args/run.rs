//! `ringfence run`.

use std::ffi::OsString;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use ringfence::{ByteSize, Timeout};

use super::SpecArgs;
use crate::parse::{self, Input};

pub(super) const HELP: &str = "\
Examples:
  ringfence run -- python3 -c 'print(1 + 1)'
  ringfence run --memory 512MiB --pids 64 --timeout 30s -- sh -c 'make test'
  ringfence run --input data.csv --input src:/workspace/src -- python3 src/main.py data.csv
  tar c . | ringfence run -- sh -c 'tar x && ls' > listing
  ringfence run --json -- ls / | jq .exit_code

The program is started as it is, without a shell in between. Its standard output and standard
error come through as they are written; standard input is passed on unless it is a terminal.
What ringfence itself has to say goes to standard error behind `ringfence: `.

Exit status:
  the command's own, or 128 + n if signal n ended it
  124  the timeout passed (1 h where none is given), or the sandbox's lifetime
  137  the memory limit (--memory) ended it
  1    the limit of processes (--pids) kept it from going on, which is said on standard error
  125  ringfence failed, refused, or was called with bad arguments
  126  the program cannot be executed    127  it was not found
  130  SIGINT, 143  SIGTERM: the sandbox is ended first; a second signal does not wait for it
  141  nobody reads standard output any more";

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// End the command after this time: seconds, or 30s, 2m, "1h 30m" [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse::timeout, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Timeout>,
    /// Copy a file or directory into the sandbox first; without DST under its own name. What is executable stays
    /// so, other permissions are not kept. Can be repeated
    #[arg(long, value_name = "SRC[:DST]", value_parser = OsStringValueParser::new().try_map(parse::input))]
    pub(crate) input: Vec<Input>,
    /// Print one JSON object at the end instead of the streams
    #[arg(long)]
    pub(crate) json: bool,
    /// With --json: keep this much of the end of each stream [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::output_limit, allow_hyphen_values = true)]
    pub(crate) output_limit: Option<ByteSize>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}
