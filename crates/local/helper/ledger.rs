//! What is written down of a background command, but for what it wrote itself.

use crate::wire::CommandEnd;
use crate::wire::codec::{Malformed, Message, Read, Reader, Writer};

/// Bytes of the ledger: phase, end, two times, and two numbers and a flag for each stream.
pub(crate) const LEDGER_BYTES: usize = 1 + 5 + 2 * 8 + 2 * (2 * 8 + 1) + 1;

/// How far a command has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not become its program.
    Starting,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
}

/// Where one stream stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Track {
    /// Bytes so far.
    pub(crate) written: u64,
    /// What stood before this was dropped for another reason than its age.
    pub(crate) from: u64,
    /// Whether no more comes.
    pub(crate) closed: bool,
}

/// All but the tails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) phase: Phase,
    /// How it ended; before it has, how it counts as ended should its shim go without a word.
    pub(crate) end: CommandEnd,
    pub(crate) started_millis: u64,
    pub(crate) ended_millis: u64,
    pub(crate) tracks: [Track; 2],
    /// Whether somebody wanted it killed: then no limit is the reason. Written down, since its shim may go with it.
    pub(crate) told_to_end: bool,
}

impl Message for Ledger {
    fn put(&self, writer: &mut Writer) {
        writer.u8(self.phase as u8);
        self.end.put(writer);
        writer.u64(self.started_millis);
        writer.u64(self.ended_millis);
        for track in &self.tracks {
            writer.u64(track.written);
            writer.u64(track.from);
            writer.u8(u8::from(track.closed));
        }
        writer.u8(u8::from(self.told_to_end));
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        let phase = match reader.u8()? {
            0 => Phase::Starting,
            1 => Phase::Running,
            2 => Phase::Ended,
            _ => return Err(Malformed),
        };
        let (end, started_millis, ended_millis) = (CommandEnd::get(reader)?, reader.u64()?, reader.u64()?);
        let mut track =
            || Ok(Track { written: reader.u64()?, from: reader.u64()?, closed: reader.u8()? != 0 });
        let tracks = [track()?, track()?];
        Ok(Self { phase, end, started_millis, ended_millis, tracks, told_to_end: reader.u8()? != 0 })
    }
}
