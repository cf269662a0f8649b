//! Limits that strike while a command runs. The side that waits for the command tells; both tell alike.

use super::background::CommandEnd;

/// How often a limit struck, by the content of one of the kernel's files with a key and a number in each line; 0 where it does not say.
pub(crate) fn count(content: &str, key: &str) -> u64 {
    let mut lines = content.lines().filter_map(|line| line.split_once(' '));
    let value = lines.find(|(name, _)| *name == key).map(|(_, value)| value);
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

/// A limit that is the reason of an end if it struck meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspect {
    /// The memory limit.
    Memory,
    /// The process limit.
    Pids,
}

/// What the kernel does to the process that met the memory limit, and what a shell makes of it.
const KILLED: CommandEnd = CommandEnd::Signalled(9);
const KILLED_BELOW: CommandEnd = CommandEnd::Exited(128 + 9);

/// What bash exits with when it cannot fork. Others exit with 1 or 2 then, which says no more than that something failed: theirs
/// is told by what they write on standard error.
const CANNOT_FORK: CommandEnd = CommandEnd::Exited(254);

impl Suspect {
    /// The kernel counts per sandbox, and something in the background can meet a limit all the time: only an ending that is nobody's
    /// own choice is put down to it. What cannot be told is who killed a command while another process met the memory limit.
    pub(crate) fn of(end: CommandEnd) -> Option<Self> {
        match end {
            KILLED | KILLED_BELOW => Some(Self::Memory),
            CANNOT_FORK => Some(Self::Pids),
            _ => None,
        }
    }
}
