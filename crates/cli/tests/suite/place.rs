//! A login of its own: sandboxes that are made in it are found in it alone, and removed at its end.

use std::fs::File;
use std::io::Read;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::driver::{Call, Done, Running};

/// Long enough for a machine under load.
const SOON: Duration = Duration::from_secs(20);

/// Where the runtime directory of a login is.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    pub(crate) fn call<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Call {
        Call::new(args).env("XDG_RUNTIME_DIR", self.path())
    }

    /// Makes a sandbox that is kept, and returns its handle.
    #[track_caller]
    pub(crate) fn keep(&self, args: &[&str]) -> String {
        handle_of(&self.call([&["create", "--keep"], args].concat()).done())
    }

    /// Returns the handles that `ps` shows.
    #[track_caller]
    pub(crate) fn handles(&self, args: &[&str]) -> Vec<String> {
        let done = self.call([&["ps", "-q"], args].concat()).done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
        done.out().lines().map(str::to_owned).collect()
    }

    #[track_caller]
    pub(crate) fn inspect(&self, handle: &str) -> Value {
        let done = self.call(["inspect", "--json", handle]).done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
        done.json()
    }

    #[track_caller]
    pub(crate) fn wait_until_empty(&self) {
        let started = Instant::now();
        loop {
            let left = self.handles(&[]);
            if left.is_empty() {
                return;
            }
            assert!(started.elapsed() < SOON, "they stay: {left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let done = self.call(["rm", "--all", "-f"]).done();
        if !std::thread::panicking() {
            done.assert(0, "", "");
            self.call(["prune"]).done().assert(0, "nothing is left behind\n", "");
        }
    }
}

/// Returns the handle that was printed, and nothing else.
#[track_caller]
pub(crate) fn handle_of(done: &Done) -> String {
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    let handle = done.out().strip_suffix('\n').unwrap();
    let id = handle.strip_prefix("local:sb-").unwrap();
    assert!(id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{handle}");
    handle.to_owned()
}

/// Says how a handle that nobody has is answered.
pub(crate) fn no_such(handle: &str) -> String {
    format!(
        "ringfence: there is no sandbox {handle}\n  \
         try: `ringfence ps` shows those there are; others have ended, as `ringfence logs` tells, or are another user's\n"
    )
}

/// A sandbox that is not kept, with the process that holds it.
pub(crate) struct Holding {
    pub(crate) handle: String,
    pub(crate) running: Running,
    /// What holds it up where the process was started with a pipe.
    pub(crate) pipe: Option<ChildStdin>,
}

impl Holding {
    /// Starts `create` with a pipe or with nothing on standard input, and waits for the handle.
    #[track_caller]
    pub(crate) fn start(place: &Place, stdin: Stdio, args: &[&str]) -> Self {
        let call = place.call([&["create"], args].concat());
        let mut running = call
            .with(|command| {
                command.stdin(stdin);
            })
            .start_unread();
        let pipe = running.child.stdin.take();
        let mut stdout = running.child.stdout.take().unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while line.last() != Some(&b'\n') {
            assert_eq!(stdout.read(&mut byte).unwrap(), 1, "it ended after {line:?}");
            line.push(byte[0]);
        }
        // Kept open: whoever reads the handle may stay.
        std::mem::forget(File::from(std::os::fd::OwnedFd::from(stdout)));
        let handle = String::from_utf8(line).unwrap().trim_end().to_owned();
        assert!(handle.starts_with("local:sb-"), "{handle}");
        Self { handle, running, pipe }
    }
}
