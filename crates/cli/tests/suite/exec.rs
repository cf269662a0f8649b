//! Commands in a sandbox that stays.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::driver::{Call, assert_nothing_left, marker, processes_with, skipped, wait_for_sleeps};
use super::place::{Holding, Place, handle_of, no_such};

/// The calls of one sandbox.
struct Kept {
    place: Place,
    handle: String,
}

impl Kept {
    fn new(args: &[&str]) -> Self {
        let place = Place::new();
        let handle = place.keep(args);
        Self { place, handle }
    }

    /// A call of `exec` with flags and a command.
    fn exec(&self, flags: &[&str], command: &[&str]) -> Call {
        self.place.call([&["exec"], flags, &[&self.handle, "--"], command].concat())
    }

    fn sh(&self, script: &str) -> Call {
        self.exec(&[], &["sh", "-c", script])
    }
}

#[test]
fn what_one_command_leaves_the_next_one_finds() {
    let kept = Kept::new(&["--workdir", "/srv/w", "--env", "A=spec"]);
    kept.sh("echo $A > note; pwd; echo err >&2; exit 3").done().assert(3, "/srv/w\n", "err\n");
    kept.exec(&[], &["cat", "note"]).done().assert(0, "spec\n", "");
    let marker = marker();
    kept.sh(&format!("sleep {marker} > /dev/null 2>&1 &")).done().assert(0, "", "");
    wait_for_sleeps(&marker, 1);
    assert_eq!(kept.place.handles(&[]), [kept.handle.as_str()]);
    kept.place.call(["rm", &kept.handle]).done().assert(0, "", "");
    assert_nothing_left(&marker);
}

#[test]
fn p_48_statuses_are_those_of_run() {
    let kept = Kept::new(&[]);
    for (script, status) in [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        kept.sh(script).done().assert(status, "", "");
    }
    let started = kept.exec(&["--timeout", "1s"], &["sh", "-c", "echo a; sleep 60"]).done();
    started.assert(124, "a\n", "ringfence: timed out after 1s\n");
    for (program, status) in
        [("no-such-program", 127), ("/no/such", 127), ("", 127), ("/tmp", 126), ("/etc/passwd", 126)]
    {
        let done = kept.exec(&[], &[program]).done();
        assert_eq!((done.status, done.out()), (Some(status), ""), "{program}: {}", done.stderr);
        assert!(done.stderr.starts_with("ringfence: "), "{program}: {}", done.stderr);
    }
    // Every fault of ours is 125, wrong arguments included.
    let handle = kept.handle.as_str();
    for args in [
        &["exec", handle][..],
        &["exec", "--", "true"],
        &["exec", handle, "--timeout", "0", "--", "true"],
        &["exec", handle, "--env", "a b=c", "--", "true"],
        &["exec", "sb-1", "--", "true"],
        &["exec", "modal:sb-1", "--", "true"],
    ] {
        let done = kept.place.call(args.iter().copied()).done();
        assert_eq!((done.status, done.out()), (Some(125), ""), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn standard_input_and_output_are_bytes() {
    let kept = Kept::new(&[]);
    let bytes: Vec<u8> = (0..4u32 << 20).map(|i| ((i * 31) >> 3).to_le_bytes()[0]).collect();
    let done = kept.exec(&[], &["cat"]).stdin(bytes.clone()).done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
    assert!(done.stdout == bytes, "{} bytes came back", done.stdout.len());
    kept.exec(&[], &["true"]).stdin(vec![b'x'; 4 << 20]).done().assert(0, "", "");
    kept.sh("read x; echo got:$x").done().assert(0, "got:\n", "");
    assert_eq!(kept.sh("printf '\\377\\376\\000ok'").done().stdout, b"\xff\xfe\x00ok");
}

#[test]
fn a_command_has_a_directory_and_variables_of_its_own() {
    let kept = Kept::new(&["--workdir", "/srv/w", "--env", "A=spec", "--env", "B=spec"]);
    kept.sh("mkdir sub").done().assert(0, "", "");
    let exec = |flags: &[&str]| {
        kept.exec(flags, &["sh", "-c", "echo $PWD $A $B $C"]).env("C", "host").env("E", "not passed").done()
    };
    exec(&[]).assert(0, "/srv/w spec spec\n", "");
    exec(&["-w", "sub", "-e", "A=own", "-e", "C"]).assert(0, "/srv/w/sub own spec host\n", "");
    exec(&["--workdir", "/tmp", "--env", "B="]).assert(0, "/tmp spec\n", "");
    // The next command has those of the sandbox again.
    exec(&[]).assert(0, "/srv/w spec spec\n", "");
    let absent = exec(&["-e", "NOT_SET"]);
    absent.assert(125, "", "ringfence: --env: NOT_SET is not set in the environment\n  try: NOT_SET=VALUE\n");
    let nowhere = exec(&["-w", "nowhere"]);
    assert_eq!((nowhere.status, nowhere.out()), (Some(125), ""), "{nowhere:?}");
    assert!(nowhere.stderr.starts_with("ringfence: ") && nowhere.stderr.contains("nowhere"), "{nowhere:?}");
}

#[test]
fn the_object_is_that_of_run_with_the_handle() {
    let kept = Kept::new(&[]);
    let object = kept.exec(&["--json"], &["sh", "-c", "echo out; exit 7"]).done();
    assert_eq!((object.status, object.stderr.as_str()), (Some(7), ""));
    let mut object = object.json();
    assert!(
        object["timings_ms"]["before"].is_number() && object["timings_ms"]["run"].is_number(),
        "{object}"
    );
    object["timings_ms"].take();
    let (_, id) = kept.handle.split_once(':').unwrap();
    let stream = |text: &str| json!({"text": text, "total_bytes": text.len(), "truncated": false});
    let whole = json!({
        "version": 1, "backend": "local", "sandbox": id, "handle": kept.handle, "ending": "exited",
        "exit_code": 7, "signal": null, "status": 7, "timeout_seconds": 3600.0, "timeout_from": "default",
        "sandbox_lost": false, "stdout": stream("out\n"), "stderr": stream(""), "timings_ms": null,
    });
    assert_eq!(object, whole);
    let absent = kept.place.call(["exec", "--json", "local:sb-000000000000", "--", "true"]).done();
    assert_eq!((absent.status, &absent.json()["error"]["kind"]), (Some(125), &json!("sandbox_lost")));
    let usage = kept.place.call(["exec", "--json", &kept.handle]).done();
    assert_eq!((usage.status, &usage.json()["error"]["kind"]), (Some(125), &json!("invalid_argument")));
}

#[test]
fn a_signal_ends_the_command_and_not_the_sandbox() {
    let kept = Kept::new(&[]);
    let beside = marker();
    kept.sh(&format!("sleep {beside} > /dev/null 2>&1 &")).done().assert(0, "", "");
    for (signal, status) in [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let marker = marker();
        let script = format!("trap '' INT TERM; setsid sleep {marker} & sleep {marker}");
        let running = kept.sh(&script).start();
        wait_for_sleeps(&marker, 2);
        let sent = Instant::now();
        running.signal(signal);
        let done = running.done();
        assert_eq!((done.status, done.out(), done.stderr.as_str()), (status, "", ""));
        assert!(sent.elapsed() < Duration::from_secs(4), "{:?}", sent.elapsed());
        assert_nothing_left(&marker);
    }
    kept.sh("echo stays").done().assert(0, "stays\n", "");
    assert_eq!(processes_with(&beside).len(), 1);
}

#[test]
fn a_reader_that_goes_away_ends_the_command_and_not_the_sandbox() {
    use std::io::Read;
    let kept = Kept::new(&[]);
    let marker = marker();
    let mut running = kept.sh(&format!("sleep {marker} & yes y")).start_unread();
    let mut stdout = running.child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 2]).unwrap();
    drop(stdout);
    let done = running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(141), ""));
    assert_nothing_left(&marker);
    kept.sh("echo stays").done().assert(0, "stays\n", "");
}

#[test]
fn p_10_two_at_once_do_not_wait_for_each_other() {
    let kept = Kept::new(&[]);
    // Each needs what the other one does.
    let one = kept.sh("echo one > a; while [ ! -e b ]; do sleep 0.01; done; cat b").start();
    let two = kept.sh("while [ ! -e a ]; do sleep 0.01; done; cat a; echo two > c; mv c b").start();
    two.done().assert(0, "one\n", "");
    one.done().assert(0, "two\n", "");
}

#[test]
fn a_sandbox_that_is_listed_takes_commands_as_long_as_its_creator_lives() {
    let place = Place::new();
    let mut holding = Holding::start(&place, Stdio::piped(), &[]);
    let exec = |script: &str| place.call(["exec", &holding.handle, "--", "sh", "-c", script]);
    exec("echo x > f").done().assert(0, "", "");
    exec("cat f").done().assert(0, "x\n", "");
    drop(holding.pipe.take());
    place.wait_until_empty();
    exec("true").done().assert(125, "", &no_such(&holding.handle));
    assert_eq!(holding.running.done().status, Some(0));
}

#[test]
fn a_handle_that_nobody_has_is_125() {
    let place = Place::new();
    let absent = "local:sb-000000000000";
    place.call(["exec", absent, "--", "true"]).done().assert(125, "", &no_such(absent));
    let unknown = "ringfence: open the backend: there is no backend \"modla\", sandbox modla:sb-1\n  try: known: local\n";
    place.call(["exec", "modla:sb-1", "--", "true"]).done().assert(125, "", unknown);
}

#[test]
fn a_sandbox_that_ends_while_a_command_runs_says_why() {
    let place = Place::new();
    let lost = "ringfence: it is not known how the command ended: the sandbox was removed\n";
    let over = "ringfence: the sandbox ended with its lifetime\n";
    for (args, status, told) in [(&[][..], 125, lost), (&["--lifetime", "2s"], 124, over)] {
        let handle = place.keep(args);
        let marker = marker();
        let script = format!("echo begun; sleep {marker}");
        let running = place.call(["exec", &handle, "--", "sh", "-c", &script]).start();
        wait_for_sleeps(&marker, 1);
        if status == 125 {
            place.call(["rm", &handle]).done().assert(0, "", "");
        }
        running.done().assert(status, "begun\n", told);
        assert_nothing_left(&marker);
        place.call(["exec", &handle, "--", "true"]).done().assert(125, "", &no_such(&handle));
    }
    // One that is not kept ends with its creator.
    let holding = Holding::start(&place, Stdio::piped(), &[]);
    let marker = marker();
    let running = place.call(["exec", &holding.handle, "--", "sleep", &marker]).start();
    wait_for_sleeps(&marker, 1);
    drop(holding.pipe);
    let told = "ringfence: it is not known how the command ended: the sandbox was removed\n";
    running.done().assert(125, "", told);
    assert_eq!(holding.running.done().status, Some(0));
}

#[test]
fn what_a_lost_sandbox_leaves_is_in_the_object() {
    let place = Place::new();
    let handle = place.keep(&["--lifetime", "1s"]);
    let done = place.call(["exec", "--json", &handle, "--", "sh", "-c", "echo begun; sleep 60"]).done();
    let object = done.json();
    let facts = ["status", "ending", "sandbox_lost"].map(|key| &object[key]);
    assert_eq!((done.status, facts), (Some(124), [&json!(124), &json!("unknown"), &json!(true)]));
    assert_eq!(object["stdout"]["text"], "begun\n");
}

#[test]
fn a_limit_that_ends_a_command_is_named() {
    let place = Place::new();
    let created = place.call(["create", "--keep", "--pids", "16"]).done();
    if created.status == Some(125) && created.stderr.contains("limits.pids") {
        return skipped("a_limit_that_ends_a_command_is_named", "a limit of processes");
    }
    let kept = Kept { handle: handle_of(&created), place };
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 5 & done; wait";
    let done = kept.exec(&[], &["bash", "-c", script]).done();
    let notice = "ringfence: the limit of 16 processes kept the command from going on\n";
    let inspected = kept.place.call(["inspect", "--json", &kept.handle]).done().json();
    let rows = inspected["statement"]["rows"].as_array().unwrap();
    let pids = rows.iter().find(|row| row["field"] == "pids").unwrap()["mechanism"].as_str().unwrap();
    if pids.contains("cgroup") {
        assert_eq!((done.status, done.out(), done.stderr.ends_with(notice)), (Some(1), "", true), "{done:?}");
    } else {
        // Only a control group counts what it refused, so the status is the one of the shell.
        assert_eq!(
            (done.status, done.out(), done.stderr.contains(notice)),
            (Some(254), "", false),
            "{done:?}"
        );
        assert!(done.stderr.contains("Resource temporarily unavailable"), "{done:?}");
    }
}
