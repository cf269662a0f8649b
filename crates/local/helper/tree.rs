//! Finding and ending the descendants of a process, also those that left its session or were orphaned on the way.
//!
//! The caller is their subreaper, so a process whose parent ends becomes the caller's own child and stays findable.

use std::collections::BTreeMap;
use std::fs;

use crate::sys::{Errno, process};

/// How long the walk goes round while processes keep being made, or take their time to end: the kernel puts gigabytes of
/// memory away after the kill. Each round stops all it finds, so only those made between reading and stopping are left; a
/// tree that outlasts this is reported, not waited for.
const PATIENCE_MILLIS: u64 = 5000;

/// The children of a process.
pub(crate) fn children_of(parent: libc::pid_t) -> Vec<libc::pid_t> {
    processes().into_iter().filter(|(_, its_parent)| *its_parent == parent).map(|(pid, _)| pid).collect()
}

/// All descendants of this process.
fn descendants() -> Vec<libc::pid_t> {
    let mut by_parent: BTreeMap<libc::pid_t, Vec<libc::pid_t>> = BTreeMap::new();
    for (pid, parent) in processes() {
        by_parent.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut next = vec![process::getpid()];
    while let Some(pid) = next.pop() {
        // Removed when visited: what another process does meanwhile cannot make this go round.
        for child in by_parent.remove(&pid).unwrap_or_default() {
            found.push(child);
            next.push(child);
        }
    }
    found
}

/// Signals every descendant once.
pub(crate) fn signal_all(signal: libc::c_int) {
    for pid in descendants() {
        // It may have ended since it was listed.
        drop(process::kill(pid, signal));
    }
}

/// Ends every descendant and reaps it. False when the tree kept growing faster than it could be stopped.
pub(crate) fn kill_all() -> bool {
    let deadline = process::now_millis() + PATIENCE_MILLIS;
    loop {
        let mut stopped = 0;
        // Stopped processes make no new ones: stop until a look finds nothing new, then end them all.
        loop {
            let found = descendants();
            if found.len() <= stopped || process::now_millis() >= deadline {
                break;
            }
            stopped = found.len();
            for pid in found {
                drop(process::kill(pid, libc::SIGSTOP));
            }
        }
        signal_all(libc::SIGKILL);
        if reap_killed() {
            return true;
        }
        if process::now_millis() >= deadline {
            return false;
        }
    }
}

/// Reaps until there is no child (true) or a child lives that has not been killed (false).
fn reap_killed() -> bool {
    loop {
        match process::reap() {
            Ok(Some(_)) => {}
            Err(Errno(libc::ECHILD)) => return true,
            // A killed process that is not reapable yet: give the kernel the processor, then look again.
            Ok(None) => {
                drop(crate::sys::socket::poll(&mut [], Some(1)));
                if descendants().iter().any(|pid| !is_dying(*pid)) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

/// Every process of the sandbox with its parent.
fn processes() -> Vec<(libc::pid_t, libc::pid_t)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: libc::pid_t = entry.file_name().to_str()?.parse().ok()?;
            let (_, parent) = state_and_parent(pid)?;
            Some((pid, parent))
        })
        .collect()
}

fn is_dying(pid: libc::pid_t) -> bool {
    state_and_parent(pid).is_none_or(|(state, _)| matches!(state, b'Z' | b'X'))
}

/// The fields behind the name in `/proc/PID/stat`. The name is the process's own choice, so the last `)` counts.
fn state_and_parent(pid: libc::pid_t) -> Option<(u8, libc::pid_t)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 2..)?).ok()?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.bytes().next()?;
    Some((state, fields.next()?.parse().ok()?))
}
