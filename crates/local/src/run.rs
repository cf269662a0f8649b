//! One command from request to result. Its shim inside ends the tree on time; here the streams are read as they come, within
//! bounds, and everything that can happen is an event of one loop.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{
    CommandRequest, CommandResult, Ending, EnvMap, Error, ErrorKind, GuestPath, Invocation, OutputLimit,
    OutputObserver, Result, Stdin, StreamName, TailBuffer,
};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, Interest};
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};
use tokio::time::Instant;

use crate::SCHEME;
use crate::access::Access;
use crate::cgroup::Counter;
use crate::error::{lost, unexpected};
use crate::sandbox::Sandbox;
use crate::transport::{Channel, watch_nonblocking};
use crate::wire::limits::Suspect;
use crate::wire::{AgentRequest, CommandEnd, GRACE_MILLIS, KILL_MILLIS, NotStarted, Reply, RunRequest};

const OPERATION: &str = "run the command";

/// When a shim must have spoken, after the timeout: it asks, waits, ends, and then has a little more.
const SHIM_GRACE: Duration = Duration::from_millis(GRACE_MILLIS + KILL_MILLIS + 3000);

/// What is read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Room in a pipe as the kernel makes it; a command can ask for more.
const PIPE_BYTES: usize = 64 << 10;

/// The longest single argument the kernel takes, with its NUL (MAX_ARG_STRLEN).
const MAX_ARGUMENT_BYTES: usize = 128 << 10;

/// Runs a command in a sandbox.
pub(crate) async fn run(sandbox: &Access, request: CommandRequest) -> Result<CommandResult> {
    let workdir = request.workdir.as_ref().map(|path| path.as_bytes()).unwrap_or_default();
    let mut run = run_request(OPERATION, sandbox, &request.invocation, &request.env, workdir)?;
    run.timeout_millis = u64::try_from(request.timeout.get().as_millis()).unwrap_or(u64::MAX).max(1);
    let program = run.arguments.first().map(|name| name.escape_ascii().to_string()).unwrap_or_default();
    let inside = Inside::enter(sandbox).await;
    run.make_room = matches!(inside, Inside::Alone(_));
    let limits = Struck::so_far(sandbox);
    let deadline = Instant::now() + request.timeout.get() + SHIM_GRACE;
    let starting = start(sandbox, run, !matches!(request.stdin, Stdin::Closed));
    let Ok(started) = tokio::time::timeout_at(deadline, starting).await else {
        let message = "the sandbox takes no requests; it is destroyed";
        // It ends with this process at the latest.
        drop(sandbox.destroy().await);
        return Err(Error::new(ErrorKind::SandboxLost, SCHEME, OPERATION, message));
    };
    let started = started?;
    let limit = request.output_limit;
    let mut command = Running {
        program,
        workdir: shown_workdir(request.workdir.as_ref()),
        channel: started.channel,
        stdout: Stream::new(StreamName::Stdout, started.stdout, limit, request.observer.clone())?,
        stderr: Stream::new(StreamName::Stderr, started.stderr, limit, request.observer)?,
        input: started.input.map(|pipe| Input::new(pipe, request.stdin)).transpose()?,
        limits,
        inside: Some(inside),
    };
    let mut end = command.follow(deadline).await?;
    if matches!(end, End::ShimGone) && !sandbox.survives().await {
        end = End::SandboxGone;
    }
    let result = command.finish(sandbox, end)?;
    if result.sandbox_lost {
        // What does not answer is not left running either. Its failure is the result's `sandbox_lost`.
        drop(sandbox.destroy().await);
    }
    Ok(result)
}

/// Arguments, environment and directory as the shim takes them.
pub(crate) fn run_request(
    operation: &'static str,
    sandbox: &Sandbox,
    invocation: &Invocation,
    extra: &EnvMap,
    workdir: &[u8],
) -> Result<RunRequest> {
    let arguments = match invocation {
        Invocation::Shell(text) => {
            vec![sandbox.shell.as_bytes().to_vec(), b"-c".to_vec(), text.as_bytes().to_vec()]
        }
        Invocation::Program(arguments) => arguments.clone(),
    };
    let refuse = |message: &str| Err(Error::new(ErrorKind::InvalidArgument, SCHEME, operation, message));
    if arguments.is_empty() {
        return refuse("there is no program to run");
    }
    if arguments.iter().any(|argument| argument.contains(&0)) {
        return refuse("a command cannot contain a NUL byte");
    }
    if let Some(long) = arguments.iter().find(|argument| argument.len() >= MAX_ARGUMENT_BYTES) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            SCHEME,
            operation,
            format!("an argument has {} bytes, the kernel takes less than {MAX_ARGUMENT_BYTES}", long.len()),
        )
        .hint("write it to a file and run that"));
    }
    let mut environment: std::collections::BTreeMap<&str, &str> =
        sandbox.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    environment.extend(extra.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let path = environment.get("PATH").copied().unwrap_or_default();
    Ok(RunRequest {
        // The shell itself is the sandbox's own, whatever PATH says (S41).
        search: match invocation {
            Invocation::Shell(_) => vec![b"/usr/bin".to_vec(), b"/bin".to_vec()],
            Invocation::Program(_) => path
                .split(':')
                .filter(|entry| !entry.is_empty())
                .map(|entry| entry.as_bytes().to_vec())
                .collect(),
        },
        arguments,
        environment: environment.iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect(),
        workdir: workdir.to_vec(),
        timeout_millis: 0,
        terminal: None,
        make_room: false,
    })
}

struct Started {
    channel: Channel,
    stdout: OwnedFd,
    stderr: OwnedFd,
    input: Option<OwnedFd>,
}

async fn start(sandbox: &Access, run: RunRequest, with_input: bool) -> Result<Started> {
    let pipe = || {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // The sandbox's user is another one, who opens it by name: `tee /dev/stderr`, `cat /dev/stdin`. Nobody else can.
        rustix::fs::fchmod(&read, Mode::from_raw_mode(0o666))?;
        Ok((read, write))
    };
    let pipe = || pipe().map_err(|error: Errno| unexpected(OPERATION, "create a pipe", error.into()));
    let (stdout, stdout_in) = pipe()?;
    let (stderr, stderr_in) = pipe()?;
    let input = if with_input { Some(pipe()?) } else { None };
    let mut fds = vec![stdout_in.as_fd(), stderr_in.as_fd(), stdout.as_fd(), stderr.as_fd()];
    fds.extend(input.as_ref().map(|(read, _)| read.as_fd()));
    let channel = sandbox.ask(OPERATION, AgentRequest::Run(run), &fds).await?;
    Ok(Started { channel, stdout, stderr, input: input.map(|(_, write)| write) })
}

/// That a command is in the sandbox, among other requests or alone.
enum Inside<'a> {
    Among {
        _request: RwLockReadGuard<'a, ()>,
    },
    /// Until it has been started nothing else may be: it can end everything to make room.
    Alone(RwLockWriteGuard<'a, ()>),
}

impl<'a> Inside<'a> {
    /// The second command in a row that finds no room makes it, unless others run: they may be what fills the sandbox, and end.
    async fn enter(sandbox: &'a Sandbox) -> Self {
        if sandbox.full.load(Ordering::Relaxed)
            && let Ok(alone) = sandbox.requests.try_write()
        {
            return Self::Alone(alone);
        }
        Self::Among { _request: sandbox.requests.read().await }
    }

    fn started(self) -> Self {
        match self {
            Self::Alone(alone) => Self::Among { _request: alone.downgrade() },
            among => among,
        }
    }
}

/// Said by a command that finds no room, and by one that made some.
pub(crate) const NO_ROOM: &str = "no more processes in this sandbox";
const NO_ROOM_AGAIN: &str = "no more processes in this sandbox: what was left in the background fills it. The next command that finds no room ends all of \
     that first";
const MADE_ROOM: &str = "what was left in the background filled the sandbox and was ended";

struct Running<'a> {
    /// Its name, for what a shell would say about it.
    program: String,
    /// Where it is to start, for what is said where that cannot be entered.
    workdir: String,
    channel: Channel,
    stdout: Stream,
    stderr: Stream,
    input: Option<Input>,
    limits: Struck,
    inside: Option<Inside<'a>>,
}

/// How often the limits had struck when the command started.
#[derive(Debug)]
pub(crate) struct Struck {
    memory: u64,
    pids: u64,
}

impl Struck {
    pub(crate) fn so_far(sandbox: &Sandbox) -> Self {
        Self { memory: count(&sandbox.memory), pids: count(&sandbox.pids) }
    }

    /// How a command ended, where a limit may be the reason.
    pub(crate) fn explain(&self, sandbox: &Sandbox, ending: Ending) -> Ending {
        let suspect = match ending {
            Ending::Exited(status) => Suspect::of(CommandEnd::Exited(status)),
            Ending::Signalled(signal) => Suspect::of(CommandEnd::Signalled(signal)),
            _ => None,
        };
        match suspect {
            Some(Suspect::Memory) if self.memory < count(&sandbox.memory) => Ending::MemoryExceeded,
            Some(Suspect::Pids) if self.pids < count(&sandbox.pids) => Ending::PidsExceeded,
            _ => ending,
        }
    }
}

/// How often a limit has struck.
fn count(counter: &Option<Counter>) -> u64 {
    counter.as_ref().map_or(0, Counter::read)
}

/// How the loop ended.
enum End {
    Reply(Reply),
    /// The shim's socket closed without a word, and the sandbox goes on.
    ShimGone,
    /// The sandbox is gone.
    SandboxGone,
    /// Nothing was heard long after the timeout.
    Silent,
}

impl Running<'_> {
    async fn follow(&mut self, deadline: Instant) -> Result<End> {
        loop {
            let Self { channel, stdout, stderr, input, .. } = self;
            tokio::select! {
                reply = channel.receive::<Reply>() => {
                    let reply = reply.map_err(|error| unexpected(OPERATION, "understand the sandbox", error))?;
                    match reply {
                        Some((Reply::Started(made_room), _)) => self.started(made_room),
                        Some((reply, _)) => return Ok(End::Reply(reply)),
                        None => return Ok(End::ShimGone),
                    }
                }
                read = stdout.read(), if stdout.open => read?,
                read = stderr.read(), if stderr.open => read?,
                fed = feed(input), if input.is_some() => {
                    *input = None;
                    fed.map_err(|error| unexpected(OPERATION, "read what was given as its standard input", error))?;
                }
                () = tokio::time::sleep_until(deadline) => return Ok(End::Silent),
            }
        }
    }

    fn started(&mut self, made_room: bool) {
        self.inside = self.inside.take().map(Inside::started);
        if made_room {
            self.say(MADE_ROOM);
        }
    }

    fn say(&mut self, message: &str) {
        self.stderr.take(format!("ringfence: {message}\n").as_bytes());
    }

    fn finish(mut self, sandbox: &Access, end: End) -> Result<CommandResult> {
        if let End::Reply(reply) = &end {
            sandbox.check_fence(OPERATION, reply)?;
        }
        self.stdout.drain();
        self.stderr.drain();
        drop(self.inside.take());
        sandbox.full.store(false, Ordering::Relaxed);
        let (mut ending, mut sandbox_lost) = match end {
            End::Reply(Reply::Exited(status)) => (Ending::Exited(status), false),
            End::Reply(Reply::Signalled(signal)) => (Ending::Signalled(signal), false),
            End::Reply(Reply::TimedOut) => (Ending::TimedOut, false),
            End::Reply(Reply::Unstoppable) | End::Silent => (Ending::TimedOut, true),
            End::Reply(Reply::NotStarted(step, errno)) => {
                (self.explain_not_started(sandbox, step, errno)?, false)
            }
            End::Reply(_) => {
                let error = io::Error::from(io::ErrorKind::InvalidData);
                return Err(unexpected(OPERATION, "understand the sandbox", error));
            }
            // A command can kill its own shim: same user. Its descendants are ended by the agent then (see helper).
            End::ShimGone => (Ending::Signalled(9), false),
            End::SandboxGone => (Ending::Unknown, true),
        };
        ending = self.limits.explain(sandbox, ending);
        sandbox_lost |= !sandbox.is_alive();
        Ok(CommandResult {
            ending,
            stdout: self.stdout.tail.finish(),
            stderr: self.stderr.tail.finish(),
            applied_timeout: None,
            sandbox_lost,
        })
    }

    /// What a shell would say and how it would exit; other failures are errors.
    fn explain_not_started(&mut self, sandbox: &Sandbox, step: NotStarted, errno: i32) -> Result<Ending> {
        let cause = io::Error::from_raw_os_error(errno);
        let (ending, message) = match step {
            NotStarted::NotFound => (
                Ending::Exited(127),
                format!("{}: not found in the sandbox, or its interpreter is not", self.program),
            ),
            NotStarted::Exec => (Ending::Exited(126), format!("{}: cannot execute: {cause}", self.program)),
            NotStarted::Fork if is_full(&cause) => {
                // Others that run may be what fills it, and end by themselves. Those of this process are known here, and those of
                // others, and background commands, inside.
                let shared = cause.kind() == io::ErrorKind::ResourceBusy;
                let alone = !shared && sandbox.requests.try_write().is_ok();
                sandbox.full.store(alone, Ordering::Relaxed);
                (Ending::PidsExceeded, if alone { NO_ROOM_AGAIN } else { NO_ROOM }.to_owned())
            }
            NotStarted::Fork if cause.kind() == io::ErrorKind::OutOfMemory => {
                (Ending::MemoryExceeded, "no more memory in this sandbox".to_owned())
            }
            NotStarted::Workdir => return Err(workdir_failed(OPERATION, &self.workdir, cause)),
            NotStarted::Fork | NotStarted::Terminal | NotStarted::TooMany if !sandbox.is_alive() => {
                return Err(lost(OPERATION, &sandbox.id));
            }
            NotStarted::Fork | NotStarted::Terminal | NotStarted::TooMany => {
                return Err(unexpected(OPERATION, "start it in the sandbox", cause));
            }
        };
        self.say(&message);
        Ok(ending)
    }
}

/// Whether a process could not be made because there are as many as there may be, of which others need some or nobody any.
pub(crate) fn is_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy)
}

/// How a command's working directory is named in an error.
pub(crate) fn shown_workdir(workdir: Option<&GuestPath>) -> String {
    workdir.map_or_else(|| "the sandbox's own".to_owned(), ToString::to_string)
}

/// The error of a working directory that could not be entered.
pub(crate) fn workdir_failed(operation: &'static str, workdir: &str, cause: io::Error) -> Error {
    let kind = match cause.kind() {
        io::ErrorKind::NotADirectory => ErrorKind::NotADirectory,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::InvalidArgument,
    };
    Error::new(kind, SCHEME, operation, "the working directory cannot be entered")
        .context("workdir", workdir)
        .source(cause)
}

/// One output stream being read.
#[derive(Debug)]
struct Stream {
    name: StreamName,
    pipe: AsyncFd<OwnedFd>,
    open: bool,
    tail: TailBuffer,
    observer: Option<Arc<dyn OutputObserver>>,
    chunk: Vec<u8>,
}

impl Stream {
    fn new(
        name: StreamName,
        pipe: OwnedFd,
        limit: OutputLimit,
        observer: Option<Arc<dyn OutputObserver>>,
    ) -> Result<Self> {
        let pipe = watched(pipe, Interest::READABLE)?;
        Ok(Self { name, pipe, open: true, tail: TailBuffer::new(limit), observer, chunk: Vec::new() })
    }

    async fn read(&mut self) -> Result<()> {
        let chunk = &mut self.chunk;
        self.pipe
            .async_io(Interest::READABLE, |fd| read_some(fd, chunk).map_err(io::Error::from))
            .await
            .map_err(|error| unexpected(OPERATION, "read its output", error))?;
        self.taken();
        Ok(())
    }

    fn taken(&mut self) {
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.is_empty() {
            self.open = false;
        } else {
            self.take(&chunk);
        }
        self.chunk = chunk;
    }

    fn take(&mut self, bytes: &[u8]) {
        let offset = self.tail.total_bytes();
        self.tail.push(bytes);
        if let Some(observer) = &self.observer {
            observer.output(self.name, offset, bytes);
        }
    }

    /// Takes what the command wrote before it ended, without waiting for those it left behind (P1, P30).
    fn drain(&mut self) {
        // The most that can lie in it now; more comes only from processes that were left behind.
        let room = rustix::pipe::fcntl_getpipe_size(self.pipe.get_ref()).unwrap_or(PIPE_BYTES);
        let mut drained = 0;
        while self.open && drained < room {
            match read_some(self.pipe.get_ref(), &mut self.chunk) {
                Ok(()) => {
                    drained += self.chunk.len();
                    self.taken();
                }
                Err(Errno::INTR) => {}
                // Empty, with someone still holding it: the end for us.
                Err(_) => self.open = false,
            }
        }
    }
}

/// Reads what is there, at most [`CHUNK_BYTES`], into a buffer that nobody has filled with zeros before: most commands print little, and
/// each page that is touched for the first time costs more than the read.
fn read_some(pipe: impl AsFd, chunk: &mut Vec<u8>) -> rustix::io::Result<()> {
    chunk.clear();
    chunk.reserve_exact(CHUNK_BYTES);
    rustix::io::read(pipe, rustix::buffer::spare_capacity(chunk)).map(drop)
}

/// Standard input being written.
struct Input {
    pipe: AsyncFd<OwnedFd>,
    source: Pin<Box<dyn AsyncRead + Send>>,
    pending: Bytes,
}

impl Input {
    fn new(pipe: OwnedFd, stdin: Stdin) -> Result<Self> {
        let (source, pending): (Pin<Box<dyn AsyncRead + Send>>, Bytes) = match stdin {
            Stdin::Bytes(bytes) => (Box::pin(tokio::io::empty()), bytes),
            Stdin::Reader(reader) => (reader, Bytes::new()),
            Stdin::Closed => (Box::pin(tokio::io::empty()), Bytes::new()),
        };
        Ok(Self { pipe: watched(pipe, Interest::WRITABLE)?, source, pending })
    }
}

/// Writes until the source is at its end or nobody reads (P43). Progress is kept, so that it can be dropped at any await.
/// A source that fails is not taken for one that ended: the command must not work with half of its input.
async fn feed(input: &mut Option<Input>) -> io::Result<()> {
    let Some(input) = input else { return Ok(()) };
    loop {
        while !input.pending.is_empty() {
            let pending = &input.pending;
            let wrote = input
                .pipe
                .async_io(Interest::WRITABLE, |fd| rustix::io::write(fd, pending).map_err(io::Error::from))
                .await;
            match wrote {
                Ok(length) => drop(input.pending.split_to(length)),
                Err(_) => return Ok(()),
            }
        }
        let mut chunk = vec![0u8; CHUNK_BYTES];
        match input.source.read(&mut chunk).await? {
            0 => return Ok(()),
            length => {
                chunk.truncate(length);
                input.pending = Bytes::from(chunk);
            }
        }
    }
}

fn watched(pipe: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>> {
    watch_nonblocking(pipe, interest).map_err(|error| unexpected(OPERATION, "wait for a descriptor", error))
}
