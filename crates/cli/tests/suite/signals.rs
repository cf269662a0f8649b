use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::driver::{Call, assert_nothing_left, marker, wait_for_sleeps};

/// Long enough for a machine under load, far from the hour that the command would take.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn a_signal_ends_the_sandbox_and_is_the_status() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let marker = marker();
        // The command itself takes no notice of either.
        let script = format!("trap '' INT TERM; echo up; setsid sleep {marker} & sleep {marker}");
        let running = Call::new(["run", "--", "sh", "-c", &script]).start();
        wait_for_sleeps(&marker, 2);
        let sent = Instant::now();
        running.signal(signal);
        let done = running.done();
        assert_eq!((done.status, done.out(), done.stderr.as_str()), (Some(status), "up\n", ""));
        assert!(sent.elapsed() < SOON, "{:?}", sent.elapsed());
        assert_nothing_left(&marker);
    }
}

#[test]
fn a_second_signal_does_not_wait() {
    let marker = marker();
    let running = Call::new(["run", "--", "sleep", &marker]).start();
    wait_for_sleeps(&marker, 1);
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let done = running.done();
    // Which of the two is taken first is not defined.
    assert!(matches!(done.status, Some(130 | 143)), "{done:?}");
    assert_nothing_left(&marker);
}

#[test]
fn a_reader_that_stalls_does_not_hold_off_a_signal() {
    let marker = marker();
    let script = format!("sleep {marker} & exec yes");
    let running = Call::new(["run", "--", "sh", "-c", &script]).start_unread();
    wait_for_sleeps(&marker, 1);
    std::thread::sleep(Duration::from_millis(300));
    let sent = Instant::now();
    running.signal(Signal::INT);
    let done = running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(130), ""));
    assert!(sent.elapsed() < SOON, "{:?}", sent.elapsed());
    assert_nothing_left(&marker);
}

#[test]
fn a_signal_at_any_moment_leaves_nothing_behind() {
    for delay_ms in [0, 1, 2, 3, 5, 8, 13, 20] {
        let marker = marker();
        let running = Call::new(["run", "--", "sleep", &marker]).start();
        std::thread::sleep(Duration::from_millis(delay_ms));
        running.signal(Signal::TERM);
        let done = running.done();
        // Before the handler is there, the signal ends the program as it ends any other.
        assert!(matches!(done.status, Some(143) | None), "after {delay_ms} ms: {done:?}");
        assert_nothing_left(&marker);
    }
}

#[test]
fn p_26_p_27_a_killed_program_takes_its_sandbox_along() {
    let marker = marker();
    let script = format!("echo abc | gzip | gunzip; setsid sleep {marker} & sleep {marker}");
    let running = Call::new(["run", "--", "sh", "-c", &script]).start();
    wait_for_sleeps(&marker, 2);
    running.signal(Signal::KILL);
    assert_nothing_left(&marker);
    assert_eq!(running.done().status, None);
}

#[test]
fn a_signal_is_in_the_json_too() {
    let marker = marker();
    let running = Call::new(["run", "--json", "--", "sleep", &marker]).start();
    wait_for_sleeps(&marker, 1);
    running.signal(Signal::INT);
    let done = running.done();
    assert_eq!(done.status, Some(130));
    assert_eq!(done.json()["error"]["kind"], "interrupted");
    assert_eq!(done.json()["status"], 130);
}

#[test]
fn our_own_output_to_a_reader_that_stalls_does_not_hold_off_a_signal() {
    let running = Call::new(["run", "--json", "--", "head", "-c", "200000", "/dev/zero"]).start_unread();
    std::thread::sleep(Duration::from_millis(700));
    let sent = Instant::now();
    running.signal(Signal::TERM);
    let done = running.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(143), ""));
    assert!(sent.elapsed() < SOON, "{:?}", sent.elapsed());
}

#[test]
fn what_the_command_had_written_is_in_the_json_of_a_signal() {
    let marker = marker();
    let script = format!("echo partial; sleep {marker}");
    let running = Call::new(["run", "--json", "--", "sh", "-c", &script]).start();
    wait_for_sleeps(&marker, 1);
    running.signal(Signal::TERM);
    let document = running.done().json();
    let stdout = serde_json::json!({"text": "partial\n", "truncated": false, "total_bytes": 8});
    assert_eq!((&document["stdout"], &document["ending"]), (&stdout, &"interrupted".into()));
    assert_eq!(document["error"]["kind"], "interrupted");
}
