//! What is known of a background command: how it stands, and the tail of each stream that it writes.
//!
//! It lies in a memory file which both the command's shim and the agent have. So it outlives the shim: an ended command needs no
//! process, one that kills its shim loses nothing, and the memory is the sandbox's own, whoever reads it.

use alloc::vec;

use crate::ledger::{LEDGER_BYTES, Ledger, Phase, Track};
use crate::limits::Struck;
use crate::sys::fd::OwnedFd;
use crate::sys::{Result, file};
use crate::wire::{CommandEnd, Message, PIECE_BYTES, Piece, Standing, Stream};

/// The ledger stands at the beginning of the file, the tails from here on.
const TAILS: u64 = 4096;

/// The record of one command.
#[derive(Debug)]
pub(crate) struct Record {
    file: OwnedFd,
    /// Of each stream.
    keep: u64,
    ledger: Ledger,
    limits: Struck,
}

impl Record {
    /// Begins one that keeps so many bytes of each stream.
    pub(crate) fn begin(keep: u64, limits: Struck, now: u64) -> Result<Self> {
        let keep = keep.max(1);
        let file = file::memory_file(c"ringfence-record", TAILS.saturating_add(keep.saturating_mul(2)))?;
        let ledger = Ledger {
            phase: Phase::Starting,
            // What the agent does to those that a shim leaves.
            end: CommandEnd::Signalled(libc::SIGKILL),
            started_millis: now,
            ended_millis: 0,
            tracks: [Track::default(); 2],
            told_to_end: false,
        };
        let record = Self { file, keep, ledger, limits };
        record.save()?;
        Ok(record)
    }

    /// The files of it, which a shim keeps open.
    pub(crate) fn fds(&self) -> impl Iterator<Item = i32> {
        self.limits.fds().chain([self.file.as_raw_fd()])
    }

    /// Somebody wants it killed.
    pub(crate) fn is_told_to_end(&mut self) {
        self.change(|ledger| ledger.told_to_end = true);
    }

    /// As the shim left it.
    pub(crate) fn reload(&mut self) {
        let mut bytes = [0; LEDGER_BYTES];
        // Nobody but the shim can write there, and it writes whole ledgers.
        if file::read_at(self.file.as_fd(), &mut bytes, 0).is_ok()
            && let Ok(ledger) = Ledger::decode(&bytes)
        {
            self.ledger = ledger;
        }
    }

    fn save(&self) -> Result<()> {
        file::write_at(self.file.as_fd(), &self.ledger.encode(), 0)
    }

    fn change(&mut self, change: impl FnOnce(&mut Ledger)) {
        change(&mut self.ledger);
        // The page is there since the beginning, so nothing is missing for this.
        drop(self.save());
    }

    /// How far it has come.
    pub(crate) fn phase(&self) -> Phase {
        self.ledger.phase
    }

    /// When it ended.
    pub(crate) fn ended_millis(&self) -> u64 {
        self.ledger.ended_millis
    }

    /// It has become its program.
    pub(crate) fn runs(&mut self) {
        self.change(|ledger| ledger.phase = Phase::Running);
    }

    /// From here on it is being ended because its time is over.
    pub(crate) fn times_out(&mut self) {
        self.change(|ledger| ledger.end = CommandEnd::TimedOut);
    }

    /// It has ended, and what it left in the background writes for nobody: the end of a stream is a promise.
    pub(crate) fn ends(&mut self, end: CommandEnd, now: u64) {
        let end = if self.ledger.told_to_end { end } else { self.limits.explain(end) };
        self.change(|ledger| {
            *ledger = Ledger { phase: Phase::Ended, end, ended_millis: now, ..*ledger };
            ledger.tracks.iter_mut().for_each(|track| track.closed = true);
        });
    }

    /// Its shim has gone. `false` where it never began.
    pub(crate) fn lose_shim(&mut self, now: u64) -> bool {
        self.reload();
        if self.phase() == Phase::Running {
            self.ends(self.ledger.end, now);
        }
        self.phase() == Phase::Ended
    }

    /// How it stands.
    pub(crate) fn standing(&self, now: u64) -> Standing {
        Standing {
            end: (self.phase() == Phase::Ended).then_some(self.ledger.end),
            age_millis: now.saturating_sub(self.ledger.started_millis),
            written: self.ledger.tracks.map(|track| track.written),
        }
    }

    /// Takes what a stream has written.
    pub(crate) fn append(&mut self, stream: Stream, bytes: &[u8]) {
        let stored = self.store(stream, bytes);
        self.change(|ledger| {
            let track = &mut ledger.tracks[stream as usize];
            track.written += bytes.len() as u64;
            if stored.is_err() {
                // No memory: what is there in its place is not what was written.
                track.from = track.written;
            }
        });
    }

    fn store(&self, stream: Stream, bytes: &[u8]) -> Result<()> {
        let kept = bytes.len().min(usize::try_from(self.keep).unwrap_or(usize::MAX));
        let dropped = bytes.len() - kept;
        let offset = self.ledger.tracks[stream as usize].written + dropped as u64;
        let (place, room) = self.place(stream, offset, kept);
        let (first, rest) = bytes[dropped..].split_at(room);
        file::write_at(self.file.as_fd(), first, place)?;
        file::write_at(self.file.as_fd(), rest, self.place(stream, 0, 0).0)
    }

    /// Where the byte of an offset lies, and how many of `length` lie behind it before the tail begins anew.
    fn place(&self, stream: Stream, offset: u64, length: usize) -> (u64, usize) {
        let within = offset % self.keep;
        let room = (self.keep - within).min(length as u64) as usize;
        (TAILS + self.keep * stream as u64 + within, room)
    }

    /// No more comes from a stream.
    pub(crate) fn close(&mut self, stream: Stream) {
        self.change(|ledger| ledger.tracks[stream as usize].closed = true);
    }

    /// Whether a reader at this offset has nothing to wait for.
    pub(crate) fn has(&self, stream: Stream, offset: u64) -> bool {
        let track = &self.ledger.tracks[stream as usize];
        track.closed || track.written > offset
    }

    /// What a stream wrote from an offset on, as far as it is kept and fits.
    pub(crate) fn piece(&self, stream: Stream, offset: u64) -> Piece {
        let track = &self.ledger.tracks[stream as usize];
        let oldest = track.from.max(track.written.saturating_sub(self.keep));
        let offset = offset.max(oldest);
        let length = track.written.saturating_sub(offset).min(PIECE_BYTES as u64) as usize;
        let mut bytes = vec![0; length];
        let (place, room) = self.place(stream, offset, length);
        let (first, rest) = bytes.split_at_mut(room);
        let read = file::read_at(self.file.as_fd(), first, place)
            .and_then(|()| file::read_at(self.file.as_fd(), rest, self.place(stream, 0, 0).0));
        if read.is_err() {
            // Memory that cannot be read is not to be; what would be there is left out and not made up.
            let end = track.closed;
            return Piece { offset: track.written, bytes: vec![], end };
        }
        let end = track.closed && offset + length as u64 >= track.written;
        Piece { offset, bytes, end }
    }
}
