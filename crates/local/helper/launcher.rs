//! The launcher: creates sandboxes on request, ends them on request, at the end of their lifetime, and all of them when
//! the owner is gone. It holds nothing but descriptors: no environment, no output, no file content passes through it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use crate::cgroup::{self, Cgroups, Ending, GONE, REMOVAL_RETRY_MILLIS};
use crate::ids::Ids;
use crate::setup::{self, Failure};
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::process::Cloned;
use crate::sys::socket::Epoll;
use crate::sys::{Errno, file, process, socket};
use crate::transport;
use crate::wire::{CreateReply, CreateRequest, LauncherRequest, Subject};

const CONTROL_KEY: u64 = 0;
const OWNER_KEY: u64 = 1;
/// Sandbox tokens follow.
const FIRST_SANDBOX_KEY: u64 = 2;

/// All that a sandbox gets but its network, which it makes itself.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// Serves the owner until it is gone.
pub(crate) fn serve() -> crate::sys::Result<()> {
    // A session of its own: the terminal's signals are for the owner, who then ends the sandboxes in order.
    process::setsid()?;
    process::set_name(c"ringfence")?;
    process::reset_signals()?;
    process::raise_open_files()?;
    file::close_all_but(&[0, 1, 2])?;
    file::change_directory(b"/")?;
    // The owner hands over a descriptor of itself: its number could be another process's by the time we look.
    let [control, owner] = file::take_over();
    let epoll = Epoll::new()?;
    epoll.add(control.as_fd(), CONTROL_KEY)?;
    epoll.add(owner.as_fd(), OWNER_KEY)?;
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
    cgroups: Vec<Vec<u8>>,
    deadline_millis: Option<u64>,
    waiting: Vec<OwnedFd>,
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
                None => match self.ending.iter_mut().find(|ending| ending.token == token) {
                    Some(ending) => ending.waiting.push(fd),
                    // Who does not listen any more does not want to know any more.
                    None => drop(socket::send(fd.as_fd(), &GONE, &[])),
                },
            },
        }
    }

    fn create(&mut self, request: &CreateRequest, agent: BorrowedFd<'_>) -> Result<(), Failure> {
        let mut cgroups = Cgroups::default();
        let result = self.create_in(request, agent, &mut cgroups);
        if result.is_err() {
            cgroups.remove(request.token);
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
        let cloned = process::clone_into_namespaces(flags, cgroups.clone_into())
            .map_err(Failure::at("create user, mount, pid, ipc, uts and cgroup namespaces"))?;
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
        cgroup::attach(&request.cgroup, sandbox.pid)?;
        let (user_map, group_map) = self.ids.maps(request.uid, id);
        // Without the right to map other ids the kernel wants this promise before it takes a group map.
        let promise = (!self.ids.may_drop_groups).then_some(("setgroups", "deny"));
        let maps = [("uid_map", user_map.as_str()), ("gid_map", group_map.as_str())];
        for (name, content) in promise.into_iter().chain(maps) {
            file::write_value(&format!("/proc/{}/{name}", sandbox.pid).into_bytes(), content.as_bytes())
                .map_err(|errno| Failure {
                    subject: Subject::Sandbox,
                    step: format!("write {name} of the user namespace"),
                    errno,
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
        let mut ending = Ending::new(token, sandbox.cgroups, sandbox.waiting);
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
