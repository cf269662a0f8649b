//! The server that the client will start, looked at before it is written down.

use std::path::Path;

use crate::args::{self, McpArgs, Scope};
use crate::commands::mcp::served;
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::parse::EnvAssignment;

/// Whose fault it is.
const BEHIND: &str = "the arguments behind `--`";

/// Parses the arguments that the client will give.
pub(super) fn parse(arguments: &[String]) -> Result<Box<McpArgs>> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    args::parse_mcp(arguments).map_err(|error| {
        let told = match error.kind() {
            DisplayHelp | DisplayVersion => "with --help the server would print a text and end".to_owned(),
            _ => {
                let text = error.render().to_string();
                text.trim_start_matches("error: ").lines().next().unwrap_or_default().to_owned()
            }
        };
        Failure::new(format!("{BEHIND}: {told}")).hint("`ringfence mcp --help` lists them")
    })
}

/// Returns what the person should know about these arguments once they are in the settings.
pub(super) fn notices(args: &McpArgs, scope: Scope) -> Vec<String> {
    let mut told = Vec::new();
    let mut values = written_values(args);
    values.sort_unstable();
    values.dedup();
    for name in values {
        told.push(format!(
            "the settings hold the value of {name} for all who may read them; `--env {name}` takes it from the client's \
             environment instead"
        ));
    }
    for name in args.spec.env.iter().filter_map(missing) {
        told.push(format!(
            "--env {name}: it is not set here; where the client does not have it either, the server will not start"
        ));
    }
    if scope == Scope::User {
        for (flag, path) in paths(args).filter(|(_, path)| path.is_relative()) {
            let path = path.display();
            told.push(format!(
                "{flag} {path}: it will be looked for in whatever folder the client starts the server"
            ));
        }
    }
    told
}

/// Builds what `ringfence mcp` would build, and so refuses what that would refuse. What only the client's folder and
/// environment decide is left out.
pub(super) fn check(
    mut args: Box<McpArgs>,
    given: &[String],
    scope: Scope,
    environment: &Environment,
) -> Result<()> {
    for assignment in &mut args.spec.env {
        if let Some(name) = missing(assignment) {
            *assignment = EnvAssignment::Given(name.to_owned(), String::new());
        }
    }
    if scope == Scope::User {
        args.spec.ignore_project_file = true;
        args.spec.spec =
            args.spec.spec.take().filter(|spec| is_document(spec) || Path::new(spec).is_absolute());
        args.spec.env_file.retain(|path| path.is_absolute());
        args.toolset.input.retain(|input| input.source.is_absolute());
    }
    let who = if given.is_empty() { "`ringfence mcp` would not start" } else { BEHIND };
    served(&args, environment).map(drop).map_err(|failure| failure.during(who))
}

/// Returns the names of the variables whose values are in the arguments.
fn written_values(args: &McpArgs) -> Vec<String> {
    let flags = args.spec.env.iter().filter_map(|assignment| match assignment {
        EnvAssignment::Given(name, _) => Some(name.clone()),
        EnvAssignment::Inherited(_) => None,
    });
    let document = args.spec.spec.as_deref().filter(|spec| is_document(spec));
    // What is no JSON is refused by the check.
    let document = document.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    let env = document.as_ref().and_then(|document| document["env"].as_object());
    flags.chain(env.into_iter().flat_map(|env| env.keys().cloned())).collect()
}

/// Returns the name of a variable that is to be taken from an environment and is not in this one.
fn missing(assignment: &EnvAssignment) -> Option<&str> {
    match assignment {
        EnvAssignment::Inherited(name) if Environment::foreign(name).is_none() => Some(name),
        _ => None,
    }
}

/// Returns the paths of this machine that are in the arguments, with their flags.
fn paths(args: &McpArgs) -> impl Iterator<Item = (&'static str, &Path)> {
    let spec = args.spec.spec.as_deref().filter(|spec| !is_document(spec));
    let inputs = args.toolset.input.iter().map(|input| ("--input", input.source.as_path()));
    let files = args.spec.env_file.iter().map(|path| ("--env-file", path.as_path()));
    inputs.chain(files).chain(spec.map(|spec| ("--spec", Path::new(spec))))
}

/// Whether the value of `--spec` is the document itself.
fn is_document(spec: &str) -> bool {
    spec.trim_start().starts_with('{')
}
