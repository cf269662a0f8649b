//! The processes below this one, seen from outside of every sandbox. This program adopts the orphans among them, so none escapes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, set_child_subreaper, wait,
};

/// The name of launcher, agent and shim, and of the command line program.
const NAME: &str = "ringfence";

/// A process, and no later one with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) pid: u32,
    /// When it was started, in the kernel's ticks.
    start: u64,
}

/// What it is to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Outside of a sandbox and not of the helper.
    Outside,
    Launcher,
    /// The first process of a sandbox.
    Agent,
    /// One beside the first process while that makes its sandbox: without it there is none.
    Assistant,
    /// One that the agent made: a shim, or what answers a file operation.
    Worker,
    /// A program in a sandbox.
    Command,
}

/// What is known of a process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) id: Id,
    pub(crate) parent: u32,
    pub(crate) part: Part,
    name: String,
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = fs::read(format!("/proc/{}/cmdline", self.id.pid)).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let line: String = line.chars().take(80).collect();
        let status = fs::read_to_string(format!("/proc/{}/status", self.id.pid)).unwrap_or_default();
        let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or("gone").trim();
        let Self { id, parent, part, name } = self;
        write!(f, "process {} of {parent} ({part:?}, {name}, {state}, {})", id.pid, line.trim())
    }
}

/// What `/proc/PID/stat` says: name, state, parent, start.
struct Stat {
    name: String,
    ended: bool,
    parent: u32,
    start: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (begin, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // The 22nd of all, of which two stand before and two were taken.
    let start = fields.nth(17)?.parse().ok()?;
    let name = begin.split_once('(')?.1.to_owned();
    Some(Stat { name, ended: matches!(state, "Z" | "X"), parent, start })
}

/// What `/proc/PID/status` says.
#[derive(Debug, Clone, Copy)]
struct Inner {
    /// Its number in the innermost of its pid namespaces.
    pid: u32,
    /// How many those are.
    depth: usize,
    /// Whether it keeps signals for later, as an agent does that waits for them, and whoever it makes then.
    blocks: bool,
}

fn inner(pid: u32) -> Option<Inner> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let numbers: Vec<u32> =
        field("NSpid:")?.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let blocks = u64::from_str_radix(field("SigBlk:")?, 16).ok()? != 0;
    Some(Inner { pid: *numbers.last()?, depth: numbers.len(), blocks })
}

/// The processes below this one.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    by_pid: BTreeMap<u32, Process>,
}

impl Tree {
    /// Makes this process the parent of every orphan among its descendants.
    pub(crate) fn adopt() -> Result<()> {
        set_child_subreaper(Some(getpid())).context("become the parent of orphans")
    }

    /// Looks at all processes of the machine. Those that have ended are not in it.
    pub(crate) fn look() -> Self {
        let mut children: BTreeMap<u32, Vec<(u32, Stat)>> = BTreeMap::new();
        for pid in pids() {
            if let Some(stat) = stat(pid) {
                children.entry(stat.parent).or_default().push((pid, stat));
            }
        }
        let own = std::process::id();
        let depth = inner(own).map_or(1, |inner| inner.depth);
        let mut by_pid = BTreeMap::new();
        let mut open = vec![own];
        while let Some(parent) = open.pop() {
            for (pid, stat) in children.remove(&parent).unwrap_or_default() {
                open.push(pid);
                if stat.ended {
                    continue;
                }
                let id = Id { pid, start: stat.start };
                let parents = by_pid.get(&parent).map(|parent: &Process| parent.part);
                let part = part(&stat.name, inner(pid), depth, parents);
                by_pid.insert(pid, Process { id, parent: stat.parent, part, name: stat.name });
            }
        }
        Self { by_pid }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Process> {
        self.by_pid.values()
    }

    pub(crate) fn get(&self, pid: u32) -> Option<&Process> {
        self.by_pid.get(&pid)
    }

    pub(crate) fn ids(&self) -> BTreeSet<Id> {
        self.all().map(|process| process.id).collect()
    }

    /// The process, its parent, and so on, as far as they are below this one.
    pub(crate) fn line(&self, pid: u32) -> Vec<u32> {
        let mut line = Vec::new();
        let mut next = self.get(pid);
        while let Some(process) = next {
            line.push(process.id.pid);
            next = self.get(process.parent);
        }
        line
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn part(name: &str, inner: Option<Inner>, depth_here: usize, parents: Option<Part>) -> Part {
    match inner.filter(|inner| inner.depth > depth_here) {
        Some(Inner { pid: 1, .. }) => Part::Agent,
        // A shim's child blocks none either before it is its program.
        Some(Inner { blocks: false, .. }) if name == NAME && parents == Some(Part::Agent) => Part::Assistant,
        Some(_) if name == NAME => Part::Worker,
        Some(_) => Part::Command,
        _ if name == NAME => Part::Launcher,
        _ => Part::Outside,
    }
}

/// Sends a signal to a process, if it is still this one.
pub(crate) fn signal(id: Id, signal: Signal) -> Result<bool> {
    let pid = i32::try_from(id.pid).ok().and_then(Pid::from_raw).context("a process id")?;
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(Errno::SRCH) => return Ok(false),
        Err(error) => return Err(error).context("open a process"),
    };
    // The descriptor is of whoever had the number when it was opened.
    if stat(id.pid).is_none_or(|stat| stat.start != id.start || stat.ended) {
        return Ok(false);
    }
    match pidfd_send_signal(&fd, signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error).context("signal a process"),
    }
}

/// The identity of a process that was just started.
pub(crate) fn id_of(pid: u32) -> Option<Id> {
    stat(pid).map(|stat| Id { pid, start: stat.start })
}

/// Takes the exit statuses of all children that have ended, adopted ones too; by their numbers.
pub(crate) fn reap() -> BTreeMap<u32, Option<i32>> {
    let mut ended = BTreeMap::new();
    // Any: `waitpid` without a number waits for those of this process group, and each launcher leaves that.
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        ended.insert(pid.as_raw_nonzero().get().unsigned_abs(), status.exit_status());
    }
    ended
}

/// The processes of this machine with a word in their arguments.
pub(crate) fn with_argument(word: &str) -> Vec<u32> {
    let has = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != std::process::id() && line.windows(word.len()).any(|window| window == word.as_bytes())
    };
    pids().filter(has).collect()
}

/// For tests that start processes and look at all below this one: one at a time.
#[cfg(test)]
pub(crate) static CHILDREN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::PoisonError;
    use std::time::{Duration, Instant};

    use super::{CHILDREN, Inner, Part, Tree, part, reap};

    #[test]
    fn a_child_in_another_process_group_is_reaped_and_one_that_was_adopted_too() {
        let _alone = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        Tree::adopt().unwrap();
        // Each in a group of its own, and the second one an orphan.
        let text = "setsid sh -c 'exit 7' & exit 6";
        #[expect(clippy::zombie_processes, reason = "it is reaped by what is tried here")]
        let child = Command::new("sh").args(["-c", text]).process_group(0).spawn().unwrap();
        let (deadline, mut ended) = (Instant::now() + Duration::from_secs(20), super::BTreeMap::new());
        while ended.len() < 2 {
            assert!(Instant::now() < deadline, "{ended:?}");
            ended.append(&mut reap());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(ended.remove(&child.id()), Some(Some(6)));
        assert_eq!(ended.into_values().collect::<Vec<_>>(), [Some(7)]);
    }

    #[test]
    fn parts_are_told_by_name_and_namespace() {
        let inner = |pid, depth, blocks| Some(Inner { pid, depth, blocks });
        let agents = Some(Part::Agent);
        for (name, inner, parents, expected) in [
            ("sh", inner(12, 1, false), None, Part::Outside),
            ("ringfence", inner(12, 1, false), None, Part::Launcher),
            ("ringfence", inner(1, 2, true), Some(Part::Launcher), Part::Agent),
            ("ringfence", inner(2, 2, true), agents, Part::Worker),
            ("ringfence", inner(2, 2, false), agents, Part::Assistant),
            ("ringfence", inner(3, 2, false), Some(Part::Worker), Part::Worker),
            ("sleep", inner(3, 2, false), agents, Part::Command),
            ("sleep", None, None, Part::Outside),
        ] {
            assert_eq!(part(name, inner, 1, parents), expected, "{name} {inner:?} {parents:?}");
        }
        assert_eq!(part("sleep", inner(3, 2, false), 2, None), Part::Outside);
    }
}
