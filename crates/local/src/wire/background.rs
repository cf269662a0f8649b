//! Background commands: how one is started, what is asked about it, and how it stands.

use alloc::vec::Vec;

use super::agent::RunRequest;
use super::codec::{Malformed, Message, Read, Reader, Writer};

/// The most bytes of standard input in a request, and of output in a reply.
pub(crate) const PIECE_BYTES: usize = 32 << 10;

/// What is known of so many ended commands is kept; of more, those that ended first are forgotten.
pub(crate) const KEPT_ENDED: usize = 64;

/// A command that runs on when whoever started it has hung up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StartRequest {
    /// What to run. Terminal and room are nothing for it.
    pub(crate) run: RunRequest,
    /// How many bytes of the tail of each stream are kept.
    pub(crate) keep_bytes: u64,
    /// Whether its standard input stays open to be written to.
    pub(crate) stdin: bool,
    /// The lines that count in the files which follow as descriptors: kills by the memory limit, and forks refused by the process limit.
    /// Empty where there is no such file.
    pub(crate) counters: [Vec<u8>; 2],
}

/// What is asked about a command that was started. Whoever hangs up does not want to know any more; it changes nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommandAsk {
    /// How does it stand, once it has ended or the patience is over?
    Wait {
        /// How long it may take.
        patience_millis: u64,
    },
    /// What did it write from an offset on? Once there is something, or nothing more comes, or the patience is over.
    Read {
        /// Which of its streams.
        stream: Stream,
        /// The bytes before are not wanted.
        offset: u64,
        /// How long it may take.
        patience_millis: u64,
    },
    /// Write this to its standard input, as far as that takes it before the patience is over.
    Write {
        /// At most [`PIECE_BYTES`].
        bytes: Vec<u8>,
        /// Whether nothing comes after these.
        end: bool,
        /// How long it may take.
        patience_millis: u64,
    },
    /// Send it a signal, unless it has ended.
    Signal(i32),
    /// End it and all its descendants, also where it has ended and they have not.
    Kill,
}

/// One of the streams that a command writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    /// It exited with a status.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// Its timeout passed.
    TimedOut,
    /// The memory limit ended it.
    MemoryExceeded,
    /// It could not start what it needed, because of the process limit.
    PidsExceeded,
}

/// How a command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// `None` while it runs.
    pub(crate) end: Option<CommandEnd>,
    /// How long ago it was started.
    pub(crate) age_millis: u64,
    /// Bytes written so far, by stream.
    pub(crate) written: [u64; 2],
}

/// Something that a command wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where in the stream it begins.
    pub(crate) offset: u64,
    /// At most [`PIECE_BYTES`].
    pub(crate) bytes: Vec<u8>,
    /// Whether nothing comes after it.
    pub(crate) end: bool,
}

impl Message for StartRequest {
    fn put(&self, writer: &mut Writer) {
        self.run.put(writer);
        writer.u64(self.keep_bytes);
        writer.u8(u8::from(self.stdin));
        self.counters.iter().for_each(|key| writer.bytes(key));
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Self {
            run: RunRequest::get(reader)?,
            keep_bytes: reader.u64()?,
            stdin: reader.u8()? != 0,
            counters: [reader.bytes()?, reader.bytes()?],
        })
    }
}

impl Message for CommandAsk {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Wait { patience_millis } => {
                writer.u8(0);
                writer.u64(*patience_millis);
            }
            Self::Read { stream, offset, patience_millis } => {
                writer.u8(1);
                writer.u8(*stream as u8);
                writer.u64(*offset);
                writer.u64(*patience_millis);
            }
            Self::Write { bytes, end, patience_millis } => {
                writer.u8(2);
                writer.bytes(bytes);
                writer.u8(u8::from(*end));
                writer.u64(*patience_millis);
            }
            Self::Signal(signal) => {
                writer.u8(3);
                writer.u32(signal.cast_unsigned());
            }
            Self::Kill => writer.u8(4),
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.u8()? {
            0 => Self::Wait { patience_millis: reader.u64()? },
            1 => Self::Read {
                stream: match reader.u8()? {
                    0 => Stream::Output,
                    1 => Stream::Error,
                    _ => return Err(Malformed),
                },
                offset: reader.u64()?,
                patience_millis: reader.u64()?,
            },
            2 => {
                Self::Write { bytes: reader.bytes()?, end: reader.u8()? != 0, patience_millis: reader.u64()? }
            }
            3 => Self::Signal(reader.u32()?.cast_signed()),
            4 => Self::Kill,
            _ => return Err(Malformed),
        })
    }
}

impl Message for CommandEnd {
    fn put(&self, writer: &mut Writer) {
        let (kind, value) = match self {
            Self::Exited(status) => (0, *status),
            Self::Signalled(signal) => (1, *signal),
            Self::TimedOut => (2, 0),
            Self::MemoryExceeded => (3, 0),
            Self::PidsExceeded => (4, 0),
        };
        writer.u8(kind);
        writer.u32(value.cast_unsigned());
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        let (kind, value) = (reader.u8()?, reader.u32()?.cast_signed());
        Ok(match kind {
            0 => Self::Exited(value),
            1 => Self::Signalled(value),
            2 => Self::TimedOut,
            3 => Self::MemoryExceeded,
            4 => Self::PidsExceeded,
            _ => return Err(Malformed),
        })
    }
}

impl Message for Standing {
    fn put(&self, writer: &mut Writer) {
        writer.u8(u8::from(self.end.is_some()));
        if let Some(end) = &self.end {
            end.put(writer);
        }
        writer.u64(self.age_millis);
        self.written.iter().for_each(|bytes| writer.u64(*bytes));
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        let ended = reader.u8()? != 0;
        Ok(Self {
            end: ended.then(|| CommandEnd::get(reader)).transpose()?,
            age_millis: reader.u64()?,
            written: [reader.u64()?, reader.u64()?],
        })
    }
}

impl Message for Piece {
    fn put(&self, writer: &mut Writer) {
        writer.u64(self.offset);
        writer.bytes(&self.bytes);
        writer.u8(u8::from(self.end));
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Self { offset: reader.u64()?, bytes: reader.bytes()?, end: reader.u8()? != 0 })
    }
}
