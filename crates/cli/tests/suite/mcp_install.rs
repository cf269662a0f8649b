//! What `ringfence mcp install` refuses and what it says.

use super::driver::Call;

#[test]
fn install_refuses_what_makes_the_server_print_and_end() {
    for (argument, told) in [
        ("--help", "with --help the server would print a text and end"),
        ("--version", "unexpected argument '--version' found"),
    ] {
        let done = Call::new(["mcp", "install", "claude", "--", argument]).done();
        let hint = "`ringfence mcp --help` lists them";
        done.assert(125, "", &format!("ringfence: the arguments behind `--`: {told}\n  try: {hint}\n"));
    }
}

#[test]
fn install_writes_no_server_that_would_not_start() {
    for arguments in [
        &["--tool-prefix", "9x"][..],
        &["--spec", "{\"bad\":1}"],
        &["--command-timeout", "10m"],
        &["--input", "missing"],
        &["--env-file", "missing"],
        &["--env", "A B=1"],
        &["--open-network"],
    ] {
        let served = Call::new(["mcp"].iter().chain(arguments)).done();
        assert_eq!((served.status, served.out()), (Some(125), ""), "{arguments:?}");
        let call = Call::new(["mcp", "install", "claude", "--"].iter().chain(arguments));
        let cwd = call.cwd();
        let mut running = call.start();
        running.child.wait().unwrap();
        assert_eq!(std::fs::read_dir(cwd).unwrap().count(), 0, "{arguments:?}");
        let same = served.stderr.strip_prefix("ringfence: ").unwrap();
        running.done().assert(125, "", &format!("ringfence: the arguments behind `--`: {same}"));
    }
    // Without any, it is nobody's argument.
    let done = Call::new(["mcp", "install", "claude"]).file("ringfence.toml", "[spec]\nbad = 1\n").done();
    assert_eq!((done.status, done.out()), (Some(125), ""));
    assert!(done.stderr.starts_with("ringfence: `ringfence mcp` would not start: "), "{}", done.stderr);
}

#[test]
fn install_says_what_the_settings_show_and_what_the_client_decides() {
    let told = |scope: &str, arguments: &[&str]| {
        let words = ["mcp", "install", "claude", "--scope", scope, "--"];
        let done = Call::new(words.iter().chain(arguments)).env("HERE", "1").file("in/a", "x").done();
        assert_eq!(done.status, Some(0), "{}", done.stderr);
        done.stderr
    };
    let shown = |name: &str| {
        format!(
            "ringfence: the settings hold the value of {name} for all who may read them; `--env {name}` takes it \
             from the client's environment instead\n"
        )
    };
    let spec = "{\"env\": {\"B\": \"2\"}}";
    assert_eq!(told("project", &["--env", "A=1", "--env", "HERE", "--spec", spec]), shown("A") + &shown("B"));
    let missing = "ringfence: --env AWAY: it is not set here; where the client does not have it either, the server \
                   will not start\n";
    assert_eq!(told("project", &["--env", "AWAY"]), missing);

    assert_eq!(told("project", &["--input", "in:."]), "");
    let relative = |flag: &str| {
        format!("ringfence: {flag}: it will be looked for in whatever folder the client starts the server\n")
    };
    let files = ["--input", "no:.", "--env-file", "no.env", "--spec", "no.json", "--input", "/etc/passwd"];
    let expected = relative("--input no") + &relative("--env-file no.env") + &relative("--spec no.json");
    assert_eq!(told("user", &files), expected);
}

#[test]
fn install_takes_no_name_with_another_transport() {
    let call = Call::new(["mcp", "install", "codex", "--scope", "project"]);
    let path = call.cwd().join(".codex/config.toml");
    let before = "[mcp_servers.ringfence]\nurl = \"https://example.com\"\n";
    let mut running = call.file(".codex/config.toml", before).start();
    running.child.wait().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    let told = "an entry of this name exists with another transport, as its `url` says; nothing was changed";
    let hint = "choose another --name, or remove that entry";
    let stderr = format!("ringfence: {}: {told}\n  try: {hint}\n", path.display());
    running.done().assert(125, "", &stderr);
}

#[test]
fn install_never_writes_that_the_program_was_deleted() {
    let folder = tempfile::TempDir::new().unwrap();
    let program = folder.path().join("ringfence");
    let done = |replace: &str| {
        let path = program.display();
        let script = format!(
            "cp \"$0\" '{path}'; exec 3<'{path}'; rm '{path}'; {replace}; exec /proc/self/fd/3 \"$@\""
        );
        Call::new(["mcp", "install", "claude", "--print"]).below(&["sh", "-c", &script]).done()
    };
    let gone = done(":");
    let told = format!("{}, the file of this program, was deleted while it ran", program.display());
    gone.assert(
        125,
        "",
        &format!("ringfence: {told}\n  try: start it again from where it is installed now\n"),
    );
    let replaced = done(&format!("cp \"$0\" '{}'", program.display()));
    assert_eq!(replaced.status, Some(0), "{}", replaced.stderr);
    assert_eq!(replaced.json()["mcpServers"]["ringfence"]["command"], program.to_str().unwrap());
}
