//! `ringfence ls`.

use std::num::NonZeroUsize;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use ringfence::{GuestPath, Handle};

use crate::parse;

pub(super) const HELP: &str = "\
Examples:
  ringfence ls local:sb-0123456789ab
  ringfence ls -l \"$box\" /workspace/out
  ringfence ls -0 \"$box\" out | xargs -0 -I{} ringfence read \"$box\" out/{}
  ringfence ls --json \"$box\" | jq -r '.entries[] | select(.kind == \"file\").name'

One name per line, in the order of their bytes. A name that is not text, or would drive a terminal
or break its line, is shown escaped: names were chosen by the code in the sandbox. -0 and --json
tell them as they are. -l puts kind and size before: - file, d directory, l link, ? other.

Exit status:
  0    it is listed
  1    there is no such directory, it is not one, or it may not be read
  2    bad arguments    125  ringfence failed, or there is no such sandbox
  130  SIGINT, 143  SIGTERM    141  nobody reads standard output any more";

/// Arguments of `ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Show kind and size too
    #[arg(short)]
    pub(crate) long: bool,
    /// End each name with a NUL byte, and change nothing in it
    #[arg(short = '0', long, conflicts_with_all = ["long", "json"])]
    pub(crate) null: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "long")]
    pub(crate) json: bool,
    /// List so many at most, and say how many more there are
    #[arg(long, value_name = "NUMBER", default_value = "100000")]
    pub(crate) limit: NonZeroUsize,
    /// The sandbox
    #[arg(value_name = "HANDLE", value_parser = parse::handle)]
    pub(crate) handle: Handle,
    /// The directory [default: the sandbox's working directory]
    #[arg(value_name = "PATH", value_parser = OsStringValueParser::new().try_map(parse::guest_path))]
    pub(crate) path: Option<GuestPath>,
}
