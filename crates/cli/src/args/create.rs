//! `ringfence create`.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::SpecArgs;
use crate::parse::{self, Input};

pub(super) const HELP: &str = "\
Examples:
  box=$(ringfence create --keep --lifetime 2h --memory 1GiB --label job=build --input src:src)
  ringfence create --keep --json | jq -r .expires_at
  ringfence create --idle 10m

With --keep the sandbox outlives this process: for 1 h where --lifetime says nothing else, or until
`ringfence rm`. The handle is printed, and that is all.

Without it the sandbox dies with this process, however that ends. The handle is printed, and then
it waits for SIGINT or SIGTERM, for the end of standard input where that is a pipe (nothing is read
from it), or for the sandbox to end by its clocks or by `ringfence rm`.

Exit status:
  0    the sandbox is kept; without --keep it has ended, but not by a signal
  2    bad arguments    125  ringfence failed or refused, and nothing is left
  130  SIGINT, 143  SIGTERM: the sandbox is ended first; a second signal does not wait for it
  141  nobody reads standard output: the sandbox is ended, as nobody knows its handle";

/// Arguments of `create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Let the sandbox outlive this process
    #[arg(long)]
    pub(crate) keep: bool,
    /// Copy a file or directory into the sandbox first; without DST under its own name. What is executable stays
    /// so, other permissions are not kept. Can be repeated
    #[arg(long, value_name = "SRC[:DST]", value_parser = OsStringValueParser::new().try_map(parse::input))]
    pub(crate) input: Vec<Input>,
    /// Print one JSON object instead of the handle
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}
