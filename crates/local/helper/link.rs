//! From the launcher to an agent, once that takes requests.

use crate::wire::codec::{Malformed, Message, Read, Reader, Writer};

/// What the launcher tells an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkMessage {
    /// Somebody else wants to use the sandbox. Descriptor: the agent's end of that client's socket.
    Client,
    /// From now on requests that carry another fence are refused; 0 is nobody's.
    Fence(u64),
}

impl Message for LinkMessage {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Client => writer.u8(0),
            Self::Fence(fence) => {
                writer.u8(1);
                writer.u64(*fence);
            }
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.u8()? {
            0 => Self::Client,
            1 => Self::Fence(reader.u64()?),
            _ => return Err(Malformed),
        })
    }
}
