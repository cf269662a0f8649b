//! Which ids of the host the sandboxes of a launcher get.

use alloc::format;
use alloc::string::String;

use crate::sys::{Result, file, process};

/// Which ids of the host sandboxes get.
#[derive(Debug)]
pub(crate) struct Ids {
    uid: u32,
    gid: u32,
    /// Whether this process may map ids other than its own, and so also let sandboxes drop groups.
    pub(crate) may_drop_groups: bool,
    /// The range of our own user namespace to choose from: first id, count.
    range: (u32, u32),
    /// The last of it, whose is what sandboxes have in common: see [`Self::maps`].
    common: Option<u32>,
    /// Where in the range this launcher starts.
    start: u64,
}

/// Where sandbox ids lie in a namespace with all ids: above what distributions and container managers hand out, below 2^31,
/// where some programs stop counting.
const FIRST_ID: u32 = 0x7000_0000;
const LAST_ID: u32 = 0x7fff_ffff;

impl Ids {
    /// Looks at this process's own ids and what it may map.
    pub(crate) fn read() -> Self {
        let (uid, gid) = process::effective_ids();
        let own = Self {
            uid,
            gid,
            may_drop_groups: false,
            range: (uid, 1),
            common: None,
            start: process::random(),
        };
        if uid != 0 {
            return own;
        }
        let map = read_map().unwrap_or_default();
        let ranges = map.lines().filter_map(|line| {
            let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
            let (first, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
            Some((first, count))
        });
        match ranges.max_by_key(|(_, count)| *count) {
            Some((first, count)) if count > 1 => {
                let last = first.saturating_add(count - 1);
                let range = if first <= FIRST_ID && last >= LAST_ID {
                    (FIRST_ID, LAST_ID - FIRST_ID)
                } else {
                    // A small namespace: leave its lower half to those who live there.
                    (first + count / 2, count - count / 2)
                };
                let (range, common) = match range {
                    (first, count @ 2..) => ((first, count - 1), Some(first + count - 1)),
                    // No id is left for it: what a sandbox makes of this is its own.
                    _ => (range, None),
                };
                Self { may_drop_groups: true, range, common, ..own }
            }
            _ => own,
        }
    }

    /// An id of its own for each sandbox, so that limits per user and permissions do not cross sandboxes. Where a launcher
    /// starts is chance, so that those of different owners do not meet, also across pid namespaces.
    pub(crate) fn of_sandbox(&self, number: u64) -> u32 {
        let (first, count) = self.range;
        first + (self.start.wrapping_add(number) % u64::from(count)) as u32
    }

    /// Whether [`NOBODY`] is somebody inside.
    pub(crate) fn has_nobody(&self) -> bool {
        self.common.is_some()
    }

    /// The user and the group map: `inside` is `id` outside, or our own ids where we may map no others.
    ///
    /// And [`NOBODY`] is an id that no process has, so that a sandbox which makes its own root can give it to that one. In one from the
    /// template it is root's, who is nobody inside.
    pub(crate) fn maps(&self, inside: u32, id: u32) -> (String, String) {
        let (uid, gid) = if self.may_drop_groups { (id, id) } else { (self.uid, self.gid) };
        let common = self.common.map_or_else(String::new, |common| format!("{NOBODY} {common} 1\n"));
        (format!("{inside} {uid} 1\n{common}"), format!("{inside} {gid} 1\n{common}"))
    }
}

/// Whom the kernel shows where an id is not mapped.
pub(crate) const NOBODY: u32 = 65534;

/// The most lines of a map that the kernel takes are 340.
const MAP_BYTES: usize = 340 * 34;

fn read_map() -> Result<String> {
    let map = file::open(None, b"/proc/self/uid_map", libc::O_RDONLY, 0)?;
    Ok(String::from_utf8_lossy(&file::read_whole(map.as_fd(), MAP_BYTES)?).into_owned())
}
