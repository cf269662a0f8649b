//! Terminals in a sandbox that stays.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::driver::{assert_nothing_left, marker, wait_for_sleeps};
use super::place::{Place, no_such};
use super::shell::Session;

#[test]
fn a_shell_in_a_sandbox_that_stays_leaves_it_as_it_was() {
    let place = Place::new();
    let handle = place.keep(&["--workdir", "/srv/w"]);
    let mut session = Session::of(place.call(["shell", &handle]));
    session.type_line("test -t 0 && echo tty-$((40 + 2)) && pwd > note; stty size; exit 7");
    session.wait_for("tty-42");
    session.wait_for("30 90");
    assert_eq!(session.end(), Some(7));
    place.call(["exec", &handle, "--", "cat", "note"]).done().assert(0, "/srv/w\n", "");
    // A program in its place, and one that is not there.
    let session =
        Session::of(place.call(["shell", &handle, "--", "sh", "-c", "test -t 1 && cat note; exit 5"]));
    session.wait_for("/srv/w");
    assert_eq!(session.end(), Some(5));
    let session = Session::of(place.call(["shell", &handle, "--", "nosuch"]));
    session.wait_for("it was not found");
    assert_eq!(session.end(), Some(127));
    assert_eq!(place.handles(&[]), [handle]);
}

#[test]
fn exec_with_a_terminal_has_its_directory_its_variables_and_its_status() {
    let place = Place::new();
    let handle = place.keep(&["--env", "A=spec"]);
    place.call(["exec", &handle, "--", "mkdir", "sub"]).done().assert(0, "", "");
    let exec = |flags: &[&str], command: &[&str]| {
        Session::of(place.call([&["exec", "-t"], flags, &[&handle, "--"], command].concat()))
    };
    let script = "test -t 0 && test -t 1 && echo $PWD+$A+$B+$TERM; stty size; exit 3";
    let session = exec(&["-w", "sub", "-e", "B=own"], &["sh", "-c", script]);
    session.wait_for("/workspace/sub+spec+own+xterm");
    session.wait_for("30 90");
    assert_eq!(session.end(), Some(3));
    let session = exec(&["-e", "TERM=dumb", "-e", "A=own"], &["sh", "-c", "echo +$A+$TERM+"]);
    session.wait_for("+own+dumb+");
    assert_eq!(session.end(), Some(0));
    let mut session = exec(&[], &["cat"]);
    session.type_line("typed-$");
    session.wait_for("typed-$\r\ntyped-$\r\n");
    session.type_line("\x04");
    assert_eq!(session.end(), Some(0));
    let session = exec(&["-w", "nowhere"], &["true"]);
    session.wait_for("the working directory cannot be entered");
    assert_eq!(session.end(), Some(125));
}

#[test]
fn a_timeout_or_a_signal_ends_what_is_on_the_terminal_and_not_the_sandbox() {
    let place = Place::new();
    let handle = place.keep(&[]);
    let first = marker();
    let script = format!("trap '' HUP INT TERM; setsid sleep {first} & sleep {first}");
    let call = place.call(["exec", "-t", "--timeout", "2s", &handle, "--", "sh", "-c", &script]);
    let session = Session::of(call);
    wait_for_sleeps(&first, 2);
    session.wait_for("ringfence: timed out after 2s");
    assert_eq!(session.end(), Some(124));
    assert_nothing_left(&first);
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        for command in ["exec", "shell"] {
            let marker = marker();
            let flags: &[&str] = if command == "exec" { &["-t"] } else { &[] };
            let call = place.call([&[command], flags, &[&handle, "--", "sleep", &marker]].concat());
            let session = Session::of(call);
            wait_for_sleeps(&marker, 1);
            session.wait_until_raw();
            session.running.signal(signal);
            assert_eq!(session.end(), Some(status));
            assert_nothing_left(&marker);
        }
    }
    assert_eq!(place.handles(&[]), [handle]);
}

#[test]
fn a_sandbox_that_ends_below_a_terminal_says_why_on_it() {
    let place = Place::new();
    let handle = place.keep(&[]);
    let marker = marker();
    let session = Session::of(place.call(["shell", &handle, "--", "sleep", &marker]));
    wait_for_sleeps(&marker, 1);
    place.call(["rm", &handle]).done().assert(0, "", "");
    session.wait_for("ringfence: the sandbox was removed");
    assert_eq!(session.end(), Some(125));
    let handle = place.keep(&["--lifetime", "1s"]);
    let started = Instant::now();
    let session = Session::of(place.call(["exec", "-t", &handle, "--", "sleep", "60"]));
    session.wait_for("ringfence: the sandbox ended with its lifetime");
    assert_eq!(session.end(), Some(124));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let session = Session::of(place.call(["shell", &handle]));
    session.wait_for(&format!("ringfence: there is no sandbox {handle}"));
    assert_eq!(session.end(), Some(125));
}

#[test]
fn without_a_terminal_on_our_side_there_is_none_inside() {
    let place = Place::new();
    let handle = "local:sb-000000000000";
    let told = |what: &str, instead: &str| {
        format!(
            "ringfence: {what} needs a terminal on standard input and standard output\n  try: {instead}\n"
        )
    };
    let exec = told("exec -t", "without -t, standard input and output can be anything");
    place.call(["exec", "-t", handle, "--", "true"]).done().assert(125, "", &exec);
    let shell =
        told("shell", &format!("ringfence exec {handle} -- sh, which reads its commands from a pipe"));
    place.call(["shell", handle]).done().assert(125, "", &shell);
    place.call(["exec", handle, "--", "true"]).done().assert(125, "", &no_such(handle));
}
