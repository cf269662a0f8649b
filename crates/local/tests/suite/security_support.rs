//! What the security suites share: the same Python probe run inside a sandbox and on the host, so that every refusal has a
//! positive control.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use ringfence_core::{Ending, SandboxSpec};
use ringfence_local::{LocalBackend, LocalConfig};

pub(crate) use super::support::skip as skipped;
use super::support::{Box, Marker, Said, parent_of, program};

/// The interpreter that the host and the sandbox's view have in common.
const PYTHON: &str = "/usr/bin/python3";

/// Calls by number with exact errors, and attempts by name.
const PRELUDE: &str = r"
import ctypes, errno, os, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(*arguments):
    ctypes.set_errno(0)
    arguments = [ctypes.c_ulong(a & (2**64 - 1)) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(*arguments)
    return 'ok' if result >= 0 else errno.errorcode[ctypes.get_errno()]
def attempt(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return 'ok'
def child(act):
    'What a child that acts ends with: ok, an error, or the signal that ended it.'
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, act().encode())
        finally:
            os._exit(0)
    os.close(write)
    said = b''
    while part := os.read(read, 65536):
        said += part
    os.close(read)
    status = os.waitpid(pid, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else said.decode()
";

/// A new directory of the host at a place where sandboxes have no directory of their own, so that it can be shown to them.
pub(crate) fn directory_to_show() -> Option<tempfile::TempDir> {
    let own = ["/tmp", "/var/tmp", "/dev/shm"];
    let places =
        [env!("CARGO_TARGET_TMPDIR"), "/var/lib", env!("CARGO_MANIFEST_DIR")].map(std::path::PathBuf::from);
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let mut places =
        places.into_iter().chain(home).filter(|place| !own.iter().any(|own| place.starts_with(own)));
    places.find_map(|place| tempfile::tempdir_in(place).ok())
}

/// What [`directory_to_show`] is about.
pub(crate) const SHOWN: &str = "a directory to write to that sandboxes have none of their own at";

/// Whether probes can run; otherwise notes the skip.
pub(crate) fn has_python(test: &str) -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    let works = *WORKS.get_or_init(|| {
        let ctypes = Command::new(PYTHON).args(["-ISc", "import ctypes"]).stderr(Stdio::null()).status();
        ctypes.is_ok_and(|status| status.success())
    });
    if !works {
        skipped(test, "python3 with ctypes in /usr/bin");
    }
    works
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program for [`PYTHON`].
pub(crate) fn script(probe: &str) -> String {
    format!("{PRELUDE}\n{probe}")
}

/// Runs a probe in the sandbox and returns what it printed.
pub(crate) async fn inside(sandbox: &Box, probe: &str) -> String {
    let result = sandbox.request(program(&[PYTHON, "-ISc", &script(probe)])).await;
    let stderr = String::from_utf8_lossy(&result.stderr.bytes).into_owned();
    assert_eq!((result.ending, stderr.as_str()), (Ending::Exited(0), ""));
    String::from_utf8_lossy(&result.stdout.bytes).into_owned()
}

/// Runs a probe on the host, in a session of its own, and returns what it printed.
pub(crate) fn outside(probe: &str) -> String {
    let probe = script(&format!("os.setsid()\n{probe}"));
    let output = Command::new(PYTHON).args(["-ISc", &probe]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `name value` lines as a map.
pub(crate) fn lines(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().map(|line| pair(line).unwrap_or_else(|| panic!("{line:?} is no pair"))).collect()
}

/// A sandbox with host paths in its view.
pub(crate) async fn showing(paths: &[&Path]) -> Box {
    use ringfence_core::Backend;

    let mut config = LocalConfig::default();
    config.read_only_paths = paths.iter().map(|path| path.to_path_buf()).collect();
    let backend = LocalBackend::new(config);
    let id = backend.create(&SandboxSpec::new()).await.unwrap().id;
    Box { backend, id }
}

/// A process of the host, of the user that runs the tests, that must live through the test.
#[derive(Debug)]
pub(crate) struct Canary(Child);

impl Canary {
    pub(crate) fn new() -> Self {
        Self(Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn assert_alive(&mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None);
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Ringfence's own processes for a sandbox, by their numbers on the host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Machinery {
    pub(crate) agent: u32,
    pub(crate) launcher: u32,
}

impl Machinery {
    /// Finds them as the ancestors of a process inside.
    pub(crate) async fn of(sandbox: &Box) -> Self {
        let marker = Marker::new();
        let said = sandbox.run(&format!("sleep {marker} & echo $!")).await;
        let agent = parent_of(parent_of(marker.sleeper().await));
        let found = Self { agent, launcher: parent_of(agent) };
        assert_eq!(parent_of(found.launcher), std::process::id());
        assert_eq!(sandbox.run(&format!("kill {}", said.stdout)).await, Said::ok(""));
        found
    }
}

/// Whether the kernel says that it has Landlock, asked from inside.
pub(crate) async fn has_landlock(sandbox: &Box) -> bool {
    let probe = format!("print(libc.syscall({}, 0, 0, 1) > 0)", libc::SYS_landlock_create_ruleset);
    inside(sandbox, &probe).await == "True\n"
}
