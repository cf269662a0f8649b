use super::driver::Call;

/// Those whose help is alike.
const SUBCOMMANDS: [&str; 18] = [
    "run",
    "shell",
    "create",
    "exec",
    "cp",
    "read",
    "write",
    "ls",
    "ps",
    "inspect",
    "logs",
    "renew",
    "rm",
    "prune",
    "demo",
    "doctor",
    "config",
    "completions",
];

#[test]
fn every_subcommand_has_help_with_examples() {
    let main = Call::new(["--help"]).done();
    assert_eq!(main.status, Some(0), "{main:?}");
    for name in SUBCOMMANDS {
        assert!(main.out().contains(&format!("\n  {name} ")), "{name}");
        let help = Call::new([name, "--help"]).done();
        assert_eq!((help.status, help.stderr.as_str()), (Some(0), ""), "{name}");
        let text = help.out();
        assert!(text.contains("Example") && text.contains(&format!("\n  ringfence {name}")), "{text}");
    }
}

#[test]
fn help_lines_fit_a_terminal() {
    for name in SUBCOMMANDS {
        let help = Call::new([name, "--help"]).done();
        for line in help.out().lines() {
            assert!(line.chars().count() <= 100, "{name}: {line}");
        }
    }
}

#[test]
fn the_version_is_one_line_on_standard_output() {
    let version = concat!("ringfence ", env!("CARGO_PKG_VERSION"), "\n");
    Call::new(["--version"]).done().assert(0, version, "");
}

#[test]
fn usage_errors_are_2_and_125_where_a_command_would_run() {
    let table: [(&[&str], i32); 20] = [
        (&[], 2),
        (&["create", "--label", "nothing"], 2),
        (&["create", "--idle", "0"], 2),
        (&["ps", "--json", "-q"], 2),
        (&["ps", "--json", "--watch"], 2),
        (&["inspect"], 2),
        (&["renew", "--lifetime", "-1", "local:sb-1"], 2),
        (&["rm"], 2),
        (&["rm", "--all", "local:sb-1"], 2),
        (&["rm", "--backend", "local", "local:sb-1"], 2),
        (&["prune", "--nope"], 2),
        (&["--nope"], 2),
        (&["doctor", "--nope"], 2),
        (&["config", "--memory", "0"], 2),
        (&["completions", "nosuchshell"], 2),
        (&["run"], 125),
        (&["run", "--"], 125),
        (&["run", "true"], 125),
        (&["run", "--nope", "--", "true"], 125),
        (&["shell", "--nope"], 125),
    ];
    for (args, status) in table {
        let done = Call::new(args).done();
        assert_eq!((done.status, done.out()), (Some(status), ""), "{args:?}");
        assert!(
            done.stderr.contains("Usage:") || done.stderr.contains("error:"),
            "{args:?}: {}",
            done.stderr
        );
    }
}

#[test]
fn sp_14_what_is_no_handle_is_refused_with_what_was_probably_meant() {
    for (handle, told) in [
        ("", "it is empty; try a handle such as local:sb-0123456789ab"),
        ("None", "\"None\" is not a sandbox; try a handle such as local:sb-0123456789ab"),
        ("sb-1", "\"sb-1\" does not say which backend has it; try local:sb-1"),
        ("local:sb-1/c1", "\"local:sb-1/c1\" names a command in a sandbox; try local:sb-1"),
    ] {
        for name in ["inspect", "renew", "rm"] {
            let done = Call::new([name, handle]).done();
            assert_eq!((done.status, done.out()), (Some(2), ""), "{name} {handle}");
            assert!(done.stderr.lines().next().unwrap().ends_with(told), "{name}: {}", done.stderr);
        }
    }
    for name in ["inspect", "renew", "rm"] {
        let unknown = "ringfence: open the backend: there is no backend \"modla\", sandbox modla:sb-1\n  \
                       try: known: local\n";
        Call::new([name, "modla:sb-1"]).done().assert(125, "", unknown);
    }
}

#[test]
fn words_of_other_programs_are_told_what_they_are_here() {
    let table: [(&[&str], i32, &str); 16] = [
        (&["stop", "local:sb-1"], 2, "`ringfence rm HANDLE` ends a sandbox"),
        (&["delete"], 2, "`ringfence rm HANDLE` ends a sandbox"),
        (&["down"], 2, "`ringfence rm HANDLE` ends a sandbox"),
        (&["attach", "local:sb-1"], 2, "`ringfence shell HANDLE`"),
        (&["list"], 2, "`ringfence ps` lists the sandboxes"),
        (&["start"], 2, "`ringfence create --keep`"),
        (&["up"], 2, "`ringfence create --keep`"),
        (&["ps", "-a"], 2, "`ringfence logs` also has those that have ended"),
        (&["ps", "--all"], 2, "`ringfence logs` also has those that have ended"),
        (&["ls"], 2, "`ringfence ps` lists the sandboxes"),
        (&["rm", "-rf", "local:sb-1"], 2, "a sandbox goes with everything in it"),
        (&["cp", "-r", "a", "local:sb-1:"], 2, "no flag is needed"),
        (&["run", "--rm", "--", "true"], 125, "nothing is left of a sandbox"),
        (&["run", "-d", "--", "true"], 125, "`ringfence exec --detach $box -- CMD...`"),
        (&["create", "--name", "x"], 2, "--label NAME=VALUE"),
        (&["kill", "local:sb-1"], 2, "`ringfence rm local:sb-1` ends the sandbox"),
    ];
    for (args, status, told) in table {
        let done = Call::new(args).done();
        assert_eq!((done.status, done.out()), (Some(status), ""), "{args:?}");
        assert!(done.stderr.contains(told) && !done.stderr.contains("similar"), "{args:?}: {}", done.stderr);
        assert!(done.stderr.matches("tip:").count() <= 1, "{args:?}: {}", done.stderr);
    }
    // What is near a word of ours is still that.
    let near = Call::new(["creat"]).done();
    assert!(near.stderr.contains("similar subcommands exist: 'read', 'create'"), "{near:?}");
}

#[test]
fn times_out_of_range_name_the_range_and_the_unit() {
    for (args, bad) in [
        (&["renew", "local:sb-1", "--lifetime"][..], "0"),
        (&["renew", "local:sb-1", "--lifetime"], "1000d"),
        (&["renew", "local:sb-1", "--lifetime"], "0s"),
        (&["create", "--idle"], "1e9"),
        (&["exec", "local:sb-1", "--timeout"], "-1"),
    ] {
        let done = Call::new([args, &[bad]].concat()).done();
        let told = format!(
            "a time is longer than 0 and at most 365d, not {bad:?}; a number without a unit is seconds"
        );
        assert!(done.out().is_empty() && done.stderr.contains(&told), "{args:?} {bad}: {}", done.stderr);
    }
    let done = Call::new(["renew", "local:sb-1", "--lifetime", "soon"]).done();
    assert!(
        done.stderr.contains("\"soon\" is not a duration such as 30 (seconds), 0.5, 30s, 2m, 1d"),
        "{}",
        done.stderr
    );
}

#[test]
fn p_22_bad_timeouts_are_refused_before_anything_runs() {
    for bad in ["0", "-1", "-1s", "NaN", "inf", "1e18", "0s", "", "soon"] {
        let done = Call::new(["run", "--timeout", bad, "--", "true"]).done();
        assert_eq!((done.status, done.out()), (Some(125), ""), "{bad}: {}", done.stderr);
        assert!(done.stderr.contains("--timeout"), "{bad}: {}", done.stderr);
        let done = Call::new(["run", "--lifetime", bad, "--", "true"]).done();
        assert_eq!(done.status, Some(125), "{bad}: {}", done.stderr);
    }
}

#[test]
fn bad_limits_are_refused_with_the_flag_and_the_form() {
    for (flag, bad, form) in [
        ("--memory", "12x", "512MiB"),
        ("--memory", "0", "between 1"),
        ("--disk", "-1", ""),
        ("--cpus", "0", "0.01"),
        ("--cpus", "NaN", "0.01"),
        ("--pids", "0", "between 1"),
        ("--pids", "-5", "whole number"),
        ("--workdir", "relative", "absolute"),
    ] {
        let done = Call::new(["run", flag, bad, "--", "true"]).done();
        assert_eq!(done.status, Some(125), "{flag} {bad}: {}", done.stderr);
        assert!(done.stderr.contains(form), "{flag} {bad}: {}", done.stderr);
    }
}

#[test]
fn completions_name_every_subcommand() {
    for shell in ["bash", "zsh", "fish"] {
        let done = Call::new(["completions", shell]).done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
        for name in SUBCOMMANDS {
            assert!(done.out().contains(name), "{shell}: {name}");
        }
    }
}

#[test]
fn a_misspelt_variable_is_refused_with_the_right_name() {
    Call::new(["config"]).env("RINGFENCE_MEMROY", "1g").done().assert(
        125,
        "",
        "ringfence: the environment variable RINGFENCE_MEMROY is not a setting\n  try: RINGFENCE_MEMORY\n",
    );
    assert_eq!(Call::new(["config"]).env("RINGFENCE_TEST_X", "1").done().status, Some(0));
}

#[test]
fn the_log_goes_to_standard_error_and_a_bad_filter_is_refused() {
    let done = Call::new(["config"]).env("RINGFENCE_LOG", "debug").done();
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    let done = Call::new(["config"]).env("RINGFENCE_LOG", "a=b=c").done();
    assert_eq!((done.status, done.out()), (Some(125), ""));
    assert!(done.stderr.starts_with("ringfence: RINGFENCE_LOG: "), "{}", done.stderr);
}

#[test]
fn a_usage_fault_of_run_is_in_the_json_too() {
    let done = Call::new(["run", "--json", "--memory", "-1", "--", "true"]).done();
    let error = &done.json()["error"];
    assert_eq!((done.status, &error["kind"]), (Some(125), &"invalid_argument".into()));
    assert!(done.stderr.contains("\"-1\" is not a size such as 512MiB"), "{}", done.stderr);
}

#[test]
fn a_command_without_the_dashes_is_told_where_they_go() {
    let table: [(&[&str], &str, &str); 7] = [
        (&["run", "python3", "script.py"], "python3", "ringfence run -- python3 script.py"),
        (&["run", "--pids", "8", "sh", "-c", "it's"], "sh", r"ringfence run [OPTIONS] -- sh -c 'it'\''s'"),
        (&["run", "--env", "env", "env", "--", "x"], "env", "ringfence run [OPTIONS] -- env -- x"),
        (&["run", "a", "b", "c", "d", "e"], "a", "ringfence run -- a b c d ..."),
        (&["run", "-", "x"], "-", "ringfence run -- - x"),
        (&["exec", "local:sb-1", "make", "test"], "make", "ringfence exec HANDLE -- make test"),
        (&["exec", "-e", "A=b", "local:sb-1", "ls"], "ls", "ringfence exec [OPTIONS] HANDLE -- ls"),
    ];
    for (args, word, told) in table {
        let usage = match args[0] {
            "run" => "run [OPTIONS] -- <CMD>...",
            _ => "exec [OPTIONS] <HANDLE> -- <CMD>...",
        };
        let stderr = format!(
            "error: unexpected argument '{word}' found\n\n  \
             tip: put `--` before the command: `{told}`\n\n\
             Usage: ringfence {usage}\n\nFor more information, try '--help'.\n"
        );
        Call::new(args).done().assert(125, "", &stderr);
    }
}

#[test]
fn a_program_where_a_handle_is_due_is_told_where_it_goes() {
    let done = Call::new(["shell", "python3"]).done();
    assert_eq!((done.status, done.out()), (Some(125), ""));
    let told = "a program goes behind `--`: `ringfence shell -- CMD...`";
    assert!(done.stderr.lines().next().unwrap().ends_with(told), "{}", done.stderr);
    // What a sandbox that is there guarantees was said when it was made.
    for flag in [&["--memory", "1GiB"][..], &["--env", "A=b"], &["--open-network"], &["--backend", "local"]] {
        let done = Call::new([&["shell"], flag, &["local:sb-1"]].concat()).done();
        assert_eq!((done.status, done.out()), (Some(125), ""));
        assert!(done.stderr.contains("cannot be used with"), "{flag:?}: {}", done.stderr);
    }
    let done = Call::new(["exec", "-t", "--json", "local:sb-1", "--", "true"]).done();
    assert!(done.status == Some(125) && done.stderr.contains("cannot be used with"), "{done:?}");
}

#[test]
fn an_unknown_flag_is_not_advised_to_go_behind_the_dashes() {
    let run = "flags have long names only: --input for files, --env for variables, --memory, --timeout, ...";
    let terminal =
        "flags have long names only; standard input is passed on, and a terminal is `ringfence shell`";
    let shell = "flags have long names only: --env for variables, --memory, --workdir, ...";
    let table: [(&[&str], &str, &str); 5] = [
        (&["run", "-v", "/tmp:/tmp", "--", "true"], "-v", run),
        (&["run", "-eA=b", "--", "true"], "-e", run),
        (&["run", "-it", "python3"], "-i", terminal),
        (&["shell", "-v"], "-v", shell),
        (&["run", "--mem", "1g", "--", "true"], "--mem", "a similar argument exists: '--memory'"),
    ];
    for (args, word, told) in table {
        let usage = match (args[0], word) {
            (_, "--mem") => "run --memory <SIZE> -- <CMD>...",
            ("run", _) => "run [OPTIONS] -- <CMD>...",
            _ => "shell [OPTIONS] [HANDLE] [-- <CMD>...]",
        };
        let stderr = format!(
            "error: unexpected argument '{word}' found\n\n  tip: {told}\n\n\
             Usage: ringfence {usage}\n\nFor more information, try '--help'.\n"
        );
        Call::new(args).done().assert(125, "", &stderr);
    }
    let stderr = "error: unexpected argument '--nope' found\n\n\
                  Usage: ringfence run [OPTIONS] -- <CMD>...\n\nFor more information, try '--help'.\n";
    Call::new(["run", "--nope", "--", "true"]).done().assert(125, "", stderr);
}

#[test]
fn the_object_of_a_usage_fault_is_whole() {
    let message =
        r#"invalid value 'zzz' for '--memory <SIZE>': "zzz" is not a size such as 512MiB, 2g or 1048576"#;
    let table: [(&[&str], &str, Option<&str>); 3] = [
        (&["run", "--json", "--memory", "zzz"], message, None),
        (&["run", "--memory", "zzz", "--json", "--", "true"], message, None),
        (
            &["run", "--json", "true"],
            "unexpected argument 'true' found",
            Some("put `--` before the command: `ringfence run [OPTIONS] -- true`"),
        ),
    ];
    for (args, message, hint) in table {
        let done = Call::new(args).done();
        let error = serde_json::json!({"kind": "invalid_argument", "message": message, "hint": hint});
        let whole = serde_json::json!({"version": 1, "status": 125, "error": error});
        assert_eq!((done.status, done.json()), (Some(125), whole), "{args:?}");
    }
}

/// Returns the lines of a help text from the one that starts with `from` to before the one that starts with `to`.
fn part<'a>(help: &'a str, from: &str, to: &str) -> &'a str {
    let start = help.find(&format!("\n{from}")).unwrap() + 1;
    &help[start..start + help[start..].find(&format!("\n{to}")).unwrap() + 1]
}

#[test]
fn the_help_says_which_status_a_limit_has() {
    let help = Call::new(["run", "--help"]).done();
    let table = concat!(
        "  124  the timeout passed (1 h where none is given), or the sandbox's lifetime\n",
        "  137  the memory limit (--memory) ended it\n",
        "  1    the limit of processes (--pids) kept it from going on, which is said on standard error\n",
    );
    assert_eq!(part(help.out(), "  124", "  125"), table);
}

#[test]
fn the_help_says_that_the_local_backend_opens_no_network_and_no_example_asks_it_to() {
    let help = Call::new(["run", "--help"]).done();
    let flags = concat!(
        "      --allow-host <NAME>    Let this host name be reached, e.g. pypi.org or *.pypi.org. Can be\n",
        "                             repeated. The local backend refuses this today: it has no network to\n",
        "                             let anything out with\n",
        "      --allow-cidr <RANGE>   Let this IPv4 range be reached, e.g. 10.20.0.0/16. Can be repeated. The\n",
        "                             local backend refuses this today\n",
        "      --open-network         Let everything be reached. The local backend refuses this today\n",
    );
    assert_eq!(part(help.out(), "      --allow-host", "      --block-network"), flags);
    for name in ["run", "shell", "demo", "doctor", "config"] {
        let help = Call::new([name, "--help"]).done();
        let (_, examples) = help.out().split_once("\nExample").unwrap();
        for key in ["--allow-", "--open-network", "allow_egress_to"] {
            assert!(!examples.contains(key), "{name}: {examples}");
        }
    }
}

#[test]
fn the_help_says_what_is_logged_and_the_rest_is_silent() {
    let help = Call::new(["config", "--help"]).done();
    let (_, told) = help.out().split_once("  RINGFENCE_LOG: ").unwrap();
    let whole = "\
what goes to standard error as a log, e.g. debug; has no key in files. Only
    the tools of `mcp` and `demo` log anything, so `run` and `shell` stay silent at every level
";
    assert_eq!(told, whole);
    Call::new(["run", "--", "true"]).env("RINGFENCE_LOG", "trace").done().assert(0, "", "");
    let demo = Call::new(["demo"]).env("RINGFENCE_LOG", "debug").done();
    assert!(demo.stderr.contains("sandbox created"), "{}", demo.stderr);
}
