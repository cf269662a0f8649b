//! What each client calls things and where it keeps them.

use std::path::PathBuf;
use std::time::Duration;

use super::edit::{Fields, Place, Value};
use crate::args::{Client, Scope};
use crate::environment::Environment;
use crate::failure::{Failure, Result};

/// The file of a client's settings and where in it the servers are.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) path: PathBuf,
    pub(super) place: Place,
    pub(super) scope: Scope,
}

/// What a client is told about the server.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) command: String,
    pub(super) arguments: Vec<String>,
    /// The longest time that a command gets.
    pub(super) longest: Duration,
}

/// How much longer than its longest command a call may take: a sandbox may have to be created before it, and processes to be
/// ended after it.
const AROUND_A_COMMAND: Duration = Duration::from_secs(30);

impl Entry {
    /// Returns the keys of the entry as the client calls them.
    pub(super) fn fields(&self, client: Client) -> Fields {
        let command = Value::Text(self.command.clone());
        let mut words = vec!["mcp".to_owned()];
        words.extend(self.arguments.iter().cloned());
        let ours = match client {
            Client::Claude | Client::Vscode | Client::Cursor => vec![
                ("type", Value::Text("stdio".to_owned())),
                ("command", command),
                ("args", Value::List(words)),
            ],
            Client::Codex => vec![
                ("command", command),
                ("args", Value::List(words)),
                // It waits for 300 s otherwise, exactly as long as a command gets: what that had printed would be lost.
                ("tool_timeout_sec", Value::AtLeast((self.longest + AROUND_A_COMMAND).as_secs())),
            ],
            Client::Opencode => {
                words.insert(0, self.command.clone());
                vec![
                    ("type", Value::Text("local".to_owned())),
                    ("command", Value::List(words)),
                    ("enabled", Value::Flag(true)),
                ]
            }
        };
        Fields { ours, foreign: foreign(client) }
    }
}

/// Returns the keys that a client knows only in an entry of a server that it reaches by an address.
fn foreign(client: Client) -> &'static [&'static str] {
    match client {
        Client::Claude => &["url", "serverUrl", "headers", "headersHelper", "oauth"],
        Client::Vscode => &["url", "serverUrl", "headers", "oauth"],
        Client::Cursor => &["url", "serverUrl", "headers", "auth"],
        Client::Opencode => &["url", "headers", "oauth"],
        // Beside a command it refuses each of these, and with it all of the file.
        Client::Codex => &[
            "url",
            "bearer_token",
            "bearer_token_env_var",
            "http_headers",
            "env_http_headers",
            "oauth",
            "oauth_resource",
        ],
    }
}

/// Returns where the settings of a client are. The sources are the clients' own manuals; `docs/mcp.md` names them.
pub(super) fn settings_of(
    client: Client,
    scope: Option<Scope>,
    environment: &Environment,
) -> Result<Settings> {
    let place = match client {
        Client::Claude | Client::Cursor => Place::Json("mcpServers"),
        Client::Vscode => Place::Json("servers"),
        Client::Opencode => Place::Json("mcp"),
        Client::Codex => Place::Toml("mcp_servers"),
    };
    // Codex reads a project's settings only where it was told to trust the project.
    let scope = scope.unwrap_or(if client == Client::Codex { Scope::User } else { Scope::Project });
    let path = match scope {
        Scope::Project => project_folder()?.join(match client {
            Client::Claude => ".mcp.json",
            Client::Codex => ".codex/config.toml",
            Client::Vscode => ".vscode/mcp.json",
            Client::Cursor => ".cursor/mcp.json",
            Client::Opencode => "opencode.json",
        }),
        Scope::User => user_file(client, environment)
            .ok_or_else(|| Failure::new("HOME is not set, so there are no settings of this user"))?,
    };
    Ok(Settings { path, place, scope })
}

fn user_file(client: Client, environment: &Environment) -> Option<PathBuf> {
    let home = || environment.home().cloned();
    let named =
        |variable| Environment::foreign(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    Some(match client {
        Client::Claude => named("CLAUDE_CONFIG_DIR").or_else(home)?.join(".claude.json"),
        Client::Codex => named("CODEX_HOME").or_else(|| Some(home()?.join(".codex")))?.join("config.toml"),
        Client::Vscode if cfg!(target_os = "macos") => {
            home()?.join("Library/Application Support/Code/User/mcp.json")
        }
        Client::Vscode => environment.config_folder()?.join("Code/User/mcp.json"),
        Client::Cursor => home()?.join(".cursor/mcp.json"),
        Client::Opencode => environment.config_folder()?.join("opencode/opencode.json"),
    })
}

fn project_folder() -> Result<PathBuf> {
    std::env::current_dir().map_err(|error| Failure::new(format!("find the current directory: {error}")))
}

/// Returns what the person does next.
pub(super) fn next_step(client: Client, scope: Option<Scope>) -> &'static str {
    match client {
        // Claude Code asks only about servers that came with a project.
        Client::Claude if scope == Some(Scope::User) => "`claude mcp list` shows whether it connects.",
        Client::Claude => {
            "Start claude there and approve the server; `claude mcp list` shows whether it connects."
        }
        Client::Codex => "`codex mcp list` shows it; the next `codex` has the tools.",
        Client::Vscode => {
            "Open the file in VS Code and press Start above the entry, or run `MCP: List Servers`."
        }
        Client::Cursor => "Enable it in Cursor under Settings, Tools & MCP.",
        Client::Opencode => "`opencode mcp list` shows whether it connects.",
    }
}
