//! The door for `cargo xtask fuzz` to the parsers of what comes from a sandbox, a launcher, or the directory of sandboxes. Compiled for
//! tests and for the engine only.

#![expect(clippy::expect_used, reason = "what does not hold is said by panicking")]

use std::fmt::Debug;

use ringfence_core::SandboxSpec;

use crate::audit::reader::fuzz::target as audit;
use crate::directory::Record;
use crate::note::Note;
use crate::processes;
use crate::tree::parser::fuzz::target as walk;
use crate::wire::{
    AgentRequest, CommandAsk, CreateReply, CreateRequest, Fenced, LauncherRequest, Message, Reply,
    SandboxReply, SandboxRequest, TreeEvent, tests,
};

#[path = "../helper/ledger.rs"]
mod ledger;
#[path = "../helper/stat.rs"]
mod stat_inside;
#[path = "../helper/link.rs"]
mod to_agent;

/// A name, and a function that panics where something does not hold for the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// The name of each is its folder of seeds.
pub const TARGETS: &[Target] = &[
    ("audit", audit),
    ("note", note),
    ("record", record),
    ("replies", replies),
    ("requests", requests),
    ("stat", stat),
    ("walk", walk),
];

/// Input made from values of this build, which a file could not follow when the protocol changes.
#[must_use]
pub fn samples(target: &str) -> Vec<Vec<u8>> {
    match target {
        "replies" => tests::what_comes_back(),
        "requests" => tests::what_is_asked(),
        _ => Vec::new(),
    }
}

/// To the owner, from a launcher or from inside.
fn replies(bytes: &[u8]) {
    message::<Reply>(bytes);
    message::<CreateReply>(bytes);
    message::<SandboxReply>(bytes);
    message::<TreeEvent>(bytes);
}

/// To a launcher or an agent, and what an agent finds written down by a shim.
fn requests(bytes: &[u8]) {
    message::<LauncherRequest>(bytes);
    message::<CreateRequest>(bytes);
    message::<Fenced<SandboxRequest>>(bytes);
    message::<Fenced<AgentRequest>>(bytes);
    message::<CommandAsk>(bytes);
    message::<to_agent::LinkMessage>(bytes);
    message::<ledger::Ledger>(bytes);
    if let Ok(ledger) = ledger::Ledger::decode(bytes) {
        assert_eq!(ledger.encode().len(), ledger::LEDGER_BYTES);
    }
}

/// A message means the same after it was written and read again, and takes no more room; no part of one is one, and nothing
/// stands behind it.
fn message<M: Message + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(message) = M::decode(bytes) else { return };
    let mut written = message.encode();
    // A byte that is no text becomes a mark of three.
    assert!(written.len() <= 3 * bytes.len(), "{} bytes out of {}", written.len(), bytes.len());
    assert_eq!(M::decode(&written).as_ref(), Ok(&message));
    assert!(M::decode(&written[..written.len() - 1]).is_err(), "a part of {message:?}");
    written.push(0);
    assert!(M::decode(&written).is_err(), "more than {message:?}");
}

/// The longest name that the kernel keeps of a process.
const NAME_BYTES: usize = 15;

/// Lines of `/proc/PID/stat`. Whatever name a process gives itself, it has no say in what else is read of it: the first byte says how
/// long the name is, the rest is tried as a line too.
fn stat(bytes: &[u8]) {
    drop(processes::parse(bytes));
    stat_inside::Stat::parse(bytes);
    let Some((length, rest)) = bytes.split_first() else { return };
    let name = &rest[..usize::from(*length).min(NAME_BYTES).min(rest.len())];
    if name.contains(&0) {
        return;
    }
    let line = [b"12 (", name, b") S 7 6 5 34816 4 4194304 3 2 1 0 1 2 3 4 20 0 1 0 987654 5 6\n"].concat();
    let read = processes::parse(&line).expect("a line of the kernel's");
    assert_eq!((read.name.as_slice(), read.ended, read.flags), (name, false, 4_194_304));
    let inside = stat_inside::Stat { state: b'S', parent: 7, start: 987_654 };
    assert_eq!(stat_inside::Stat::parse(&line), Some(inside));
}

fn record(bytes: &[u8]) {
    let Some(record) = Record::decode(bytes) else { return };
    is_object(bytes);
    assert_eq!(Record::decode(&record.encode()), Some(record));
}

fn note(bytes: &[u8]) {
    let Ok(note) = serde_json::from_slice::<Note>(bytes) else { return };
    is_object(bytes);
    let written = serde_json::to_string(&note).expect("a JSON form");
    let again: Note = serde_json::from_str(&written).expect("what was written is read");
    assert_eq!(serde_json::to_string(&again).expect("a JSON form"), written);
    let spec = serde_json::to_string(&note.spec).expect("a JSON form");
    assert_eq!(serde_json::from_str::<SandboxSpec>(&spec).expect("what was written is read"), note.spec);
}

/// No document is read by position.
fn is_object(bytes: &[u8]) {
    assert_eq!(bytes.trim_ascii_start().first(), Some(&b'{'));
}

#[cfg(test)]
mod seeds {
    use std::path::Path;

    use ringfence_testkit::seeds::{replay, try_bytes};

    use super::*;

    #[test]
    fn all_seeds_and_past_findings() {
        replay(&Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds"), TARGETS);
        for (name, target) in TARGETS {
            samples(name).iter().for_each(|bytes| try_bytes(*target, bytes));
        }
    }
}
