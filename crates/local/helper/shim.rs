//! The shim: one per command, the subreaper of everything that command starts. It knows how the command ended, ends the whole
//! tree when the timeout passes or it is told to, and stays until the last descendant has ended.
//!
//! Who is told what, and what that one's hanging up means, is the business of its [`Audience`]: one [`caller`] who waits, or a
//! [`desk`] where anybody may ask.

mod caller;
mod desk;

use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;

use crate::agent::{Job, Place};
use crate::commands::Seat;
use crate::shim::caller::Caller;
use crate::shim::desk::Desk;
use crate::sys::activity::Mark;
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::process::{CpuShare, Forked, Status};
use crate::sys::socket::Poll;
use crate::sys::{Errno, c_string, file, process, socket};
use crate::wire::{CommandEnd, GRACE_MILLIS, Message, NotStarted, Reply, RunRequest, StartRequest};
use crate::{agent, transport, tree};

/// Standard streams of the command.
struct Streams {
    input: Option<OwnedFd>,
    output: OwnedFd,
    error: OwnedFd,
}

/// Runs one command for a caller who waits for it. Ends the process, and [says](tree::leave) whether anything of the command is left.
pub(crate) fn run(request: &RunRequest, channel: BorrowedFd<'_>, fds: Vec<OwnedFd>, job: Job<'_>) -> ! {
    let started = process::become_subreaper()
        .and_then(|()| process::signal_fd())
        .map_err(|errno| (NotStarted::Fork, errno))
        .and_then(|signals| {
            let (streams, read_back) = caller::streams(request, channel, fds)?;
            let (command, made_room) = start_command(request, streams, job)?;
            Ok((signals, command, read_back, made_room))
        });
    match started {
        Ok((signals, command, read_back, made_room)) => {
            if request.make_room {
                // An owner that has gone needs no answer.
                let started = Reply::Started(job.room.made || made_room);
                drop(transport::reply(channel, &started, &[]));
            }
            let caller = Caller::new(channel, read_back, command.failure);
            Shim::new(request, caller, command.pid, job).supervise(signals.as_fd());
        }
        Err((step, errno)) => {
            drop(transport::reply(channel, &Reply::NotStarted(step, errno.0), &[]));
        }
    }
    tree::leave()
}

/// Starts a command in the background, says so, and answers whoever asks about it. Ends the process, as [`run`] does.
pub(crate) fn start(request: &StartRequest, channel: OwnedFd, seat: Seat, job: Job<'_>) -> ! {
    let number = seat.number;
    let started = process::become_subreaper()
        .and_then(|()| process::signal_fd())
        .map_err(|errno| (NotStarted::Fork, errno))
        .and_then(|signals| {
            let (streams, desk) =
                Desk::open(seat, request.stdin).map_err(|errno| (NotStarted::Fork, errno))?;
            let (command, _) = start_command(&request.run, streams, job)?;
            // Nobody is there later to whom it could be told.
            match command.failure.told() {
                Some(because) => Err(because),
                None => Ok((signals, command.pid, desk)),
            }
        });
    match started {
        Ok((signals, pid, mut desk)) => {
            desk.runs();
            // Who started it may have gone, which means nothing.
            drop(transport::reply_now(channel.as_fd(), &Reply::Begun(number), &[]));
            drop(channel);
            Shim::new(&request.run, desk, pid, job).supervise(signals.as_fd());
        }
        Err((step, errno)) => {
            drop(transport::reply_now(channel.as_fd(), &Reply::NotStarted(step, errno.0), &[]));
        }
    }
    tree::leave()
}

struct Command {
    pid: libc::pid_t,
    failure: Failure,
}

/// What the command's process writes when it could not become the program.
struct Failure(OwnedFd);

impl Failure {
    /// What that was. Waits until the process has become the program or has ended: then nobody has the writing end any more.
    fn told(&self) -> Option<NotStartedBecause> {
        let mut message = [0u8; 16];
        let length = file::read(self.0.as_fd(), &mut message).ok()?;
        match Reply::decode(&message[..length]) {
            Ok(Reply::NotStarted(step, errno)) => Some((step, Errno(errno))),
            _ => None,
        }
    }
}

type NotStartedBecause = (NotStarted, Errno);

fn start_command(
    request: &RunRequest,
    streams: Streams,
    job: Job<'_>,
) -> Result<(Command, bool), NotStartedBecause> {
    let place = job.place;
    let (failure, report) = file::pipe().map_err(|errno| (NotStarted::Fork, errno))?;
    // The agent is the one who reaps what ends.
    let forked = agent::fork_with_room(job.room.may_make, || {});
    match forked.map_err(|errno| (NotStarted::Fork, job.room.explain(errno)))? {
        (Forked::Child, _) => {
            let (step, errno) = become_command(request, &streams, place.workdir.as_fd(), place.cpus);
            // A shim that is gone needs no report.
            drop(file::write_all(report.as_fd(), &Reply::NotStarted(step, errno.0).encode()));
            process::exit(127)
        }
        (Forked::Parent(pid), made_room) => Ok((Command { pid, failure: Failure(failure) }, made_room)),
    }
}

/// Becomes the command; returns only what went wrong.
fn become_command(
    request: &RunRequest,
    streams: &Streams,
    workdir: BorrowedFd<'_>,
    cpus: CpuShare,
) -> NotStartedBecause {
    // Only the command: agent and shim have to get a processor also when it keeps all of its own busy.
    let prepared = prepare_process(request, streams).and_then(|()| process::restrict_cpus(cpus));
    if let Err(errno) = prepared {
        return (NotStarted::Fork, errno);
    }
    let entered = if request.workdir.is_empty() {
        Ok(())
    } else {
        file::open(Some(workdir), &request.workdir, libc::O_PATH | libc::O_DIRECTORY, 0)
            .and_then(|directory| file::change_directory_to(directory.as_fd()))
    };
    if let Err(errno) = entered {
        return (NotStarted::Workdir, errno);
    }
    match strings(request) {
        Ok((arguments, environment)) => execute(request, &arguments, &environment),
        Err(errno) => (NotStarted::Exec, errno),
    }
}

fn prepare_process(request: &RunRequest, streams: &Streams) -> crate::sys::Result<()> {
    process::setsid()?;
    if request.terminal.is_some() {
        file::take_terminal(streams.error.as_fd())?;
    }
    // 0 to 2 are null devices until here, so none of the sources can be one of them.
    if let Some(input) = &streams.input {
        file::duplicate_to(input.as_fd(), 0)?;
    }
    file::duplicate_to(streams.output.as_fd(), 1)?;
    file::duplicate_to(streams.error.as_fd(), 2)?;
    // Descriptors in flight are counted per user of the host, against the limit of whoever sends the next one. Commands get
    // half of ours, so that they cannot keep us, their neighbours' agents or their owner from sending.
    process::halve_open_files()?;
    process::unblock_signals()
}

type Strings = Vec<CString>;

fn strings(request: &RunRequest) -> crate::sys::Result<(Strings, Strings)> {
    let all =
        |texts: &[Vec<u8>]| texts.iter().map(|text| c_string(text)).collect::<crate::sys::Result<Strings>>();
    Ok((all(&request.arguments)?, all(&request.environment)?))
}

/// Executes the program; without a slash in its name the first one in the search path that can be.
fn execute(request: &RunRequest, arguments: &Strings, environment: &Strings) -> NotStartedBecause {
    let Some(program) = request.arguments.first() else { return (NotStarted::NotFound, Errno(libc::ENOENT)) };
    if program.contains(&b'/') {
        let errno = process::exec(&arguments[0], arguments, environment);
        return (if errno == Errno(libc::ENOENT) { NotStarted::NotFound } else { NotStarted::Exec }, errno);
    }
    let mut failure = (NotStarted::NotFound, Errno(libc::ENOENT));
    for directory in &request.search {
        let Ok(path) = c_string(&[directory.as_slice(), b"/", program].concat()) else { continue };
        match process::exec(&path, arguments, environment) {
            Errno(libc::ENOENT | libc::ENOTDIR) => {}
            // As shells do: something that is there and cannot be executed is remembered, the search goes on.
            errno @ Errno(libc::EACCES) => failure = (NotStarted::Exec, errno),
            errno => return (NotStarted::Exec, errno),
        }
    }
    failure
}

/// Who is told of a command.
trait Audience {
    /// Adds what it waits for.
    fn watch<'a>(&'a self, watch: &mut Vec<Poll<'a>>);

    /// When it wants to be heard at the latest.
    fn next_millis(&self) -> Option<u64>;

    /// Deals with what has happened to what it [watches](Self::watch), in that order. `main` is the command's own process unless
    /// that has been reaped.
    fn hear(&mut self, ready: &[bool], main: Option<libc::pid_t>) -> Heard;

    /// The command's time is over: it and its descendants have been asked to end.
    fn times_out(&mut self);

    /// The command has ended.
    fn ended(&mut self, end: CommandEnd);

    /// Its time is over and its descendants do not end.
    fn unstoppable(&mut self);

    /// What [`Heard::Kill`] came to: whether all are gone.
    fn killed(&mut self, gone: bool);
}

/// What an audience wants.
enum Heard {
    /// Nothing.
    Nothing,
    /// Whoever waited has hung up. What was run for that one ends; what has been reported, and goes on, is no longer theirs.
    HungUp,
    /// All descendants are to be ended.
    Kill,
}

/// Where the command stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It runs, until this moment if any.
    Running(Option<u64>),
    /// Everything was asked to end, and will be made to at this moment.
    Ending(u64),
    /// Its end was reported; what it left behind goes on.
    Reported,
}

struct Shim<'a, A> {
    audience: A,
    /// The command's own process.
    main: libc::pid_t,
    ended: Option<Status>,
    stage: Stage,
    /// What is told of the end, besides the audience.
    noted: (&'a Place, Option<Mark>),
}

impl<'a, A: Audience> Shim<'a, A> {
    fn new(request: &RunRequest, audience: A, main: libc::pid_t, job: Job<'a>) -> Self {
        let deadline = (request.timeout_millis > 0)
            .then(|| process::now_millis().saturating_add(request.timeout_millis));
        Self { audience, main, ended: None, stage: Stage::Running(deadline), noted: (job.place, job.mark) }
    }

    /// One loop owns the command: its end, its audience and the clock are events of it. Returns when no descendant is left, or when those
    /// that are have to end and this process cannot end them.
    fn supervise(mut self, signals: BorrowedFd<'_>) {
        loop {
            let mut watch = vec![Poll::new(Some(signals))];
            self.audience.watch(&mut watch);
            if socket::poll(&mut watch, self.wait_millis()).is_err() {
                // A command whose time nobody keeps must not go on.
                return;
            }
            let ready: Vec<bool> = watch.iter().map(|entry| entry.ready).collect();
            if ready[0] {
                agent::take_signals(signals);
            }
            let main = self.ended.is_none().then_some(self.main);
            let goes_on = match self.audience.hear(&ready[1..], main) {
                Heard::Nothing => true,
                Heard::HungUp => self.cancel(),
                Heard::Kill => self.kill(),
            };
            if !goes_on || !self.keep_time() || !self.reap() {
                return;
            }
        }
    }

    fn wait_millis(&self) -> Option<u64> {
        let until = match self.stage {
            Stage::Running(deadline) => deadline,
            Stage::Ending(deadline) => Some(deadline),
            Stage::Reported => None,
        };
        let until = until.into_iter().chain(self.audience.next_millis()).min()?;
        Some(until.saturating_sub(process::now_millis()))
    }

    /// False when what has to end does not.
    fn keep_time(&mut self) -> bool {
        let now = process::now_millis();
        match self.stage {
            Stage::Running(Some(deadline)) if now >= deadline => {
                self.stage = Stage::Ending(now + GRACE_MILLIS);
                self.audience.times_out();
                tree::ask_all(now + GRACE_MILLIS);
                true
            }
            Stage::Ending(deadline) if now >= deadline && !tree::kill_all() => {
                self.audience.unstoppable();
                self.reported();
                false
            }
            _ => true,
        }
    }

    /// Reaps what ended and reports the command's end; false when no descendant is left.
    fn reap(&mut self) -> bool {
        let any_left = loop {
            match process::reap() {
                Ok(Some((pid, status))) if pid == self.main => self.ended = Some(status),
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        match (self.stage, self.ended) {
            (Stage::Running(_), Some(Status::Exited(status))) => self.report(CommandEnd::Exited(status)),
            (Stage::Running(_), Some(Status::Signalled(signal))) => {
                self.report(CommandEnd::Signalled(signal));
            }
            // All of the tree has to be gone, not just its first process.
            (Stage::Ending(_), _) if !any_left => self.report(CommandEnd::TimedOut),
            _ => {}
        }
        any_left
    }

    fn report(&mut self, end: CommandEnd) {
        self.reported();
        self.audience.ended(end);
    }

    fn reported(&mut self) {
        self.stage = Stage::Reported;
        self.noted.0.answered(self.noted.1);
    }

    /// False when what has to end does not.
    fn cancel(&mut self) -> bool {
        if self.stage == Stage::Reported {
            return true;
        }
        self.reported();
        tree::kill_all()
    }

    /// False when what has to end does not.
    fn kill(&mut self) -> bool {
        // Whatever has ended by itself is known before.
        let gone = !self.reap() || tree::kill_all();
        match self.stage {
            // It was reaped on the way.
            Stage::Running(_) if gone => self.report(CommandEnd::Signalled(libc::SIGKILL)),
            Stage::Ending(_) if gone => self.report(CommandEnd::TimedOut),
            _ => {}
        }
        self.audience.killed(gone);
        gone
    }
}
