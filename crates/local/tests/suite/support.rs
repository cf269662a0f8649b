//! What all suites need: a sandbox, a command, its result, and a look at the machine from outside.

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringfence_core::{
    Backend, CommandRequest, CommandResult, Ending, Error, ErrorKind, GuestPath, Invocation, Limits,
    OutputLimit, Pids, SandboxId, SandboxSpec, SpecField, Timeout,
};
use ringfence_local::{LocalBackend, LocalConfig};

/// Names the file that a test appends to when a primitive is missing; see `xtask/src/skips.rs`.
const SKIP_LOG: &str = "RINGFENCE_TEST_SKIP_LOG";

/// What a busy machine may add to a time that a test asserts, see [`slowness`].
const SLACK: Duration = Duration::from_millis(1500);
/// The first Linux on which a plain user can limit the numbers of a process id namespace.
const LINUX_WITH_PID_MAX: (u32, u32) = (6, 14);

/// A backend with one sandbox.
#[derive(Debug)]
pub(crate) struct Box {
    pub(crate) backend: LocalBackend,
    pub(crate) id: SandboxId,
}

/// What a command gave, as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) ending: Ending,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    pub(crate) fn ok(stdout: &str) -> Self {
        Self::ended(Ending::Exited(0), stdout, "")
    }

    pub(crate) fn ended(ending: Ending, stdout: &str, stderr: &str) -> Self {
        Self { ending, stdout: stdout.to_owned(), stderr: stderr.to_owned() }
    }

    pub(crate) fn timed_out(stdout: &str) -> Self {
        Self::ended(Ending::TimedOut, stdout, "")
    }
}

pub(crate) fn seconds(seconds: f64) -> Timeout {
    Timeout::from_secs_f64(seconds).unwrap()
}

/// By how much this machine is slower than the times in these tests take for granted, and at least 1: measured once, by
/// how long the start of a program takes outside of any sandbox.
pub(crate) fn slowness() -> f64 {
    // Ten times what it takes where nothing else runs.
    const EXPECTED: f64 = 0.02;
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let mut starts: Vec<Duration> = (0..5)
            .map(|_| {
                let started = Instant::now();
                assert!(std::process::Command::new("true").status().unwrap().success());
                started.elapsed()
            })
            .collect();
        starts.sort_unstable();
        (starts[2].as_secs_f64() / EXPECTED).max(1.0)
    })
}

pub(crate) fn limit(bytes: usize) -> OutputLimit {
    OutputLimit::new(bytes).unwrap()
}

pub(crate) fn path(path: impl AsRef<[u8]>) -> GuestPath {
    GuestPath::new(path.as_ref()).unwrap()
}

pub(crate) fn shell(command: &str, timeout: f64) -> CommandRequest {
    CommandRequest::shell(command, seconds(timeout), limit(1 << 20))
}

pub(crate) fn program(arguments: &[&str]) -> CommandRequest {
    let arguments = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
    CommandRequest::new(Invocation::Program(arguments), seconds(60.0), limit(1 << 20))
}

/// The result of a command whose output is complete and whose sandbox goes on.
pub(crate) fn ended(ending: Ending, stdout: &str, stderr: &str) -> CommandResult {
    CommandResult { ending, ..CommandResult::exited(0, stdout.to_owned(), stderr.to_owned()) }
}

impl Box {
    pub(crate) async fn new() -> Self {
        Self::with(SandboxSpec::new()).await
    }

    pub(crate) async fn with(spec: SandboxSpec) -> Self {
        let backend = LocalBackend::new(LocalConfig::default());
        // Not the first one of its launcher: root's later ones come from a template. Those of other users do not, and they are tested too.
        let first = backend.create(&spec).await.unwrap().id;
        backend.destroy(&first).await.unwrap();
        let id = backend.create(&spec).await.unwrap().id;
        Self { backend, id }
    }

    pub(crate) async fn limited(limits: Limits) -> Self {
        Self::with(SandboxSpec::new().with_limits(limits)).await
    }

    pub(crate) async fn request(&self, request: CommandRequest) -> CommandResult {
        self.backend.run_command(&self.id, request).await.unwrap()
    }

    pub(crate) async fn run(&self, command: &str) -> Said {
        self.run_for(command, 60.0).await
    }

    pub(crate) async fn run_for(&self, command: &str, timeout: f64) -> Said {
        let result = self.request(shell(command, timeout)).await;
        Said {
            ending: result.ending,
            stdout: String::from_utf8_lossy(&result.stdout.bytes).into_owned(),
            stderr: String::from_utf8_lossy(&result.stderr.bytes).into_owned(),
        }
    }

    /// Runs a command that only prepares something.
    pub(crate) async fn prepare(&self, command: &str) {
        assert_eq!(self.run(command).await, Said::ok(""));
    }

    pub(crate) async fn read(&self, name: impl AsRef<[u8]>) -> Result<Vec<u8>, ErrorKind> {
        let content = self.backend.read_file(&self.id, &path(name), 256 << 20).await;
        content.map_err(|error| error.kind().clone())
    }

    pub(crate) async fn write(
        &self,
        name: impl AsRef<[u8]>,
        content: impl AsRef<[u8]>,
    ) -> Result<(), ErrorKind> {
        let written = self.backend.write_file(&self.id, &path(name), content.as_ref()).await;
        written.map_err(|error| error.kind().clone())
    }

    /// Asserts that soon nothing is inside but agent, shim and the shell that counts. The shim of the command before has said how that
    /// ended, and goes then.
    pub(crate) async fn empties(&self) {
        let deadline = Instant::now() + Duration::from_secs_f64(10.0 * slowness());
        let count = "set -- /proc/[0-9]*; echo $#";
        let mut said = self.run(count).await;
        while said != Said::ok("3\n") && Instant::now() < deadline {
            said = self.run(count).await;
        }
        assert_eq!(said, Said::ok("3\n"));
    }

    pub(crate) async fn destroy(&self) {
        self.backend.destroy(&self.id).await.unwrap();
    }
}

/// Awaits and measures.
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let started = Instant::now();
    (work.await, started.elapsed())
}

/// Asserts that something took from `least` to `most` seconds, and what a busy or slow machine adds.
#[track_caller]
pub(crate) fn assert_took(took: Duration, least: f64, most: f64) {
    assert!(took >= Duration::from_secs_f64(least), "{took:?} is less than {least} s");
    let slack = SLACK.mul_f64(slowness());
    assert!(took <= Duration::from_secs_f64(most) + slack, "{took:?} is more than {most} s and {slack:?}");
}

/// Looks every few milliseconds until `done`, at most `most_seconds` of a machine that is not slow.
pub(crate) async fn until(most_seconds: f64, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs_f64(most_seconds * slowness());
    while Instant::now() < deadline {
        if done() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    done()
}

/// A time to sleep, long enough for any test and unlike any other, so that it names a process on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker(pub(crate) String);

impl Marker {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let count = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("300.{:07}{count:04}", std::process::id()))
    }

    /// The processes of this machine, seen from outside, whose arguments contain the marker.
    pub(crate) fn processes(&self) -> Vec<u32> {
        processes()
            .filter(|pid| {
                let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                arguments.windows(self.0.len()).any(|window| window == self.0.as_bytes())
            })
            .collect()
    }

    #[track_caller]
    pub(crate) fn assert_dead(&self) {
        assert_eq!(self.processes(), Vec::<u32>::new(), "processes marked {}", self.0);
    }

    pub(crate) async fn dies_within(&self, most_seconds: f64) -> bool {
        until(most_seconds, || self.processes().is_empty()).await
    }

    /// The one process that sleeps, once it does: between fork and exec a process has no arguments for a moment.
    pub(crate) async fn sleeper(&self) -> u32 {
        let find = || {
            let sleeps = |pid: &u32| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
            };
            self.processes().into_iter().find(sleeps)
        };
        assert!(until(10.0, || find().is_some()).await, "nothing sleeps for {self}");
        find().unwrap()
    }

    pub(crate) async fn lives(&self) -> bool {
        until(10.0, || !self.processes().is_empty()).await
    }
}

impl std::fmt::Display for Marker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The parent of a process; 0 where it has gone.
pub(crate) fn parent_of(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("PPid:\t")?.parse().ok()).unwrap_or_default()
}

/// The name of a process; empty where it has gone.
pub(crate) fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// The children of a process.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    processes()
        .filter(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line == format!("PPid:\t{parent}"))
        })
        .collect()
}

/// The directories of control groups that sandboxes of this machine have.
pub(crate) fn cgroups() -> BTreeSet<PathBuf> {
    fn walk(directory: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && entry.file_name().to_string_lossy().starts_with("ringfence-") {
                found.insert(entry.path());
            } else if is_directory && depth > 0 {
                walk(&entry.path(), depth - 1, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(Path::new("/sys/fs/cgroup"), 4, &mut found);
    found
}

/// The control group directories that the process is in and that belong to sandboxes.
pub(crate) fn cgroups_of(pid: u32) -> BTreeSet<PathBuf> {
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let names: Vec<&str> = own.lines().filter_map(|line| line.rsplit('/').next()).collect();
    cgroups()
        .into_iter()
        .filter(|path| names.iter().any(|name| !name.is_empty() && path.ends_with(name)))
        .collect()
}

/// The directories in which the owner's sandboxes are, by its own number.
pub(crate) fn cgroups_made_by(owner: u32) -> BTreeSet<PathBuf> {
    let prefix = format!("ringfence-{owner}-");
    let is_its =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    cgroups().into_iter().filter(is_its).collect()
}

pub(crate) fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this machine and user can limit memory, processors and processes by control groups.
pub(crate) fn has_cgroups() -> bool {
    let claimed = LocalBackend::new(LocalConfig::default()).capabilities();
    claimed.memory_limit && claimed.cpu_limit
}

/// Whether processes of a sandbox can be limited. Where not, that is a refusal which names the limit, and only ever a plain
/// user on an older kernel who meets it.
pub(crate) async fn limits_processes(backend: &LocalBackend) -> bool {
    let limits = Limits { pids: Some(Pids::new(64).unwrap()), ..Limits::default() };
    let spec = SandboxSpec::new().with_limits(limits);
    let error = match backend.create(&spec).await {
        Ok(created) => {
            backend.destroy(&created.id).await.unwrap();
            return true;
        }
        Err(error) => error,
    };
    let expected = (ErrorKind::Refused, true, Some(SpecField::Pids.key().to_owned()));
    assert_eq!(facts(&error, "field"), expected, "{error:?}");
    assert!(!is_root() && !has_cgroups() && linux() < LINUX_WITH_PID_MAX, "{error:?}");
    false
}

/// Whether processes can be limited; where not, the test is skipped: what it starts would be the host's to bear.
pub(crate) async fn has_process_limit(test: &str) -> bool {
    let has = limits_processes(&LocalBackend::new(LocalConfig::default())).await;
    if !has {
        skip(test, "a limit on processes");
    }
    has
}

/// Major and minor version of the kernel.
fn linux() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Says that a test cannot run here, where that is counted.
pub(crate) fn skip(test: &str, missing: &str) {
    let line = format!("skipped: {test}: {missing}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(log) = std::env::var_os(SKIP_LOG) {
        fs::OpenOptions::new().append(true).open(log).unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// Runs a test in a process of its own, whose children and control groups are only its own; returns whether this is that
/// process.
pub(crate) fn is_alone(test: &str) -> bool {
    is_alone_below(&["env"], test)
}

/// The same, with that process started by a program that changes what surrounds it.
pub(crate) fn is_alone_below(surroundings: &[&str], test: &str) -> bool {
    const ALONE: &str = "RINGFENCE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let [before, arguments @ ..] = surroundings else { panic!("a program") };
    let mut command = std::process::Command::new(before);
    let output =
        command.args(arguments).arg(program).args(["--exact", test]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("test result: ok. 1 passed"), "{said}");
    false
}

/// Whether commands find a program; where not, the test is skipped.
pub(crate) fn has_program(test: &str, name: &str) -> bool {
    let present = ["/usr/bin", "/bin"].iter().any(|directory| Path::new(directory).join(name).exists());
    if !present {
        skip(test, name);
    }
    present
}

/// What a test asserts of an error: kind, whether it ends the run, and a named fact.
pub(crate) fn facts(error: &Error, fact: &str) -> (ErrorKind, bool, Option<String>) {
    (error.kind().clone(), error.is_terminal(), error.fact(fact).map(str::to_owned))
}
