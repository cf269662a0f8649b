//! To the launcher: from its owner, and about one sandbox from any process that may reach that. First descriptor of each request:
//! a socket for this request alone, on which one answer comes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::agent::Fenced;
use super::codec::{Malformed, Message, Read, Reader, Writer};
use super::create::CreateRequest;

/// What the owner asks of the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LauncherRequest {
    /// Create a sandbox. The first descriptor is the agent's end of the owner's socket, on which everything is answered.
    Create(Box<CreateRequest>),
    /// Something about the sandbox of this name.
    About(Vec<u8>, Fenced<SandboxRequest>),
}

/// What is asked about one sandbox, by its owner or by another process over the sandbox's own socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SandboxRequest {
    /// Use it.
    Attach,
    /// See how it stands.
    Look,
    /// Replace the tags if they have this version.
    SetTags {
        /// The version they must have.
        expected: u64,
        /// From now on requests that carry another fence are refused; 0 is nobody's.
        fence: u64,
        /// The new tags.
        tags: Vec<u8>,
    },
    /// Begin its lifetime anew, and its idle time; with 0 it has the lifetime that it was created with.
    Renew {
        /// From now on.
        lifetime_millis: u64,
    },
    /// End it. Answered when nothing of it is left.
    Destroy,
}

/// What the launcher answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SandboxReply {
    /// Descriptors: a socket to the agent, and what the creator left to be read.
    Attached,
    /// How it stands.
    State(State),
    /// The tags are written and have this version.
    Tagged(u64),
    /// The tags have this other version.
    Conflict(u64),
    /// The lifetime begins anew and is this long; 0 is without end.
    Renewed(u64),
    /// Nothing of it is left.
    Gone,
    /// Its processes are gone, but a cgroup directory could not be removed.
    CgroupLeft,
    /// The request failed with this error number.
    Failed(i32),
    /// The claim under which it was asked is over.
    Fenced,
}

/// How a sandbox stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// Version of the tags.
    pub(crate) version: u64,
    /// The tags.
    pub(crate) tags: Vec<u8>,
    /// Whether it outlives its owner.
    pub(crate) kept: bool,
    /// Since it was created.
    pub(crate) age_millis: u64,
    /// Until its lifetime is over; `u64::MAX` where that has no end.
    pub(crate) remaining_millis: u64,
    /// Until it has been idle for too long; `u64::MAX` where it may be idle.
    pub(crate) remaining_idle_millis: u64,
}

impl SandboxRequest {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Attach => writer.u8(0),
            Self::Look => writer.u8(1),
            Self::SetTags { expected, fence, tags } => {
                writer.u8(2);
                writer.u64(*expected);
                writer.u64(*fence);
                writer.bytes(tags);
            }
            Self::Renew { lifetime_millis } => {
                writer.u8(3);
                writer.u64(*lifetime_millis);
            }
            Self::Destroy => writer.u8(4),
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.u8()? {
            0 => Self::Attach,
            1 => Self::Look,
            2 => Self::SetTags { expected: reader.u64()?, fence: reader.u64()?, tags: reader.bytes()? },
            3 => Self::Renew { lifetime_millis: reader.u64()? },
            4 => Self::Destroy,
            _ => return Err(Malformed),
        })
    }
}

impl Message for SandboxRequest {
    fn put(&self, writer: &mut Writer) {
        self.put(writer);
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Self::get(reader)
    }
}

impl Message for LauncherRequest {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Create(request) => {
                writer.u8(0);
                request.put(writer);
            }
            Self::About(name, request) => {
                writer.u8(1);
                writer.bytes(name);
                request.put(writer);
            }
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        match reader.u8()? {
            0 => Ok(Self::Create(Box::new(CreateRequest::get(reader)?))),
            1 => Ok(Self::About(reader.bytes()?, Fenced::get(reader)?)),
            _ => Err(Malformed),
        }
    }
}

impl Message for SandboxReply {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Attached => writer.u8(0),
            Self::State(state) => {
                writer.u8(1);
                writer.u64(state.version);
                writer.bytes(&state.tags);
                writer.u8(u8::from(state.kept));
                writer.u64(state.age_millis);
                writer.u64(state.remaining_millis);
                writer.u64(state.remaining_idle_millis);
            }
            Self::Tagged(version) => {
                writer.u8(2);
                writer.u64(*version);
            }
            Self::Conflict(version) => {
                writer.u8(3);
                writer.u64(*version);
            }
            Self::Renewed(millis) => {
                writer.u8(4);
                writer.u64(*millis);
            }
            Self::Gone => writer.u8(5),
            Self::CgroupLeft => writer.u8(6),
            Self::Failed(errno) => {
                writer.u8(7);
                writer.u32(errno.cast_unsigned());
            }
            Self::Fenced => writer.u8(8),
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.u8()? {
            0 => Self::Attached,
            1 => Self::State(State {
                version: reader.u64()?,
                tags: reader.bytes()?,
                kept: reader.u8()? != 0,
                age_millis: reader.u64()?,
                remaining_millis: reader.u64()?,
                remaining_idle_millis: reader.u64()?,
            }),
            2 => Self::Tagged(reader.u64()?),
            3 => Self::Conflict(reader.u64()?),
            4 => Self::Renewed(reader.u64()?),
            5 => Self::Gone,
            6 => Self::CgroupLeft,
            7 => Self::Failed(reader.u32()?.cast_signed()),
            8 => Self::Fenced,
            _ => return Err(Malformed),
        })
    }
}
