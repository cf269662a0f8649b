//! What a creator leaves for whoever attaches later: what was asked, what is enforced, and what a command needs that is not in the
//! sandbox. In memory only, handed out by the launcher: the values of variables are in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_core::{EnforcementStatement, SandboxSpec, object_only};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use crate::cgroup::Counter;
use crate::config::Shell;

/// The most bytes of a note.
const NOTE_BYTES: u64 = 16 << 20;

/// How long an attaching process waits for a note that is not written yet.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// The note.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct Note {
    pub(crate) spec: SandboxSpec,
    pub(crate) statement: EnforcementStatement,
    pub(crate) shell: Shell,
    pub(crate) landlock_abi: u32,
    pub(crate) kept: bool,
    pub(crate) created_millis: u64,
    pub(crate) memory: Option<Counter>,
    pub(crate) pids: Option<Counter>,
    pub(crate) cgroups: Vec<PathBuf>,
}

object_only!(Note);

impl Note {
    /// A file for one, without content.
    pub(crate) fn file() -> io::Result<OwnedFd> {
        Ok(rustix::fs::memfd_create(c"ringfence-note", MemfdFlags::CLOEXEC)?)
    }

    /// Writes it where attaching processes read it.
    pub(crate) fn write(&self, file: OwnedFd) -> io::Result<()> {
        let content = serde_json::to_vec(self)?;
        // In one call, so that it is there as a whole or not at all; the kernel writes up to 2 GiB of memory at once.
        File::from(file).write_all_at(&content, 0)
    }

    /// Reads it, once its creator has written it.
    pub(crate) async fn read(file: OwnedFd) -> io::Result<Self> {
        let reading = async {
            loop {
                match read_now(&file)? {
                    Some(note) => return Ok(note),
                    None => tokio::time::sleep(PAUSE).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn read_now(file: &OwnedFd) -> io::Result<Option<Note>> {
    let size = u64::try_from(rustix::fs::fstat(file.as_fd())?.st_size).unwrap_or_default();
    if size == 0 {
        return Ok(None);
    }
    if size > NOTE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut content = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    let mut read = 0;
    // The position is shared with everybody who has it, so it is not used.
    while read < content.len() {
        match rustix::io::pread(file, &mut content[read..], read as u64)? {
            0 => break,
            length => read += length,
        }
    }
    serde_json::from_slice(&content[..read]).map(Some).map_err(io::Error::from)
}
