//! Whether a limit struck while a command ran: the kernel counts it per sandbox, in files of which a sandbox has only the descriptor.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use crate::sys::fd::OwnedFd;
use crate::sys::file;
use crate::wire::CommandEnd;
use crate::wire::limits::{Suspect, count};

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
    key: String,
}

impl Counter {
    /// How often the limit struck; 0 when that cannot be read.
    fn read(&self) -> u64 {
        let mut content = [0; COUNTER_BYTES];
        let length = file::read_some_at(self.file.as_fd(), &mut content, 0).unwrap_or_default();
        count(&String::from_utf8_lossy(&content[..length]), &self.key)
    }
}

impl Limits {
    /// Takes the files over whose keys are not empty, in this order: kills by the memory limit, forks refused by the process limit.
    pub(crate) fn new([memory, pids]: [&[u8]; 2], files: Vec<OwnedFd>) -> Self {
        let mut files = files.into_iter();
        let mut counter = |key: &[u8]| {
            let file = if key.is_empty() { None } else { files.next() };
            file.map(|file| Counter { file, key: String::from_utf8_lossy(key).into_owned() })
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
}

/// How often a limit has struck.
fn struck(counter: &Option<Counter>) -> u64 {
    counter.as_ref().map_or(0, Counter::read)
}

/// The limits as they stood when a command started.
#[derive(Debug, Clone)]
pub(crate) struct Struck {
    limits: Rc<Limits>,
    memory: u64,
    pids: u64,
}

impl Struck {
    /// As they stand now.
    pub(crate) fn so_far(limits: &Rc<Limits>) -> Self {
        Self { memory: struck(&limits.memory), pids: struck(&limits.pids), limits: Rc::clone(limits) }
    }

    /// The numbers of the files.
    pub(crate) fn fds(&self) -> impl Iterator<Item = i32> {
        self.limits.fds()
    }

    /// How a command ended, where a limit may be the reason: the same as for one that is waited for.
    pub(crate) fn explain(&self, end: CommandEnd) -> CommandEnd {
        match Suspect::of(end) {
            Some(Suspect::Memory) if self.memory < struck(&self.limits.memory) => CommandEnd::MemoryExceeded,
            Some(Suspect::Pids) if self.pids < struck(&self.limits.pids) => CommandEnd::PidsExceeded,
            _ => end,
        }
    }
}
