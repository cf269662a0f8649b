//! The launcher: creates sandboxes on request, ends them on request, at the end of their lifetime, and all of them when
//! the owner is gone. It holds nothing but descriptors: no environment, no output, no file content passes through it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::setup::{self, Failure};
use crate::sys::process::Cloned;
use crate::sys::socket::Epoll;
use crate::sys::{Errno, file, process, socket};
use crate::transport;
use crate::wire::{CgroupAction, CgroupStep, CreateReply, CreateRequest, LauncherRequest, Subject};

/// The control socket, as the owner starts us.
const CONTROL_FD: i32 = 0;
const CONTROL_KEY: u64 = 0;
const OWNER_KEY: u64 = 1;
/// Sandbox tokens follow.
const FIRST_SANDBOX_KEY: u64 = 2;

/// How often and how long to retry the removal of a cgroup whose last process the kernel is still putting away.
const REMOVAL_RETRY_MILLIS: u64 = 2;
const REMOVAL_RETRIES: u32 = 1000;

/// What the owner reads once a destroyed sandbox is gone.
const GONE: [u8; 1] = [0];
const GONE_BUT_CGROUP_LEFT: [u8; 1] = [1];

const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u64;

/// Serves `owner` until it is gone. Returns the exit status.
pub(crate) fn run(owner: libc::pid_t) -> i32 {
    match serve(owner) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn serve(owner: libc::pid_t) -> crate::sys::Result<()> {
    // A session of its own: the terminal's signals are for the owner, who then ends the sandboxes in order.
    process::setsid()?;
    process::set_name(c"ringfence")?;
    process::reset_signals()?;
    process::raise_open_files()?;
    file::close_all_but(&[CONTROL_FD, 1, 2])?;
    file::change_directory(b"/")?;
    let owner_pidfd = process::pidfd_open(owner)?;
    // The number may be another process's by now, but our parent's it can only be while the owner lives.
    if process::getppid() != owner {
        return Ok(());
    }
    let epoll = Epoll::new()?;
    let control = file::adopt(CONTROL_FD);
    epoll.add(control.as_fd(), CONTROL_KEY)?;
    epoll.add(owner_pidfd.as_fd(), OWNER_KEY)?;
    let mut launcher = Launcher { epoll, ids: Ids::read(), sandboxes: BTreeMap::new(), ending: Vec::new() };
    while launcher.turn(control.as_fd())? {}
    launcher.end_all();
    Ok(())
}

struct Launcher {
    epoll: Epoll,
    ids: Ids,
    sandboxes: BTreeMap<u64, Sandbox>,
    ending: Vec<Ending>,
}

struct Sandbox {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    /// Open as long as the launcher lives, which is how the sandbox's first process knows that it does.
    _alive: OwnedFd,
    cgroups: Vec<PathBuf>,
    deadline_millis: Option<u64>,
    waiting: Vec<OwnedFd>,
}

/// A sandbox whose processes are gone and whose cgroups are not yet.
struct Ending {
    cgroups: Vec<PathBuf>,
    waiting: Vec<OwnedFd>,
    retries: u32,
}

impl Launcher {
    /// Handles what has happened; false when the owner is gone.
    fn turn(&mut self, control: BorrowedFd<'_>) -> crate::sys::Result<bool> {
        for key in self.epoll.wait(self.timeout())? {
            match key {
                OWNER_KEY => return Ok(false),
                CONTROL_KEY => match transport::receive::<LauncherRequest>(control) {
                    Ok(Some((request, fds))) => self.handle(request, fds),
                    Ok(None) | Err(Errno(libc::ECONNRESET)) => return Ok(false),
                    // A request that we cannot read is dropped with its descriptors: its sender sees them close.
                    Err(_) => {}
                },
                key => self.reap(key - FIRST_SANDBOX_KEY),
            }
        }
        self.end_expired();
        self.ending.retain_mut(|ending| !ending.progress());
        Ok(true)
    }

    fn timeout(&self) -> Option<u64> {
        if !self.ending.is_empty() {
            return Some(REMOVAL_RETRY_MILLIS);
        }
        let next = self.sandboxes.values().filter_map(|sandbox| sandbox.deadline_millis).min()?;
        Some(next.saturating_sub(process::now_millis()))
    }

    fn end_expired(&self) {
        if self.sandboxes.values().all(|sandbox| sandbox.deadline_millis.is_none()) {
            return;
        }
        let now = process::now_millis();
        for sandbox in self.sandboxes.values() {
            if sandbox.deadline_millis.is_some_and(|deadline| deadline <= now) {
                sandbox.kill();
            }
        }
    }

    fn handle(&mut self, request: LauncherRequest, mut fds: Vec<OwnedFd>) {
        let Some(fd) = fds.pop() else { return };
        match request {
            LauncherRequest::Create(request) => {
                if let Err(failure) = self.create(&request, fd.as_fd()) {
                    let reply = CreateReply::Failed {
                        subject: failure.subject,
                        step: failure.step,
                        errno: failure.errno.0,
                    };
                    // An owner that no longer listens needs no answer.
                    drop(transport::reply(fd.as_fd(), &reply, &[]));
                }
            }
            LauncherRequest::Destroy { token } => match self.sandboxes.get_mut(&token) {
                Some(sandbox) => {
                    sandbox.kill();
                    sandbox.waiting.push(fd);
                }
                None => drop(socket::send(fd.as_fd(), &GONE, &[])),
            },
        }
    }

    fn create(&mut self, request: &CreateRequest, agent: BorrowedFd<'_>) -> Result<(), Failure> {
        let mut cgroups = Cgroups::default();
        let result = self.create_in(request, agent, &mut cgroups);
        if result.is_err() {
            cgroups.remove();
        }
        result
    }

    fn create_in(
        &mut self,
        request: &CreateRequest,
        agent: BorrowedFd<'_>,
        cgroups: &mut Cgroups,
    ) -> Result<(), Failure> {
        cgroups.prepare(&request.cgroup)?;
        let (alive, child_end) = socket::pair().map_err(Failure::at("create a socket pair"))?;
        let id = self.ids.of_sandbox(request.token);
        let flags = NAMESPACES | process::CLONE_CLEAR_SIGHAND;
        let into = cgroups.clone_into.as_ref().map(AsFd::as_fd);
        let cloned = process::clone_into_namespaces(flags, into)
            .map_err(Failure::at("create user, mount, pid, ipc, uts, net and cgroup namespaces"))?;
        let Cloned::Parent { pid, pidfd } = cloned else {
            setup::become_sandbox(request, child_end, agent, self.ids.may_drop_groups);
        };
        drop(child_end);
        let sandbox = Sandbox {
            pid,
            pidfd,
            _alive: alive,
            cgroups: Vec::new(),
            deadline_millis: (request.lifetime_millis > 0)
                .then(|| process::now_millis().saturating_add(request.lifetime_millis)),
            waiting: Vec::new(),
        };
        if let Err(failure) = self.admit(&sandbox, request, id) {
            sandbox.kill();
            // Reaped at once: without "go" it has done nothing yet.
            drop(process::wait_for(pid));
            return Err(failure);
        }
        self.sandboxes.insert(request.token, Sandbox { cgroups: cgroups.take_owned(), ..sandbox });
        Ok(())
    }

    /// Puts the new process into its cgroups, gives it its ids and lets it go on.
    fn admit(&self, sandbox: &Sandbox, request: &CreateRequest, id: u32) -> Result<(), Failure> {
        for step in &request.cgroup {
            if let CgroupAction::Attach(directory) = &step.action {
                let path = path_of(directory).join("cgroup.procs");
                fs::write(&path, sandbox.pid.to_string())
                    .map_err(|error| Failure::io(step.subject, format!("write {}", path.display()), error))?;
            }
        }
        let process = PathBuf::from(format!("/proc/{}", sandbox.pid));
        let (user_map, group_map) = self.ids.maps(request.uid, id);
        // Without the right to map other ids the kernel wants this promise before it takes a group map.
        let promise = (!self.ids.may_drop_groups).then_some(("setgroups", "deny"));
        let maps = [("uid_map", user_map.as_str()), ("gid_map", group_map.as_str())];
        for (name, content) in promise.into_iter().chain(maps) {
            fs::write(process.join(name), content).map_err(|error| {
                Failure::io(Subject::Sandbox, format!("write {name} of the user namespace"), error)
            })?;
        }
        self.epoll
            .add(sandbox.pidfd.as_fd(), request.token + FIRST_SANDBOX_KEY)
            .map_err(Failure::at("watch the sandbox"))?;
        socket::send(sandbox._alive.as_fd(), b"go", &[]).map_err(Failure::at("release the sandbox"))
    }

    fn reap(&mut self, token: u64) {
        let Some(sandbox) = self.sandboxes.remove(&token) else { return };
        drop(process::wait_for(sandbox.pid));
        let mut ending = Ending { cgroups: sandbox.cgroups, waiting: sandbox.waiting, retries: 0 };
        if !ending.progress() {
            self.ending.push(ending);
        }
    }

    fn end_all(&mut self) {
        for sandbox in self.sandboxes.values() {
            sandbox.kill();
        }
        for token in self.sandboxes.keys().copied().collect::<Vec<_>>() {
            self.reap(token);
        }
        while !self.ending.is_empty() {
            drop(socket::poll(&mut [], Some(REMOVAL_RETRY_MILLIS)));
            self.ending.retain_mut(|ending| !ending.progress());
        }
    }
}

impl Sandbox {
    /// Ends the first process, and with it the kernel every other one of the pid namespace.
    fn kill(&self) {
        // ESRCH: it has ended already, which is what was wanted.
        drop(process::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL));
    }
}

impl Ending {
    /// Goes on removing; true when done, or given up and said so.
    fn progress(&mut self) -> bool {
        while let Some(path) = self.cgroups.last() {
            match fs::remove_dir(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) if self.retries < REMOVAL_RETRIES => {
                    self.retries += 1;
                    return false;
                }
                Err(_) => {
                    self.tell(&GONE_BUT_CGROUP_LEFT);
                    return true;
                }
            }
            self.cgroups.pop();
        }
        self.tell(&GONE);
        true
    }

    fn tell(&self, what: &[u8]) {
        for fd in &self.waiting {
            drop(socket::send(fd.as_fd(), what, &[]));
        }
    }
}

/// The cgroup work of one creation.
#[derive(Default)]
struct Cgroups {
    owned: Vec<PathBuf>,
    clone_into: Option<OwnedFd>,
}

impl Cgroups {
    fn prepare(&mut self, steps: &[CgroupStep]) -> Result<(), Failure> {
        for step in steps {
            match &step.action {
                CgroupAction::Ensure(path) => match fs::create_dir(path_of(path)) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(failed(step, "create", path, error));
                    }
                    _ => {}
                },
                CgroupAction::Own(path) => {
                    fs::create_dir(path_of(path)).map_err(|error| failed(step, "create", path, error))?;
                    self.owned.push(path_of(path).to_owned());
                }
                CgroupAction::Write(path, value) => {
                    fs::write(path_of(path), value).map_err(|error| failed(step, "write", path, error))?
                }
                CgroupAction::CloneInto(path) => {
                    let directory = file::open(None, path, libc::O_DIRECTORY | libc::O_RDONLY, 0);
                    self.clone_into = Some(directory.map_err(|errno| Failure {
                        subject: step.subject,
                        step: format!("open {}", path_of(path).display()),
                        errno,
                    })?);
                }
                CgroupAction::WriteIfPresent(path, value) => match fs::write(path_of(path), value) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed(step, "write", path, error));
                    }
                    _ => {}
                },
                CgroupAction::Attach(_) => {}
            }
        }
        Ok(())
    }

    fn take_owned(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.owned)
    }

    fn remove(&mut self) {
        let mut ending = Ending { cgroups: self.take_owned(), waiting: Vec::new(), retries: 0 };
        while !ending.progress() {
            drop(socket::poll(&mut [], Some(REMOVAL_RETRY_MILLIS)));
        }
    }
}

fn failed(step: &CgroupStep, verb: &str, path: &[u8], error: io::Error) -> Failure {
    Failure::io(step.subject, format!("{verb} {}", path_of(path).display()), error)
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Which ids of the host sandboxes get.
struct Ids {
    uid: u32,
    gid: u32,
    /// Whether this process may map ids other than its own, and so also let sandboxes drop groups.
    may_drop_groups: bool,
    /// The range of our own user namespace to choose from: first id, count.
    range: (u32, u32),
    /// Where in the range this launcher starts.
    start: u64,
}

/// Where sandbox ids lie in a namespace with all ids: above what distributions and container managers hand out, below 2^31,
/// where some programs stop counting.
const FIRST_ID: u32 = 0x7000_0000;
const LAST_ID: u32 = 0x7fff_ffff;

impl Ids {
    fn read() -> Self {
        let (uid, gid) = process::effective_ids();
        let own = Self { uid, gid, may_drop_groups: false, range: (uid, 1), start: process::random() };
        if uid != 0 {
            return own;
        }
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let ranges = map.lines().filter_map(|line| {
            let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
            let (first, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
            Some((first, count))
        });
        match ranges.max_by_key(|(_, count)| *count) {
            Some((first, count)) if count > 1 => {
                let last = first.saturating_add(count - 1);
                let range = if first <= FIRST_ID && last >= LAST_ID {
                    (FIRST_ID, LAST_ID - FIRST_ID)
                } else {
                    // A small namespace: leave its lower half to those who live there.
                    (first + count / 2, count - count / 2)
                };
                Self { may_drop_groups: true, range, ..own }
            }
            _ => own,
        }
    }

    /// An id of its own for each sandbox, so that limits per user and permissions do not cross sandboxes. Where a launcher
    /// starts is chance, so that those of different owners do not meet, also across pid namespaces.
    fn of_sandbox(&self, token: u64) -> u32 {
        let (first, count) = self.range;
        first + (self.start.wrapping_add(token) % u64::from(count)) as u32
    }

    /// The user and the group map: `inside` is `id` outside, or our own ids where we may map no others.
    fn maps(&self, inside: u32, id: u32) -> (String, String) {
        let (uid, gid) = if self.may_drop_groups { (id, id) } else { (self.uid, self.gid) };
        (format!("{inside} {uid} 1\n"), format!("{inside} {gid} 1\n"))
    }
}
