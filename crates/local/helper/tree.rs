//! Finding and ending the descendants of a process, also those that left its session or were orphaned on the way.
//!
//! The caller is their subreaper, so a process whose parent ends becomes the caller's own child and stays findable.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::stat::Stat;
use crate::sys::{Errno, Result, file, process};
use crate::wire::KILL_MILLIS;

/// More than `/proc/PID/stat` ever has, and than `/proc/PID/status` has before what is looked for.
const STAT_BYTES: usize = 4 << 10;

/// The first process of the namespace.
const AGENT: libc::pid_t = 1;

/// What `/proc/PID/stat` says of a process.
pub(crate) fn stat_of(pid: libc::pid_t) -> Result<Vec<u8>> {
    file::open(None, format!("/proc/{pid}/stat").as_bytes(), libc::O_RDONLY, 0)
        .and_then(|file| file::read_whole(file.as_fd(), STAT_BYTES))
}

/// One look at a process. Its number can be another one's a moment later, its number and start time together cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: libc::pid_t,
    parent: libc::pid_t,
    state: u8,
    /// Clock ticks since the machine started.
    start: u64,
}

impl Process {
    /// What `/proc/PID/stat` says.
    fn look(pid: libc::pid_t) -> Option<Self> {
        Self::try_look(pid).ok().flatten()
    }

    /// As [`look`](Self::look), and tells a process that is gone (`None`) from one that could not be looked at.
    fn try_look(pid: libc::pid_t) -> Result<Option<Self>> {
        match stat_of(pid) {
            // ENOENT when it is opened, ESRCH when it ends before it is read.
            Err(Errno(libc::ENOENT | libc::ESRCH)) => Ok(None),
            Err(errno) => Err(errno),
            Ok(stat) => {
                let Stat { state, parent, start } = Stat::parse(&stat).ok_or(Errno(libc::EBADMSG))?;
                Ok(Some(Self { pid, parent, state, start }))
            }
        }
    }

    /// Signals exactly this process: what has its number when the descriptor is opened is looked at again, and the
    /// descriptor cannot become another process's.
    fn signal(&self, signal: libc::c_int) {
        let Ok(pidfd) = process::pidfd_open(self.pid) else { return };
        if Self::look(self.pid).is_some_and(|now| now.start == self.start) {
            // It may have ended since: that is as good.
            drop(process::pidfd_send_signal(pidfd.as_fd(), signal));
        }
    }

    /// The process that traces this one: as long as it lives, nobody else can collect what has ended.
    fn tracer(&self) -> Option<Self> {
        let file =
            file::open(None, format!("/proc/{}/status", self.pid).as_bytes(), libc::O_RDONLY, 0).ok()?;
        let mut status = vec![0u8; STAT_BYTES];
        let length = file::read(file.as_fd(), &mut status).ok()?;
        // The name's own line breaks are escaped there.
        let lines = status[..length].split(|byte| *byte == b'\n');
        let tracer = lines.filter_map(|line| line.strip_prefix(b"TracerPid:\t")).next()?;
        core::str::from_utf8(tracer).ok()?.parse().ok().filter(|pid| *pid > AGENT).and_then(Self::look)
    }

    fn is_dying(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Number and parent of every process but this one and the agent.
pub(crate) fn all_others() -> Vec<(libc::pid_t, libc::pid_t)> {
    let own = process::getpid();
    processes()
        .filter(|process| process.pid != AGENT && process.pid != own)
        .map(|process| (process.pid, process.parent))
        .collect()
}

/// The children of this process that have not ended, and whether those are all: without descriptors or memory some are not seen.
pub(crate) fn living_children() -> (Vec<libc::pid_t>, bool) {
    let own = process::getpid();
    let Ok(numbers) = numbers() else { return (Vec::new(), false) };
    let (mut children, mut all) = (Vec::new(), true);
    for look in numbers.into_iter().map(Process::try_look) {
        all &= look.is_ok();
        let child = look.ok().flatten().filter(|found| found.parent == own && !found.is_dying());
        children.extend(child.map(|child| child.pid));
    }
    (children, all)
}

/// The exit status by which a shim says that it has no descendant left. With any other, and after any signal, the agent ends what is
/// left of its tree: so no failure of a shim, known or not, leaves one.
pub(crate) const GONE: i32 = 0;

/// Ends this process, a subreaper, and says whether its tree is [`GONE`]. The kernel is asked, whatever was done before: who adopts
/// every orphan among its descendants and has no child has no descendant.
pub(crate) fn leave() -> ! {
    loop {
        match process::reap() {
            Ok(Some(_)) => {}
            Err(Errno(libc::ECHILD)) => process::exit(GONE),
            Ok(None) | Err(_) => process::exit(1),
        }
    }
}

/// All descendants of this process; those found until then when the deadline passes. A look at hundreds of processes that
/// leave this one no processor can take longer than anybody waits.
fn descendants(deadline: u64) -> Vec<Process> {
    let mut by_parent: BTreeMap<libc::pid_t, Vec<Process>> = BTreeMap::new();
    for process in processes().take_while(|_| process::now_millis() < deadline) {
        by_parent.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut next = vec![process::getpid()];
    while let Some(pid) = next.pop() {
        // Removed when visited: what another process does meanwhile cannot make this go round.
        for child in by_parent.remove(&pid).unwrap_or_default() {
            found.push(child);
            next.push(child.pid);
        }
    }
    found
}

/// Asks every descendant to end. Stopped ones would not take note, so all are told to go on too.
pub(crate) fn ask_all(deadline: u64) {
    for process in descendants(deadline) {
        process.signal(libc::SIGTERM);
        process.signal(libc::SIGCONT);
    }
}

/// How long the agent may take to answer before the walk is tried.
const ASK_MILLIS: u64 = 50;

/// Ends every descendant and reaps it. False when the tree kept growing faster than it could be stopped, could not be looked at, or
/// took too long to go: the kernel puts gigabytes of memory away after the kill. Some of it may be stopped then, so the caller
/// has to [`leave`] to the agent what is left.
///
/// The agent is asked first. Where it may it ends everything, this process included, and speaks for it.
pub(crate) fn kill_all() -> bool {
    if process::kill(AGENT, process::END_EVERYTHING).is_ok() {
        drop(crate::sys::socket::poll(&mut [], Some(ASK_MILLIS)));
    }
    // Without descriptors or memory nothing is found here, now or later.
    if numbers().is_err() {
        return false;
    }
    let deadline = process::now_millis() + KILL_MILLIS;
    loop {
        let mut stopped = Vec::new();
        // Stopped processes make no new ones: stop until a look finds nothing new, then end them all.
        loop {
            let found = descendants(deadline);
            if found.len() <= stopped.len() || process::now_millis() >= deadline {
                break;
            }
            for process in &found {
                process.signal(libc::SIGSTOP);
            }
            stopped = found;
        }
        // After the deadline nothing is found any more, and what was stopped has to end all the same.
        let found = descendants(deadline);
        let last = if process::now_millis() >= deadline { stopped } else { Vec::new() };
        for process in found.into_iter().chain(last) {
            process.signal(libc::SIGKILL);
        }
        if reap_killed(deadline) {
            return true;
        }
        if process::now_millis() >= deadline {
            return false;
        }
    }
}

/// Reaps until there is no child (true) or a child lives that has not been killed (false).
fn reap_killed(deadline: u64) -> bool {
    loop {
        match process::reap() {
            Ok(Some(_)) => {}
            Err(Errno(libc::ECHILD)) => return true,
            // A killed process that is not reapable yet: give the kernel the processor, then look again.
            Ok(None) => {
                drop(crate::sys::socket::poll(&mut [], Some(1)));
                let left = descendants(deadline);
                for tracer in left.iter().filter_map(Process::tracer) {
                    tracer.signal(libc::SIGKILL);
                }
                let alive = left.iter().any(|process| !process.is_dying());
                if alive || process::now_millis() >= deadline {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

/// Every process of the sandbox, looked at one by one.
fn processes() -> impl Iterator<Item = Process> {
    numbers().unwrap_or_default().into_iter().filter_map(Process::look)
}

/// The numbers of all processes of the sandbox.
fn numbers() -> Result<Vec<libc::pid_t>> {
    let mut numbers = Vec::new();
    let directory = file::open(None, b"/proc", libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let mut buffer = vec![0u8; 16 << 10];
    let mut take = |name: &core::ffi::CStr, _| {
        numbers.extend(name.to_str().ok().and_then(|name| name.parse::<libc::pid_t>().ok()));
    };
    while file::read_directory(directory.as_fd(), &mut buffer, &mut take)? {}
    Ok(numbers)
}
