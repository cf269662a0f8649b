//! Commands that nobody waits for. Each has a shim inside that keeps the tail of its output and answers whoever asks; after its
//! end the sandbox's agent does. Nothing of it is here, so any process that reaches the sandbox can ask.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ringfence_core::{
    Background, BackgroundRequest, CommandId, CommandState, CommandStatus, Ending, Error, ErrorKind,
    OutputChunk, Result, Retry, SandboxId, StreamName,
};
use serde_json::json;
use tokio::time::Instant;

use crate::access::Access;
use crate::audit::Noted;
use crate::backend::LocalBackend;
use crate::create::whole_millis;
use crate::error::{lost, unexpected};
use crate::run::{NO_ROOM, is_full, run_request, shown_workdir, workdir_failed};
use crate::wire::{
    AgentRequest, CommandAsk, CommandEnd, KEPT_ENDED, KILL_MILLIS, NotStarted, PIECE_BYTES, Piece, Reply,
    Standing, StartRequest, Stream,
};
use crate::{SCHEME, audit};

const START: &str = "start the command";
const LIST: &str = "list the commands";
const WAIT: &str = "wait for the command";
const READ: &str = "read the command's output";
const WRITE: &str = "write to the command";
const SIGNAL: &str = "signal the command";

/// How long a command may take to become its program.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// How much longer than the patience of whoever asks an answer may take: a shim may be ending a tree just then, and then another.
const GRACE: Duration = Duration::from_millis(2 * KILL_MILLIS + 5000);

/// More patience than this nobody has.
const MOST_PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// What lies between two questions of which the first got no answer.
const PAUSE: Duration = Duration::from_millis(5);

/// More commands than any sandbox keeps.
const MAX_COMMANDS: usize = 4096;

/// Signals have the numbers 1 to 64 on Linux.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

#[async_trait]
impl Background for LocalBackend {
    async fn start_command(&self, sandbox: &SandboxId, request: BackgroundRequest) -> Result<CommandId> {
        let living = self.sandbox(START, sandbox).await?;
        let noted = Noted::new(&living, "command", || {
            let mut facts = audit::command(self.config(), &request.invocation);
            facts["kind"] = "background".into();
            facts
        });
        let result = start(&living, request).await;
        noted.ended(&result, |command| json!({"id": command.to_string()}));
        self.forget_if_lost(sandbox, result)
    }

    async fn list_commands(&self, sandbox: &SandboxId) -> Result<Vec<CommandStatus>> {
        let living = self.sandbox(LIST, sandbox).await?;
        let result = list(&living).await;
        self.forget_if_lost(sandbox, result)
    }

    async fn wait_command(
        &self,
        sandbox: &SandboxId,
        command: CommandId,
        patience: Duration,
    ) -> Result<CommandStatus> {
        let living = self.sandbox(WAIT, sandbox).await?;
        let result = wait(&living, WAIT, command, patience).await;
        self.forget_if_lost(sandbox, result)
    }

    async fn read_output(
        &self,
        sandbox: &SandboxId,
        command: CommandId,
        stream: StreamName,
        offset: u64,
        patience: Duration,
    ) -> Result<OutputChunk> {
        let living = self.sandbox(READ, sandbox).await?;
        let result = read(&living, command, stream, offset, patience).await;
        self.forget_if_lost(sandbox, result)
    }

    async fn write_stdin(
        &self,
        sandbox: &SandboxId,
        command: CommandId,
        bytes: &[u8],
        end: bool,
        patience: Duration,
    ) -> Result<usize> {
        let living = self.sandbox(WRITE, sandbox).await?;
        let result = write(&living, command, bytes, end, patience).await;
        self.forget_if_lost(sandbox, result)
    }

    async fn signal_command(
        &self,
        sandbox: &SandboxId,
        command: CommandId,
        signal: Option<i32>,
    ) -> Result<()> {
        let living = self.sandbox(SIGNAL, sandbox).await?;
        let facts = || json!({"id": command.to_string(), "signal": signal});
        let noted = Noted::new(&living, "signal", facts);
        let result = send_signal(&living, command, signal).await;
        noted.ended(&result, |()| json!({}));
        self.forget_if_lost(sandbox, result)
    }
}

async fn start(sandbox: &Access, request: BackgroundRequest) -> Result<CommandId> {
    let workdir = request.workdir.as_ref().map(|path| path.as_bytes()).unwrap_or_default();
    let mut run = run_request(START, sandbox, &request.invocation, &request.env, workdir)?;
    run.timeout_millis = request.timeout.map_or(0, |timeout| whole_millis(timeout.get()));
    let program = run.arguments.first().map(|name| name.escape_ascii().to_string()).unwrap_or_default();
    let shown = Shown { program, workdir: shown_workdir(request.workdir.as_ref()) };
    // The sandbox itself judges its end, when nobody else need be there.
    let counters = [&sandbox.memory, &sandbox.pids].map(|counter| counter.as_ref()?.open().ok());
    let start = StartRequest {
        run,
        keep_bytes: request.output_limit.get() as u64,
        stdin: request.stdin,
        counters: counters
            .each_ref()
            .map(|counter| counter.as_ref().map_or_else(Vec::new, |(_, key)| key.clone())),
    };
    let files: Vec<BorrowedFd<'_>> = counters.iter().flatten().map(|(file, _)| file.as_fd()).collect();
    // A command that makes room for itself ends what has not been started yet too.
    let _inside = sandbox.requests.read().await;
    let starting = async {
        let channel = sandbox.ask(START, AgentRequest::Start(start), &files).await?;
        let reply = channel.receive::<Reply>().await;
        reply.map_err(|error| unexpected(START, "hear from the sandbox", error))
    };
    let Ok(started) = tokio::time::timeout(START_DEADLINE, starting).await else {
        let message = format!("it did not start within {} s", START_DEADLINE.as_secs());
        return Err(Error::new(ErrorKind::DeadlineExceeded, SCHEME, START, message));
    };
    match started?.map(|(reply, _)| reply) {
        Some(Reply::Begun(number)) => Ok(CommandId(number)),
        Some(Reply::NotStarted(step, errno)) => Err(not_started(sandbox, &shown, step, errno)),
        Some(reply) => Err(refusal(sandbox, START, &reply)),
        None if sandbox.is_alive() => Err(Error::new(
            ErrorKind::Unexpected,
            SCHEME,
            START,
            "its supervising process was ended from inside as it started",
        )),
        None => Err(lost(START, &sandbox.id)),
    }
}

/// What an error of a start names.
struct Shown {
    program: String,
    workdir: String,
}

fn not_started(sandbox: &Access, shown: &Shown, step: NotStarted, errno: i32) -> Error {
    let cause = io::Error::from_raw_os_error(errno);
    let error = |kind, message: String| Error::new(kind, SCHEME, START, message);
    match step {
        NotStarted::NotFound => {
            let message = "it was not found in the sandbox, or its interpreter was not".to_owned();
            error(ErrorKind::NotFound, message).context("program", &shown.program)
        }
        NotStarted::Exec => {
            let kind = match cause.kind() {
                io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
                _ => ErrorKind::InvalidArgument,
            };
            error(kind, "it cannot be executed".to_owned()).context("program", &shown.program).source(cause)
        }
        NotStarted::Workdir => workdir_failed(START, &shown.workdir, cause),
        NotStarted::TooMany => {
            error(ErrorKind::Unavailable, "too many background commands run in this sandbox".to_owned())
                .hint("end some of them")
                .retry(Retry::Safe)
        }
        NotStarted::Fork if is_full(&cause) => error(ErrorKind::Unavailable, NO_ROOM.to_owned())
            .hint("end some of what runs in it; a background command takes one process more than it starts")
            .retry(Retry::Safe),
        NotStarted::Fork if cause.kind() == io::ErrorKind::OutOfMemory => {
            error(ErrorKind::Unavailable, "no more memory in this sandbox".to_owned()).retry(Retry::Safe)
        }
        NotStarted::Fork | NotStarted::Terminal if !sandbox.is_alive() => lost(START, &sandbox.id),
        NotStarted::Fork | NotStarted::Terminal => unexpected(START, "start it in the sandbox", cause),
    }
}

async fn list(sandbox: &Access) -> Result<Vec<CommandStatus>> {
    let asking = async {
        let channel = sandbox.ask(LIST, AgentRequest::Commands, &[]).await?;
        let reply = channel.receive::<Reply>().await;
        reply.map_err(|error| unexpected(LIST, "hear from the sandbox", error))
    };
    let Ok(asked) = tokio::time::timeout(GRACE, asking).await else { return Err(silent(LIST)) };
    let numbers = match asked? {
        Some((Reply::Commands(numbers), _)) if numbers.len() <= MAX_COMMANDS => numbers,
        Some((reply, _)) => return Err(refusal(sandbox, LIST, &reply)),
        None => return Err(lost(LIST, &sandbox.id)),
    };
    let mut commands = Vec::new();
    for number in numbers {
        match wait(sandbox, LIST, CommandId(number), Duration::ZERO).await {
            Ok(status) => commands.push(status),
            // Forgotten meanwhile, or it did not start.
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(commands)
}

async fn wait(
    sandbox: &Access,
    operation: &'static str,
    command: CommandId,
    patience: Duration,
) -> Result<CommandStatus> {
    let ask = |patience_millis| CommandAsk::Wait { patience_millis };
    match ask_about(sandbox, operation, command, patience, ask).await? {
        Reply::Stands(standing) => status(operation, command, standing),
        reply => Err(about_refusal(sandbox, operation, command, &reply)),
    }
}

/// What was heard, once it makes sense.
fn status(operation: &'static str, id: CommandId, standing: Standing) -> Result<CommandStatus> {
    let state = match standing.end {
        None => CommandState::Running,
        Some(CommandEnd::Exited(status @ 0..=255)) => CommandState::Ended(Ending::Exited(status)),
        Some(CommandEnd::Signalled(signal)) if SIGNALS.contains(&signal) => {
            CommandState::Ended(Ending::Signalled(signal))
        }
        Some(CommandEnd::TimedOut) => CommandState::Ended(Ending::TimedOut),
        Some(CommandEnd::MemoryExceeded) => CommandState::Ended(Ending::MemoryExceeded),
        Some(CommandEnd::PidsExceeded) => CommandState::Ended(Ending::PidsExceeded),
        Some(CommandEnd::Exited(_) | CommandEnd::Signalled(_)) => return Err(senseless(operation)),
    };
    let [stdout_bytes, stderr_bytes] = standing.written;
    Ok(CommandStatus {
        id,
        state,
        age: Duration::from_millis(standing.age_millis),
        stdout_bytes,
        stderr_bytes,
    })
}

async fn read(
    sandbox: &Access,
    command: CommandId,
    stream: StreamName,
    offset: u64,
    patience: Duration,
) -> Result<OutputChunk> {
    let stream = match stream {
        StreamName::Stdout => Stream::Output,
        StreamName::Stderr => Stream::Error,
    };
    let ask = |patience_millis| CommandAsk::Read { stream, offset, patience_millis };
    match ask_about(sandbox, READ, command, patience, ask).await? {
        Reply::Wrote(Piece { offset: begin, bytes, end })
            if begin >= offset
                && bytes.len() <= PIECE_BYTES
                && begin.checked_add(PIECE_BYTES as u64).is_some() =>
        {
            Ok(OutputChunk { offset: begin, bytes: Bytes::from(bytes), end })
        }
        Reply::Wrote(_) => Err(senseless(READ)),
        reply => Err(about_refusal(sandbox, READ, command, &reply)),
    }
}

/// Writes piece by piece until all is taken or the patience is over.
async fn write(
    sandbox: &Access,
    command: CommandId,
    bytes: &[u8],
    end: bool,
    patience: Duration,
) -> Result<usize> {
    let deadline = Instant::now() + patience.min(MOST_PATIENCE);
    let mut taken = 0;
    loop {
        let piece = &bytes[taken..bytes.len().min(taken + PIECE_BYTES)];
        let last = taken + piece.len() == bytes.len();
        let ask =
            |patience_millis| CommandAsk::Write { bytes: piece.to_vec(), end: end && last, patience_millis };
        let left = deadline.saturating_duration_since(Instant::now());
        match ask_about(sandbox, WRITE, command, left, ask).await? {
            Reply::Took(count) if count <= piece.len() as u64 => {
                let whole = count == piece.len() as u64;
                taken += count as usize;
                if last || !whole || Instant::now() >= deadline {
                    return Ok(taken);
                }
            }
            Reply::Took(_) => return Err(senseless(WRITE)),
            // What was taken before is said; that no more is will be by the next call.
            Reply::NotOpen if taken > 0 => return Ok(taken),
            reply => return Err(about_refusal(sandbox, WRITE, command, &reply)),
        }
    }
}

async fn send_signal(sandbox: &Access, command: CommandId, signal: Option<i32>) -> Result<()> {
    let ask = match signal {
        Some(signal) if !SIGNALS.contains(&signal) => {
            let message = format!("{signal} is no signal: they are {} to {}", SIGNALS.start(), SIGNALS.end());
            return Err(Error::new(ErrorKind::InvalidArgument, SCHEME, SIGNAL, message));
        }
        Some(signal) => CommandAsk::Signal(signal),
        None => CommandAsk::Kill,
    };
    match ask_about(sandbox, SIGNAL, command, Duration::ZERO, |_| ask.clone()).await? {
        Reply::Done => Ok(()),
        Reply::Unstoppable => {
            Err(Error::new(ErrorKind::Unexpected, SCHEME, SIGNAL, "some of its processes do not end")
                .context("command", command.to_string())
                .hint("try again, or destroy the sandbox"))
        }
        reply => Err(about_refusal(sandbox, SIGNAL, command, &reply)),
    }
}

/// Asks and waits for the answer.
async fn ask_about(
    sandbox: &Access,
    operation: &'static str,
    command: CommandId,
    patience: Duration,
    ask: impl Fn(u64) -> CommandAsk,
) -> Result<Reply> {
    let deadline = Instant::now() + patience.min(MOST_PATIENCE);
    let asking = async {
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).as_millis();
            let request = AgentRequest::About(command.0, ask(u64::try_from(left).unwrap_or(u64::MAX)));
            let channel = sandbox.ask(operation, request, &[]).await?;
            let answer = channel.receive::<Reply>().await;
            match answer.map_err(|error| unexpected(operation, "hear from the sandbox", error))? {
                Some((reply, _)) => return Ok(reply),
                // The shim went without a word, as where the command itself has killed it. Once the agent has seen that, it
                // answers; and what a shim that is gone had taken of an input is not read by anybody.
                None if sandbox.is_alive() => tokio::time::sleep(PAUSE).await,
                None => return Err(lost(operation, &sandbox.id)),
            }
        }
    };
    tokio::time::timeout_at(deadline + GRACE, asking).await.unwrap_or_else(|_| Err(silent(operation)))
}

/// The error of an answer that is not the one asked for.
fn about_refusal(sandbox: &Access, operation: &'static str, command: CommandId, reply: &Reply) -> Error {
    let error = match reply {
        Reply::UnknownCommand => {
            Error::new(ErrorKind::NotFound, SCHEME, operation, "no background command of that name is known")
                .hint(format!("what is known of ended ones is kept of the last {KEPT_ENDED}"))
        }
        Reply::NotOpen => {
            let message =
                "its standard input is not open: it was started without, it was closed, or nobody reads it";
            Error::new(ErrorKind::InvalidArgument, SCHEME, operation, message)
        }
        Reply::Busy => {
            Error::new(ErrorKind::Unavailable, SCHEME, operation, "too many wait for this command already")
                .retry(Retry::Safe)
        }
        reply => return refusal(sandbox, operation, reply),
    };
    error.context("sandbox", sandbox.id.as_str()).context("command", command.to_string())
}

fn refusal(sandbox: &Access, operation: &'static str, reply: &Reply) -> Error {
    sandbox.check_fence(operation, reply).err().unwrap_or_else(|| senseless(operation))
}

fn senseless(operation: &'static str) -> Error {
    unexpected(operation, "understand the sandbox", io::ErrorKind::InvalidData.into())
}

fn silent(operation: &'static str) -> Error {
    let message = format!("no answer within {} s", GRACE.as_secs());
    Error::new(ErrorKind::DeadlineExceeded, SCHEME, operation, message)
}
