//! Starts the program in an environment of its own and waits for it with a bound.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// No test needs this long; a program that hangs is killed and the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A call of the program: empty HOME, empty current directory, none of the caller's settings.
pub(crate) struct Call {
    folder: TempDir,
    command: Command,
    stdin: Option<Vec<u8>>,
    patience: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Done {
    /// The exit status; `None` if a signal ended the program itself.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) elapsed: Duration,
}

impl Call {
    pub(crate) fn new<I: IntoIterator<Item = S>, S: AsRef<std::ffi::OsStr>>(args: I) -> Self {
        let folder = TempDir::new().unwrap();
        for name in ["home", "cwd"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", folder.path().join("home"))
            .current_dir(folder.path().join("cwd"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self { folder, command, stdin: None, patience: PATIENCE }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Waits longer than most tests need, for programs that are heavy by themselves.
    pub(crate) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Writes a file below the current directory of the program.
    pub(crate) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        write(&self.cwd().join(path), content.as_ref());
        self
    }

    /// Writes the user's settings file.
    pub(crate) fn user_settings(self, content: &str) -> Self {
        write(&self.folder.path().join("home/.config/ringfence/config.toml"), content.as_bytes());
        self
    }

    /// Runs the program in this folder below its usual one.
    pub(crate) fn in_folder(mut self, path: &str) -> Self {
        let folder = self.cwd().join(path);
        std::fs::create_dir_all(&folder).unwrap();
        self.command.current_dir(folder);
        self
    }

    pub(crate) fn cwd(&self) -> PathBuf {
        self.folder.path().join("cwd")
    }

    /// Lets the caller change the command, for example its descriptors.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Lets another program start this one: it gets the program and its arguments behind its own.
    pub(crate) fn below(mut self, starter: &[&str]) -> Self {
        let mut command = Command::new(starter[0]);
        command.args(&starter[1..]).arg(self.command.get_program()).args(self.command.get_args()).env_clear();
        command.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.cwd()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command = command;
        self
    }

    /// The same with a standard error that nobody reads.
    pub(crate) fn muted(self) -> Self {
        self.with(|command| {
            command.stderr(Stdio::null());
        })
    }

    pub(crate) fn start(self) -> Running {
        let mut running = self.start_unread();
        running.stdout = running.child.stdout.take().map(collect);
        running
    }

    /// Starts the program and reads its standard error only.
    pub(crate) fn start_unread(mut self) -> Running {
        if self.stdin.is_some() {
            self.command.stdin(Stdio::piped());
        }
        let started = Instant::now();
        let mut child = self.command.spawn().unwrap();
        if let Some(bytes) = self.stdin.take()
            && let Some(mut pipe) = child.stdin.take()
        {
            // A program that does not read its input is not an error (P43).
            std::thread::spawn(move || pipe.write_all(&bytes).ok());
        }
        let stderr = child.stderr.take().map(collect);
        let patience = self.patience;
        Running { child, stdout: None, stderr, started, patience, _folder: self.folder }
    }

    pub(crate) fn done(self) -> Done {
        self.start().done()
    }
}

/// A started program, with its outputs being read.
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    started: Instant,
    patience: Duration,
    _folder: TempDir,
}

impl Running {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn done(mut self) -> Done {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.started.elapsed() > self.patience {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                panic!("the program hung");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let elapsed = self.started.elapsed();
        let join = |thread: Option<JoinHandle<Vec<u8>>>| thread.map(|thread| thread.join().unwrap());
        Done {
            status: status.code(),
            stdout: join(self.stdout.take()).unwrap_or_default(),
            stderr: String::from_utf8(join(self.stderr.take()).unwrap_or_default()).unwrap(),
            elapsed,
        }
    }
}

impl Done {
    pub(crate) fn out(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts status and both streams at once.
    #[track_caller]
    pub(crate) fn assert(&self, status: i32, stdout: &str, stderr: &str) {
        assert_eq!((self.status, self.out(), self.stderr.as_str()), (Some(status), stdout, stderr));
    }
}

/// A call of `run` with a shell script as the command.
pub(crate) fn sh(script: &str) -> Call {
    Call::new(["run", "--", "sh", "-c", script])
}

/// Returns the host's processes that have `marker` in their arguments, other than the program and this one.
pub(crate) fn processes_with(marker: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap_or_default();
        if name == own || !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // A process can be gone by now.
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let ours = arguments.starts_with(env!("CARGO_BIN_EXE_ringfence").as_bytes());
        if !ours && arguments.windows(marker.len()).any(|window| window == marker.as_bytes()) {
            found.push(format!("{name}: {}", String::from_utf8_lossy(&arguments).replace('\0', " ")));
        }
    }
    found
}

/// A process as everybody may see it: namespaces of others are root's to look at, but not how many a process is in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) pid: u32,
    started: u64,
    parent: u32,
    /// How many process namespaces it is in, this one included.
    depth: usize,
    number_inside: u32,
}

impl Seen {
    /// Returns nothing of a process that is gone.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let numbers: Vec<&str> = numbers.split_whitespace().collect();
        Some(Self {
            pid,
            started: fields[19].parse().ok()?,
            parent: fields[1].parse().ok()?,
            depth: numbers.len(),
            number_inside: numbers.last()?.parse().ok()?,
        })
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let processes = std::fs::read_dir("/proc").unwrap();
        processes.filter_map(|entry| Self::of(entry.unwrap().file_name().to_str()?.parse().ok()?))
    }

    /// What no other process has: numbers are used again, but not within one tick of the clock.
    pub(crate) fn identity(&self) -> (u32, u64) {
        (self.pid, self.started)
    }

    /// The process itself, its parent and so on.
    pub(crate) fn line(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |process| Self::of(process.parent))
    }

    /// Whether it is the first process of a sandbox.
    pub(crate) fn is_first_of_a_sandbox(&self) -> bool {
        self.depth > 1 && self.number_inside == 1
    }

    /// Whether it is in no sandbox.
    pub(crate) fn is_outside(&self) -> bool {
        self.depth == 1
    }
}

/// Returns one process that has `marker` in its arguments.
#[track_caller]
pub(crate) fn process_with(marker: &str) -> Seen {
    let found = processes_with(marker);
    let pid = found.first().and_then(|process| process.split(':').next()?.parse().ok());
    pid.and_then(Seen::of).unwrap_or_else(|| panic!("{marker} does not run: {found:?}"))
}

/// Waits until nothing with `marker` runs any more.
#[track_caller]
pub(crate) fn assert_nothing_left(marker: &str) {
    let started = Instant::now();
    loop {
        let found = processes_with(marker);
        if found.is_empty() {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(2), "left behind: {found:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until `count` processes run `sleep MARKER`: the positive control of [`assert_nothing_left`].
#[track_caller]
pub(crate) fn wait_for_sleeps(marker: &str, count: usize) {
    let started = Instant::now();
    let sleep = format!(": sleep {marker} ");
    while processes_with(marker).iter().filter(|process| process.ends_with(&sleep)).count() < count {
        assert!(started.elapsed() < Duration::from_secs(20), "{marker} never started");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A number of seconds for `sleep` that no other test uses.
pub(crate) fn marker() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("3600.{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Notes that a test found a primitive missing, where the runner counts that.
pub(crate) fn skipped(test: &str, missing: &str) {
    if let Some(log) = std::env::var_os("RINGFENCE_TEST_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).open(log).unwrap();
        log.write_all(format!("skipped: {test}: {missing}\n").as_bytes()).unwrap();
    }
}
