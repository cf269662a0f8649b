//! The agent: PID 1 of a sandbox. It takes requests, makes one process for each that could take time, and reaps.
//!
//! Commands cannot harm it: the kernel ignores their SIGKILL and SIGSTOP for the first process of a pid namespace, and it is
//! not dumpable, so it cannot be traced or read. When the launcher is gone it ends, and with it the sandbox; and when its
//! creator has closed its socket, unless that said before that the sandbox is complete and kept.

use alloc::vec::Vec;

use crate::commands::Admission;
use crate::crew::{Crew, Duty};
use crate::limits::Limits;
use crate::link::LinkMessage;
use crate::sys::activity::{Activity, Mark};
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::process::{CpuShare, Forked};
use crate::sys::{Errno, process, socket};
use crate::wire::{AgentRequest, CommandAsk, Fenced, KILL_MILLIS, NotStarted, Reply};
use crate::{files, look, shim, transport, walk};

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

    /// Notes that the process of a request is gone.
    pub(crate) fn ended(&self, mark: Option<Mark>) {
        if let (Some(activity), Some(mark)) = (&self.activity, mark) {
            activity.ended(mark, process::now_millis());
        }
    }
}

/// Somebody who asks.
struct Client {
    socket: OwnedFd,
    /// Whether the sandbox ends when this one goes.
    counts: bool,
}

struct Agent {
    place: Place,
    crew: Crew,
    clients: Vec<Client>,
    /// The fence of the claim that stands; 0 is nobody's.
    fence: u64,
}

/// Serves until nobody is left for whom. Returns the exit status.
pub(crate) fn run(link: OwnedFd, creator: OwnedFd, place: Place) -> i32 {
    let Ok(signals) = process::signal_fd() else { return 1 };
    let creator = Client { socket: creator, counts: true };
    let mut agent = Agent { place, crew: Crew::default(), clients: Vec::from([creator]), fence: 0 };
    loop {
        let first = [Some(link.as_fd()), Some(signals.as_fd())];
        let clients = agent.clients.iter().map(|client| Some(client.socket.as_fd()));
        let mut watch: Vec<socket::Poll<'_>> =
            first.into_iter().chain(clients).map(socket::Poll::new).collect();
        if socket::poll(&mut watch, agent.crew.patience()).is_err() {
            return 1;
        }
        let ready: Vec<bool> = watch.iter().map(|entry| entry.ready).collect();
        agent.crew.end_strays();
        if ready[0] && !agent.hear_launcher(link.as_fd()) {
            return 0;
        }
        if ready[1] {
            agent.hear_signals(signals.as_fd());
        }
        // From behind, because those that went are taken out.
        for index in (0..ready.len() - 2).rev().filter(|index| ready[index + 2]) {
            // The launcher before every request: what was asked after a fence was set is judged by that, also where it was set since the look
            // (S54).
            if !agent.hear_launcher(link.as_fd()) || !agent.hear_client(index) {
                return 0;
            }
        }
    }
}

impl Agent {
    /// Takes everything that the launcher has said so far. False when it is gone.
    fn hear_launcher(&mut self, link: BorrowedFd<'_>) -> bool {
        loop {
            let mut watch = [socket::Poll::new(Some(link))];
            if socket::poll(&mut watch, Some(0)).is_err() || !watch[0].ready {
                return true;
            }
            match transport::receive::<LinkMessage>(link) {
                Ok(Some((LinkMessage::Client, fds))) => {
                    let socket = fds.into_iter().next().filter(|_| self.clients.len() < MAX_CLIENTS);
                    self.clients.extend(socket.map(|socket| Client { socket, counts: false }));
                }
                Ok(Some((LinkMessage::Fence(fence), _))) => self.fence = fence,
                Ok(None) | Err(Errno(libc::ECONNRESET)) => return false,
                Err(_) => {}
            }
        }
    }

    fn hear_signals(&mut self, signals: BorrowedFd<'_>) {
        for asking in take_signals(signals) {
            self.crew.end_everything(asking, &self.place);
        }
        self.crew.reap(&self.place);
    }

    /// False when the one went whose sandbox this is.
    fn hear_client(&mut self, index: usize) -> bool {
        let client = &self.clients[index];
        match transport::receive::<Fenced<AgentRequest>>(client.socket.as_fd()) {
            // In the order of what its creator sends, so the end of the socket comes after it.
            Ok(Some((Fenced { request: AgentRequest::Outlive, .. }, _))) => {
                self.clients[index].counts = false;
            }
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
            AgentRequest::About(command, ask) => {
                // Somebody who looks is no use of the sandbox; a command that runs is one anyway.
                if !matches!(ask, CommandAsk::Wait { .. }) {
                    self.place.touch();
                }
                self.crew.commands.ask(command, &ask, channel.as_fd());
            }
            AgentRequest::Commands => {
                let known = Reply::Commands(self.crew.commands.numbers());
                drop(transport::reply_now(channel.as_fd(), &known, &[]));
            }
            AgentRequest::Start(ref start) => {
                let limits = Limits::new(start.counters.each_ref().map(Vec::as_slice), rest);
                match self.crew.commands.admit(start.keep_bytes, limits) {
                    Ok(admitted) => self.make_worker(request, channel, Vec::new(), Some(admitted)),
                    Err(errno) => refuse_to_start(channel.as_fd(), errno),
                }
            }
            request => self.make_worker(request, channel, rest, None),
        }
    }

    fn make_worker(
        &mut self,
        request: AgentRequest,
        channel: OwnedFd,
        fds: Vec<OwnedFd>,
        admitted: Option<Admission>,
    ) {
        // Somebody who looks is no use of the sandbox.
        let mark = if matches!(request, AgentRequest::Look) { None } else { self.place.begin() };
        // Where nobody, of any client, needs what lives, it was left in the background and may give way.
        let shared = self.crew.is_needed();
        let may_make = makes_room(&request) && !shared;
        let (place, crew) = (&self.place, &mut self.crew);
        match fork_with_room(may_make, || crew.reap(place)) {
            Ok((Forked::Parent(pid), _)) => {
                let duty = match admitted {
                    Some(admitted) => Duty::Background(crew.commands.keep(admitted)),
                    None => Duty::Answer(channel),
                };
                crew.add(pid, duty, mark);
            }
            Ok((Forked::Child, made)) => {
                let room = Room { shared, may_make, made };
                let ours = &crew.numbers();
                work(request, channel, fds, admitted, Job { place, mark, room, ours })
            }
            Err(errno) => {
                place.ended(mark);
                let room = Room { shared, may_make, made: false };
                refuse_to_start(channel.as_fd(), room.explain(errno));
            }
        }
    }
}

fn refuse_to_start(channel: BorrowedFd<'_>, errno: Errno) {
    let step = if errno == Errno(libc::EMFILE) { NotStarted::TooMany } else { NotStarted::Fork };
    // Who does not listen any more does not want to know any more.
    drop(transport::reply_now(channel, &Reply::NotStarted(step, errno.0), &[]));
}

/// What a process that works on a request is given besides that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job<'a> {
    /// Where it is.
    pub(crate) place: &'a Place,
    /// The request's mark of use.
    pub(crate) mark: Option<Mark>,
    /// Whether others give way to it.
    pub(crate) room: Room,
    /// The other processes of ours.
    pub(crate) ours: &'a [libc::pid_t],
}

/// What may be done, and has been, where there is no room for another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Others need what fills the sandbox.
    pub(crate) shared: bool,
    /// Everything else of the sandbox may be ended.
    pub(crate) may_make: bool,
    /// That was done.
    pub(crate) made: bool,
}

impl Room {
    /// Why there is none: EBUSY where no later command may make some either.
    pub(crate) fn explain(self, errno: Errno) -> Errno {
        if self.shared && errno == Errno(libc::EAGAIN) { Errno(libc::EBUSY) } else { errno }
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
    admitted: Option<Admission>,
    job: Job<'_>,
) -> ! {
    let workdir = job.place.workdir.as_fd();
    let keep: Vec<i32> = [0, 1, 2, channel.as_raw_fd(), workdir.as_raw_fd()]
        .into_iter()
        .chain(fds.iter().map(OwnedFd::as_raw_fd))
        .chain(admitted.iter().flat_map(Admission::fds))
        .collect();
    // The clients' sockets above all: only the agent holds them, so that their end is seen.
    if crate::sys::file::close_all_but(&keep).is_err() {
        process::exit(1);
    }
    match request {
        AgentRequest::Run(run) => shim::run(&run, channel.as_fd(), fds, job),
        AgentRequest::Start(start) => match admitted {
            Some(admitted) => shim::start(&start, channel, admitted.take_seat(), job),
            None => process::exit(1),
        },
        // Answered by the agent itself.
        AgentRequest::About(..) | AgentRequest::Commands => process::exit(1),
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
        AgentRequest::Look => look::answer(channel.as_fd(), workdir, job.ours),
        // Worked on where it is heard.
        AgentRequest::Outlive => {}
    }
    process::exit(0)
}
