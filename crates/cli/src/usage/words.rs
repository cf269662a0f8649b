//! Words of other programs of the kind, and what they are called here.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Subcommands.
const SUBCOMMANDS: &[(&[&str], &str)] = &[
    (
        &["stop", "delete", "remove", "destroy", "terminate", "down", "del"],
        "`ringfence rm HANDLE` ends a sandbox, `ringfence kill HANDLE/c1` a command in it",
    ),
    (
        &["attach", "connect", "enter", "ssh", "console"],
        "`ringfence shell HANDLE` is a terminal in a sandbox that stays, `ringfence logs -f HANDLE/c1` the output of a command",
    ),
    (&["list", "ll"], "`ringfence ps` lists the sandboxes, `ringfence ls HANDLE` a directory of one"),
    (
        &["start", "up", "new", "launch", "spawn", "add"],
        "`ringfence create --keep` makes a sandbox that stays; one that has ended cannot be started again",
    ),
    (
        &["restart", "pause", "unpause", "resume"],
        "a sandbox runs until it ends; `ringfence create --keep` makes a new one",
    ),
    (&["copy", "push", "upload", "download"], "`ringfence cp SRC DST`, where one of the two is HANDLE:PATH"),
    (&["cat"], "`ringfence read HANDLE PATH`"),
    (&["info", "show", "describe", "stats", "top"], "`ringfence inspect HANDLE`"),
    (
        &["status"],
        "`ringfence ps` lists the sandboxes, `ringfence inspect HANDLE` shows one, `ringfence doctor` this machine",
    ),
    (
        &["log", "events", "history"],
        "`ringfence logs` shows what happened to sandboxes, those that have ended included",
    ),
    (&["extend", "keep", "touch"], "`ringfence renew --lifetime 2h HANDLE` gives a sandbox more time"),
    (
        &["clean", "cleanup", "gc"],
        "`ringfence rm --all` removes the sandboxes, `ringfence prune` what is left of those that are gone",
    ),
    (&["check", "probe", "test"], "`ringfence doctor`"),
    (
        &["build", "pull", "images"],
        "there are no images: a sandbox sees this machine's /usr, and gets files with --input",
    ),
];

/// Flags, by subcommand.
const FLAGS: &[(&[&str], &[&str], &str)] = &[
    (
        &["ps"],
        &["-a", "--all"],
        "all sandboxes that can be reached are listed; `ringfence logs` also has those that have ended",
    ),
    (&["ps"], &["--filter", "--format"], "--label NAME=VALUE chooses, --json is for programs"),
    (
        &["rm"],
        &["-r", "-R", "--recursive", "-v"],
        "a sandbox goes with everything in it; -f is for those that somebody holds",
    ),
    (&["rm"], &["-a"], "--all removes every sandbox that `ringfence ps` shows"),
    (
        &["cp"],
        &["-r", "-R", "-a", "--recursive", "--archive"],
        "directories are copied with everything in them; no flag is needed",
    ),
    (&["run", "create"], &["--rm"], "nothing is left of a sandbox but what `ringfence create --keep` makes"),
    (
        &["run"],
        &["-d", "--detach"],
        "box=$(ringfence create --keep) makes a sandbox that stays, and `ringfence exec --detach $box -- CMD...` leaves a command in it",
    ),
    (&["create"], &["-d", "--detach"], "--keep lets the sandbox outlive this process"),
    (
        &["run", "create"],
        &["--name"],
        "a sandbox is found by the handle that `create` prints, or by --label NAME=VALUE",
    ),
    (&["exec"], &["--interactive"], "standard input is passed on by itself; -t is a terminal"),
    (&["logs"], &["--tail", "-n", "--since"], "`ringfence logs` prints all it has: pipe it to `tail -n`"),
    (&["wait"], &["-t"], "--timeout"),
];

/// Returns what somebody meant who typed a word of another program.
pub(super) fn advice(error: &clap::Error, name: &str) -> Option<String> {
    let typed = |kind| match error.get(kind) {
        Some(ContextValue::String(typed)) => Some(typed.as_str()),
        _ => None,
    };
    let found = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = typed(ContextKind::InvalidSubcommand)?;
            SUBCOMMANDS.iter().find(|(words, _)| words.contains(&typed)).map(|(_, advice)| *advice)
        }
        ErrorKind::UnknownArgument => {
            let typed = typed(ContextKind::InvalidArg)?;
            let fits = |of: &[&str], flags: &[&str]| of.contains(&name) && flags.contains(&typed);
            FLAGS.iter().find(|(of, flags, _)| fits(of, flags)).map(|(.., advice)| *advice)
        }
        ErrorKind::MissingRequiredArgument if name == "ls" => Some("`ringfence ps` lists the sandboxes"),
        _ => None,
    };
    found.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn no_word_of_ours_is_taken_for_another_programs() {
        let cli = Cli::command();
        for word in SUBCOMMANDS.iter().flat_map(|(words, _)| *words) {
            assert!(cli.find_subcommand(word).is_none(), "{word}");
        }
        for (of, flags, _) in FLAGS {
            for name in *of {
                let subcommand = cli.find_subcommand(name).unwrap();
                for flag in *flags {
                    let known = subcommand.get_arguments().any(|argument| {
                        argument.get_long().is_some_and(|long| format!("--{long}") == *flag)
                            || argument.get_short().is_some_and(|short| format!("-{short}") == *flag)
                    });
                    assert!(!known, "{name} {flag}");
                }
            }
        }
    }
}
