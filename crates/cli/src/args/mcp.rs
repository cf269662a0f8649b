//! `ringfence mcp` and `ringfence mcp install`.

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use ringfence::{ByteSize, Handle, Timeout};

use super::SpecArgs;
use crate::parse::{self, Input};

pub(super) const HELP: &str = "\
Examples:
  ringfence mcp install claude
  ringfence mcp install codex -- --memory 2GiB --input src:src
  ringfence mcp --tool-prefix box --command-timeout 2m
  box=$(ringfence create --keep --owner me) && ringfence mcp install claude -- --attach $box --owner me

Started by the client, not by hand. All calls share one sandbox. It is created by the first call and
destroyed with everything in it when the client closes its end, sends SIGTERM, or is gone. With
--pool it is there before: the first call, and one after a sandbox was lost, takes one that is ready.

With --attach the calls go to a sandbox that is there and stays. It is claimed before a client is
served, so that one server at a time works in it, and given back at the end. The claim of a server
that was killed runs out within 5 minutes, or is taken over under the same --holder. Who has it,
`ringfence ps` shows. When the sandbox ends, no other takes its place.

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

/// Arguments of `mcp`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
    /// Hold this many sandboxes ready, so that no call waits for the making of one [default: 0]
    #[arg(long, value_name = "NUMBER", value_parser = parse::pool)]
    pub(crate) pool: Option<usize>,
    /// Work in this sandbox, which stays, instead of one of the server's own; --owner says whose it is
    #[arg(long, value_name = "HANDLE", value_parser = parse::handle, conflicts_with_all = OWN_SANDBOX)]
    pub(crate) attach: Option<Handle>,
    /// With --attach: hold the sandbox under this name, and take it over from who holds it under the same
    /// [default: OWNER/mcp-PID]
    #[arg(long, value_name = "NAME", requires = "attach")]
    pub(crate) holder: Option<String>,
    #[command(flatten)]
    pub(crate) toolset: ToolsetArgs,
    #[command(flatten)]
    pub(crate) spec: SpecArgs,
}

/// What only makes sense where the sandbox is the server's own: all that is said about it but its owner.
pub(super) const OWN_SANDBOX: [&str; 18] = [
    "pool",
    "input",
    "spec",
    "env",
    "env_file",
    "allow_host",
    "allow_cidr",
    "open_network",
    "block_network",
    "memory",
    "cpus",
    "pids",
    "disk",
    "workdir",
    "lifetime",
    "idle",
    "labels",
    "backend",
];

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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn at_14_everything_that_is_said_about_a_sandbox_is_against_attaching_but_whose_it_is() {
        let cli = Cli::command();
        let mcp = cli.find_subcommand("mcp").unwrap();
        let spec = mcp.get_groups().find(|group| group.get_id() == "SpecArgs").unwrap();
        let mut expected: Vec<&str> = spec.get_args().map(clap::Id::as_str).collect();
        expected.retain(|id| !["owner", "ignore_project_file"].contains(id));
        expected.extend(["pool", "input"]);
        expected.sort_unstable();
        let mut listed = OWN_SANDBOX.to_vec();
        listed.sort_unstable();
        assert_eq!(listed, expected);
    }
}
