//! Commands in the background: `exec --detach`, `logs`, `wait`, `kill` and `stdin`.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::driver::{Call, Running, assert_nothing_left, marker, wait_for_sleeps};
use super::place::{Place, no_such};

/// The calls of one sandbox.
struct Kept {
    place: Place,
    handle: String,
}

impl Kept {
    fn new() -> Self {
        let place = Place::new();
        let handle = place.keep(&[]);
        Self { place, handle }
    }

    fn call<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Call {
        self.place.call(args)
    }

    fn exec(&self, flags: &[&str], script: &str) -> Call {
        self.call([&["exec"], flags, &[&self.handle, "--", "sh", "-c", script]].concat())
    }

    /// Starts a command and returns its name.
    #[track_caller]
    fn detach(&self, flags: &[&str], script: &str) -> String {
        let done = self.exec(&[&["--detach"], flags].concat(), script).done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
        let name = done.out().strip_suffix('\n').unwrap().to_owned();
        assert!(name.starts_with(&format!("{}/c", self.handle)), "{name}");
        name
    }

    #[track_caller]
    fn touch(&self, name: &str) {
        self.exec(&[], &format!(": > {name}")).done().assert(0, "", "");
    }

    fn no_such(&self, name: &str) -> String {
        format!(
            "ringfence: there is no command {name}\n  try: `ringfence inspect {}` shows those there are\n",
            self.handle
        )
    }
}

/// Waits until this much was printed.
#[track_caller]
fn read_exactly(running: &mut Running, expected: &str) {
    let mut bytes = vec![0; expected.len()];
    running.child.stdout.as_mut().unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

#[test]
fn a_command_outlives_its_starter_and_is_read_waited_for_and_inspected_by_others() {
    let kept = Kept::new();
    let script = "echo out; echo err >&2; until [ -e go ]; do sleep 0.02; done; echo more; exit 3";
    let job = kept.detach(&[], script);
    assert_eq!(job, format!("{}/c1", kept.handle));
    let mut follower = kept.call(["logs", "-f", &job]).start_unread();
    read_exactly(&mut follower, "out\n");
    kept.call(["wait", "--timeout", "0", &job]).done().assert(
        124,
        "",
        &format!("ringfence: {job} still runs\n"),
    );
    let timed = kept.call(["wait", "--timeout", "0.3", &job]).done();
    timed.assert(124, "", &format!("ringfence: {job} still runs\n"));
    assert!(timed.elapsed >= Duration::from_millis(300), "{:?}", timed.elapsed);
    kept.call(["logs", &job]).done().assert(0, "out\n", "err\n");
    kept.call(["logs", "--stdout", &job]).done().assert(0, "out\n", "");
    kept.call(["logs", "--stderr", &job]).done().assert(0, "", "err\n");
    assert_eq!(kept.place.inspect(&kept.handle)["commands"][0]["running"], json!(true));
    let waiter = kept.call(["wait", &job]).start();
    kept.touch("go");
    waiter.done().assert(3, "", "");
    read_exactly(&mut follower, "more\n");
    let followed = follower.done();
    assert_eq!((followed.status, followed.stderr.as_str()), (Some(0), "err\n"));
    // A reader that was away goes on where it was.
    kept.call(["logs", "--stdout", "--offset", "4", &job]).done().assert(0, "more\n", "");
    kept.call(["logs", "-f", "--stdout", "--offset", "9", &job]).done().assert(0, "", "");
    kept.call(["wait", &job]).done().assert(3, "", "");
    let mut command = kept.place.inspect(&kept.handle)["commands"][0].clone();
    assert!(command["age_seconds"].take().as_f64().unwrap() > 0.3);
    let expected = json!({"id": "c1", "running": false, "ending": "exited", "exit_code": 3, "signal": null,
        "age_seconds": null, "stdout_bytes": 9, "stderr_bytes": 4});
    assert_eq!(command, expected);
}

#[test]
fn p_40_what_has_been_dropped_is_told() {
    let kept = Kept::new();
    let job =
        kept.detach(&["--output-limit", "10B"], "printf 0123456789abcdef; printf 12345678901234567890 >&2");
    kept.call(["wait", &job]).done().assert(0, "", "");
    kept.call(["logs", "--stdout", &job]).done().assert(
        0,
        "6789abcdef",
        "ringfence: 6 bytes of standard output from 0 on have been dropped\n",
    );
    kept.call(["logs", "--stderr", "--offset", "5", &job]).done().assert(
        0,
        "",
        "ringfence: 5 bytes of standard error from 5 on have been dropped\n1234567890",
    );
    kept.call(["logs", "--stdout", "--offset", "8", &job]).done().assert(0, "89abcdef", "");
}

#[test]
fn p_48_statuses_are_those_of_run() {
    let kept = Kept::new();
    for (script, status, told) in
        [("exit 0", 0, ""), ("exit 137", 137, ""), ("kill -9 $$", 137, ""), ("kill -TERM $$", 143, "")]
    {
        let job = kept.detach(&[], script);
        kept.call(["wait", &job]).done().assert(status, "", told);
    }
    let job = kept.detach(&["--timeout", "1s"], "sleep 60");
    kept.call(["wait", &job]).done().assert(124, "", "ringfence: the command timed out\n");
    for (program, status) in
        [("no-such-program", 127), ("/no/such", 127), ("", 127), ("/tmp", 126), ("/etc/passwd", 126)]
    {
        let done = kept.call(["exec", "-d", &kept.handle, "--", program]).done();
        assert_eq!((done.status, done.out()), (Some(status), ""), "{program}: {}", done.stderr);
        assert!(done.stderr.starts_with("ringfence: "), "{program}: {}", done.stderr);
    }
    let nowhere = kept.call(["exec", "-d", "-w", "/nowhere", &kept.handle, "--", "true"]).done();
    assert_eq!((nowhere.status, nowhere.out()), (Some(125), ""), "{nowhere:?}");
    let place = kept
        .call(["exec", "-d", "-w", "/tmp", "-e", "A=b", &kept.handle, "--", "sh", "-c", "pwd; echo $A"])
        .done();
    kept.call(["logs", "-f", place.out().trim_end()]).done().assert(0, "/tmp\nb\n", "");
}

#[test]
fn input_is_fed_in_pieces_by_several_and_closed() {
    let kept = Kept::new();
    let job = kept.detach(&["--stdin"], "while read -r line; do echo \"<$line>\"; done; echo end");
    let mut follower = kept.call(["logs", "-f", &job]).start_unread();
    kept.call(["stdin", "--keep-open", &job]).stdin("one\ntw").done().assert(0, "", "");
    read_exactly(&mut follower, "<one>\n");
    kept.call(["stdin", &job]).stdin("o\n").done().assert(0, "", "");
    read_exactly(&mut follower, "<two>\nend\n");
    assert_eq!(follower.done().status, Some(0));
    kept.call(["wait", &job]).done().assert(0, "", "");
    let closed = kept.call(["stdin", &job]).stdin("x").done();
    assert_eq!((closed.status, closed.out()), (Some(125), ""));
    assert!(closed.stderr.contains("standard input is not open"), "{closed:?}");
    // Megabytes, byte for byte.
    let counting = kept.detach(&["--stdin"], "wc -c");
    kept.call(["stdin", &counting]).stdin(vec![0xff; 3 << 20]).done().assert(0, "", "");
    kept.call(["logs", "-f", &counting]).done().assert(0, "3145728\n", "");
}

#[test]
fn p_43_a_command_that_stops_reading_is_told_as_a_broken_pipe() {
    let kept = Kept::new();
    let gone = |job: &str| format!("ringfence: {job} does not read any more\n");
    let head = kept.detach(&["--stdin"], "head -c 3; exec <&-; sleep 60");
    kept.call(["stdin", &head]).stdin(vec![b'x'; 3 << 20]).done().assert(141, "", &gone(&head));
    kept.call(["logs", &head]).done().assert(0, "xxx", "");
    // One that ends while nothing comes.
    let ending = kept.detach(&["--stdin"], "until [ -e go ]; do sleep 0.02; done");
    let mut feeder = kept
        .call(["stdin", &ending])
        .with(|command| {
            command.stdin(Stdio::piped());
        })
        .start();
    let mut pipe = feeder.child.stdin.take().unwrap();
    pipe.write_all(b"x").unwrap();
    kept.touch("go");
    feeder.done().assert(141, "", &gone(&ending));
    drop(pipe);
}

#[test]
fn p_03_kill_ends_all_of_it_and_a_signal_one_of_it() {
    let kept = Kept::new();
    let marker = marker();
    let job = kept.detach(&[], &format!("setsid sleep {marker} & (setsid sleep {marker} &); sleep {marker}"));
    wait_for_sleeps(&marker, 3);
    kept.call(["kill", &job]).done().assert(0, "", "");
    assert_nothing_left(&marker);
    kept.call(["wait", &job]).done().assert(137, "", "");
    kept.call(["kill", &job]).done().assert(0, "", "");
    let trapping = kept.detach(&[], "trap 'echo got; exit 5' INT; echo up; while :; do sleep 0.02; done");
    let mut follower = kept.call(["logs", "-f", &trapping]).start_unread();
    read_exactly(&mut follower, "up\n");
    kept.call(["kill", "-s", "INT", &trapping]).done().assert(0, "", "");
    read_exactly(&mut follower, "got\n");
    assert_eq!(follower.done().status, Some(0));
    kept.call(["wait", &trapping]).done().assert(5, "", "");
}

#[test]
fn a_signal_to_ringfence_or_a_reader_that_goes_leaves_the_command_alone() {
    let kept = Kept::new();
    let job = kept.detach(&["--stdin"], "echo up; until [ -e go ]; do sleep 0.02; done; echo fine");
    for args in [&["wait"][..], &["logs", "-f"], &["stdin"]] {
        let call = kept.call([args, &[&job]].concat()).with(|command| {
            command.stdin(Stdio::piped());
        });
        let running = call.start();
        // Long enough to be at it; if not, it ends by the signal all the same.
        std::thread::sleep(Duration::from_millis(300));
        running.signal(Signal::INT);
        let done = running.done();
        assert!(done.status == Some(130) || done.status.is_none(), "{args:?}: {done:?}");
    }
    let mut follower = kept.call(["logs", "-f", &job]).start_unread();
    read_exactly(&mut follower, "up\n");
    drop(follower.child.stdout.take());
    let started = Instant::now();
    assert_eq!(follower.done().status, Some(141));
    assert!(started.elapsed() < Duration::from_secs(20));
    kept.touch("go");
    kept.call(["wait", &job]).done().assert(0, "", "");
    kept.call(["logs", &job]).done().assert(0, "up\nfine\n", "");
}

#[test]
fn a_name_that_nobody_is_told_is_not_left_running() {
    let kept = Kept::new();
    let marker = marker();
    let call = kept.exec(&["--detach"], &format!("sleep {marker}"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let call = call.with(|command| {
        command.stdout(writer);
    });
    assert_eq!(call.done().status, Some(141));
    assert_nothing_left(&marker);
    assert_eq!(kept.place.inspect(&kept.handle)["commands"][0]["signal"], json!(9));
}

#[test]
fn a_sandbox_that_ends_is_told_to_whoever_waits() {
    let kept = Kept::new();
    let job = kept.detach(&[], "echo up; sleep 60");
    let waiting = kept.call(["wait", &job]).start();
    let mut following = kept.call(["logs", "-f", &job]).start_unread();
    read_exactly(&mut following, "up\n");
    std::thread::sleep(Duration::from_millis(200));
    kept.call(["rm", &kept.handle]).done().assert(0, "", "");
    let told = waiting.done();
    assert_eq!((told.status, told.out()), (Some(125), ""));
    assert_eq!(told.stderr, "ringfence: the sandbox was removed\n");
    let told = following.done();
    assert_eq!((told.status, told.stderr.as_str()), (Some(125), "ringfence: the sandbox was removed\n"));
    kept.call(["wait", &job]).done().assert(125, "", &no_such(&kept.handle));
}

#[test]
fn what_is_not_there_or_misused_is_said() {
    let kept = Kept::new();
    let (handle, other) = (kept.handle.clone(), format!("{}/c7", kept.handle));
    for args in [&["wait"][..], &["logs"], &["kill"], &["stdin"]] {
        kept.call([args, &[&other]].concat()).done().assert(125, "", &kept.no_such(&other));
    }
    let gone = "local:sb-000000000000";
    let gone_job = format!("{gone}/c1");
    for args in [&["wait"][..], &["logs"], &["kill"], &["stdin"]] {
        kept.call([args, &[&gone_job]].concat()).done().assert(125, "", &no_such(gone));
    }
    let without = kept.detach(&[], "sleep 60");
    let refused = kept.call(["stdin", &without]).stdin("x").done();
    assert_eq!(refused.status, Some(125));
    assert!(refused.stderr.contains("standard input is not open"), "{refused:?}");
    for (args, status) in [
        (&["wait", handle.as_str()][..], 125),
        (&["wait", "--timeout", "x", without.as_str()], 125),
        (&["kill", handle.as_str()], 2),
        (&["kill", "-s", "NOPE", without.as_str()], 2),
        (&["kill", "-s", "0", without.as_str()], 2),
        (&["stdin", handle.as_str()], 2),
        (&["logs", "--stdout", handle.as_str()], 2),
        (&["logs", "--json", without.as_str()], 2),
        (&["logs", "--offset", "3", without.as_str()], 2),
        (&["logs", "--stdout", "--stderr", without.as_str()], 2),
        (&["exec", "--detach", "--tty", handle.as_str(), "--", "true"], 125),
        (&["exec", "--stdin", handle.as_str(), "--", "true"], 125),
    ] {
        let done = kept.call(args.iter().copied()).done();
        assert_eq!((done.status, done.out()), (Some(status), ""), "{args:?}: {}", done.stderr);
        assert!(!done.stderr.is_empty(), "{args:?}");
    }
}
