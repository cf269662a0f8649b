//! The machine and the versions, as they belong beside every number.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::bench::Bench;
use crate::peers::first_line;

/// Returns the load before anything was measured: a busy machine explains odd numbers.
pub(crate) fn load() -> String {
    read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Returns the paragraph above the tables.
pub(crate) fn describe(bench: &Bench, load: &str) -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let mounted = |path: &str| Path::new("/sys/fs/cgroup").join(path).exists();
    let limits = match (mounted("cgroup.controllers"), mounted("unified/cgroup.procs"), mounted("")) {
        (true, ..) => "v2",
        (false, true, _) => "v1 with v2 beside it",
        (false, false, true) => "v1",
        (false, false, false) => "none",
    };
    let identity = match field("/proc/self/status", "Uid").unwrap_or_default().split_whitespace().nth(1) {
        Some("0") => "root",
        _ => "an ordinary user",
    };
    // Field 19 of the whole line; what is after the name starts with field 3.
    let stat = read("/proc/self/stat");
    let nice =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(16)).unwrap_or("unknown");
    let mut versions = vec![first_line(Command::new(&bench.binary).arg("--version")).unwrap_or_default()];
    versions.extend(bench.peers.versions());
    format!(
        "Interleaved rounds as {identity} with nice value {nice}, on Linux {kernel}, {processors} processors ({model}), {memory}, \
         control groups {limits}; load before: {load}. {}.",
        versions.join(", ")
    )
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
