//! The audit record as `logs` shows it.

use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::place::Place;

/// The lines of `logs --json`.
#[track_caller]
fn events(place: &Place, of: &[&str]) -> Vec<Value> {
    let done = place.call([&["logs", "--json"], of].concat()).done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
    done.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

/// Waits until the last thing that is known of a sandbox is its end, which whoever ends it writes down a moment later.
#[track_caller]
fn wait_for_the_end(place: &Place, handle: &str) -> Vec<Value> {
    let started = Instant::now();
    loop {
        let events = events(place, &[handle]);
        if names(&events).last() == Some(&"ended") {
            return events;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{events:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_happened_is_told_also_of_what_has_ended_and_without_contents() {
    let place = Place::new();
    let [first, second] = [place.keep(&["--label", "job=build"]), place.keep(&[])];
    place.call(["exec", &first, "--", "sh", "-c", "echo secret-word; exit 3"]).done();
    place.call(["rm", &first]).done().assert(0, "", "");
    let of_first = wait_for_the_end(&place, &first);
    assert_eq!(names(&of_first), ["created", "command_began", "command", "ended"]);
    let [created, began, command, ended] = &of_first[..] else { unreachable!() };
    let call = &began["facts"]["call"];
    assert_eq!(began["facts"], json!({"kind": "program", "program": "sh", "call": call}));
    assert_eq!((call.as_str().unwrap().len(), call), (16, &command["facts"]["call"]));
    assert_eq!(created["facts"]["labels"], json!({"job": "build"}));
    assert_eq!((&command["version"], &command["handle"]), (&json!(1), &json!(first)));
    let facts = ["kind", "program", "ending", "status", "stdout_bytes"].map(|name| &command["facts"][name]);
    assert_eq!(facts, [&json!("program"), &json!("sh"), &json!("exited"), &json!(3), &json!(12)]);
    assert_eq!(ended["facts"], json!({"reason": "destroyed"}));
    for event in &of_first {
        let at = event["at"].as_str().unwrap();
        assert!(at.len() == "2001-09-09T01:46:40.007Z".len() && at.ends_with('Z'), "{at}");
    }
    assert_eq!(names(&events(&place, &[&second])), ["created"]);
    assert_eq!(names(&events(&place, &[])), ["created", "created", "command_began", "command", "ended"]);
    let text = place.call(["logs", &first]).done();
    let lines: Vec<&str> = text.out().lines().collect();
    assert_eq!((text.status, lines.len()), (Some(0), 4), "{text:?}");
    assert!(lines[3].ends_with(&format!("  {first}  ended  reason=destroyed")), "{text:?}");
    assert!(!text.out().contains("secret") && !format!("{of_first:?}").contains("secret"));
}

#[test]
fn a_call_that_was_killed_has_a_beginning_in_the_record_and_one_that_a_signal_ended_has_an_end_too() {
    let place = Place::new();
    for (signal, expected) in [
        (Signal::KILL, &["command_began"][..]),
        (Signal::INT, &["command_began", "command"]),
        (Signal::TERM, &["command_began", "command"]),
    ] {
        let (handle, marker) = (place.keep(&[]), super::driver::marker());
        let running = place.call(["exec", &handle, "--", "sleep", &marker]).start();
        super::driver::wait_for_sleeps(&marker, 1);
        running.signal(signal);
        running.done();
        super::driver::assert_nothing_left(&marker);
        let events = events(&place, &[&handle]);
        assert_eq!(names(&events)[1..], *expected, "{signal:?}");
        if let [_, began, ended] = &events[..] {
            assert_eq!(
                (&ended["facts"]["error"], &ended["facts"]["call"]),
                (&json!("interrupted"), &began["facts"]["call"])
            );
            assert!(ended["facts"]["seconds"].is_f64(), "{ended}");
        }
    }
    // So is a copy, of which a part may have come out.
    let handle = place.keep(&[]);
    place
        .call(["exec", &handle, "--", "sh", "-c", "head -c 9999999 /dev/zero > big"])
        .done()
        .assert(0, "", "");
    let mut running = place.call(["cp", &format!("{handle}:big"), "-"]).start_unread();
    let mut stdout = running.child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 512]).unwrap();
    running.signal(Signal::KILL);
    running.done();
    let events = events(&place, &[&handle]);
    assert_eq!(names(&events)[3..], ["export_tree_began"]);
}

#[test]
fn p_117_a_killed_launcher_is_in_the_record_once_somebody_has_cleaned_up() {
    let place = Place::new();
    let marker = super::driver::marker();
    let handle = place.keep(&[]);
    place.call(["exec", &handle, "--", "sh", "-c", &format!("sleep {marker} >/dev/null 2>&1 &")]).done();
    super::driver::wait_for_sleeps(&marker, 1);
    kill_launcher(&marker);
    super::driver::assert_nothing_left(&marker);
    assert_eq!(place.call(["prune"]).done().status, Some(0));
    let events = wait_for_the_end(&place, &handle);
    assert_eq!(events.last().unwrap()["facts"], json!({"reason": "launcher_gone"}));
}

/// Kills the launcher above the process with `marker`. One that is left alone is a child of whoever takes orphans.
fn kill_launcher(marker: &str) {
    let launcher = super::driver::process_with(marker).line().find(super::driver::Seen::is_outside).unwrap();
    let pid = rustix::process::Pid::from_raw(launcher.pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn a_follower_sees_what_happens_until_a_signal() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = Place::new();
        let mut running = place.call(["logs", "-f", "--json"]).start_unread();
        let mut lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
        let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
        let handle = place.keep(&[]);
        assert_eq!((&next()["event"], place.handles(&[])), (&json!("created"), vec![handle.clone()]));
        place.call(["exec", &handle, "--", "true"]).done().assert(0, "", "");
        assert_eq!((&next()["event"], &next()["event"]), (&json!("command_began"), &json!("command")));
        running.signal(signal);
        let done = running.done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(status), ""));
    }
}

#[test]
fn a_follower_of_one_sandbox_ends_with_it() {
    let place = Place::new();
    let [handle, other] = [place.keep(&[]), place.keep(&[])];
    let running = place.call(["logs", "-f", &handle]).start();
    place.call(["rm", &other]).done().assert(0, "", "");
    place.call(["rm", &handle]).done().assert(0, "", "");
    let done = running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
    let events: Vec<&str> = done.out().lines().map(|line| line.split("  ").nth(2).unwrap()).collect();
    assert_eq!(events, ["created", "ended"], "{done:?}");
    assert!(!done.out().contains(&other));
}

#[test]
fn a_reader_that_goes_away_ends_a_follower_also_where_nothing_happens() {
    let place = Place::new();
    let mut running = place.call(["logs", "-f"]).start_unread();
    drop(running.child.stdout.take());
    let done = running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(141), ""));
}

#[test]
fn a_sandbox_of_which_nothing_is_known_is_125_and_no_record_is_no_lines() {
    let place = Place::new();
    place.call(["logs"]).done().assert(0, "", "");
    let told = "ringfence: there is no sandbox local:sb-000000000000, and nothing is recorded of one\n";
    for args in [&["logs", "local:sb-000000000000"][..], &["logs", "-f", "local:sb-000000000000"]] {
        place.call(args.iter().copied()).done().assert(125, "", told);
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    let command = place.call(["logs", "local:sb-000000000000/c1"]).done();
    assert_eq!((command.status, command.out()), (Some(125), ""), "{command:?}");
    let both = place.call(["logs", "--backend", "local", "local:sb-1"]).done();
    assert_eq!(both.status, Some(2), "{both:?}");
}
