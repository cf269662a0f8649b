//! Whether a limit struck while a command ran: the kernel counts it per sandbox, in files of which a sandbox has only the descriptor.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use crate::sys::fd::OwnedFd;
use crate::sys::file;
use crate::wire::CommandEnd;

/// More than a counter file has.
const COUNTER_BYTES: usize = 4 << 10;

/// The counter files of a sandbox.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    memory: Option<Counter>,
    pids: Option<Counter>,
}

#[derive(Debug)]
struct Counter {
    file: OwnedFd,
    key: Vec<u8>,
}

impl Counter {
    /// How often the limit struck; 0 when that cannot be read.
    fn read(&self) -> u64 {
        let mut content = [0; COUNTER_BYTES];
        let length = file::read_some_at(self.file.as_fd(), &mut content, 0).unwrap_or_default();
        let content = String::from_utf8_lossy(&content[..length]);
        let mut lines = content.lines().filter_map(|line| line.split_once(' '));
        let value = lines.find(|(key, _)| key.as_bytes() == self.key).map(|(_, value)| value);
        value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
    }
}

impl Limits {
    /// Takes the files over whose keys are not empty, in this order: kills by the memory limit, forks refused by the process limit.
    pub(crate) fn new([memory, pids]: [&[u8]; 2], files: Vec<OwnedFd>) -> Self {
        let mut files = files.into_iter();
        let mut counter = |key: &[u8]| {
            let file = if key.is_empty() { None } else { files.next() };
            file.map(|file| Counter { file, key: key.to_vec() })
        };
        Self { memory: counter(memory), pids: counter(pids) }
    }

    /// Whether there is any.
    pub(crate) fn is_empty(&self) -> bool {
        self.memory.is_none() && self.pids.is_none()
    }

    /// The numbers of the files.
    pub(crate) fn fds(&self) -> impl Iterator<Item = i32> {
        [&self.memory, &self.pids].into_iter().flatten().map(|counter| counter.file.as_raw_fd())
    }

    fn struck(&self) -> [u64; 2] {
        [&self.memory, &self.pids].map(|counter| counter.as_ref().map_or(0, Counter::read))
    }
}

/// The limits as they stood when a command started.
#[derive(Debug, Clone)]
pub(crate) struct Struck {
    limits: Rc<Limits>,
    before: [u64; 2],
}

impl Struck {
    /// As they stand now.
    pub(crate) fn so_far(limits: &Rc<Limits>) -> Self {
        Self { limits: Rc::clone(limits), before: limits.struck() }
    }

    /// The numbers of the files.
    pub(crate) fn fds(&self) -> impl Iterator<Item = i32> {
        self.limits.fds()
    }

    /// How a command ended, where a limit may be the reason: the same as for one that is waited for (`run.rs` of the library), where the
    /// cases are told.
    pub(crate) fn explain(&self, end: CommandEnd) -> CommandEnd {
        const KILLED_BELOW: i32 = 128 + libc::SIGKILL;
        const CANNOT_FORK: i32 = 254;
        let [memory, pids] = self.limits.struck();
        match end {
            CommandEnd::Signalled(libc::SIGKILL) | CommandEnd::Exited(KILLED_BELOW)
                if self.before[0] < memory =>
            {
                CommandEnd::MemoryExceeded
            }
            CommandEnd::Exited(CANNOT_FORK) if self.before[1] < pids => CommandEnd::PidsExceeded,
            end => end,
        }
    }
}
