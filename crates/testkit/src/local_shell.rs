//! The smallest backend there can be: create, run, destroy, over a shell of this machine.
//!
//! It isolates nothing. It exists so that what a backend inherits from the contract, above all the file operations of
//! [`ringfence_core::shell`], meets real shells and real tools, in a scratch directory for each sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ringfence_core::{
    Backend, Capabilities, CommandRequest, CommandResult, Created, Ending, EnforcementRow,
    EnforcementStatement, Error, ErrorKind, Evidence, Invocation, OutputObserver, Plan, Result, SandboxId,
    SandboxSpec, Stdin, StreamName, TailBuffer,
};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::{Child, Command};

/// How long the streams are read on after a command has ended and its process group was killed. Only a descendant with
/// a process group of its own can make use of it.
const DRAIN: Duration = Duration::from_millis(200);

/// What is done before a command runs: it gets the number of the command, starting at 1, and the sandbox's directory.
type Hook = dyn Fn(usize, &Path) + Send + Sync;

/// Runs commands with `sh -c` in a scratch directory. All processes of a command's process group end with it.
pub struct LocalShellBackend {
    shell: Vec<String>,
    stdin: bool,
    profile: String,
    hook: Option<Box<Hook>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    created: usize,
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    dying: BTreeSet<SandboxId>,
    commands: Vec<ShellCommand>,
}

struct Sandbox {
    root: Arc<TempDir>,
    spec: SandboxSpec,
}

/// A command that was run.
#[derive(Debug, Clone)]
pub struct ShellCommand {
    /// The shell text or the program's words.
    pub invocation: Invocation,
    /// All bytes it wrote to standard output, kept or not.
    pub stdout_bytes: u64,
    /// All bytes it wrote to standard error, kept or not.
    pub stderr_bytes: u64,
    /// The most that was to be kept of each.
    pub output_limit: usize,
    /// Its timeout.
    pub timeout: Duration,
}

impl Default for LocalShellBackend {
    fn default() -> Self {
        Self {
            shell: vec!["sh".to_owned()],
            stdin: true,
            profile: String::new(),
            hook: None,
            state: Mutex::default(),
        }
    }
}

impl fmt::Debug for LocalShellBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalShellBackend").field("shell", &self.shell).finish_non_exhaustive()
    }
}

impl LocalShellBackend {
    /// Returns a backend over `sh`, with standard input and without a login profile.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs commands with another shell, such as `bash` or `busybox sh`; `-c` and the text follow.
    #[must_use]
    pub fn with_shell(mut self, words: &[&str]) -> Self {
        self.shell = words.iter().map(ToString::to_string).collect();
        self
    }

    /// Gives up the capability of standard input, as many vendors' interfaces do.
    #[must_use]
    pub fn without_stdin(mut self) -> Self {
        self.stdin = false;
        self
    }

    /// Runs this text before every shell command, in the same shell, as a login profile would be.
    #[must_use]
    pub fn with_profile(mut self, profile: impl Into<String>) -> Self {
        self.profile = profile.into();
        self
    }

    /// Calls `hook` before every command, with the command's number and the sandbox's directory; it may change files.
    #[must_use]
    pub fn before_command(mut self, hook: impl Fn(usize, &Path) + Send + Sync + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Returns where the sandbox's files lie, for looking at them from outside.
    #[must_use]
    pub fn root(&self, sandbox: &SandboxId) -> Option<PathBuf> {
        self.state().sandboxes.get(sandbox).map(|sandbox| sandbox.root.path().to_owned())
    }

    /// Returns the commands that ended, in order.
    #[must_use]
    pub fn commands(&self) -> Vec<ShellCommand> {
        self.state().commands.clone()
    }

    /// Lets the sandbox end under its next command: that one is answered with `sandbox_lost` and nothing else.
    pub fn lose(&self, sandbox: &SandboxId) {
        self.state().dying.insert(sandbox.clone());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn words(&self, invocation: &Invocation) -> Vec<Vec<u8>> {
        match invocation {
            Invocation::Program(words) => words.clone(),
            Invocation::Shell(text) => {
                let text = format!("{}\n{text}", self.profile);
                let words = self.shell.iter().map(String::as_str).chain(["-c", &text]);
                words.map(|word| word.as_bytes().to_vec()).collect()
            }
        }
    }

    fn command(&self, request: &CommandRequest, root: &TempDir, spec: &SandboxSpec) -> Result<Command> {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let words = self.words(&request.invocation);
        let Some((program, arguments)) = words.split_first() else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "local-shell",
                "run the command",
                "no program",
            ));
        };
        let mut command = Command::new(OsStr::from_bytes(program));
        command
            .args(arguments.iter().map(|word| OsStr::from_bytes(word)))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", root.path())
            .envs(spec.env())
            .envs(&request.env)
            .current_dir(match &request.workdir {
                Some(workdir) => root.path().join(OsStr::from_bytes(workdir.as_bytes())),
                None => root.path().to_owned(),
            })
            .stdin(if matches!(request.stdin, Stdin::Closed) { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }
}

#[async_trait]
impl Backend for LocalShellBackend {
    fn name(&self) -> &str {
        "local-shell"
    }

    /// Claims a blocked network, although it enforces nothing: the default spec asks for one.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            block_network: true,
            stdin: self.stdin,
            streaming: true,
            shell: "sh".into(),
            ..Capabilities::default()
        }
    }

    fn judge(&self, spec: &SandboxSpec) -> Result<Plan> {
        self.capabilities().refuse_unclaimed(self.name(), spec)?;
        let statement = EnforcementStatement::build(None, |field| {
            if spec.asks_for(field) {
                EnforcementRow::new(field, "nothing: this is a double", Evidence::Planned)
            } else {
                EnforcementRow::not_asked(field)
            }
        });
        Ok(Plan { statement })
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Created> {
        let statement = self.judge(spec)?.statement;
        let failed =
            |message: &str| Error::new(ErrorKind::Unexpected, self.name(), "create sandbox", message);
        let root = TempDir::new().map_err(|error| failed("no scratch directory").source(error))?;
        let mut state = self.state();
        state.created += 1;
        let id = SandboxId::new(format!("shell-{}", state.created)).ok_or_else(|| failed("no usable id"))?;
        state.sandboxes.insert(id.clone(), Sandbox { root: Arc::new(root), spec: spec.clone() });
        Ok(Created { id, statement })
    }

    async fn run_command(&self, sandbox: &SandboxId, request: CommandRequest) -> Result<CommandResult> {
        let failed =
            |message: &str| Error::new(ErrorKind::Unexpected, self.name(), "run the command", message);
        let (root, spec, number) = {
            let mut state = self.state();
            if state.dying.remove(sandbox) {
                state.sandboxes.remove(sandbox);
                return Ok(CommandResult {
                    ending: Ending::Unknown,
                    sandbox_lost: true,
                    ..CommandResult::exited(0, "", "")
                });
            }
            let number = state.commands.len() + 1;
            let Some(sandbox) = state.sandboxes.get(sandbox) else {
                return Err(Error::new(
                    ErrorKind::SandboxLost,
                    self.name(),
                    "run the command",
                    "the sandbox no longer exists",
                )
                .context("sandbox", sandbox.as_str()));
            };
            (Arc::clone(&sandbox.root), sandbox.spec.clone(), number)
        };
        if let Some(hook) = &self.hook {
            hook(number, root.path());
        }
        let mut command = self.command(&request, &root, &spec)?;
        let child = command.spawn().map_err(|error| failed("cannot start the shell").source(error))?;
        let recorded = (request.invocation.clone(), request.output_limit.get(), request.timeout.get());
        let result = run(child, request).await.map_err(|error| failed("cannot wait").source(error))?;
        let (invocation, output_limit, timeout) = recorded;
        self.state().commands.push(ShellCommand {
            invocation,
            output_limit,
            timeout,
            stdout_bytes: result.stdout.total_bytes,
            stderr_bytes: result.stderr.total_bytes,
        });
        Ok(result)
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<()> {
        self.state().sandboxes.remove(sandbox);
        Ok(())
    }
}

/// Kills a process group when dropped, so that a dropped future leaves nothing behind.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Nobody left in the group is the usual case.
            kill_process_group(leader, Signal::KILL).ok();
        }
    }
}

async fn run(mut child: Child, request: CommandRequest) -> std::io::Result<CommandResult> {
    let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let stdout = Mutex::new(TailBuffer::new(request.output_limit));
    let stderr = Mutex::new(TailBuffer::new(request.output_limit));
    let observer = request.observer.as_deref();
    let streams = {
        let feed = feed(child.stdin.take(), request.stdin);
        let out = pump(child.stdout.take(), &stdout, StreamName::Stdout, observer);
        let err = pump(child.stderr.take(), &stderr, StreamName::Stderr, observer);
        async move { tokio::join!(feed, out, err) }
    };
    tokio::pin!(streams);
    let mut drained = false;
    let deadline = tokio::time::sleep(request.timeout.get());
    tokio::pin!(deadline);
    let ending = loop {
        tokio::select! {
            status = child.wait() => break ending_of(status?),
            _ = &mut streams, if !drained => drained = true,
            () = &mut deadline => break Ending::TimedOut,
        }
    };
    drop(group);
    child.wait().await?;
    if !drained {
        // Output of descendants that outlive the command is dropped (BK-11).
        drop(tokio::time::timeout(DRAIN, &mut streams).await);
    }
    let finish = |buffer: &Mutex<TailBuffer>| {
        let empty = TailBuffer::new(request.output_limit);
        let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *buffer, empty).finish()
    };
    Ok(CommandResult {
        ending,
        stdout: finish(&stdout),
        stderr: finish(&stderr),
        applied_timeout: None,
        sandbox_lost: false,
    })
}

fn ending_of(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, Some(signal)) => Ending::Signalled(signal),
        (None, None) => Ending::Unknown,
    }
}

/// Gives standard input. A command that does not read it is not an error (P43).
async fn feed(sink: Option<impl AsyncWrite + Unpin>, stdin: Stdin) {
    let Some(mut sink) = sink else { return };
    match stdin {
        Stdin::Closed => {}
        Stdin::Bytes(bytes) => drop(sink.write_all(&bytes).await),
        Stdin::Reader(mut reader) => drop(tokio::io::copy(&mut reader, &mut sink).await),
    }
}

async fn pump(
    stream: Option<impl AsyncRead + Unpin>,
    buffer: &Mutex<TailBuffer>,
    name: StreamName,
    observer: Option<&dyn OutputObserver>,
) {
    let Some(mut stream) = stream else { return };
    let mut chunk = vec![0; 64 << 10];
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        let bytes = &chunk[..count];
        let offset = {
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            let offset = buffer.total_bytes();
            buffer.push(bytes);
            offset
        };
        if let Some(observer) = observer {
            observer.output(name, offset, bytes);
        }
    }
}
