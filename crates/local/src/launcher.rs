//! The launcher as the owner sees it: started once, asked over one socket, gone when the owner is.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::transport;
use crate::wire::LauncherRequest;

/// The helper, as `build.rs` made it.
static HELPER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/helper"));

/// A running launcher. Dropping it ends all its sandboxes.
#[derive(Debug)]
pub(crate) struct Launcher {
    control: Option<OwnedFd>,
    child: Option<Child>,
}

impl Launcher {
    /// Starts a launcher from a sealed memory file: nothing of ours lies on a disk where something could change it (S1).
    pub(crate) fn start() -> io::Result<Self> {
        let program = helper_file()?;
        let (control, theirs) = transport::pair()?;
        // The kernel opens the path in the new process before it closes what is closed on exec.
        let child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .arg(std::process::id().to_string())
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { control: Some(control), child: Some(child) })
    }

    /// Sends a request with its one descriptor.
    pub(crate) async fn send(&self, request: &LauncherRequest, fd: OwnedFd) -> io::Result<()> {
        match &self.control {
            Some(control) => transport::send(control.as_fd(), request, &[fd.as_fd()]).await,
            None => Err(io::Error::from(Errno::PIPE)),
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // Seen by the launcher as the owner's end: it destroys everything and exits.
        self.control = None;
        if let Some(mut child) = self.child.take() {
            // Only collects the exit status; where no thread can be made the process table entry stays until we exit.
            drop(std::thread::Builder::new().name("ringfence-reaper".to_owned()).spawn(move || child.wait()));
        }
    }
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
