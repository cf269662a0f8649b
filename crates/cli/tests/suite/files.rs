//! Single files and directories of a sandbox that stays.

use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::place::{Place, no_such};

fn binary(length: u32) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(31) >> 3).to_le_bytes()[0]).collect()
}

#[track_caller]
fn assert_refused(done: &super::driver::Done, status: i32, told: &str) {
    assert_eq!((done.status, done.out()), (Some(status), ""), "{done:?}");
    assert!(done.stderr.starts_with("ringfence: ") && done.stderr.contains(told), "{done:?}");
}

#[test]
fn p_51_p_60_bytes_go_in_and_come_out_as_they_are() {
    let place = Place::new();
    let handle = place.keep(&[]);
    let write = |path: &str| place.call(["write", &handle, path]);
    let read = |path: &str| place.call(["read", &handle, path]).done();
    // Across every bound in the way: in a request, through a pipe, held in memory and on the disk.
    for (name, length) in [("a", 0), ("b", 5), ("c", 40_000), ("deep/er/d", 3 << 20), ("e", (8 << 20) + 1)] {
        let content = binary(length);
        write(name).stdin(content.clone()).done().assert(0, "", "");
        let done = read(name);
        assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
        assert!(done.stdout == content, "{name}: {} of {length} bytes came back", done.stdout.len());
    }
    // Shorter than before leaves nothing of before.
    write("c").stdin("short").done().assert(0, "", "");
    read("/workspace/c").assert(0, "short", "");
    let shown = place.call(["exec", &handle, "--", "sh", "-c", "cat b | wc -c; stat -c %a b"]).done();
    shown.assert(0, "5\n644\n", "");
    place.call(["write", "-x", &handle, "tool"]).stdin("#!/bin/sh\necho ran\n").done().assert(0, "", "");
    place.call(["exec", &handle, "--", "./tool"]).done().assert(0, "ran\n", "");
}

#[test]
fn a_regular_file_on_standard_input_is_taken_from_where_it_stands() {
    let place = Place::new();
    let handle = place.keep(&[]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "line one\nline two\n").unwrap();
    let mut file = File::open(folder.path().join("f")).unwrap();
    std::io::Read::read_exact(&mut file, &mut [0; 9]).unwrap();
    let call = place.call(["write", &handle, "f"]).with(|command| {
        command.stdin(file);
    });
    call.done().assert(0, "", "");
    place.call(["read", &handle, "f"]).done().assert(0, "line two\n", "");
    let whole = File::open(folder.path().join("f")).unwrap();
    let call = place.call(["write", "--limit", "10", &handle, "f"]).with(|command| {
        command.stdin(whole);
    });
    assert_refused(&call.done(), 1, "standard input is larger than 10B");
    place.call(["read", &handle, "f"]).done().assert(0, "line two\n", "");
}

#[test]
fn p_69_what_the_files_do_not_allow_is_1_and_named() {
    let place = Place::new();
    let handle = place.keep(&["--disk", "2MiB"]);
    let script = "mkdir d closed; echo x > f; mkfifo p; chmod 0 closed; ln -s loop loop; truncate -s 8E huge || truncate -s 1T huge";
    place.call(["exec", &handle, "--", "sh", "-c", script]).done();
    for (args, told) in [
        (&["read", &handle, "none"][..], "does not exist"),
        (&["read", &handle, "d"], "is a directory"),
        (&["read", &handle, "f/x"], "not a directory"),
        (&["read", &handle, "p"], "not a regular file"),
        (&["read", &handle, "loop"], "symbolic links"),
        (&["read", &handle, "/proc/self/status"], "not kept anywhere"),
        (&["read", &handle, "huge"], "over the limit of 1073741824"),
        (&["read", "--limit", "1", &handle, "f"], "over the limit of 1\n  try: --limit 2"),
        (&["ls", &handle, "none"], "does not exist"),
        (&["ls", &handle, "f"], "not a directory"),
        (&["write", &handle, "d"], "is a directory"),
        (&["write", &handle, "/usr/x"], "read-only"),
        (&["write", &handle, "f/x"], "not a directory"),
    ] {
        let done = place.call(args.iter().copied()).done();
        let told_on_two_lines = done.stderr.replace(", path f", "");
        assert_eq!((done.status, done.out()), (Some(1), ""), "{args:?}: {done:?}");
        assert!(told_on_two_lines.contains(told), "{args:?}: {done:?}");
    }
    let full = place.call(["write", &handle, "f"]).stdin(vec![b'x'; 4 << 20]).done();
    assert_refused(&full, 1, "disk limit is reached");
    place.call(["read", &handle, "f"]).done().assert(0, "x\n", "");
    // What is wrong with the call or with us is neither.
    let absent = "local:sb-000000000000";
    for args in [&["read", absent, "f"][..], &["write", absent, "f"], &["ls", absent]] {
        place.call(args.iter().copied()).done().assert(125, "", &no_such(absent));
    }
    for args in
        [&["read", &handle][..], &["read", &handle, ""], &["write", "f"], &["ls"], &["ls", "-l0", &handle]]
    {
        let done = place.call(args.iter().copied()).done();
        assert_eq!((done.status, done.out()), (Some(2), ""), "{args:?}: {done:?}");
    }
}

#[test]
fn p_67_names_are_listed_escaped_and_as_they_are() {
    let place = Place::new();
    let handle = place.keep(&[]);
    let script = "mkdir d; cd d; printf 12345 > a; mkdir b; ln -s /etc/passwd c; mkfifo e; touch \"$(printf 'n\\nm')\" \"$(printf '\\377')\" 'x y'";
    place.call(["exec", &handle, "--", "sh", "-c", script]).done().assert(0, "", "");
    let ls = |flags: &[&str], path: &[&str]| place.call([&["ls"], flags, &[&handle], path].concat()).done();
    ls(&[], &["d"]).assert(0, "a\nb\nc\ne\nn\\nm\nx y\n\\xff\n", "");
    ls(&["-l"], &["d"]).assert(0, "- 5 a\nd - b\nl - c\n? - e\n- 0 n\\nm\n- 0 x y\n- 0 \\xff\n", "");
    let raw = ls(&["-0"], &["/workspace/d"]);
    assert_eq!((raw.status, raw.stdout.as_slice()), (Some(0), &b"a\0b\0c\0e\0n\nm\0x y\0\xff\0"[..]));
    let object = ls(&["--json", "--limit", "2"], &["d"]).json();
    let whole = json!({"version": 1, "handle": handle, "path": "d", "remaining": 5, "entries": [
        {"name": "a", "kind": "file", "size_bytes": 5}, {"name": "b", "kind": "directory", "size_bytes": null},
    ]});
    assert_eq!(object, whole);
    ls(&["--limit", "1"], &["d"]).assert(0, "a\n", "ringfence: 6 more are not shown; --limit shows more\n");
    ls(&[], &[]).assert(0, "d\n", "");
    // A name that is no text can be given back.
    let bytes = std::ffi::OsStr::from_bytes(b"d/\xff");
    let call = place.call(["read", &handle]).with(|command| {
        command.arg(bytes);
    });
    call.done().assert(0, "", "");
}

#[test]
fn a_signal_leaves_the_file_as_it_was() {
    let place = Place::new();
    let handle = place.keep(&[]);
    place.call(["write", &handle, "f"]).stdin("before").done().assert(0, "", "");
    for (signal, status) in [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let mut running = place
            .call(["write", &handle, "f"])
            .with(|command| {
                command.stdin(Stdio::piped());
            })
            .start();
        let mut pipe = running.child.stdin.take().unwrap();
        pipe.write_all(b"after").unwrap();
        std::thread::sleep(Duration::from_millis(100));
        running.signal(signal);
        let done = running.done();
        assert_eq!((done.status, done.stderr.as_str()), (status, ""));
        place.call(["read", &handle, "f"]).done().assert(0, "before", "");
    }
}

#[test]
fn a_reader_that_stalls_holds_off_no_signal_and_one_that_goes_ends_a_read() {
    let place = Place::new();
    let handle = place.keep(&[]);
    place.call(["write", &handle, "f"]).stdin(vec![b'x'; 4 << 20]).done().assert(0, "", "");
    let running = place.call(["read", &handle, "f"]).start_unread();
    std::thread::sleep(Duration::from_millis(300));
    let sent = Instant::now();
    running.signal(Signal::INT);
    let done = running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(130), ""));
    assert!(sent.elapsed() < Duration::from_secs(4), "{:?}", sent.elapsed());
    let mut running = place.call(["read", &handle, "f"]).start_unread();
    drop(running.child.stdout.take());
    let done = running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(141), ""));
}

#[test]
fn a_path_that_hangs_on_the_handle_as_for_cp_is_told_apart_from_a_sandbox_that_is_gone() {
    let place = Place::new();
    let handle = place.keep(&[]);
    let typed = format!("{handle}:src");
    let told = format!(
        "ringfence: there is no sandbox {typed}\n  try: a path is an argument of its own: {handle} src; only `ringfence cp` takes both in one\n"
    );
    for args in
        [&["ls", &typed][..], &["read", &typed, "f"], &["exec", &typed, "--", "true"], &["inspect", &typed]]
    {
        let done = place.call(args.iter().copied()).done();
        assert_eq!((done.out(), done.stderr.as_str()), ("", told.as_str()), "{args:?}");
    }
}
