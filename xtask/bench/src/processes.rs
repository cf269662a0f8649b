//! The processes of this machine, seen from outside of every sandbox.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Whoever is not gone after this stays.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// All descendants of a process.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let mut by_parent: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent(pid) {
            by_parent.entry(parent).or_default().push(pid);
        }
    }
    let mut found = by_parent.remove(&of).unwrap_or_default();
    let mut seen = 0;
    while let Some(pid) = found.get(seen) {
        found.extend(by_parent.remove(pid).unwrap_or_default());
        seen += 1;
    }
    found
}

/// Its parent, while both are there.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The program that a process is, once it is one.
pub(crate) fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Processes whose ends are waited for.
#[derive(Debug)]
pub(crate) struct Watch(Vec<OwnedFd>);

impl Watch {
    /// Watches all that are still there.
    pub(crate) fn new(pids: &[u32]) -> Result<Self> {
        let mut watched = Vec::new();
        for &pid in pids {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process id")?;
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(fd) => watched.push(fd),
                Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error).context("watch a process"),
            }
        }
        Ok(Self(watched))
    }

    /// Returns when all have ended, with the time since `begun`. One after the other: this process is woken seldom that way.
    pub(crate) fn gone_since(self, begun: Instant) -> Result<Duration> {
        for fd in &self.0 {
            let mut watched = [PollFd::new(fd, PollFlags::IN)];
            if poll(&mut watched, Some(&PATIENCE)).context("wait for a process")? == 0 {
                bail!("a process is still there after {} s", PATIENCE.tv_sec);
            }
        }
        Ok(begun.elapsed())
    }
}

/// The proportional set size of a process: its own memory, and its part of what it shares.
pub(crate) fn pss_kib(pid: u32) -> Result<f64> {
    kib(&format!("/proc/{pid}/smaps_rollup"), &["Pss:"])
}

/// What the machine uses without any process having it mapped, in KiB.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Memory {
    pub(crate) slab: f64,
    pub(crate) page_tables: f64,
    pub(crate) stacks: f64,
    /// Per processor, and what is mapped piece by piece, such as system call filters.
    pub(crate) rest: f64,
    /// Pages of files that are in memory alone.
    pub(crate) files: f64,
}

impl Memory {
    /// What is used once the kernel has stopped putting away what came before: it does so in the background.
    pub(crate) fn settled() -> Result<Self> {
        let now = || Ok::<_, anyhow::Error>(Self::read(&fs::read_to_string("/proc/meminfo")?));
        let mut before = now()?;
        for _ in 0..50 {
            sleep(Duration::from_millis(200));
            let now = now()?;
            let change = now.since(&before);
            let change = change.slab + change.page_tables + change.stacks + change.rest;
            before = now;
            if change.abs() < 256.0 {
                break;
            }
        }
        Ok(before)
    }

    /// Reads it from the text of `/proc/meminfo`.
    fn read(text: &str) -> Self {
        let of = |field: &str| sum(text, &[field]);
        let stacks = of("KernelStack:");
        Self {
            slab: of("Slab:"),
            page_tables: of("PageTables:"),
            stacks,
            // Stacks are mapped piece by piece too, and counted there as well.
            rest: of("Percpu:") + of("VmallocUsed:") - stacks,
            files: of("Shmem:"),
        }
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            slab: self.slab - before.slab,
            page_tables: self.page_tables - before.page_tables,
            stacks: self.stacks - before.stacks,
            rest: self.rest - before.rest,
            files: self.files - before.files,
        }
    }
}

/// Returns `work`'s result, and by how many MiB the memory of this process was larger at its peak than before.
pub(crate) fn peak_mib<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    // Makes the peak what is in use now.
    fs::write("/proc/self/clear_refs", "5").context("reset the peak of memory")?;
    let before = kib("/proc/self/status", &["VmRSS:"])?;
    let done = work()?;
    Ok((done, (kib("/proc/self/status", &["VmHWM:"])? - before) / 1024.0))
}

fn kib(path: &str, fields: &[&str]) -> Result<f64> {
    Ok(sum(&fs::read_to_string(path).with_context(|| format!("read {path}"))?, fields))
}

fn sum(text: &str, fields: &[&str]) -> f64 {
    let wanted = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|name| fields.contains(name)).and_then(|_| words.next()?.parse::<f64>().ok())
    });
    wanted.sum()
}

/// How many directories of control groups the sandboxes of an owner have.
pub(crate) fn cgroups_made_by(owner: u32) -> usize {
    fn count(directory: &Path, depth: usize, prefix: &str) -> usize {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories
            .map(|entry| {
                let is_one = entry.file_name().to_string_lossy().starts_with(prefix);
                usize::from(is_one) + if depth > 0 { count(&entry.path(), depth - 1, prefix) } else { 0 }
            })
            .sum()
    }
    count(Path::new("/sys/fs/cgroup"), 4, &format!("ringfence-{owner}-"))
}

#[cfg(test)]
mod tests {
    use super::Memory;

    #[test]
    fn what_is_counted_twice_by_the_kernel_is_counted_once() {
        let text = "Shmem: 60 kB\nSlab: 350 kB\nSReclaimable: 50 kB\nKernelStack: 16 kB\nPageTables: 25 kB\n\
                    SecPageTables: 7 kB\nVmallocUsed: 20 kB\nPercpu: 3 kB\n";
        let read = Memory::read(text);
        assert_eq!(read, Memory { slab: 350.0, page_tables: 25.0, stacks: 16.0, rest: 7.0, files: 60.0 });
        let before = Memory { slab: 300.0, page_tables: 20.0, stacks: 15.0, rest: 9.0, files: 40.0 };
        assert_eq!(
            read.since(&before),
            Memory { slab: 50.0, page_tables: 5.0, stacks: 1.0, rest: -2.0, files: 20.0 }
        );
    }
}
