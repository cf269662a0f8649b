//! The processes of this machine, seen from outside of every sandbox.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
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

fn parent(pid: u32) -> Option<u32> {
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

/// What the kernel itself uses.
pub(crate) fn kernel_kib() -> Result<f64> {
    kib("/proc/meminfo", &["Slab:", "KernelStack:", "PageTables:", "Percpu:"])
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
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let wanted = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|name| fields.contains(name)).and_then(|_| words.next()?.parse::<f64>().ok())
    });
    Ok(wanted.sum())
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
