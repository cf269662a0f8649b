//! What is said about arguments that are not understood, where the parser's own advice would mislead.

mod words;

use std::ffi::OsString;

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;

/// How many words of a command are repeated in advice.
const SHOWN_WORDS: usize = 4;

/// Replaces the parser's advice to hide an unknown argument behind `--` by what was probably meant; returns the new advice.
/// `args` are the program's, without its own name.
pub(crate) fn advise(error: &mut clap::Error, args: &[OsString]) -> Option<String> {
    let name = args.first()?.to_str()?;
    if let Some(advice) = words::advice(error, name) {
        // The nearest word of ours is no better advice.
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::SuggestedArg);
        let shown = StyledStr::from(&advice);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![shown]));
        return Some(advice);
    }
    if !["run", "shell", "exec"].contains(&name) {
        return None;
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return None };
    let advice = if unknown.starts_with("--") {
        None
    } else if unknown.len() > 1 && unknown.starts_with('-') {
        Some(long_names(name, unknown))
    } else {
        Some(dashes(name, unknown, args))
    };
    let shown = match &advice {
        Some(advice) => ContextValue::StyledStrs(vec![StyledStr::from(advice)]),
        None => ContextValue::None,
    };
    error.insert(ContextKind::Suggested, shown);
    advice
}

fn long_names(name: &str, unknown: &str) -> String {
    match (name, unknown) {
        ("run", "-i" | "-t") => {
            "flags have long names only; standard input is passed on, and a terminal is `ringfence shell`"
        }
        ("run", _) => {
            "flags have long names only: --input for files, --env for variables, --memory, --timeout, ..."
        }
        ("exec", "-i") => "standard input is passed on by itself; -t is a terminal",
        ("exec", _) => "the flags with a short name are -d, -e, -t and -w; the command's own go behind `--`",
        _ => "flags have long names only: --env for variables, --memory, --workdir, ...",
    }
    .to_owned()
}

/// Repeats the command and not the options before it: a variable's value may be among them.
fn dashes(name: &str, unknown: &str, args: &[OsString]) -> String {
    let starts = (1..args.len()).filter(|index| args[*index].to_string_lossy() == unknown);
    // The same word may be the value of a flag.
    let start = starts.into_iter().find(|start| {
        let words = [OsString::from("ringfence")].into_iter().chain(args[..*start].iter().cloned());
        let words = words.chain([OsString::from("--")]).chain(args[*start..].iter().cloned());
        Cli::command().try_get_matches_from(words).is_ok()
    });
    let Some(start) = start else {
        let handle = if name == "exec" { "HANDLE " } else { "" };
        return format!("put `--` before the command: `ringfence {name} [OPTIONS] {handle}-- CMD...`");
    };
    let options = match (name, start) {
        ("exec", ..=2) => "HANDLE ",
        ("exec", _) => "[OPTIONS] HANDLE ",
        (_, ..=1) => "",
        _ => "[OPTIONS] ",
    };
    let command = &args[start..];
    let mut shown: Vec<String> = command.iter().take(SHOWN_WORDS).map(quoted).collect();
    if command.len() > SHOWN_WORDS {
        shown.push("...".to_owned());
    }
    format!("put `--` before the command: `ringfence {name} {options}-- {}`", shown.join(" "))
}

/// Returns the word as it would be typed.
fn quoted(word: &OsString) -> String {
    let text = word.to_string_lossy();
    let plain = |character: char| character.is_alphanumeric() || "_@%+=:,./-".contains(character);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
