//! `ringfence mcp` as a client starts it, and `ringfence mcp install`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::driver::{Call, Running, Seen, assert_nothing_left, marker, process_with, wait_for_sleeps};
use super::place::{Place, no_such};

/// A client over pipes.
struct Client {
    running: Running,
    lines: BufReader<ChildStdout>,
    /// What the server says of itself.
    info: Value,
}

impl Client {
    fn of(call: Call) -> Self {
        let piped = |command: &mut Command| {
            command.stdin(Stdio::piped());
        };
        let mut running = call.with(piped).start_unread();
        let lines = BufReader::new(running.child.stdout.take().unwrap());
        let mut client = Self { running, lines, info: Value::Null };
        let client_info = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client_info});
        client.info = client.request("initialize", params);
        client
    }

    fn new(args: &[&str]) -> Self {
        Self::of(Call::new(["mcp"].iter().chain(args)))
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.running.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}));
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], 7, "{answer}");
        answer["result"].clone()
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Leaves a process behind in the sandbox.
    fn sleeping(mut self, marker: &str) -> Self {
        let command = format!("setsid sleep {marker} >/dev/null 2>&1 & echo up");
        assert_eq!(
            self.call("run_command", json!({"command": command}))["structuredContent"]["stdout"],
            "up"
        );
        wait_for_sleeps(marker, 1);
        self
    }
}

#[test]
fn lc_03_the_sandbox_ends_with_the_client_whichever_way_it_goes() {
    let marker = &marker();
    // It closes what we read.
    let mut client = Client::new(&[]).sleeping(marker);
    drop(client.running.child.stdin.take());
    client.running.done().assert(0, "", "");
    assert_nothing_left(marker);

    // It closes what we read and has left an answer unread.
    let mut client = Client::new(&[]).sleeping(marker);
    let params =
        json!({"name": "run_command", "arguments": {"command": "head -c 60000 /dev/zero | tr '\\0' x"}});
    client.send(&json!({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": params}));
    // One more answer than a pipe holds; it is there once this one has been asked for.
    client.send(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"}));
    std::thread::sleep(Duration::from_millis(500));
    drop(client.running.child.stdin.take());
    client.running.done().assert(0, "", "");
    assert_nothing_left(marker);

    // It is gone, but another process still has its end of what we read.
    let Client { running, lines, .. } = Client::new(&[]).sleeping(marker);
    drop(lines);
    running.done().assert(0, "", "");
    assert_nothing_left(marker);

    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let client = Client::new(&[]).sleeping(marker);
        client.running.signal(signal);
        client.running.done().assert(status, "", "");
        assert_nothing_left(marker);
    }
    let client = Client::new(&[]).sleeping(marker);
    client.running.signal(Signal::KILL);
    assert_eq!(client.running.done().status, None);
    assert_nothing_left(marker);
}

/// Returns the first processes of all sandboxes below a process.
fn sandboxes_of(owner: u32) -> BTreeSet<(u32, u64)> {
    let first = Seen::all().filter(Seen::is_first_of_a_sandbox);
    let below = first.filter(|process| process.line().any(|above| above.pid == owner));
    below.map(|process| process.identity()).collect()
}

#[test]
fn a_pool_holds_sandboxes_ready_hands_one_out_and_leaves_none() {
    #[track_caller]
    fn wait_for(owner: u32, count: usize) -> BTreeSet<(u32, u64)> {
        let started = Instant::now();
        loop {
            let found = sandboxes_of(owner);
            if found.len() == count {
                return found;
            }
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{count} sandboxes were to be there: {found:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Without one there is none before the first call.
    let mut client = Client::new(&[]);
    let owner = client.running.child.id();
    client.request("tools/list", json!({}));
    assert_eq!(sandboxes_of(owner), BTreeSet::new());
    drop(client.running.child.stdin.take());
    client.running.done().assert(0, "", "");

    let call = || Call::new(["mcp", "--input", "seed"]).file("seed", "staged");
    let by_flag = || Call::new(["mcp", "--pool", "2", "--input", "seed"]).file("seed", "staged");
    for (call, signal) in [
        (by_flag(), None),
        (call().env("RINGFENCE_POOL", "2"), Some(Signal::TERM)),
        (call().user_settings("pool = 2\n"), Some(Signal::KILL)),
    ] {
        let mut client = Client::of(call);
        let owner = client.running.child.id();
        let ready = wait_for(owner, 2);
        let marker = &marker();
        let command = format!("cat seed; setsid sleep {marker} >/dev/null 2>&1 &");
        let answer = client.call("run_command", json!({"command": command}));
        assert_eq!(answer["structuredContent"]["stdout"], "staged", "{answer}");
        wait_for_sleeps(marker, 1);
        let used = process_with(marker).line().find(Seen::is_first_of_a_sandbox).unwrap();
        assert!(ready.contains(&used.identity()), "{used:?} is none of {ready:?}");
        let all = wait_for(owner, 3);
        assert!(all.is_superset(&ready), "{all:?} without some of {ready:?}");
        let alive = || Seen::all().map(|process| process.identity()).collect::<BTreeSet<_>>();
        assert!(all.is_subset(&alive()), "they are found before the end, so that they would be after it");
        match signal {
            None => drop(client.running.child.stdin.take()),
            Some(signal) => client.running.signal(signal),
        }
        let status = match signal {
            None => Some(0),
            Some(Signal::TERM) => Some(143),
            Some(_) => None,
        };
        assert_eq!(client.running.done().status, status);
        let started = Instant::now();
        while !alive().is_disjoint(&all) {
            assert!(started.elapsed() < Duration::from_secs(2), "left behind, of {all:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Who holds a sandbox.
fn holder(place: &Place, handle: &str) -> Value {
    place.inspect(handle)["holder"].clone()
}

fn attach(place: &Place, handle: &str, more: &[&str]) -> Call {
    place.call([&["mcp", "--attach", handle, "--owner", "me"], more].concat())
}

#[test]
fn at_12_to_at_20_a_server_over_a_sandbox_that_stays_claims_it_and_gives_it_back() {
    let place = Place::new();
    let handle = place.keep(&["--owner", "me", "--lifetime", "2h", "--env", "TOKEN=hunter2-hunter2"]);
    place.call(["exec", &handle, "--", "sh", "-c", "echo before > f"]).done().assert(0, "", "");
    // What a client does to end, and the status after it.
    for (way, status) in [(None, Some(0)), (Some(Signal::INT), Some(130)), (Some(Signal::TERM), Some(143))] {
        let mut client = Client::of(attach(&place, &handle, &["--tool-prefix", "box"]));
        let held = json!(format!("me/mcp-{}", client.running.child.id()));
        assert_eq!(holder(&place, &handle), held, "before it is asked for anything");
        assert!(
            client.info["instructions"].as_str().unwrap().contains("stays with all files"),
            "{}",
            client.info
        );
        let tools = client.request("tools/list", json!({}));
        let told = tools["tools"][0]["description"].as_str().unwrap();
        assert!(told.contains("belongs to me") && told.contains("minutes left"), "{told}");
        // A second one, of the same owner, does not disturb it.
        let second = attach(&place, &handle, &[]).done();
        assert_eq!((second.status, second.out()), (Some(125), ""), "{second:?}");
        assert!(
            second.stderr.contains(held.as_str().unwrap()) && second.stderr.contains("--holder"),
            "{second:?}"
        );
        let answer = client.call("box_run_command", json!({"command": "cat f; echo $TOKEN"}));
        assert_eq!(answer["structuredContent"]["stdout"], "before\n***", "{answer}");
        let marker = &marker();
        let params = json!({"name": "box_run_command", "arguments": {"command": format!("sleep {marker}")}});
        client.send(&json!({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": params}));
        wait_for_sleeps(marker, 1);
        match way {
            None => drop(client.running.child.stdin.take()),
            Some(signal) => client.running.signal(signal),
        }
        let done = client.running.done();
        assert_eq!((done.status, done.stderr.as_str()), (status, ""));
        assert_nothing_left(marker);
        assert_eq!(holder(&place, &handle), Value::Null, "{way:?}");
        assert_eq!(place.handles(&[]), [handle.as_str()]);
    }
}

#[test]
fn at_05_whoever_was_killed_is_taken_over_by_the_same_holder_alone() {
    let place = Place::new();
    let handle = place.keep(&["--owner", "me"]);
    let client = Client::of(attach(&place, &handle, &["--holder", "desk"]));
    client.running.signal(Signal::KILL);
    client.running.done();
    assert_eq!(holder(&place, &handle), "desk");
    assert_eq!(attach(&place, &handle, &[]).done().status, Some(125));
    let mut client = Client::of(attach(&place, &handle, &["--holder", "desk"]));
    assert_eq!(client.call("list_directory", json!({}))["isError"], false);
    drop(client.running.child.stdin.take());
    client.running.done().assert(0, "", "");
    assert_eq!(holder(&place, &handle), Value::Null);
}

#[test]
fn at_16_when_an_attached_sandbox_ends_no_other_takes_its_place() {
    let place = Place::new();
    let handle = place.keep(&["--owner", "me"]);
    let mut client = Client::of(attach(&place, &handle, &[]));
    let owner = client.running.child.id();
    place.call(["rm", "-f", &handle]).done().assert(0, "", "");
    for _ in 0..2 {
        let answer = client.call("run_command", json!({"command": "true"}));
        let told = answer["content"][0]["text"].as_str().unwrap();
        assert_eq!(answer["isError"], true, "{answer}");
        assert!(
            told.contains("the attached sandbox has ended")
                && told.contains("No call of these tools can work"),
            "{told}"
        );
    }
    assert_eq!((sandboxes_of(owner), place.handles(&[])), (BTreeSet::new(), vec![]));
    drop(client.running.child.stdin.take());
    client.running.done().assert(0, "", "");
}

#[test]
fn at_02_at_03_at_11_at_13_who_may_not_attach_is_told_why_and_leaves_no_claim() {
    let place = Place::new();
    let [owned, nobodys] = [place.keep(&["--owner", "you"]), place.keep(&[])];
    let refused = |args: &[&str], status: i32| {
        let done = place.call([&["mcp"], args].concat()).done();
        assert_eq!((done.status, done.out()), (Some(status), ""), "{done:?}");
        done.stderr
    };
    let told = refused(&["--attach", &owned], 125);
    assert_eq!(
        told,
        "ringfence: --attach needs to be told whose the sandbox is\n  try: --owner NAME, as when it was created\n"
    );
    let told = refused(&["--attach", &owned, "--owner", "me"], 125);
    assert!(
        told.contains("the sandbox belongs to \"you\", not to \"me\"") && told.contains("--owner"),
        "{told}"
    );
    let told = refused(&["--attach", &nobodys, "--owner", "me"], 125);
    assert!(told.contains("carries no owner") && told.contains("create --keep --owner"), "{told}");
    let gone = "local:sb-000000000000";
    assert_eq!(refused(&["--attach", gone, "--owner", "me"], 125), no_such(gone));
    for unset in ["", "None"] {
        let told = refused(&["--attach", unset, "--owner", "me"], 2);
        assert!(told.contains("a handle such as local:sb-0123456789ab"), "{told}");
    }
    for flag in [
        &["--memory", "1GiB"][..],
        &["--pool", "1"],
        &["--input", "x"],
        &["--env", "A=b"],
        &["--open-network"],
    ] {
        let told = refused(&[&["--attach", &owned, "--owner", "you"], flag].concat(), 2);
        assert!(told.contains("cannot be used with"), "{flag:?}: {told}");
    }
    assert!(refused(&["--holder", "x"], 2).contains("--attach"));
    assert_eq!([holder(&place, &owned), holder(&place, &nobodys)], [Value::Null, Value::Null]);
    // What is written into a client's settings is looked at, and nothing is claimed for that.
    let install = |more: &[&str]| {
        place.call([&["mcp", "install", "claude", "--print", "--", "--attach", &owned], more].concat())
    };
    let done = install(&["--owner", "me"]).done();
    assert!(done.status == Some(0) && done.out().contains("--attach"), "{done:?}");
    assert_eq!(install(&[]).done().status, Some(125));
    assert_eq!(holder(&place, &owned), Value::Null);
}

#[test]
fn a_client_that_leaves_while_a_command_runs_does_not_wait_for_it() {
    let marker = &marker();
    let mut client = Client::new(&[]);
    let command = format!("sleep {marker}; echo over");
    let params = json!({"name": "run_command", "arguments": {"command": command}});
    client.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}));
    wait_for_sleeps(marker, 1);
    drop(client.running.child.stdin.take());
    let done = client.running.done();
    done.assert(0, "", "");
    assert!(done.elapsed < Duration::from_secs(30), "{:?}", done.elapsed);
    assert_nothing_left(marker);
}

#[test]
fn a_client_that_reads_late_gets_every_answer_also_over_a_socket_that_does_not_block() {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    for nonblocking in [false, true] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(nonblocking).unwrap();
        let call = Call::new(["mcp"]).with(|command| {
            command.stdin(Stdio::piped()).stdout(OwnedFd::from(theirs));
        });
        let mut running = call.start_unread();
        let mut stdin = running.child.stdin.take().unwrap();
        let client_info = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client_info});
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))
            .unwrap();
        // More than a socket takes.
        for id in 1..=100 {
            writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})).unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        let mut lines = BufReader::new(ours).lines();
        let ids: Vec<i64> = (0..=100)
            .map(|_| {
                serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap()["id"]
                    .as_i64()
                    .unwrap()
            })
            .collect();
        assert_eq!(ids, (0..=100).collect::<Vec<i64>>());
        drop(stdin);
        drop(lines);
        running.done().assert(0, "", "");
    }
}

#[test]
fn cm_02_a_cancelled_command_is_ended_and_nothing_else_is() {
    let (kept, cancelled) = (&marker(), &marker());
    let mut client = Client::new(&[]).sleeping(kept);
    let command = format!("setsid sleep {cancelled} & sleep {cancelled}");
    let params = json!({"name": "run_command", "arguments": {"command": command}});
    client.send(&json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params}));
    wait_for_sleeps(cancelled, 2);
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c"}}));
    assert_nothing_left(cancelled);
    let alive = client.call("run_command", json!({"command": format!("pgrep -fc '[s]leep {kept}'")}));
    assert_eq!(alive["structuredContent"]["stdout"], "1");
}

#[test]
fn flags_reach_the_tools_and_the_sandbox() {
    let call = Call::new([
        "mcp",
        "--tool-prefix",
        "box",
        "--max-output-lines",
        "2",
        "--command-timeout",
        "7",
        "--input",
        "src:in",
        "--env",
        "TOKEN=hunter2-hunter2",
    ]);
    let mut client = Client::of(call.file("src/a.sh", "seq 3; echo $TOKEN; false").file("src/deep/b", "x"));
    let result = client.call("box_run_command", json!({"command": "find in -type f | sort; sh in/a.sh"}));
    let structure = &result["structuredContent"];
    assert_eq!(
        (
            &structure["stdout"],
            &structure["stdout_truncated"],
            &structure["exit_code"],
            &structure["timeout_seconds"]
        ),
        (&json!("3\n***"), &json!(true), &json!(1), &json!(7.0))
    );
    assert_eq!(
        client.call("box_list_directory", json!({"path": "in"}))["structuredContent"]["entries"],
        json!(["a.sh", "deep/"])
    );
}

#[test]
fn what_cannot_be_served_is_refused_before_a_client_sees_a_tool() {
    let refused = |args: &[&str]| {
        let done = Call::new(["mcp"].iter().chain(args)).done();
        assert_eq!((done.status, done.out()), (Some(125), ""), "{}", done.stderr);
        done.stderr
    };
    let told = refused(&["--open-network"]);
    assert!(told.starts_with("ringfence: local: ") && told.contains("asked for by --open-network"), "{told}");
    let told = refused(&["--tool-prefix", "a-b"]);
    assert!(told.contains("tool prefix must be an ASCII identifier"), "{told}");
    let told = refused(&["--command-timeout", "10m"]);
    assert!(
        told.contains("default_command_timeout is 600 s, which exceeds max_command_timeout, 300 s"),
        "{told}"
    );
    let told = refused(&["--input", "missing"]);
    assert!(told.contains("--input missing: No such file or directory"), "{told}");
}

#[test]
fn install_adds_the_server_to_a_clients_settings() {
    let program = env!("CARGO_BIN_EXE_ringfence");
    let call = Call::new(["mcp", "install", "claude", "--name", "box", "--", "--disk", "1GiB"]);
    let path = call.cwd().join(".mcp.json");
    let mut running = call.file(".mcp.json", "{\"mcpServers\": {\"other\": {\"command\": \"x\"}}}").start();
    running.child.wait().unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let expected = json!({"mcpServers": {
        "other": {"command": "x"},
        "box": {"type": "stdio", "command": program, "args": ["mcp", "--disk", "1GiB"]},
    }});
    assert_eq!(written, expected);
    let next = "Start claude there and approve the server; `claude mcp list` shows whether it connects.";
    running.done().assert(0, &format!("added box to {}\n{next}\n", path.display()), "");
}

#[test]
fn install_prints_instead_where_asked() {
    let call = Call::new(["mcp", "install", "codex", "--print"]);
    let path = call.cwd().join("../home").canonicalize().unwrap().join(".codex/config.toml");
    let done = call.done();
    let entry = format!(
        "[mcp_servers.ringfence]\ncommand = \"{}\"\nargs = [\"mcp\"]\ntool_timeout_sec = 330\n",
        env!("CARGO_BIN_EXE_ringfence")
    );
    done.assert(0, &entry, &format!("ringfence: this goes into {}\n", path.display()));
    assert!(!path.exists());
}

#[test]
fn install_refuses_arguments_that_the_server_would_refuse() {
    for (arguments, told) in [
        (&["--memory", "lots"][..], "the arguments behind `--`: invalid value 'lots' for '--memory <SIZE>'"),
        (&["install", "codex"][..], "the arguments behind `--`: they are another subcommand"),
        (&["--frobnicate"][..], "the arguments behind `--`: unexpected argument '--frobnicate' found"),
    ] {
        let done = Call::new(["mcp", "install", "claude", "--"].iter().chain(arguments)).done();
        assert_eq!((done.status, done.out()), (Some(125), ""));
        assert!(done.stderr.starts_with(&format!("ringfence: {told}")), "{}", done.stderr);
    }
}

#[test]
fn install_does_not_touch_what_it_does_not_understand() {
    let call = Call::new(["mcp", "install", "vscode"]).file(".vscode/mcp.json", "{ servers: ");
    let path = call.cwd().join(".vscode/mcp.json");
    let mut running = call.start();
    running.child.wait().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ servers: ");
    let done = running.done();
    assert_eq!(done.status, Some(125));
    assert!(
        done.stderr.contains("mcp.json: not JSON: ") && done.stderr.contains("nothing was changed"),
        "{}",
        done.stderr
    );
}
