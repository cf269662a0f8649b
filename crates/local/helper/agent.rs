//! The agent: PID 1 of a sandbox. It takes requests, makes one process for each that could take time, and reaps.
//!
//! Commands cannot harm it: the kernel ignores their SIGKILL and SIGSTOP for the first process of a pid namespace, and it is
//! not dumpable, so it cannot be traced or read. When the launcher is gone it ends, and with it the sandbox; where the sandbox is
//! not kept, also when its creator has closed its socket.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::link::LinkMessage;
use crate::sys::activity::{Activity, Mark};
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::process::{CpuShare, Forked, Status};
use crate::sys::{Errno, process, socket};
use crate::wire::{AgentRequest, Fenced, KILL_MILLIS, NotStarted, Reply};
use crate::{files, look, shim, transport, tree, walk};

/// Clients at a time; more are closed at once.
const MAX_CLIENTS: usize = 256;

/// What every request is worked on with.
#[derive(Debug)]
pub(crate) struct Place {
    /// Where commands start.
    pub(crate) workdir: OwnedFd,
    /// The processors of commands.
    pub(crate) cpus: CpuShare,
    /// Where the launcher sees that the sandbox is used.
    pub(crate) activity: Option<Activity>,
}

impl Place {
    fn touch(&self) {
        if let Some(activity) = &self.activity {
            activity.touch(process::now_millis());
        }
    }

    fn begin(&self) -> Option<Mark> {
        self.activity.as_ref().map(|activity| activity.begin(process::now_millis()))
    }

    /// Notes that a request has been answered, by the process that did.
    pub(crate) fn answered(&self, mark: Option<Mark>) {
        if let (Some(activity), Some(mark)) = (&self.activity, mark) {
            activity.answered(mark, process::now_millis());
        }
    }

    fn ended(&self, mark: Option<Mark>) {
        if let (Some(activity), Some(mark)) = (&self.activity, mark) {
            activity.ended(mark, process::now_millis());
        }
    }
}

/// A process that answers a request.
#[derive(Debug)]
struct Worker {
    /// The socket it answers on.
    channel: OwnedFd,
    mark: Option<Mark>,
}

type Workers = BTreeMap<libc::pid_t, Worker>;

/// Somebody who asks.
struct Client {
    socket: OwnedFd,
    /// Whether the sandbox ends when this one goes.
    counts: bool,
}

struct Agent {
    place: Place,
    workers: Workers,
    clients: Vec<Client>,
    /// The fence of the claim that stands; 0 is nobody's.
    fence: u64,
}

/// Serves until nobody is left for whom. Returns the exit status.
pub(crate) fn run(link: OwnedFd, creator: OwnedFd, creator_counts: bool, place: Place) -> i32 {
    let Ok(signals) = process::signal_fd() else { return 1 };
    let creator = Client { socket: creator, counts: creator_counts };
    let mut agent = Agent { place, workers: Workers::new(), clients: Vec::from([creator]), fence: 0 };
    loop {
        let first = [Some(link.as_fd()), Some(signals.as_fd())];
        let clients = agent.clients.iter().map(|client| Some(client.socket.as_fd()));
        let mut watch: Vec<socket::Poll<'_>> =
            first.into_iter().chain(clients).map(socket::Poll::new).collect();
        if socket::poll(&mut watch, None).is_err() {
            return 1;
        }
        let ready: Vec<bool> = watch.iter().map(|entry| entry.ready).collect();
        // The launcher before everybody else: what was asked after a fence was set is judged by that (S54).
        if ready[0] && !agent.hear_launcher(link.as_fd()) {
            return 0;
        }
        if ready[1] {
            agent.hear_signals(signals.as_fd());
        }
        // From behind, because those that went are taken out.
        for index in (0..ready.len() - 2).rev().filter(|index| ready[index + 2]) {
            if !agent.hear_client(index) {
                return 0;
            }
        }
    }
}

impl Agent {
    /// False when the launcher is gone.
    fn hear_launcher(&mut self, link: BorrowedFd<'_>) -> bool {
        match transport::receive::<LinkMessage>(link) {
            Ok(Some((LinkMessage::Client, fds))) => {
                let socket = fds.into_iter().next().filter(|_| self.clients.len() < MAX_CLIENTS);
                self.clients.extend(socket.map(|socket| Client { socket, counts: false }));
            }
            Ok(Some((LinkMessage::Fence(fence), _))) => self.fence = fence,
            Ok(None) | Err(Errno(libc::ECONNRESET)) => return false,
            Err(_) => {}
        }
        true
    }

    fn hear_signals(&mut self, signals: BorrowedFd<'_>) {
        for asking in take_signals(signals) {
            self.end_everything(asking);
        }
        self.reap();
    }

    /// False when the one went whose sandbox this is.
    fn hear_client(&mut self, index: usize) -> bool {
        let client = &self.clients[index];
        match transport::receive::<Fenced<AgentRequest>>(client.socket.as_fd()) {
            Ok(Some((Fenced { fence, request }, fds))) => self.handle(fence, request, fds),
            Ok(None) | Err(Errno(libc::ECONNRESET)) => {
                if client.counts {
                    return false;
                }
                self.clients.remove(index);
            }
            // A request that cannot be read is dropped with its descriptors: its sender sees them close.
            Err(_) => {}
        }
        true
    }

    /// A shim whose tree grows faster than it can be stopped asks for this. One signal to everything is more than a walk can do,
    /// and exact when that shim is the only process of ours: then whatever else lives is its command's. This process makes the
    /// others, so none can come in between; and as the first of the namespace it is spared. Anybody inside can send the signal,
    /// only a shim's counts.
    fn end_everything(&mut self, asking: libc::pid_t) {
        if self.workers.len() != 1 {
            return;
        }
        let Some(worker) = self.workers.remove(&asking) else { return };
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
        self.place.ended(worker.mark);
        // The shim is gone too, and what it would have said is known here. An owner that has gone needs no answer.
        let reply = if ended { Reply::TimedOut } else { Reply::Unstoppable };
        drop(transport::reply(worker.channel.as_fd(), &reply, &[]));
    }

    fn reap(&mut self) {
        reap(&mut self.workers, &self.place);
    }

    /// Answers a request, or makes the process that will.
    fn handle(&mut self, fence: u64, request: AgentRequest, mut fds: Vec<OwnedFd>) {
        if fds.is_empty() {
            return;
        }
        let rest = fds.split_off(1);
        let Some(channel) = fds.pop() else { return };
        if fence != 0 && fence != self.fence {
            // Who does not listen any more does not want to know any more.
            drop(transport::reply_now(channel.as_fd(), &Reply::Fenced, &[]));
            return;
        }
        let workdir = self.place.workdir.as_fd();
        match request {
            // Opening never blocks and moves no content, so it needs no process of its own.
            AgentRequest::Read { path } => {
                self.place.touch();
                files::open_for_reading(channel.as_fd(), workdir, &path);
            }
            AgentRequest::Write { path, size, content: Some(content) } => {
                self.place.touch();
                files::write(channel.as_fd(), workdir, &path, size, files::Source::Bytes(&content));
            }
            AgentRequest::Import { path, size, executable, content: Some(content) } => {
                self.place.touch();
                let source = files::Source::Bytes(&content);
                files::import(channel.as_fd(), workdir, &path, size, executable, source);
            }
            request => self.make_worker(request, channel, rest),
        }
    }

    fn make_worker(&mut self, request: AgentRequest, channel: OwnedFd, fds: Vec<OwnedFd>) {
        // Somebody who looks is no use of the sandbox.
        let mark = if matches!(request, AgentRequest::Look) { None } else { self.place.begin() };
        // Only where nobody else, of any client, waits for an answer: what lives then was left in the background.
        let may_make_room = makes_room(&request) && !is_awaited(&self.workers);
        let Self { place, workers, .. } = self;
        match fork_with_room(may_make_room, || reap(workers, place)) {
            Ok((Forked::Parent(pid), _)) => drop(self.workers.insert(pid, Worker { channel, mark })),
            Ok((Forked::Child, made_room)) => work(request, channel, fds, &self.place, mark, made_room),
            Err(errno) => {
                self.place.ended(mark);
                let failed = Reply::NotStarted(NotStarted::Fork, errno.0);
                drop(transport::reply_now(channel.as_fd(), &failed, &[]));
            }
        }
    }
}

/// Reaps what ended. Every process of a command is a descendant of its shim; one that arrives here lost its shim, which
/// only a command can have killed. It is ended, whatever it is: nobody else would ever end it.
fn reap(workers: &mut Workers, place: &Place) {
    // A shim that a command stopped would keep no time any more.
    while let Some(pid) = process::stopped() {
        if workers.contains_key(&pid) {
            // ESRCH cannot be: an unreaped child keeps its number.
            drop(process::kill(pid, libc::SIGKILL));
        }
    }
    let mut orphans = false;
    while let Ok(Some((pid, status))) = process::reap() {
        let worker = workers.remove(&pid);
        orphans |= worker.is_none() || matches!(status, Status::Signalled(_));
        place.ended(worker.and_then(|worker| worker.mark));
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

/// Whether anybody waits for an answer. Nothing is sent on these sockets to us, so what is ready has been closed.
fn is_awaited(workers: &Workers) -> bool {
    let mut watch: Vec<socket::Poll<'_>> =
        workers.values().map(|worker| socket::Poll::new(Some(worker.channel.as_fd()))).collect();
    socket::poll(&mut watch, Some(0)).is_err() || watch.iter().any(|entry| !entry.ready)
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
    place: &Place,
    mark: Option<Mark>,
    made_room: bool,
) -> ! {
    let workdir = place.workdir.as_fd();
    let keep: Vec<i32> = [0, 1, 2, channel.as_raw_fd(), workdir.as_raw_fd()]
        .into_iter()
        .chain(fds.iter().map(OwnedFd::as_raw_fd))
        .collect();
    // The clients' sockets above all: only the agent holds them, so that their end is seen.
    if crate::sys::file::close_all_but(&keep).is_err() {
        process::exit(1);
    }
    match request {
        AgentRequest::Run(run) => shim::run(&run, &channel, fds, place, mark, made_room),
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
        AgentRequest::Look => look::answer(channel.as_fd(), workdir),
    }
    process::exit(0)
}
