//! The launcher as the owner sees it: started once, asked over one socket, gone when the owner is.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, waitid};

use crate::transport;
use crate::wire::{CreateReply, LauncherRequest, Message};

/// The helper, as `build.rs` made it.
static HELPER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/helper"));

/// More than what a launcher says at its end.
const END_BYTES: usize = 4 << 10;

/// How a launcher ended that nobody had asked to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It could not do this.
    Step {
        /// What.
        step: String,
        /// Why.
        errno: i32,
    },
    /// A signal ended it.
    Signal(i32),
    /// It did not say, and the kernel does not any more.
    Unknown,
}

/// A running launcher. Dropping it ends all its sandboxes but the kept ones.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// Its process.
    pid: u32,
    control: Option<OwnedFd>,
    child: Option<Child>,
}

impl Launcher {
    /// Starts a launcher from a sealed memory file: nothing of ours lies on a disk where something could change it (S1).
    pub(crate) fn start() -> io::Result<Self> {
        collect(&mut ENDED.lock().unwrap_or_else(PoisonError::into_inner));
        let program = helper_file()?;
        let (control, theirs) = transport::pair()?;
        // A descriptor and not a number, which could be another process's by the time the launcher looks.
        let owner = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
        // The kernel opens the path in the new process before it closes what is closed on exec.
        let child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .arg0("ringfence")
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(owner))
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { pid: child.id(), control: Some(control), child: Some(child) })
    }

    /// Stands in the names of the control groups that it makes.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it is gone, and with it all its sandboxes.
    pub(crate) fn has_ended(&self) -> bool {
        let Some(control) = &self.control else { return true };
        let mut watch = [PollFd::new(control, PollFlags::empty())];
        // Only hang-ups are looked for; those are always reported.
        rustix::event::poll(&mut watch, Some(&Timespec::default())).is_ok()
            && watch[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Why it has ended without being asked to.
    pub(crate) fn why_ended(&self) -> End {
        let mut packet = vec![0; END_BYTES];
        let mut told = || match &self.control {
            Some(control) => rustix::net::recv(control, packet.as_mut_slice(), RecvFlags::DONTWAIT),
            None => Err(Errno::PIPE),
        };
        // What it left unread is said once, before what it has sent.
        let told = told().or_else(|_| told()).map(|(_, length)| length);
        if let Ok(length @ 1..) = told
            && let Ok(CreateReply::Failed { step, errno, .. }) =
                CreateReply::decode(packet.get(..length).unwrap_or_default())
        {
            return End::Step { step, errno };
        }
        let Some(child) = &self.child else { return End::Unknown };
        // Its descriptors are closed a moment before.
        wait_briefly(child);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = pid.and_then(|pid| waitid(WaitId::Pid(pid), options).ok().flatten());
        status.and_then(|status| status.terminating_signal()).map_or(End::Unknown, End::Signal)
    }

    /// Sends a request with its descriptors.
    pub(crate) async fn send(&self, request: &LauncherRequest, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        match &self.control {
            Some(control) => transport::send(control.as_fd(), request, fds).await,
            None => Err(io::Error::from(Errno::PIPE)),
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // Seen by the launcher as the owner's end: it destroys what is not kept, and exits when nothing is left.
        self.control = None;
        let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
        ended.extend(self.child.take());
        // Usually there at once; what takes longer is collected with the next one.
        for child in ended.iter() {
            wait_briefly(child);
        }
        collect(&mut ended);
    }
}

/// Launchers that were told to end and whose exit status nobody has taken yet.
static ENDED: Mutex<Vec<Child>> = Mutex::new(Vec::new());

fn collect(ended: &mut Vec<Child>) {
    // An error means that someone else took the status.
    ended.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

fn wait_briefly(child: &Child) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    // A launcher that is still busy with ending its sandboxes does not hold its owner up.
    rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)).ok();
}

fn helper_file() -> io::Result<OwnedFd> {
    match transport::memory_file(c"ringfence-helper", HELPER, MemfdFlags::EXEC) {
        // Kernels before 6.3 do not know the flag, and there every memory file can be executed.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            transport::memory_file(c"ringfence-helper", HELPER, MemfdFlags::empty())
        }
        other => other,
    }
}
