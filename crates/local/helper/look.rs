//! What a sandbox stores and runs, for whoever inspects it.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::sys::fd::BorrowedFd;
use crate::sys::file;
use crate::wire::Reply;
use crate::wire::agent::Seen;
use crate::{transport, tree};

/// What is shown of a command line.
const COMMAND_BYTES: usize = 256;

/// Processes in one reply; with their command lines they fit into a message.
const BATCH: usize = 64;

/// Answers.
///
/// `ours` are the agent's own processes. They cannot be told by what they look like: a program can be given any name and arguments.
pub(crate) fn answer(channel: BorrowedFd<'_>, workdir: BorrowedFd<'_>, ours: &[libc::pid_t]) {
    let stored = file::stored_bytes(workdir).unwrap_or_default();
    let mut sent = transport::reply(channel, &Reply::Stored(stored), &[]);
    let theirs: Vec<_> = tree::all_others().into_iter().filter(|(pid, _)| !ours.contains(pid)).collect();
    for some in theirs.chunks(BATCH) {
        let some: Vec<Seen> = some.iter().filter_map(|(pid, parent)| look(*pid, *parent)).collect();
        sent = sent.and_then(|()| transport::reply(channel, &Reply::Processes(some), &[]));
    }
    // Who does not listen any more does not want to know any more.
    drop(sent.and_then(|()| transport::reply(channel, &Reply::EndOfProcesses, &[])));
}

/// `None` for one that has ended meanwhile, or has no command line because it is about to end.
fn look(pid: libc::pid_t, parent: libc::pid_t) -> Option<Seen> {
    let line = file::open(None, format!("/proc/{pid}/cmdline").as_bytes(), libc::O_RDONLY, 0).ok()?;
    let mut command = vec![0u8; COMMAND_BYTES];
    let length = file::read(line.as_fd(), &mut command).ok()?;
    command.truncate(length);
    if command.is_empty() {
        return None;
    }
    let number = |pid: libc::pid_t| u32::try_from(pid).unwrap_or_default();
    Some(Seen { pid: number(pid), parent: number(parent), command })
}
