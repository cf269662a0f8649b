//! The cgroup work of a sandbox: directories made and limits written before it exists, removed after it is gone.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::setup::Failure;
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::{Errno, file, process, socket};
use crate::transport;
use crate::wire::{CgroupAction, CgroupStep, SandboxReply};

/// How often and how long the removal of a cgroup is tried whose last process the kernel is still putting away.
pub(crate) const REMOVAL_RETRY_MILLIS: u64 = 2;
const REMOVAL_MILLIS: u64 = 5000;

/// A sandbox whose processes are gone and whose cgroups are not yet.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Which one.
    pub(crate) name: Vec<u8>,
    cgroups: Vec<Own>,
    /// Who wants to know.
    pub(crate) waiting: Vec<OwnedFd>,
    deadline_millis: u64,
}

impl Ending {
    /// Begins.
    pub(crate) fn new(name: Vec<u8>, cgroups: Vec<Own>, waiting: Vec<OwnedFd>) -> Self {
        Self { name, cgroups, waiting, deadline_millis: process::now_millis() + REMOVAL_MILLIS }
    }

    /// Goes on removing; true when done, or given up and said so.
    pub(crate) fn progress(&mut self) -> bool {
        while let Some(own) = self.cgroups.last() {
            match file::remove_directory(None, &own.path) {
                Ok(()) | Err(Errno(libc::ENOENT)) => {}
                Err(_) if process::now_millis() < self.deadline_millis => return false,
                Err(_) => {
                    self.tell(&SandboxReply::CgroupLeft);
                    return true;
                }
            }
            self.cgroups.pop();
        }
        self.tell(&SandboxReply::Gone);
        true
    }

    /// What could not be removed.
    pub(crate) fn left(self) -> impl Iterator<Item = Vec<u8>> {
        self.cgroups.into_iter().map(|own| own.path)
    }

    fn tell(&self, what: &SandboxReply) {
        for fd in &self.waiting {
            // Who does not listen any more does not want to know any more.
            drop(transport::reply_now(fd.as_fd(), what, &[]));
        }
    }
}

/// A directory that is one sandbox's alone. Locked as long as somebody will remove it: in other pid namespaces nothing else tells
/// that this process lives.
#[derive(Debug)]
pub(crate) struct Own {
    path: Vec<u8>,
    _lock: OwnedFd,
}

/// How often and how long it is put up with that somebody takes a new directory, not locked yet, for one of a launcher that is gone: that
/// needs another process between two calls of this one.
const ATTEMPTS: u32 = 5;
const LOCK_MILLIS: u64 = 1000;

impl Own {
    fn make(path: &[u8]) -> crate::sys::Result<Self> {
        for _ in 0..ATTEMPTS {
            // Nobody else's to open, because whoever can open it can lock it.
            file::make_directory(None, path, 0o700)?;
            match Self::take(path) {
                Ok(Some(own)) => return Ok(own),
                // It was removed.
                Ok(None) | Err(Errno(libc::ENOENT)) => {}
                Err(errno) => {
                    // What stays is empty, and whoever comes next removes it.
                    drop(file::remove_directory(None, path));
                    return Err(errno);
                }
            }
        }
        Err(Errno(libc::ENOENT))
    }

    /// Locks a directory that was just made; `None` where the path leads to it no more.
    fn take(path: &[u8]) -> crate::sys::Result<Option<Self>> {
        let flags = libc::O_DIRECTORY | libc::O_RDONLY | libc::O_NOFOLLOW;
        let lock = file::open(None, path, flags, 0)?;
        let deadline = process::now_millis() + LOCK_MILLIS;
        while let Err(errno) = file::lock(lock.as_fd()) {
            if errno != Errno(libc::EAGAIN) || process::now_millis() >= deadline {
                return Err(errno);
            }
            drop(socket::poll(&mut [], Some(REMOVAL_RETRY_MILLIS)));
        }
        let there = file::open(None, path, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        let is_it = file::metadata(there.as_fd())?.identity == file::metadata(lock.as_fd())?.identity;
        Ok(is_it.then(|| Self { path: path.to_vec(), _lock: lock }))
    }
}

/// The cgroup work of one creation.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    owned: Vec<Own>,
    clone_into: Option<OwnedFd>,
}

impl Cgroups {
    /// Does every step that comes before the sandbox.
    pub(crate) fn prepare(&mut self, steps: &[CgroupStep]) -> Result<(), Failure> {
        for step in steps {
            let failed = |verb: &str, path: &[u8]| {
                let step_name = format!("{verb} {}", String::from_utf8_lossy(path));
                move |errno| Failure { subject: step.subject, step: step_name, errno }
            };
            match &step.action {
                CgroupAction::Ensure(path) => match file::make_directory(None, path, 0o777) {
                    Ok(()) | Err(Errno(libc::EEXIST)) => {}
                    Err(errno) => return Err(failed("create", path)(errno)),
                },
                CgroupAction::Own(path) => {
                    self.owned.push(Own::make(path).map_err(failed("create", path))?);
                }
                CgroupAction::Write(path, value) => {
                    file::write_value(path, value).map_err(failed("write", path))?;
                }
                CgroupAction::WriteIfPresent(path, value) => match file::write_value(path, value) {
                    Ok(()) | Err(Errno(libc::ENOENT)) => {}
                    Err(errno) => return Err(failed("write", path)(errno)),
                },
                CgroupAction::CloneInto(path) => {
                    let directory = file::open(None, path, libc::O_DIRECTORY | libc::O_RDONLY, 0);
                    self.clone_into = Some(directory.map_err(failed("open", path))?);
                }
                CgroupAction::Attach(_) => {}
            }
        }
        Ok(())
    }

    /// The v2 directory to start the sandbox in.
    pub(crate) fn clone_into(&self) -> Option<BorrowedFd<'_>> {
        self.clone_into.as_ref().map(OwnedFd::as_fd)
    }

    /// The directories to remove after the sandbox.
    pub(crate) fn take_owned(&mut self) -> Vec<Own> {
        core::mem::take(&mut self.owned)
    }

    /// Undoes a creation that failed; returns what could not be removed.
    pub(crate) fn remove(&mut self, name: &[u8]) -> impl Iterator<Item = Vec<u8>> + use<> {
        let mut ending = Ending::new(name.to_vec(), self.take_owned(), Vec::new());
        while !ending.progress() {
            drop(socket::poll(&mut [], Some(REMOVAL_RETRY_MILLIS)));
        }
        ending.left()
    }
}

/// Puts a process that does nothing yet into its v1 directories.
pub(crate) fn attach(steps: &[CgroupStep], pid: libc::pid_t) -> Result<(), Failure> {
    for step in steps {
        if let CgroupAction::Attach(directory) = &step.action {
            let path = [directory.as_slice(), b"/cgroup.procs"].concat();
            file::write_value(&path, pid.to_string().as_bytes()).map_err(|errno| Failure {
                subject: step.subject,
                step: format!("write {}", String::from_utf8_lossy(&path)),
                errno,
            })?;
        }
    }
    Ok(())
}
