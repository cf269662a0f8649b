//! `ringfence config`.

use clap::Args;

use super::SpecArgs;

pub(super) const HELP: &str = "\
Examples:
  ringfence config
  ringfence config --memory 1GiB --json

A settings file looks like this; every key is optional:
  backend = \"local\"
  timeout = \"10m\"
  pool = 1
  [spec]
  workdir = \"/workspace\"
  env = { LANG = \"C.UTF-8\" }
  [spec.limits]
  memory = \"2GiB\"
  [backends.local]
  read_only_paths = [\"/srv/models\"]

The user's file is $XDG_CONFIG_HOME/ringfence/config.toml (~/.config where that is not set). The
project file is the nearest ringfence.toml between the current directory and the root of its
repository; outside a repository only the current directory counts. It comes with code nobody has
read, so it can make a sandbox narrower but never wider: ceilings, timeouts and lifetimes apply
where they are lower than yours, it can block the network but not open any of it, and it cannot
choose the backend, an image, a pool or anything of [backends]. It can set env and workdir, which mean
something inside only.

Variables, each for the key of the same name:
  RINGFENCE_BACKEND, _TIMEOUT, _OUTPUT_LIMIT, _POOL, _MEMORY, _CPUS, _PIDS, _DISK, _WORKDIR,
    _LIFETIME, _IDLE
  RINGFENCE_ALLOW_HOST, _ALLOW_CIDR (commas between entries), _OPEN_NETWORK=1: the local backend
    refuses all three today, as it does the flags
  RINGFENCE_SHELL, _READ_ONLY_PATHS (colons between paths): backends.local
  XDG_RUNTIME_DIR: where sandboxes that others find have their records, in a folder ringfence; a
    file's runtime_dir of backends.local is stronger
  RINGFENCE_IGNORE_PROJECT_FILE=1
  RINGFENCE_LOG: what goes to standard error as a log, e.g. debug; has no key in files. Only
    the tools of `mcp` and `demo` log anything, so `run` and `shell` stay silent at every level";

/// Arguments of `config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}
