//! `ringfence exec`.

use std::ffi::OsString;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use ringfence::{ByteSize, GuestPath, Handle, Timeout};

use crate::parse::{self, EnvAssignment};

pub(super) const HELP: &str = "\
Examples:
  ringfence exec local:sb-0123456789ab -- python3 main.py
  ringfence exec -w src -e CI=1 --timeout 10m \"$box\" -- make test
  tar c . | ringfence exec \"$box\" -- tar x
  job=$(ringfence exec --detach \"$box\" -- ./server) && ringfence logs -f \"$job\"
  ringfence exec --json \"$box\" -- ls / | jq .exit_code
  ringfence exec -t \"$box\" -- vim notes.txt

The sandbox stays, with whatever the command has left in it; processes that it left in the
background go on. Programs, streams and --json are as of `ringfence run`. A signal to ringfence, or
its end in any way, ends the command with all its descendants, and not the sandbox.

With --detach the command goes on until it ends or the sandbox does. Any process can then use
`ringfence logs`, `wait`, `kill` and `stdin` with the name that was printed. The kept output lies in
the sandbox's memory.

Exit status: as of `ringfence run`; 125 also where there is no such sandbox, or where it was lost
while the command ran; 124 where its lifetime was over.";

/// Arguments of `exec`.
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Run the command in this directory; relative ones start at the sandbox's working directory
    #[arg(short, long, value_name = "DIR", value_parser = OsStringValueParser::new().try_map(parse::guest_path))]
    pub(crate) workdir: Option<GuestPath>,
    /// Set a variable for the command; without =VALUE it is taken from the own environment. Can be repeated
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = parse::env_assignment)]
    pub(crate) env: Vec<EnvAssignment>,
    /// End the command after this time: seconds, or 30s, 2m, "1h 30m" [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse::timeout, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Timeout>,
    /// Give the command a terminal, as `ringfence shell` does: for programs that people type to. Then the time is limited
    /// only where --timeout is given
    #[arg(short, long, conflicts_with_all = ["json", "output_limit"])]
    pub(crate) tty: bool,
    /// Start the command, print HANDLE/c1, its name, and leave it running. Then the time is limited only where --timeout is
    /// given
    #[arg(short, long, conflicts_with_all = ["json", "tty"])]
    pub(crate) detach: bool,
    /// With --detach: keep its standard input open for `ringfence stdin`
    #[arg(long, requires = "detach")]
    pub(crate) stdin: bool,
    /// Print one JSON object at the end instead of the streams
    #[arg(long)]
    pub(crate) json: bool,
    /// With --json or --detach: keep this much of the end of each stream [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::output_limit, allow_hyphen_values = true)]
    pub(crate) output_limit: Option<ByteSize>,
    /// The sandbox
    #[arg(value_name = "HANDLE", value_parser = parse::handle)]
    pub(crate) handle: Handle,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
