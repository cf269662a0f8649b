//! The launcher: creates sandboxes on request, ends them on request, at the end of their lifetime or when nobody uses them, and
//! when the owner is gone all that were not made to be kept. It holds nothing but descriptors and tags: no environment, no output,
//! no file content passes through it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use crate::cgroup::{self, Cgroups, Ending, REMOVAL_RETRY_MILLIS};
use crate::ids::Ids;
use crate::living::Sandbox;
use crate::setup::{self, Failure};
use crate::sys::activity::Activity;
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::process::{Cloned, Status};
use crate::sys::socket::Epoll;
use crate::sys::{Errno, file, process, socket};
use crate::template::Templates;
use crate::transport;
use crate::wire::{
    CreateReply, CreateRequest, Fenced, LauncherRequest, SandboxReply, SandboxRequest, Subject,
};

/// All that a sandbox gets but its network, which it makes itself.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// Connections to one sandbox at a time; more are closed at once, so that nobody takes all of the launcher's descriptors.
const MAX_CONNECTIONS: usize = 256;

/// Descriptors that no sandbox is made of: a request whose descriptors cannot be taken over is lost, and its sender not even told.
const SPARE_DESCRIPTORS: usize = 32;

/// What woke the launcher. The number behind is the sandbox's or the connection's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Control,
    Owner,
    Ended(u64),
    Knock(u64),
    Connection(u64),
}

impl Key {
    fn pack(self) -> u64 {
        match self {
            Self::Control => 0,
            Self::Owner => 1,
            Self::Ended(number) => number << 2 | 1,
            Self::Knock(number) => number << 2 | 2,
            Self::Connection(number) => number << 2 | 3,
        }
    }

    fn unpack(key: u64) -> Self {
        match (key & 3, key >> 2) {
            // Numbers begin with 1.
            (1, 0) => Self::Owner,
            (1, number) => Self::Ended(number),
            (2, number) => Self::Knock(number),
            (3, number) => Self::Connection(number),
            _ => Self::Control,
        }
    }
}

/// Serves the owner until it is gone, and kept sandboxes until they are. False where it cannot: the owner is told why.
pub(crate) fn serve() -> bool {
    // The owner hands over a descriptor of itself: its number could be another process's by the time we look.
    let [control, process] = file::take_over();
    let prepared = prepare(control.as_fd(), process.as_fd());
    // After its requests, and all that ever comes this way: it is read where the launcher has ended.
    let end = |control: BorrowedFd<'_>, failure: Failure| {
        drop(transport::reply_now(control, &CreateReply::failed(failure), &[]));
        false
    };
    let epoll = match prepared {
        Ok(epoll) => epoll,
        Err(failure) => return end(control.as_fd(), failure),
    };
    let mut launcher = Launcher {
        epoll,
        ids: Ids::read(),
        templates: Templates::default(),
        owner: Some(Owner { control, process }),
        last_number: 0,
        sandboxes: BTreeMap::new(),
        connections: BTreeMap::new(),
        ending: Vec::new(),
        stuck: Vec::new(),
        spare: file::open(None, b"/dev/null", libc::O_RDONLY, 0).ok(),
    };
    while launcher.has_work() {
        if let Err(errno) = launcher.turn() {
            let failure = Failure::at("wait for requests")(errno);
            return launcher.owner.as_ref().is_some_and(|owner| end(owner.control.as_fd(), failure));
        }
    }
    true
}

/// What comes before everything else, step by step.
fn prepare(control: BorrowedFd<'_>, owner: BorrowedFd<'_>) -> Result<Epoll, Failure> {
    // A session of its own: the terminal's signals are for the owner, who then ends the sandboxes in order.
    process::setsid().map_err(Failure::at("begin a session of its own"))?;
    process::set_name(c"ringfence").map_err(Failure::at("name itself"))?;
    process::reset_signals().map_err(Failure::at("reset its signals"))?;
    process::raise_open_files().map_err(Failure::at("raise its limit on open files"))?;
    file::close_all_but(&[0, 1, 2]).map_err(Failure::at("close what it inherited"))?;
    file::change_directory(b"/").map_err(Failure::at("enter the root directory"))?;
    let epoll = Epoll::new().map_err(Failure::at("make a queue of events"))?;
    epoll
        .add(control, Key::Control.pack())
        .and_then(|()| epoll.add(owner, Key::Owner.pack()))
        .map_err(Failure::at("watch its owner"))?;
    Ok(epoll)
}

struct Owner {
    control: OwnedFd,
    process: OwnedFd,
}

/// Another process that asks about a sandbox.
struct Connection {
    sandbox: u64,
    socket: OwnedFd,
}

struct Launcher {
    epoll: Epoll,
    ids: Ids,
    templates: Templates,
    owner: Option<Owner>,
    /// Of a sandbox or a connection.
    last_number: u64,
    sandboxes: BTreeMap<u64, Sandbox>,
    connections: BTreeMap<u64, Connection>,
    ending: Vec<Ending>,
    /// Control groups that could not be removed, because somebody put something into them. Tried again with each sandbox, and no
    /// reason to stay: whoever comes after this process tries too.
    stuck: Vec<Vec<u8>>,
    /// A descriptor to let go of when there is none left.
    spare: Option<OwnedFd>,
}

impl Launcher {
    fn has_work(&self) -> bool {
        self.owner.is_some() || !self.sandboxes.is_empty() || !self.ending.is_empty()
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Handles what has happened.
    fn turn(&mut self) -> crate::sys::Result<()> {
        for key in self.epoll.wait(self.timeout())? {
            match Key::unpack(key) {
                Key::Owner => self.owner_went(),
                Key::Control => self.hear_owner(),
                Key::Ended(number) => self.reap(number),
                Key::Knock(number) => self.admit_client(number),
                Key::Connection(number) => self.hear_client(number),
            }
        }
        let now = process::now_millis();
        for sandbox in self.sandboxes.values_mut() {
            sandbox.keep_time(now);
        }
        for done in self.ending.extract_if(.., Ending::progress) {
            self.stuck.extend(done.left());
        }
        Ok(())
    }

    fn timeout(&self) -> Option<u64> {
        if !self.ending.is_empty() {
            return Some(REMOVAL_RETRY_MILLIS);
        }
        let now = process::now_millis();
        self.sandboxes.values().filter_map(|sandbox| sandbox.remaining_millis(now)).min()
    }

    /// What was not made to be kept ends with its owner.
    fn owner_went(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        self.epoll.remove(owner.control.as_fd());
        self.epoll.remove(owner.process.as_fd());
        for sandbox in self.sandboxes.values_mut().filter(|sandbox| !sandbox.is_kept()) {
            sandbox.end("owner_gone");
        }
    }

    fn hear_owner(&mut self) {
        let Some(owner) = &self.owner else { return };
        match transport::receive::<LauncherRequest>(owner.control.as_fd()) {
            Ok(Some((request, fds))) => self.handle(request, fds),
            Ok(None) | Err(Errno(libc::ECONNRESET)) => self.owner_went(),
            // A request that we cannot read is dropped with its descriptors: its sender sees them close.
            Err(_) => {}
        }
    }

    fn handle(&mut self, request: LauncherRequest, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        let Some(answer) = fds.next() else { return };
        match request {
            LauncherRequest::Create(request) => {
                if let Err(failure) = self.create(&request, answer.as_fd(), fds.next()) {
                    // An owner that no longer listens needs no answer.
                    drop(transport::reply_now(answer.as_fd(), &CreateReply::failed(failure), &[]));
                }
            }
            LauncherRequest::About(name, request) => {
                match self.sandboxes.iter().find(|(_, sandbox)| sandbox.name == name) {
                    Some((number, _)) => self.serve_request(*number, request, answer),
                    None => self.answer_for_gone(&name, answer),
                }
            }
        }
    }

    /// Whoever asks about a sandbox that is going waits until it is gone; one that is gone is no more than that.
    fn answer_for_gone(&mut self, name: &[u8], answer: OwnedFd) {
        match self.ending.iter_mut().find(|ending| ending.name == name) {
            Some(ending) => ending.waiting.push(answer),
            // Who does not listen any more does not want to know any more.
            None => drop(transport::reply_now(answer.as_fd(), &SandboxReply::Gone, &[])),
        }
    }

    fn admit_client(&mut self, sandbox: u64) {
        let Some(listener) = self.sandboxes.get(&sandbox).and_then(Sandbox::listener) else { return };
        let socket = match socket::accept(listener) {
            Ok(socket) => socket,
            Err(Errno(libc::EMFILE | libc::ENFILE)) => {
                // Told by the closing, with the one descriptor that is kept for this: else it would knock for ever.
                self.spare = None;
                drop(socket::accept(listener));
                self.spare = file::open(None, b"/dev/null", libc::O_RDONLY, 0).ok();
                return;
            }
            // It has gone again.
            Err(_) => return,
        };
        let present = self.connections.values().filter(|connection| connection.sandbox == sandbox).count();
        let trusted = socket::peer_user(socket.as_fd())
            .is_ok_and(|user| user == 0 || user == process::effective_ids().0);
        if !trusted || present >= MAX_CONNECTIONS {
            return;
        }
        let number = self.next_number();
        if self.epoll.add(socket.as_fd(), Key::Connection(number).pack()).is_ok() {
            self.connections.insert(number, Connection { sandbox, socket });
        }
    }

    fn hear_client(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        match transport::receive::<Fenced<SandboxRequest>>(connection.socket.as_fd()) {
            Ok(Some((request, fds))) => {
                let sandbox = connection.sandbox;
                if let Some(answer) = fds.into_iter().next() {
                    self.serve_request(sandbox, request, answer);
                }
            }
            Err(Errno(libc::EAGAIN)) => {}
            // Gone, or it speaks another version: both are told by the closing.
            Ok(None) | Err(_) => drop(self.connections.remove(&number)),
        }
    }

    fn serve_request(&mut self, number: u64, request: Fenced<SandboxRequest>, answer: OwnedFd) {
        let Some(sandbox) = self.sandboxes.get_mut(&number) else {
            // Its connections are closed with it, so this is its end just now.
            drop(transport::reply_now(answer.as_fd(), &SandboxReply::Gone, &[]));
            return;
        };
        let Fenced { fence, request } = request;
        if request != SandboxRequest::Destroy && !sandbox.lives() {
            drop(transport::reply_now(answer.as_fd(), &SandboxReply::Gone, &[]));
            return;
        }
        if !sandbox.admits(fence) {
            drop(transport::reply_now(answer.as_fd(), &SandboxReply::Fenced, &[]));
            return;
        }
        let now = process::now_millis();
        let reply = match request {
            SandboxRequest::Attach => {
                let attached = sandbox.attach().and_then(|(client, note)| {
                    transport::reply_now(answer.as_fd(), &SandboxReply::Attached, &[client.as_fd(), note])
                });
                match attached {
                    Ok(()) => return,
                    // Also where it can be told but not be given descriptors: too many are on their way.
                    Err(Errno(errno)) => SandboxReply::Failed(errno),
                }
            }
            SandboxRequest::Look => SandboxReply::State(sandbox.state(now)),
            SandboxRequest::SetTags { expected, fence, tags } => sandbox.set_tags(expected, fence, tags),
            SandboxRequest::Renew { lifetime_millis } => {
                SandboxReply::Renewed(sandbox.renew(lifetime_millis, now))
            }
            SandboxRequest::Destroy => {
                sandbox.end("destroyed");
                sandbox.waiting.push(answer);
                return;
            }
        };
        // Who does not listen any more does not want to know any more.
        drop(transport::reply_now(answer.as_fd(), &reply, &[]));
    }

    /// Checks that there will be descriptors for requests, its own and what another sandbox takes included.
    fn leave_descriptors(&self) -> crate::sys::Result<()> {
        let sandboxes: usize = self.sandboxes.values().map(Sandbox::descriptors).sum();
        let waiting: usize = self.ending.iter().map(|ending| ending.waiting.len()).sum();
        let taken = sandboxes + waiting + self.connections.len() + SPARE_DESCRIPTORS;
        if taken as u64 > process::most_open_files()? { Err(Errno(libc::EMFILE)) } else { Ok(()) }
    }

    fn create(
        &mut self,
        request: &CreateRequest,
        agent: BorrowedFd<'_>,
        note: Option<OwnedFd>,
    ) -> Result<(), Failure> {
        if self.sandboxes.values().any(|sandbox| sandbox.name == request.name) {
            return Err(Failure::at("name the sandbox")(Errno(libc::EEXIST)));
        }
        self.stuck
            .retain(|path| !matches!(file::remove_directory(None, path), Ok(()) | Err(Errno(libc::ENOENT))));
        self.leave_descriptors().map_err(Failure::at("leave some for requests"))?;
        let mut cgroups = Cgroups::default();
        let result = self.create_in(request, agent, note, &mut cgroups);
        if result.is_err() {
            self.stuck.extend(cgroups.remove(&request.name));
        }
        result
    }

    fn create_in(
        &mut self,
        request: &CreateRequest,
        agent: BorrowedFd<'_>,
        note: Option<OwnedFd>,
        cgroups: &mut Cgroups,
    ) -> Result<(), Failure> {
        cgroups.prepare(&request.cgroup)?;
        let (link, child_end) = socket::pair().map_err(Failure::at("create a socket pair"))?;
        let activity = (request.idle_millis > 0)
            .then(|| Activity::new(process::now_millis()))
            .transpose()
            .map_err(Failure::at("share a page with the sandbox"))?;
        let number = self.next_number();
        let has_template = self.templates.has(&request.view);
        let flags = NAMESPACES | process::CLONE_CLEAR_SIGHAND;
        let cloned = process::clone_into_namespaces(flags, cgroups.clone_into()).map_err(Failure::about(
            Subject::Namespaces,
            "create user, mount, pid, ipc, uts and cgroup namespaces",
        ))?;
        let Cloned::Parent { pid, pidfd } = cloned else {
            let seed = setup::Seed {
                link: child_end,
                number,
                activity,
                has_template,
                has_nobody: self.ids.has_nobody(),
            };
            setup::become_sandbox(request, seed, agent, self.ids.may_drop_groups);
        };
        drop(child_end);
        let mut sandbox = Sandbox::new(request, pid, pidfd, link, activity);
        if let Err(failure) = self.admit(&mut sandbox, request, number, note) {
            sandbox.withdraw();
            sandbox.kill();
            // Reaped at once: without "go" it has done nothing yet.
            drop(process::wait_for(pid));
            return Err(failure);
        }
        sandbox.cgroups = cgroups.take_owned();
        self.sandboxes.insert(number, sandbox);
        Ok(())
    }

    /// Puts the new process into its cgroups, gives it its ids, lists it if it is to be found, and lets it go on.
    fn admit(
        &self,
        sandbox: &mut Sandbox,
        request: &CreateRequest,
        number: u64,
        note: Option<OwnedFd>,
    ) -> Result<(), Failure> {
        let pid = sandbox.pid;
        sandbox.keep_from_forks().map_err(Failure::at("keep a page from other sandboxes"))?;
        cgroup::attach(&request.cgroup, pid)?;
        let (user_map, group_map) = self.ids.maps(request.uid, self.ids.of_sandbox(number));
        // Without the right to map other ids the kernel wants this promise before it takes a group map.
        let promise = (!self.ids.may_drop_groups).then_some(("setgroups", "deny"));
        let maps = [("uid_map", user_map.as_str()), ("gid_map", group_map.as_str())];
        for (name, content) in promise.into_iter().chain(maps) {
            file::write_value(&format!("/proc/{pid}/{name}").into_bytes(), content.as_bytes()).map_err(
                |errno| Failure {
                    subject: Subject::Ids,
                    step: format!("write {name} of the user namespace"),
                    errno,
                },
            )?;
        }
        self.epoll
            .add(sandbox.process(), Key::Ended(number).pack())
            .map_err(Failure::at("watch the sandbox"))?;
        sandbox.publish(request, note)?;
        if let Some(listener) = sandbox.listener() {
            self.epoll
                .add(listener, Key::Knock(number).pack())
                .map_err(Failure::about(Subject::Listing, "watch the socket"))?;
        }
        sandbox.go().map_err(Failure::at("release the sandbox"))
    }

    fn reap(&mut self, number: u64) {
        let Some(mut sandbox) = self.sandboxes.remove(&number) else { return };
        let status = process::wait_for(sandbox.pid);
        self.connections.retain(|_, connection| connection.sandbox != number);
        // The agent leaves of itself only when the one went whose sandbox it is, which it can see before this process does.
        let own_end = matches!(status, Ok(Status::Exited(0)));
        sandbox.note_end(if own_end { "owner_gone" } else { "died" });
        sandbox.withdraw();
        let mut ending = Ending::new(sandbox.name, sandbox.cgroups, sandbox.waiting);
        if !ending.progress() {
            self.ending.push(ending);
        }
    }
}
