//! What ends a sandbox that others can reach: its clocks, whoever holds it, or nobody.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::place::{Holding, Place, handle_of, no_such};

/// What is said where no pipe holds a sandbox that is not kept.
const NOTICE: &str =
    "ringfence: the sandbox ends with this process: Ctrl-C ends it, --keep would have kept it\n";
const ENDED: &str = "ringfence: the sandbox has ended\n";

#[test]
fn a_lifetime_ends_what_is_kept_with_nobody_left() {
    let place = Place::new();
    let started = Instant::now();
    let handle = place.keep(&["--lifetime", "1500ms"]);
    assert_eq!(place.handles(&[]), [handle.as_str()]);
    place.wait_until_empty();
    assert!(started.elapsed() >= Duration::from_millis(1500), "{:?}", started.elapsed());
    place.call(["inspect", &handle]).done().assert(125, "", &no_such(&handle));
}

#[test]
fn looking_does_not_put_off_the_end_of_what_nobody_uses() {
    let place = Place::new();
    let handle = place.keep(&["--idle", "2s"]);
    let started = Instant::now();
    while !place.handles(&[]).is_empty() {
        place.call(["inspect", &handle]).done();
        assert!(started.elapsed() < Duration::from_secs(20), "it is kept alive by being looked at");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn renew_starts_the_lifetime_anew_or_gives_another() {
    let place = Place::new();
    let handle = place.keep(&["--lifetime", "90s"]);
    let left = || place.inspect(&handle)["remaining_seconds"].as_f64().unwrap();
    for (args, shown, seconds) in [
        (&[][..], "1m 30s\n", 90.0),
        (&["--lifetime", "2h"], "2h\n", 7200.0),
        (&["--lifetime", "30"], "30s\n", 30.0),
    ] {
        place.call([&["renew", &handle], args].concat()).done().assert(0, shown, "");
        let left = left();
        assert!(left <= seconds && left > seconds - 15.0, "{left} of {seconds}");
    }
    place.call(["renew", &handle, "--lifetime", "300ms"]).done().assert(0, "300ms\n", "");
    place.wait_until_empty();
}

#[test]
fn the_end_of_a_pipe_ends_what_is_not_kept() {
    let place = Place::new();
    let mut holding = Holding::start(&place, Stdio::piped(), &[]);
    assert_eq!(place.inspect(&holding.handle)["reach"], "listed");
    // What is in the pipe is nobody's signal.
    std::io::Write::write_all(holding.pipe.as_mut().unwrap(), b"x\n").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(place.handles(&[]), [holding.handle.as_str()]);
    drop(holding.pipe.take());
    let done = holding.running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
    assert_eq!(place.handles(&[]), Vec::<String>::new());
}

#[test]
fn the_end_of_what_a_socket_sends_ends_what_is_not_kept() {
    let place = Place::new();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let holding = Holding::start(&place, std::os::fd::OwnedFd::from(theirs).into(), &[]);
    assert_eq!(place.handles(&[]), [holding.handle.as_str()]);
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let done = holding.running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_signal_to_create_at_any_moment_leaves_what_was_told_or_nothing() {
    let place = Place::new();
    for delay_ms in [0, 1, 2, 3, 4, 5, 7, 9, 12, 16] {
        let running = place.call(["create", "--keep"]).start();
        std::thread::sleep(Duration::from_millis(delay_ms));
        running.signal(Signal::TERM);
        let done = running.done();
        match done.status {
            Some(0) => assert_eq!(place.handles(&[]), [handle_of(&done)]),
            // Before the handler is there, the signal ends the program as it ends any other.
            Some(143) | None => assert_eq!(place.handles(&[]), Vec::<String>::new(), "after {delay_ms} ms"),
            _ => panic!("after {delay_ms} ms: {done:?}"),
        }
        place.call(["rm", "--all"]).done().assert(0, "", "");
    }
}

#[test]
fn what_a_killed_create_had_begun_is_found_and_removed() {
    let place = Place::new();
    for delay_ms in [0, 1, 2, 3, 4, 5, 7, 9, 12, 16] {
        let running = place.call(["create", "--keep"]).start();
        std::thread::sleep(Duration::from_millis(delay_ms));
        running.signal(Signal::KILL);
        running.done();
        place.call(["rm", "--all"]).done().assert(0, "", "");
        assert_eq!(place.handles(&[]), Vec::<String>::new());
    }
}

#[test]
fn a_signal_ends_what_is_not_kept_and_is_the_status() {
    let place = Place::new();
    for (signal, status) in [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let holding = Holding::start(&place, Stdio::null(), &[]);
        assert_eq!(place.handles(&[]), [holding.handle.as_str()]);
        holding.running.signal(signal);
        let done = holding.running.done();
        assert_eq!((done.status, done.stderr.as_str()), (status, NOTICE));
        place.wait_until_empty();
    }
}

#[test]
fn create_ends_when_the_sandbox_does() {
    let place = Place::new();
    let holding = Holding::start(&place, Stdio::piped(), &[]);
    place.call(["rm", &holding.handle]).done().assert(0, "", "");
    let done = holding.running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ENDED));
    let holding = Holding::start(&place, Stdio::null(), &["--lifetime", "1s"]);
    let done = holding.running.done();
    assert_eq!((done.status, done.stderr), (Some(0), format!("{NOTICE}{ENDED}")));
}

#[test]
fn a_handle_that_nobody_can_read_is_not_left_behind() {
    let place = Place::new();
    for args in [&["create"][..], &["create", "--keep"], &["create", "--keep", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let call = place.call(args.iter().copied()).with(|command| {
            command.stdout(writer);
        });
        let done = call.done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(141), ""), "{args:?}");
        assert_eq!(place.handles(&[]), Vec::<String>::new());
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let done = place
        .call(["create", "--keep"])
        .with(|command| {
            command.stdout(full);
        })
        .done();
    assert_eq!(done.status, Some(125), "{done:?}");
    assert_eq!(place.handles(&[]), Vec::<String>::new());
}
