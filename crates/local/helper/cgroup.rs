//! The cgroup work of a sandbox: directories made and limits written before it exists, removed after it is gone.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::setup::Failure;
use crate::sys::{file, process, socket};
use crate::wire::{CgroupAction, CgroupStep};

/// How often and how long the removal of a cgroup is tried whose last process the kernel is still putting away.
pub(crate) const REMOVAL_RETRY_MILLIS: u64 = 2;
const REMOVAL_MILLIS: u64 = 5000;

/// What the owner reads once a destroyed sandbox is gone.
pub(crate) const GONE: [u8; 1] = [0];
const GONE_BUT_CGROUP_LEFT: [u8; 1] = [1];

/// A sandbox whose processes are gone and whose cgroups are not yet.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Which one.
    pub(crate) token: u64,
    cgroups: Vec<PathBuf>,
    /// Who wants to know.
    pub(crate) waiting: Vec<OwnedFd>,
    deadline_millis: u64,
}

impl Ending {
    /// Begins.
    pub(crate) fn new(token: u64, cgroups: Vec<PathBuf>, waiting: Vec<OwnedFd>) -> Self {
        Self { token, cgroups, waiting, deadline_millis: process::now_millis() + REMOVAL_MILLIS }
    }

    /// Goes on removing; true when done, or given up and said so.
    pub(crate) fn progress(&mut self) -> bool {
        while let Some(path) = self.cgroups.last() {
            match fs::remove_dir(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) if process::now_millis() < self.deadline_millis => return false,
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
            // Who does not listen any more does not want to know any more.
            drop(socket::send(fd.as_fd(), what, &[]));
        }
    }
}

/// The cgroup work of one creation.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    owned: Vec<PathBuf>,
    clone_into: Option<OwnedFd>,
}

impl Cgroups {
    /// Does every step that comes before the sandbox.
    pub(crate) fn prepare(&mut self, steps: &[CgroupStep]) -> Result<(), Failure> {
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
                    write(path_of(path), value).map_err(|error| failed(step, "write", path, error))?;
                }
                CgroupAction::WriteIfPresent(path, value) => match write(path_of(path), value) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed(step, "write", path, error));
                    }
                    _ => {}
                },
                CgroupAction::CloneInto(path) => {
                    let directory = file::open(None, path, libc::O_DIRECTORY | libc::O_RDONLY, 0);
                    self.clone_into = Some(directory.map_err(|errno| Failure {
                        subject: step.subject,
                        step: format!("open {}", path_of(path).display()),
                        errno,
                    })?);
                }
                CgroupAction::Attach(_) => {}
            }
        }
        Ok(())
    }

    /// The v2 directory to start the sandbox in.
    pub(crate) fn clone_into(&self) -> Option<BorrowedFd<'_>> {
        self.clone_into.as_ref().map(AsFd::as_fd)
    }

    /// The directories to remove after the sandbox.
    pub(crate) fn take_owned(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.owned)
    }

    /// Undoes a creation that failed.
    pub(crate) fn remove(&mut self, token: u64) {
        let mut ending = Ending::new(token, self.take_owned(), Vec::new());
        while !ending.progress() {
            drop(socket::poll(&mut [], Some(REMOVAL_RETRY_MILLIS)));
        }
    }
}

/// Puts a process that does nothing yet into its v1 directories.
pub(crate) fn attach(steps: &[CgroupStep], pid: libc::pid_t) -> Result<(), Failure> {
    for step in steps {
        if let CgroupAction::Attach(directory) = &step.action {
            let path = path_of(directory).join("cgroup.procs");
            write(&path, pid.to_string().as_bytes())
                .map_err(|error| Failure::io(step.subject, format!("write {}", path.display()), error))?;
        }
    }
    Ok(())
}

/// Writes into a file that is there. The standard library's `write` would try to create one that is not, and these file
/// systems answer that with "permission denied".
fn write(path: &Path, value: &[u8]) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(value)
}

fn failed(step: &CgroupStep, verb: &str, path: &[u8], error: io::Error) -> Failure {
    Failure::io(step.subject, format!("{verb} {}", path_of(path).display()), error)
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
