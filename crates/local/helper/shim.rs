//! The shim: one per command, the subreaper of everything that command starts. It reports how the command ended, ends
//! the whole tree when the timeout passes or the owner goes away, and stays until the last descendant has ended.

use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;

use crate::agent::Place;
use crate::sys::activity::Mark;
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::process::{CpuShare, Forked, Status};
use crate::sys::{Errno, c_string, file, process, socket};
use crate::wire::{GRACE_MILLIS, Message, NotStarted, Reply, RunRequest};
use crate::{agent, transport, tree};

/// Standard streams of the command: what it gets, and the reading ends that keep a late writer from SIGPIPE.
struct Streams {
    input: Option<OwnedFd>,
    output: OwnedFd,
    error: OwnedFd,
    read_back: Vec<OwnedFd>,
}

/// Runs one command. Ends the process.
pub(crate) fn run(
    request: &RunRequest,
    channel: &OwnedFd,
    fds: Vec<OwnedFd>,
    place: &Place,
    mark: Option<Mark>,
    made_room: bool,
) -> ! {
    let started = process::become_subreaper()
        .and_then(|()| process::signal_fd())
        .map_err(|errno| (NotStarted::Fork, errno))
        .and_then(|signals| Ok((signals, start(request, channel.as_fd(), fds, place)?)));
    match started {
        Ok((signals, (command, also_made_room))) => {
            if request.make_room {
                // An owner that has gone needs no answer.
                drop(transport::reply(channel.as_fd(), &Reply::Started(made_room || also_made_room), &[]));
            }
            Shim::new(request, channel.as_fd(), command, (place, mark)).supervise(signals.as_fd());
        }
        Err((step, errno)) => {
            drop(transport::reply(channel.as_fd(), &Reply::NotStarted(step, errno.0), &[]));
        }
    }
    process::exit(0)
}

struct Command {
    pid: libc::pid_t,
    /// What the command's process writes when it could not become the program.
    failure: OwnedFd,
    read_back: Vec<OwnedFd>,
}

type NotStartedBecause = (NotStarted, Errno);

fn start(
    request: &RunRequest,
    channel: BorrowedFd<'_>,
    fds: Vec<OwnedFd>,
    place: &Place,
) -> Result<(Command, bool), NotStartedBecause> {
    let streams = match request.terminal {
        Some(size) => open_terminal(channel, size).map_err(|errno| (NotStarted::Terminal, errno))?,
        None => streams(fds).ok_or((NotStarted::Fork, Errno(libc::EBADMSG)))?,
    };
    let (failure, report) = file::pipe().map_err(|errno| (NotStarted::Fork, errno))?;
    // The agent is the one who reaps what ends.
    match agent::fork_with_room(request.make_room, || {}).map_err(|errno| (NotStarted::Fork, errno))? {
        (Forked::Child, _) => {
            let (step, errno) = become_command(request, &streams, place.workdir.as_fd(), place.cpus);
            // A shim that is gone needs no report.
            drop(file::write_all(report.as_fd(), &Reply::NotStarted(step, errno.0).encode()));
            process::exit(127)
        }
        (Forked::Parent(pid), made_room) => {
            Ok((Command { pid, failure, read_back: streams.read_back }, made_room))
        }
    }
}

fn streams(fds: Vec<OwnedFd>) -> Option<Streams> {
    let mut fds = fds.into_iter();
    let (output, error) = (fds.next()?, fds.next()?);
    let read_back = vec![fds.next()?, fds.next()?];
    Some(Streams { input: fds.next(), output, error, read_back })
}

fn open_terminal(channel: BorrowedFd<'_>, size: (u32, u32)) -> crate::sys::Result<Streams> {
    let cells = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
    let (master, slave) = file::open_terminal(cells(size.0), cells(size.1))?;
    transport::reply(channel, &Reply::Terminal, &[master.as_fd()])?;
    let copy = || slave.as_fd().duplicate(3);
    Ok(Streams { input: Some(copy()?), output: copy()?, error: slave, read_back: Vec::new() })
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

struct Shim<'a> {
    channel: BorrowedFd<'a>,
    command: Command,
    ended: Option<Status>,
    stage: Stage,
    owner_gone: bool,
    /// What is told of the end, besides the owner.
    noted: (&'a Place, Option<Mark>),
}

impl<'a> Shim<'a> {
    fn new(
        request: &RunRequest,
        channel: BorrowedFd<'a>,
        command: Command,
        noted: (&'a Place, Option<Mark>),
    ) -> Self {
        let deadline = (request.timeout_millis > 0)
            .then(|| process::now_millis().saturating_add(request.timeout_millis));
        Self { channel, command, ended: None, stage: Stage::Running(deadline), owner_gone: false, noted }
    }

    /// One loop owns the command: its end, its owner's and the clock are events of it.
    fn supervise(mut self, signals: BorrowedFd<'_>) {
        loop {
            let channel = (!self.owner_gone).then_some(self.channel);
            // Only once nobody else reads them: then a background child must not fill the pipe or meet its end.
            let read_back = |index: usize| {
                self.command.read_back.get(index).filter(|_| self.owner_gone).map(OwnedFd::as_fd)
            };
            let mut watch = [
                socket::Poll::new(Some(signals)),
                socket::Poll::new(channel),
                socket::Poll::new(read_back(0)),
                socket::Poll::new(read_back(1)),
            ];
            if socket::poll(&mut watch, self.wait_millis()).is_err() {
                // Not to be; and a command whose time nobody keeps must not go on.
                tree::kill_all();
                return;
            }
            let ready = watch.map(|entry| entry.ready);
            if ready[2] || ready[3] {
                self.discard(ready[2], ready[3]);
            }
            if ready[1] {
                self.owner_went();
            }
            if ready[0] {
                agent::take_signals(signals);
            }
            self.keep_time();
            if !self.reap() {
                return;
            }
        }
    }

    fn wait_millis(&self) -> Option<u64> {
        let until = match self.stage {
            Stage::Running(deadline) => deadline?,
            Stage::Ending(deadline) => deadline,
            Stage::Reported => return None,
        };
        Some(until.saturating_sub(process::now_millis()))
    }

    fn keep_time(&mut self) {
        let now = process::now_millis();
        match self.stage {
            Stage::Running(Some(deadline)) if now >= deadline => {
                self.stage = Stage::Ending(now + GRACE_MILLIS);
                tree::ask_all(now + GRACE_MILLIS);
            }
            Stage::Ending(deadline) if now >= deadline && !tree::kill_all() => {
                self.report(&Reply::Unstoppable);
            }
            _ => {}
        }
    }

    /// Reaps what ended and reports the command's end; false when no descendant is left.
    fn reap(&mut self) -> bool {
        let any_left = loop {
            match process::reap() {
                Ok(Some((pid, status))) if pid == self.command.pid => self.ended = Some(status),
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        match (self.stage, self.ended) {
            (Stage::Running(_), Some(status)) => {
                let reply = self.reply_for(status);
                self.report(&reply);
            }
            // All of the tree has to be gone, not just its first process.
            (Stage::Ending(_), _) if !any_left => self.report(&Reply::TimedOut),
            _ => {}
        }
        any_left
    }

    fn reply_for(&self, status: Status) -> Reply {
        match status {
            Status::Signalled(signal) => Reply::Signalled(signal),
            Status::Exited(status) => self.failure_to_start().unwrap_or(Reply::Exited(status)),
        }
    }

    fn failure_to_start(&self) -> Option<Reply> {
        let mut message = [0u8; 16];
        // The writing end closed when the process became the program or ended; nobody else has it.
        let length = file::read(self.command.failure.as_fd(), &mut message).ok()?;
        Reply::decode(&message[..length]).ok()
    }

    fn report(&mut self, reply: &Reply) {
        self.stage = Stage::Reported;
        self.noted.0.answered(self.noted.1);
        // An owner that has gone is seen on the channel.
        drop(transport::reply(self.channel, reply, &[]));
    }

    /// The owner says nothing while a command runs, so what is heard is its going away. Before the end was reported that
    /// means: cancelled.
    fn owner_went(&mut self) {
        self.owner_gone = true;
        if self.stage != Stage::Reported {
            self.stage = Stage::Reported;
            self.noted.0.answered(self.noted.1);
            // What survives this many rounds is ended with the sandbox.
            tree::kill_all();
        }
    }

    fn discard(&mut self, first: bool, second: bool) {
        let mut buffer = [0u8; 16 << 10];
        let mut ended = [false; 2];
        for (index, ready) in [first, second].into_iter().enumerate() {
            if ready && let Some(fd) = self.command.read_back.get(index) {
                ended[index] = matches!(file::read(fd.as_fd(), &mut buffer), Ok(0));
            }
        }
        let mut index = 0;
        self.command.read_back.retain(|_| {
            index += 1;
            !ended[index - 1]
        });
    }
}
