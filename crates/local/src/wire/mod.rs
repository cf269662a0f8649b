//! What the library and its helper say to each other: one message per packet, and the version in the first byte of each request.
//! Both sides are the same build today (the helper is embedded); a sandbox that outlives its creator may meet another one.
//!
//! Compiled into both. The library treats everything that comes back as hostile: lengths are checked, unknown values refused.

pub(crate) mod agent;
pub(crate) mod background;
pub(crate) mod codec;
mod create;
mod launcher;
pub(crate) mod limits;
mod tree;

pub(crate) use agent::{AgentRequest, Entry, Fenced, FileFault, NotStarted, Reply, RunRequest};
pub(crate) use background::{
    CommandAsk, CommandEnd, KEPT_ENDED, PIECE_BYTES, Piece, Standing, StartRequest, Stream,
};
pub(crate) use codec::Message;
pub(crate) use create::{CgroupAction, CgroupStep, CreateReply, CreateRequest, Listing, Subject, ViewEntry};
pub(crate) use launcher::{LauncherRequest, SandboxReply, SandboxRequest, State};

pub(crate) use tree::{TreeEvent, TreeSkip};

/// The version of everything here.
pub(crate) const VERSION: u8 = 1;

/// First byte of a request that follows in the same packet.
pub(crate) const INLINE: u8 = VERSION << 1;

/// First byte of a request that is the content of the last descriptor, a memory file.
pub(crate) const IN_FILE: u8 = VERSION << 1 | 1;

/// The most bytes of a message sent inline.
pub(crate) const INLINE_BYTES: usize = 48 << 10;

/// A host file that is longer is not copied into a root.
pub(crate) const COPY_BYTES: u64 = 64 << 10;

/// The most bytes of any message.
pub(crate) const MESSAGE_BYTES: usize = 8 << 20;

/// How the record of a sandbox ends, after its name.
pub(crate) const RECORD_SUFFIX: &str = ".json";

/// How the socket of a sandbox ends, after its name.
pub(crate) const SOCKET_SUFFIX: &str = ".sock";

/// Where what happens to sandboxes is written down, beside their records.
pub(crate) const AUDIT_FILE: &[u8] = b"audit.jsonl";

/// The commands' grace: between asking a tree to end and ending it.
pub(crate) const GRACE_MILLIS: u64 = 2000;

/// How long a shim goes on with ending a tree before it says that it cannot.
pub(crate) const KILL_MILLIS: u64 = 5000;

#[cfg(any(test, fuzzing))]
pub(crate) mod tests;
