//! `shell` on a real pseudo terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::driver::{Call, Running, assert_nothing_left, marker, wait_for_sleeps};

/// A terminal with the program on it.
pub(super) struct Session {
    pub(super) running: Running,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    /// Our own end of what the program sees, to look at its modes.
    slave: OwnedFd,
}

impl Session {
    fn start(args: &[&str]) -> Self {
        Self::of(Call::new([&["shell"], args].concat()))
    }

    pub(super) fn of(call: Call) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let slave = rustix::fs::open(path.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
        resize(&slave, 30, 90);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let running = call
            .env("TERM", "xterm")
            .with(|command| {
                command.stdin(end()).stdout(end()).stderr(end());
            })
            .start();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let mut display = File::from(master.try_clone().unwrap());
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = display.read(&mut chunk) {
                shown.lock().unwrap().extend_from_slice(&chunk[..count]);
            }
        });
        Self { running, keyboard: File::from(master), screen, slave }
    }

    pub(super) fn type_line(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
        self.keyboard.write_all(b"\r").unwrap();
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    #[track_caller]
    pub(super) fn wait_for(&self, needle: &str) {
        let started = Instant::now();
        while !self.text().contains(needle) {
            assert!(started.elapsed() < Duration::from_secs(20), "{needle:?} is not on {:?}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the shell has asked for the next line.
    #[track_caller]
    pub(super) fn wait_for_prompt_after(&self, needle: &str) {
        let started = Instant::now();
        while !self.text().rsplit(needle).next().unwrap().contains("$ ") {
            assert!(started.elapsed() < Duration::from_secs(20), "no prompt on {:?}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until what is typed is passed on as it is. A command can run a moment before that.
    #[track_caller]
    pub(super) fn wait_until_raw(&self) {
        let started = Instant::now();
        while tcgetattr(&self.slave).unwrap().local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO) {
            assert!(started.elapsed() < Duration::from_secs(20), "never raw; on it: {:?}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end and asserts that the terminal is as it was.
    #[track_caller]
    pub(super) fn end(self) -> Option<i32> {
        let done = self.running.done();
        let modes = tcgetattr(&self.slave).unwrap();
        assert!(modes.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        done.status
    }
}

fn resize(terminal: &OwnedFd, rows: u16, columns: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

#[test]
fn a_shell_has_a_terminal_of_its_own_and_its_status_is_ours() {
    let mut session = Session::start(&[]);
    // The arithmetic tells the answer from the echo.
    session.type_line("test -t 0 && test -t 1 && echo tty-$((40 + 2)); stty size");
    session.wait_for("tty-42");
    session.wait_for("30 90");
    session.wait_until_raw();
    session.type_line("echo $TERM-$((1 + 1)); exit 7");
    session.wait_for("xterm-2");
    assert_eq!(session.end(), Some(7));
}

#[test]
fn ctrl_c_is_for_the_program_inside_and_ctrl_d_ends_the_shell() {
    let marker = marker();
    let mut session = Session::start(&[]);
    session.type_line(&format!("sleep {marker}"));
    wait_for_sleeps(&marker, 1);
    session.keyboard.write_all(b"\x03").unwrap();
    session.type_line("echo still-$((40 + 2))");
    session.wait_for("still-42");
    // While no shell waits for a line the key is not a key but the end of what was typed, which nobody reads.
    session.wait_for_prompt_after("still-42");
    session.keyboard.write_all(b"\x04").unwrap();
    // The shell's status is that of its last command, which Ctrl-C did not end.
    assert_eq!(session.end(), Some(0));
    assert_nothing_left(&marker);
}

#[test]
fn a_change_of_size_reaches_the_program() {
    let mut session = Session::start(&[]);
    session.type_line("echo ready-$((1 + 1))");
    session.wait_for("ready-2");
    resize(&session.slave, 40, 123);
    session.running.signal(Signal::WINCH);
    let started = Instant::now();
    while !session.text().contains("40 123") {
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", session.text());
        session.type_line("stty size");
        std::thread::sleep(Duration::from_millis(50));
    }
    session.type_line("exit");
    assert_eq!(session.end(), Some(0));
}

#[test]
fn a_signal_ends_the_shell_and_the_terminal_is_as_before() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let marker = marker();
        let mut session = Session::start(&[]);
        session.type_line(&format!("sleep {marker}"));
        wait_for_sleeps(&marker, 1);
        session.wait_until_raw();
        session.running.signal(signal);
        assert_eq!(session.end(), Some(status));
        assert_nothing_left(&marker);
    }
}

#[test]
fn a_program_can_take_the_place_of_the_shell() {
    let session = Session::start(&["--", "sh", "-c", "test -t 0 && echo tty; exit 5"]);
    session.wait_for("tty");
    assert_eq!(session.end(), Some(5));
}

#[test]
fn a_program_that_is_not_there_leaves_the_terminal_alone() {
    let session = Session::start(&["--", "no-such-program"]);
    assert_eq!(session.end(), Some(127));
}

#[test]
fn a_background_child_that_holds_the_terminal_does_not_hold_the_shell() {
    let started = Instant::now();
    let session = Session::start(&["--", "sh", "-c", "setsid sleep 1000 & sleep .2; echo last; exit 4"]);
    session.wait_for("last");
    assert_eq!(session.end(), Some(4));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn why_a_program_did_not_start_and_that_the_lifetime_ended_is_on_the_screen() {
    for (args, status, told) in [
        (&["--", "nosuch"][..], 127, "it was not found"),
        (&["--", "/etc"], 126, "it cannot be executed"),
        (&["--lifetime", "1s", "--", "sleep", "60"], 124, "the sandbox ended with its lifetime of 1s"),
    ] {
        let session = Session::start(args);
        session.wait_for(told);
        assert_eq!(session.end(), Some(status));
    }
}
