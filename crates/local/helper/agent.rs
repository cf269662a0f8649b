//! The agent: PID 1 of a sandbox. It takes requests, makes one process for each that could take time, and reaps.
//!
//! Commands cannot harm it: the kernel ignores their SIGKILL and SIGSTOP for the first process of a pid namespace, and it is
//! not dumpable, so it cannot be traced or read. When its owner's socket closes it ends, and with it the sandbox.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::process::{CpuShare, Forked, Status};
use crate::sys::{Errno, process, socket};
use crate::wire::{AgentRequest, KILL_MILLIS, NotStarted, Reply};
use crate::{files, shim, transport, tree, walk};

/// The processes that answer requests, with the socket each answers on.
type Workers = BTreeMap<libc::pid_t, OwnedFd>;

/// Serves until the owner is gone. Returns the exit status.
pub(crate) fn run(owner: BorrowedFd<'_>, workdir: BorrowedFd<'_>, cpus: CpuShare) -> i32 {
    let Ok(signals) = process::signal_fd() else { return 1 };
    let mut workers = Workers::new();
    loop {
        let mut watch = [socket::Poll::new(Some(owner)), socket::Poll::new(Some(signals.as_fd()))];
        if socket::poll(&mut watch, None).is_err() {
            return 1;
        }
        let [owner_ready, signal_ready] = [watch[0].ready, watch[1].ready];
        if signal_ready {
            for asking in take_signals(signals.as_fd()) {
                end_everything(&mut workers, asking);
            }
            reap(&mut workers);
        }
        if owner_ready {
            match transport::receive::<AgentRequest>(owner) {
                Ok(Some((request, fds))) => {
                    let worker = handle(request, fds, workdir, cpus, &mut workers);
                    workers.extend(worker);
                }
                Ok(None) | Err(Errno(libc::ECONNRESET)) => return 0,
                // A request that cannot be read is dropped with its descriptors: its sender sees them close.
                Err(_) => {}
            }
        }
    }
}

/// Empties a signal descriptor; returns who asked to end everything. What else happened is asked of `wait`.
pub(crate) fn take_signals(signals: BorrowedFd<'_>) -> Vec<libc::pid_t> {
    // signalfd_siginfo: 128 bytes each, the signal first, the sender's number at 12.
    let mut buffer = [0u8; 1024];
    let mut asking = Vec::new();
    while let Ok(length @ 1..) = crate::sys::file::read(signals, &mut buffer) {
        for info in buffer[..length].chunks_exact(128) {
            let word = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
            if word(0) == process::END_EVERYTHING {
                asking.push(word(12));
            }
        }
    }
    asking
}

/// A shim whose tree grows faster than it can be stopped asks for this. One signal to everything is more than a walk can do,
/// and exact when that shim is the only process of ours: then whatever else lives is its command's. This process makes the
/// others, so none can come in between; and as the first of the namespace it is spared. Anybody inside can send the signal,
/// only a shim's counts.
fn end_everything(workers: &mut Workers, asking: libc::pid_t) {
    if workers.len() != 1 {
        return;
    }
    let Some(channel) = workers.remove(&asking) else { return };
    let deadline = process::now_millis() + KILL_MILLIS;
    let ended = loop {
        drop(process::kill(-1, libc::SIGKILL));
        match process::reap() {
            Err(Errno(libc::ECHILD)) => break true,
            Ok(Some(_)) => {}
            // The kernel is still putting them away.
            Ok(None) if process::now_millis() < deadline => drop(socket::poll(&mut [], Some(1))),
            Ok(None) | Err(_) => break false,
        }
    };
    // The shim is gone too, and what it would have said is known here. An owner that has gone needs no answer.
    let reply = if ended { Reply::TimedOut } else { Reply::Unstoppable };
    drop(transport::reply(channel.as_fd(), &reply, &[]));
}

/// Reaps what ended. Every process of a command is a descendant of its shim; one that arrives here lost its shim, which
/// only a command can have killed. It is ended, whatever it is: nobody else would ever end it.
fn reap(workers: &mut Workers) {
    // A shim that a command stopped would keep no time any more.
    while let Some(pid) = process::stopped() {
        if workers.contains_key(&pid) {
            // ESRCH cannot be: an unreaped child keeps its number.
            drop(process::kill(pid, libc::SIGKILL));
        }
    }
    let mut orphans = false;
    while let Ok(Some((pid, status))) = process::reap() {
        orphans |= workers.remove(&pid).is_none() || matches!(status, Status::Signalled(_));
    }
    if orphans {
        for pid in tree::children_of(process::getpid()) {
            if !workers.contains_key(&pid) {
                // ESRCH cannot be: an unreaped child keeps its number.
                drop(process::kill(pid, libc::SIGKILL));
            }
        }
    }
}

/// Answers a request, or makes the process that will; returns that process and its socket.
fn handle(
    request: AgentRequest,
    mut fds: Vec<OwnedFd>,
    workdir: BorrowedFd<'_>,
    cpus: CpuShare,
    workers: &mut Workers,
) -> Option<(libc::pid_t, OwnedFd)> {
    if fds.is_empty() {
        return None;
    }
    let rest = fds.split_off(1);
    let channel = fds.pop()?;
    match request {
        // Opening never blocks and moves no content, so it needs no process of its own.
        AgentRequest::Read { path } => {
            files::open_for_reading(channel.as_fd(), workdir, &path);
            None
        }
        AgentRequest::Write { path, size, content: Some(content) } => {
            files::write(channel.as_fd(), workdir, &path, size, files::Source::Bytes(&content));
            None
        }
        AgentRequest::Import { path, size, executable, content: Some(content) } => {
            let source = files::Source::Bytes(&content);
            files::import(channel.as_fd(), workdir, &path, size, executable, source);
            None
        }
        request => match fork_with_room(makes_room(&request), || reap(workers)) {
            Ok((Forked::Parent(pid), _)) => Some((pid, channel)),
            Ok((Forked::Child, made_room)) => work(request, channel, rest, workdir, cpus, made_room),
            Err(errno) => {
                let failed = Reply::NotStarted(NotStarted::Fork, errno.0);
                drop(transport::reply(channel.as_fd(), &failed, &[]));
                None
            }
        },
    }
}

fn makes_room(request: &AgentRequest) -> bool {
    matches!(request, AgentRequest::Run(run) if run.make_room)
}

/// Forks. Where there is no room for another process, everything of the sandbox is ended first if that may be: the signal spares
/// its sender and the first process of the namespace. The owner allows it only while no other request is worked on, so what else
/// lives was left in the background. Also says whether that was done.
pub(crate) fn fork_with_room(make_room: bool, mut reap: impl FnMut()) -> Result<(Forked, bool), Errno> {
    let deadline = process::now_millis() + KILL_MILLIS;
    let mut made_room = false;
    loop {
        match process::fork() {
            Err(Errno(libc::EAGAIN)) if make_room && process::now_millis() < deadline => {
                drop(process::kill(-1, libc::SIGKILL));
                made_room = true;
                reap();
                // What was ended counts until it has been put away.
                drop(socket::poll(&mut [], Some(1)));
            }
            forked => return Ok((forked?, made_room)),
        }
    }
}

fn work(
    request: AgentRequest,
    channel: OwnedFd,
    fds: Vec<OwnedFd>,
    workdir: BorrowedFd<'_>,
    cpus: CpuShare,
    made_room: bool,
) -> ! {
    let keep: Vec<i32> = [0, 1, 2, channel.as_raw_fd(), workdir.as_raw_fd()]
        .into_iter()
        .chain(fds.iter().map(OwnedFd::as_raw_fd))
        .collect();
    // The owner's socket above all: only the agent holds it, so that its end is seen.
    if crate::sys::file::close_all_but(&keep).is_err() {
        process::exit(1);
    }
    match request {
        AgentRequest::Run(run) => shim::run(&run, &channel, fds, workdir, cpus, made_room),
        AgentRequest::List { path } => files::list(channel.as_fd(), workdir, &path),
        AgentRequest::Write { path, size, .. } => match fds.first() {
            Some(pipe) => {
                files::write(channel.as_fd(), workdir, &path, size, files::Source::Pipe(pipe.as_fd()));
            }
            None => process::exit(1),
        },
        AgentRequest::Read { path } => files::open_for_reading(channel.as_fd(), workdir, &path),
        AgentRequest::Import { path, size, executable, .. } => match fds.first() {
            Some(pipe) => {
                let source = files::Source::Pipe(pipe.as_fd());
                files::import(channel.as_fd(), workdir, &path, size, executable, source);
            }
            None => process::exit(1),
        },
        AgentRequest::Walk { path, max_depth } => match fds.first() {
            Some(pipe) => walk::tell(channel.as_fd(), pipe.as_fd(), workdir, &path, max_depth),
            None => process::exit(1),
        },
    }
    process::exit(0)
}
