//! `ps --watch`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::place::Place;

#[test]
fn a_view_follows_what_happens_until_a_signal() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = Place::new();
        let mut running = place.call(["ps", "--watch", "-q"]).start_unread();
        let mut lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap();
        assert_eq!(next(), "");
        let handle = place.keep(&[]);
        let started = Instant::now();
        while next() != handle {
            assert!(started.elapsed() < Duration::from_secs(20), "it is never shown");
        }
        assert_eq!(next(), "");
        place.call(["rm", &handle]).done().assert(0, "", "");
        while next() == handle {
            assert_eq!(next(), "");
        }
        running.signal(signal);
        let done = running.done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(status), ""));
    }
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let place = Place::new();
    let mut running = place.call(["ps", "--watch"]).start_unread();
    let mut reader = BufReader::new(running.child.stdout.take().unwrap());
    let mut header = String::new();
    reader.read_line(&mut header).unwrap();
    assert_eq!(header, "HANDLE  AGE  LEFT  REACH  OWNER  HOLDER  LABELS\n");
    drop(reader);
    let done = running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(141), ""));
}

#[test]
fn a_reader_that_stalls_does_not_hold_off_a_signal() {
    let place = Place::new();
    let (_reader, writer) = std::io::pipe().unwrap();
    // The pipe is full before anything is said.
    let filled = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, filled | rustix::fs::OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, filled).unwrap();
    let call = place.call(["ps", "--watch"]).with(|command| {
        command.stdout(Stdio::from(writer));
    });
    let running = call.start_unread();
    std::thread::sleep(Duration::from_millis(300));
    let sent = Instant::now();
    running.signal(Signal::INT);
    let done = running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(130), ""));
    assert!(sent.elapsed() < Duration::from_secs(5), "{:?}", sent.elapsed());
}
