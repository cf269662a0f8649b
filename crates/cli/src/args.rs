//! The arguments as typed: nothing is decided here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use ringfence::{ByteSize, Cpus, Pids, Timeout};

use crate::parse::{self, EnvAssignment, Input};

/// A place to run code that nobody has read.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, max_term_width = 110, after_help = MAIN_EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The arguments of `ringfence run` alone. Building those of every subcommand costs a one-shot run a tenth of a millisecond.
#[derive(Debug, Parser)]
#[command(name = "ringfence", disable_help_subcommand = true)]
struct RunAlone {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    Run(Box<RunArgs>),
}

/// Parses arguments of `ringfence mcp` that a client will give it later.
pub(crate) fn parse_mcp(arguments: &[String]) -> Result<Box<McpArgs>, clap::Error> {
    let words = ["ringfence", "mcp"].into_iter().chain(arguments.iter().map(String::as_str));
    match Cli::try_parse_from(words)?.command {
        Command::Mcp(args) if args.command.is_none() => Ok(args),
        _ => Err(clap::Error::raw(clap::error::ErrorKind::UnknownArgument, "they are another subcommand\n")),
    }
}

/// Parses the program's arguments.
pub(crate) fn parse() -> Result<Command, clap::Error> {
    if std::env::args_os().nth(1).is_some_and(|name| name == "run")
        && let Ok(RunAlone { command: RunCommand::Run(args) }) = RunAlone::try_parse()
    {
        return Ok(Command::Run(args));
    }
    // Help and every fault are told by the whole parser.
    Cli::try_parse().map(|cli| cli.command)
}

const MAIN_EXAMPLES: &str = "\
Examples:
  ringfence run -- python3 -c 'print(1 + 1)'
  ringfence shell
  ringfence doctor

Settings come from flags, then RINGFENCE_* variables, then ringfence.toml of the project, then
ringfence/config.toml in the user's XDG configuration folder. `ringfence config` shows each
one with its origin.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one command in a sandbox that exists for it alone
    #[command(after_help = RUN_HELP)]
    Run(Box<RunArgs>),
    /// Open an interactive shell in a sandbox that ends with it
    #[command(after_help = SHELL_HELP)]
    Shell(Box<ShellArgs>),
    /// Play a short agent run through the four tools and show it
    #[command(after_help = DEMO_HELP)]
    Demo(Box<DemoArgs>),
    /// Try what this machine can enforce, and say what to do about the rest
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Serve the four tools to an MCP client over standard input and output
    #[command(after_help = MCP_HELP)]
    Mcp(Box<McpArgs>),
    /// Show every setting, its value and where it comes from
    #[command(after_help = CONFIG_HELP)]
    Config(Box<ConfigArgs>),
    /// Print the completion script of a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArgs),
}

const RUN_HELP: &str = "\
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

const SHELL_HELP: &str = "\
Examples:
  ringfence shell
  ringfence shell --memory 1GiB --pids 64
  ringfence shell -- python3

Exit status: as of `ringfence run`, with the shell as the command.";

const DEMO_HELP: &str = "\
Example:
  ringfence demo

Exit status: 0 if every step came out as it should, else 1.";

const DOCTOR_HELP: &str = "\
Examples:
  ringfence doctor
  ringfence doctor --json | jq '.backends[].checks[] | select(.outcome != \"works\")'

Exit status: 0 if at least one backend can isolate here, else 1.";

const MCP_HELP: &str = "\
Examples:
  ringfence mcp install claude
  ringfence mcp install codex -- --memory 2GiB --input src:src
  ringfence mcp --tool-prefix box --command-timeout 2m

Started by the client, not by hand. All calls share one sandbox. It is created by the first call and
destroyed with everything in it when the client closes its end, sends SIGTERM, or is gone.
Settings files and RINGFENCE_* variables apply as for `run`; a timeout in them is also the longest that
the model can ask for. Standard error is the log.

Exit status: 0 once the client is gone, 130 or 143 after SIGINT or SIGTERM, 125 if it
cannot serve.";

const INSTALL_HELP: &str = "\
Examples:
  ringfence mcp install claude
  ringfence mcp install cursor --scope user --name sandbox
  ringfence mcp install vscode --print
  ringfence mcp install codex -- --memory 2GiB --tool-prefix box

Where it is written (project: below the current directory; user: for all projects):
  claude    .mcp.json            ~/.claude.json
  codex     .codex/config.toml   ~/.codex/config.toml (CODEX_HOME)
  vscode    .vscode/mcp.json     ~/.config/Code/User/mcp.json
  cursor    .cursor/mcp.json     ~/.cursor/mcp.json
  opencode  opencode.json        ~/.config/opencode/opencode.json
Everything else in the file stays as it is, comments included. An entry of the same name gets the new
command and keeps its other keys; one with another transport, such as a URL, is refused.

What is behind -- is checked as `ringfence mcp` would check it, and nothing is written if that would not
start. --env NAME=VALUE stands in the file as it is; --env NAME is taken from the client's environment.";

const CONFIG_HELP: &str = "\
Examples:
  ringfence config
  ringfence config --memory 1GiB --json

A settings file looks like this; every key is optional:
  backend = \"local\"
  timeout = \"10m\"
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
choose the backend, an image or anything of [backends]. It can set env and workdir, which mean
something inside only.

Variables, each for the key of the same name:
  RINGFENCE_BACKEND, _TIMEOUT, _OUTPUT_LIMIT, _MEMORY, _CPUS, _PIDS, _DISK, _WORKDIR, _LIFETIME
  RINGFENCE_ALLOW_HOST, _ALLOW_CIDR (commas between entries), _OPEN_NETWORK=1: the local backend
    refuses all three today, as it does the flags
  RINGFENCE_SHELL, _READ_ONLY_PATHS (colons between paths): backends.local
  RINGFENCE_IGNORE_PROJECT_FILE=1
  RINGFENCE_LOG: what goes to standard error as a log, e.g. debug; has no key in files. Only
    the tools of `mcp` and `demo` log anything, so `run` and `shell` stay silent at every level";

const COMPLETIONS_HELP: &str = "\
Examples:
  ringfence completions bash > ~/.local/share/bash-completion/completions/ringfence
  ringfence completions zsh > ~/.zfunc/_ringfence
  ringfence completions fish > ~/.config/fish/completions/ringfence.fish";

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

/// Arguments of `shell`.
#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// A program to run instead of the sandbox's shell, and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `mcp`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
    #[command(flatten)]
    pub(crate) toolset: ToolsetArgs,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}

/// What `mcp` does besides serving.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add `ringfence mcp` to the settings of a client
    #[command(after_help = INSTALL_HELP)]
    Install(InstallArgs),
}

/// Arguments of `mcp install`.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// The client
    pub(crate) client: Client,
    /// For which projects [default: user for codex, else project]
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Option<Scope>,
    /// The name of the server in the client
    #[arg(long, value_name = "NAME", default_value = "ringfence", value_parser = parse::server_name)]
    pub(crate) name: String,
    /// Print the settings instead of writing them
    #[arg(long)]
    pub(crate) print: bool,
    /// Arguments of `ringfence mcp`
    #[arg(last = true, value_name = "ARG")]
    pub(crate) arguments: Vec<String>,
}

/// A program that can be given MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Visual Studio Code
    Vscode,
    /// Cursor
    Cursor,
    /// opencode
    Opencode,
}

/// Whose settings of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Those of the project in the current directory
    Project,
    /// The person's own, for all projects
    User,
}

/// What the four tools allow, as flags.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Tools")]
pub(crate) struct ToolsetArgs {
    /// Put this and a _ before the name of every tool
    #[arg(long, value_name = "PREFIX")]
    pub(crate) tool_prefix: Option<String>,
    /// End a command after this time unless the model asks for another [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = parse::timeout, allow_hyphen_values = true)]
    pub(crate) command_timeout: Option<Timeout>,
    /// The longest time the model can ask for [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = parse::timeout, allow_hyphen_values = true)]
    pub(crate) max_command_timeout: Option<Timeout>,
    /// Show the model at most this many lines of a stream, file or listing [default: 2000]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) max_output_lines: Option<usize>,
    /// Show the model at most this much of a stream, file or listing [default: 50KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::output_limit, allow_hyphen_values = true)]
    pub(crate) max_output: Option<ByteSize>,
    /// The largest file that can be read [default: 5MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::size, allow_hyphen_values = true)]
    pub(crate) max_read: Option<ByteSize>,
    /// Show the value of this --env variable to the model; others of 8 bytes and more are masked. Can be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) public_env: Vec<String>,
    /// Copy a file or directory, as it is then, into every new sandbox; without DST under its own name. Can be repeated
    #[arg(long, value_name = "SRC[:DST]", value_parser = OsStringValueParser::new().try_map(parse::input))]
    pub(crate) input: Vec<Input>,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

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
    /// End the sandbox after this time, whatever runs in it
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, allow_hyphen_values = true)]
    pub(crate) lifetime: Option<Duration>,
    /// Where the sandbox is made [default: local]
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Do not read the project's ringfence.toml
    #[arg(long)]
    pub(crate) ignore_project_file: bool,
}
