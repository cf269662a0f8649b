//! Sandboxes that are made by one process and used by others.

use serde_json::json;

use super::driver::Call;
use super::place::{Place, no_such};

#[test]
fn what_one_process_creates_another_finds_and_removes() {
    let place = Place::new();
    let handle = place.keep(&["--disk", "64MiB", "--env", "TOKEN=hunter2", "--workdir", "/srv/w"]);
    assert_eq!(place.handles(&[]), [handle.as_str()]);
    let found = place.inspect(&handle);
    let known = ["version", "handle", "backend", "reach", "owner", "holder", "labels"].map(|key| &found[key]);
    assert_eq!(
        known,
        [&json!(1), &json!(handle), &json!("local"), &json!("kept"), &json!(null), &json!(null), &json!({})]
    );
    let spec = &found["spec"];
    assert_eq!(
        (&spec["limits"]["disk"], &spec["env"]["TOKEN"], &spec["workdir"]),
        (&json!(64 << 20), &json!("***"), &json!("/srv/w"))
    );
    let shown = place.call(["inspect", "--json", "--show-env", &handle]).done().json();
    assert_eq!(shown["spec"]["env"]["TOKEN"], "hunter2");
    let text = place.call(["inspect", &handle]).done();
    assert!(text.out().starts_with(&format!("{handle}\n")) && !text.out().contains("hunter2"), "{text:?}");
    place.call(["rm", &handle]).done().assert(0, "", "");
    assert_eq!(place.handles(&[]), Vec::<String>::new());
    for args in [["inspect", &handle], ["renew", &handle], ["rm", &handle]] {
        place.call(args).done().assert(125, "", &no_such(&handle));
    }
    place.call(["rm", "-f", &handle]).done().assert(0, "", "");
}

#[test]
fn one_line_per_sandbox() {
    let place = Place::new();
    let empty = "HANDLE  AGE  LEFT  REACH  OWNER  HOLDER  LABELS\n";
    place.call(["ps"]).done().assert(0, empty, "");
    let handle = place.keep(&["--lifetime", "3h", "--owner", "dag/run", "--label", "job=build"]);
    let done = place.call(["ps"]).done();
    let line = done.out().lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>();
    assert!(line[1].ends_with('s'), "{line:?}");
    let whole = [handle.as_str(), line[1], "2h", "kept", "dag/run", "-", "job=build"];
    assert_eq!((line.as_slice(), done.out().lines().count()), (&whole[..], 2));
}

#[test]
fn create_says_in_json_what_is_enforced_and_until_when() {
    let place = Place::new();
    let created = place.call(["create", "--keep", "--json", "--label", "a=b"]).done();
    assert_eq!((created.status, created.stderr.as_str()), (Some(0), ""));
    let created = created.json();
    assert_eq!((&created["version"], &created["labels"]), (&json!(1), &json!({"a": "b"})));
    // Nobody said for how long: an hour.
    let left = created["remaining_seconds"].as_f64().unwrap();
    assert!((3590.0..=3600.0).contains(&left), "{left}");
    assert!(created["expires_at"].as_str().unwrap().ends_with('Z'));
    let rows = created["statement"]["rows"].as_array().unwrap();
    let lifetime = rows.iter().find(|row| row["field"] == "lifetime").unwrap();
    assert_eq!(lifetime["evidence"], "applied", "{lifetime}");
    let listed = place.call(["ps", "--json"]).done().json();
    for key in ["handle", "backend", "sandbox", "reach", "created_at", "owner", "holder", "labels"] {
        assert_eq!(listed["sandboxes"][0][key], created[key], "{key}");
    }
}

#[test]
fn several_are_removed_at_once_and_one_that_is_not_there_does_not_keep_the_others() {
    let place = Place::new();
    let [first, second] = [place.keep(&[]), place.keep(&[])];
    let absent = "local:sb-000000000000";
    place.call(["rm", &first, absent, &second]).done().assert(125, "", &no_such(absent));
    assert_eq!(place.handles(&[]), Vec::<String>::new());
    place.call(["rm", "--all"]).done().assert(0, "", "");
}

#[test]
fn those_with_a_label_are_found_and_piped_into_rm() {
    let place = Place::new();
    let build = place.keep(&["--label", "job=build", "--label", "tier=a"]);
    let test = place.keep(&["--label", "job=test", "--label", "tier=a"]);
    let plain = place.keep(&[]);
    assert_eq!(place.handles(&[]), [build.as_str(), &test, &plain]);
    for (filters, found) in [
        (&["--label", "job=build"][..], &[&build][..]),
        (&["--label", "job"], &[&build, &test]),
        (&["--label", "tier=a", "--label", "job=test"], &[&test]),
        (&["--label", "job="], &[]),
        (&["--label", "no"], &[]),
    ] {
        assert_eq!(place.handles(filters).iter().collect::<Vec<_>>(), found, "{filters:?}");
    }
    let script = "\"$1\" ps -q --label job | xargs -r \"$1\" rm";
    let program = env!("CARGO_BIN_EXE_ringfence");
    let piped = place.call([]).below(&["sh", "-c", script, "sh", program]);
    piped.done().assert(0, "", "");
    assert_eq!(place.handles(&[]), [plain]);
}

#[test]
fn labels_that_drive_a_terminal_are_shown_escaped_and_kept_as_they_are() {
    let place = Place::new();
    let value = "\u{1b}[2J\nlocal:sb-ffffffffffff  \u{202e}x\u{9b}";
    let handle = place.keep(&["--label", &format!("e\tvil={value}"), "--owner", "o\u{1b}]0;t\u{7}\r"]);
    for args in [&["ps"][..], &["inspect", &handle], &["ps", "--json"], &["inspect", "--json", &handle]] {
        let done = place.call(args.iter().copied()).done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""), "{args:?}");
        let drives =
            |character: char| (character != '\n' && character.is_control()) || character == '\u{202e}';
        assert!(!done.out().contains(drives), "{args:?}: {:?}", done.out());
        assert!(!done.out().contains("\nlocal:sb-ffff"), "{args:?}: {:?}", done.out());
    }
    assert_eq!(place.inspect(&handle)["labels"], json!({"e\tvil": value}));
    assert_eq!(place.handles(&["--label", &format!("e\tvil={value}")]), [handle]);
}

#[test]
fn reserved_and_empty_labels_are_refused_before_anything_is_made() {
    let place = Place::new();
    for label in ["ringfence_owner=me", "ringfence_holder="] {
        let done = place.call(["create", "--keep", "--label", label]).done();
        assert_eq!((done.status, done.out()), (Some(125), ""), "{label}");
        assert!(done.stderr.contains("reserved"), "{}", done.stderr);
    }
    assert_eq!(place.handles(&[]), Vec::<String>::new());
}

#[test]
fn inputs_are_there_before_the_handle_and_a_bad_one_leaves_nothing() {
    let place = Place::new();
    let call = place.call(["create", "--keep", "--input", "a.txt"]).file("a.txt", "x".repeat(70_000));
    let handle = super::place::handle_of(&call.done());
    let used = &place.inspect(&handle)["usage"]["disk_bytes"];
    assert!(used.as_u64().is_none_or(|used| used >= 70_000), "{used}");
    let refused = place.call(["create", "--keep", "--input", "a.txt:/usr/x"]).file("a.txt", "x").done();
    assert_eq!((refused.status, refused.out()), (Some(125), ""), "{refused:?}");
    let absent = place.call(["create", "--keep", "--input", "absent"]).done();
    assert_eq!((absent.status, absent.out()), (Some(125), ""), "{absent:?}");
    assert_eq!(place.handles(&[]), [handle]);
}

#[test]
fn a_run_with_a_label_is_seen_while_it_runs() {
    let place = Place::new();
    let marker = super::driver::marker();
    let running = place.call(["run", "--label", "job=seen", "--", "sleep", &marker]).start();
    super::driver::wait_for_sleeps(&marker, 1);
    let found = place.call(["ps", "--json", "--label", "job=seen"]).done().json();
    assert_eq!((&found["sandboxes"][0]["reach"], &found["sandboxes"][1]), (&json!("listed"), &json!(null)));
    let handle = found["sandboxes"][0]["handle"].as_str().unwrap();
    let processes = &place.inspect(handle)["processes"];
    assert!(processes.to_string().contains(&marker), "{processes}");
    // One that says nothing about others is nobody's business.
    let other = super::driver::marker();
    let private = place.call(["run", "--", "sleep", &other]).start();
    super::driver::wait_for_sleeps(&other, 1);
    assert_eq!(place.handles(&[]), [handle]);
    for running in [running, private] {
        running.signal(rustix::process::Signal::TERM);
        assert_eq!(running.done().status, Some(143));
    }
    super::driver::assert_nothing_left(&marker);
    place.wait_until_empty();
}

#[test]
fn a_broken_project_file_is_not_in_the_way() {
    let place = Place::new();
    let handle = place.keep(&[]);
    let broken =
        |args: &[&str]| place.call(args.iter().copied()).file("ringfence.toml", "backend = [").done();
    assert_eq!(broken(&["ps", "-q"]).out(), format!("{handle}\n"));
    assert_eq!(broken(&["create", "--keep"]).status, Some(125));
    broken(&["rm", &handle]).assert(0, "", "");
}

#[test]
fn one_whose_launcher_is_stopped_is_named_and_no_leftover() {
    let place = Place::new();
    let (asleep, awake) = (place.keep(&[]), place.keep(&[]));
    let id = asleep.strip_prefix("local:").unwrap();
    let record = std::fs::read_to_string(format!("{}/ringfence/{id}.json", place.path())).unwrap();
    let launcher = serde_json::from_str::<serde_json::Value>(&record).unwrap()["launcher"].as_i64().unwrap();
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(i32::try_from(launcher).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    };
    signal(rustix::process::Signal::STOP);
    let fault = format!(
        "its launcher, process {launcher}, does not answer within 2 s; if it was stopped, `kill -CONT` lets it go on"
    );
    let told = format!("ringfence: {asleep}: {fault}\n");
    place.call(["ps", "-q"]).done().assert(1, &format!("{awake}\n"), &told);
    let listed = place.call(["ps", "--json"]).done();
    assert_eq!(listed.status, Some(1));
    assert_eq!(listed.json()["silent"], json!([{"handle": asleep, "fault": fault}]));
    place.call(["prune"]).done().assert(0, "nothing is left behind\n", "");
    place.call(["rm", "--all"]).done().assert(125, "", &told);
    signal(rustix::process::Signal::CONT);
    place.call(["ps", "-q"]).done().assert(0, &format!("{asleep}\n"), "");
    place.call(["rm", "--all"]).done().assert(0, "", "");
}

#[test]
fn nothing_is_found_where_nothing_was_made() {
    let place = Place::new();
    place.call(["ps", "--json"]).done().assert(
        0,
        "{\n  \"sandboxes\": [],\n  \"silent\": [],\n  \"version\": 1\n}\n",
        "",
    );
    place.call(["prune", "--dry-run"]).done().assert(0, "nothing is left behind\n", "");
    let json = place.call(["prune", "--json"]).done().json();
    assert_eq!(json, json!({"version": 1, "backend": "local", "dry_run": false, "leftovers": []}));
    // Looking makes nothing.
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    // Somewhere else is somewhere else.
    let handle = place.keep(&[]);
    let elsewhere = Place::new();
    elsewhere.call(["inspect", &handle]).done().assert(125, "", &no_such(&handle));
    let nowhere = Call::new(["inspect", "local:sb-000000000000"]).done();
    assert_eq!(nowhere.status, Some(125), "{nowhere:?}");
}
