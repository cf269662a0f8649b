//! What a sandbox must guarantee, the same flags for every subcommand that makes one.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ringfence::{ByteSize, Cpus, Pids};

use crate::parse::{self, EnvAssignment, Label};

/// What a sandbox must guarantee, as flags. A flag replaces the same field of `--spec`; variables are merged by name.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SpecArgs {
    /// The spec as JSON, in a file or as the argument itself when that starts with `{`
    #[arg(long, value_name = "FILE|JSON")]
    pub(crate) spec: Option<String>,
    /// Set a variable; without =VALUE it is taken from the own environment. Can be repeated
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = parse::env_assignment)]
    pub(crate) env: Vec<EnvAssignment>,
    /// Read variables from a file: NAME=VALUE or NAME per line, # starts a comment line, quotes are not special
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Let this host name be reached, e.g. pypi.org or *.pypi.org. Can be repeated. The local backend refuses this
    /// today: it has no network to let anything out with
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// Let this IPv4 range be reached, e.g. 10.20.0.0/16. Can be repeated. The local backend refuses this today
    #[arg(long, value_name = "RANGE")]
    pub(crate) allow_cidr: Vec<String>,
    /// Let everything be reached. The local backend refuses this today
    #[arg(long, conflicts_with = "block_network")]
    pub(crate) open_network: bool,
    /// Let nothing be reached, DNS included, whatever the settings say; this is also the default
    #[arg(long, conflicts_with_all = ["allow_host", "allow_cidr"])]
    pub(crate) block_network: bool,
    /// Ceiling on memory, e.g. 512MiB
    #[arg(long, value_name = "SIZE", value_parser = parse::size, allow_hyphen_values = true)]
    pub(crate) memory: Option<ByteSize>,
    /// Ceiling on processors, e.g. 2 or 0.5
    #[arg(long, value_name = "NUMBER", value_parser = parse::cpus, allow_hyphen_values = true)]
    pub(crate) cpus: Option<Cpus>,
    /// Ceiling on processes and threads
    #[arg(long, value_name = "NUMBER", value_parser = parse::pids, allow_hyphen_values = true)]
    pub(crate) pids: Option<Pids>,
    /// Ceiling on what can be stored, e.g. 1GiB
    #[arg(long, value_name = "SIZE", value_parser = parse::size, allow_hyphen_values = true)]
    pub(crate) disk: Option<ByteSize>,
    /// Working directory in the sandbox, absolute
    #[arg(long, value_name = "DIR", value_parser = parse::workdir, allow_hyphen_values = true)]
    pub(crate) workdir: Option<String>,
    /// End the sandbox after this time, whatever runs in it: seconds, or 30s, 2m, 1d, at most 365d
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, allow_hyphen_values = true)]
    pub(crate) lifetime: Option<Duration>,
    /// End the sandbox also once nothing was done in it for this time, given as for --lifetime
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, allow_hyphen_values = true)]
    pub(crate) idle: Option<Duration>,
    /// Who may attach to the sandbox
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Mark the sandbox, for finding it again. Can be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse::label)]
    pub(crate) labels: Vec<Label>,
    /// Where the sandbox is made [default: local]
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Do not read the project's ringfence.toml
    #[arg(long)]
    pub(crate) ignore_project_file: bool,
}
