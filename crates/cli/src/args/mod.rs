//! The arguments as typed: nothing is decided here. One module per family of subcommands, with what stands below its help.

mod backend;
mod background;
mod completions;
mod config;
mod cp;
mod create;
mod demo;
mod doctor;
mod exec;
mod inspect;
mod logs;
mod ls;
mod mcp;
mod prune;
mod ps;
mod read;
mod renew;
mod rm;
mod run;
mod shell;
mod spec;
mod write;

use clap::{Parser, Subcommand};

pub(crate) use self::backend::BackendArgs;
pub(crate) use self::background::{KillArgs, StdinArgs, WaitArgs};
pub(crate) use self::completions::CompletionsArgs;
pub(crate) use self::config::ConfigArgs;
pub(crate) use self::cp::CpArgs;
pub(crate) use self::create::CreateArgs;
pub(crate) use self::demo::DemoArgs;
pub(crate) use self::doctor::DoctorArgs;
pub(crate) use self::exec::ExecArgs;
pub(crate) use self::inspect::InspectArgs;
pub(crate) use self::logs::LogsArgs;
pub(crate) use self::ls::LsArgs;
pub(crate) use self::mcp::{Client, InstallArgs, McpArgs, McpCommand, Scope, ToolsetArgs};
pub(crate) use self::prune::PruneArgs;
pub(crate) use self::ps::PsArgs;
pub(crate) use self::read::ReadArgs;
pub(crate) use self::renew::RenewArgs;
pub(crate) use self::rm::RmArgs;
pub(crate) use self::run::RunArgs;
pub(crate) use self::shell::ShellArgs;
pub(crate) use self::spec::SpecArgs;
pub(crate) use self::write::WriteArgs;

/// A place to run code that nobody has read.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, max_term_width = 110, after_help = MAIN_EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The arguments of what runs one command, alone. Building those of every subcommand costs it a tenth of a millisecond.
#[derive(Debug, Parser)]
#[command(name = "ringfence", disable_help_subcommand = true)]
struct OneShot {
    #[command(subcommand)]
    command: OneShotCommand,
}

#[derive(Debug, Subcommand)]
enum OneShotCommand {
    Run(Box<RunArgs>),
    Exec(Box<ExecArgs>),
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
    if std::env::args_os().nth(1).is_some_and(|name| name == "run" || name == "exec")
        && let Ok(OneShot { command }) = OneShot::try_parse()
    {
        return Ok(match command {
            OneShotCommand::Run(args) => Command::Run(args),
            OneShotCommand::Exec(args) => Command::Exec(args),
        });
    }
    // Help and every fault are told by the whole parser.
    Cli::try_parse().map(|cli| cli.command)
}

const MAIN_EXAMPLES: &str = "\
Examples:
  ringfence run -- python3 -c 'print(1 + 1)'
  ringfence shell
  box=$(ringfence create --keep) && ringfence exec $box -- make test
  ringfence doctor

Settings come from flags, then RINGFENCE_* variables, then ringfence.toml of the project, then
ringfence/config.toml in the user's XDG configuration folder. `ringfence config` shows each
one with its origin.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one command in a sandbox that exists for it alone
    #[command(after_help = run::HELP)]
    Run(Box<RunArgs>),
    /// Open an interactive shell in a new sandbox that ends with it, or in one that stays
    #[command(after_help = shell::HELP)]
    Shell(Box<ShellArgs>),
    /// Create a sandbox that other processes can use, and print its handle
    #[command(after_help = create::HELP)]
    Create(Box<CreateArgs>),
    /// Run a command in a sandbox that stays
    #[command(after_help = exec::HELP)]
    Exec(Box<ExecArgs>),
    /// Copy files and directories between this machine and a sandbox
    #[command(after_help = cp::HELP)]
    Cp(CpArgs),
    /// Print a file of a sandbox
    #[command(after_help = read::HELP)]
    Read(ReadArgs),
    /// Write standard input to a file of a sandbox
    #[command(after_help = write::HELP)]
    Write(WriteArgs),
    /// List a directory of a sandbox
    #[command(after_help = ls::HELP)]
    Ls(LsArgs),
    /// List the sandboxes that can be reached
    #[command(after_help = ps::HELP)]
    Ps(PsArgs),
    /// Show all there is to know about a sandbox
    #[command(after_help = inspect::HELP)]
    Inspect(InspectArgs),
    /// Show what happened to sandboxes, or what a command in the background prints
    #[command(after_help = logs::HELP)]
    Logs(LogsArgs),
    /// Wait for a command in the background, and end as it does
    #[command(after_help = background::WAIT_HELP)]
    Wait(WaitArgs),
    /// End a command in the background, or send it a signal
    #[command(after_help = background::KILL_HELP)]
    Kill(KillArgs),
    /// Write standard input to a command in the background
    #[command(after_help = background::STDIN_HELP)]
    Stdin(StdinArgs),
    /// Give a sandbox more time, or less
    #[command(after_help = renew::HELP)]
    Renew(RenewArgs),
    /// Remove sandboxes, with everything in them
    #[command(after_help = rm::HELP)]
    Rm(RmArgs),
    /// Remove what is left of sandboxes that are gone
    #[command(after_help = prune::HELP)]
    Prune(PruneArgs),
    /// Play a short agent run through the four tools and show it
    #[command(after_help = demo::HELP)]
    Demo(Box<DemoArgs>),
    /// Try what this machine can enforce, and say what to do about the rest
    #[command(after_help = doctor::HELP)]
    Doctor(DoctorArgs),
    /// Serve the four tools to an MCP client over standard input and output
    #[command(after_help = mcp::HELP)]
    Mcp(Box<McpArgs>),
    /// Show every setting, its value and where it comes from
    #[command(after_help = config::HELP)]
    Config(Box<ConfigArgs>),
    /// Print the completion script of a shell
    #[command(after_help = completions::HELP)]
    Completions(CompletionsArgs),
}
