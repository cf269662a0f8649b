//! Bounds on time and output.

use std::time::Duration;

use bytes::Bytes;

use crate::command::Captured;
use crate::error::{Error, Result};

/// A command's timeout: positive and finite (BK-05, SP-16), at most [`Timeout::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Timeout(Duration);

impl Timeout {
    /// The longest timeout accepted: 365 days. Longer requests are refused, not clamped, so that no timer overflows (P22).
    pub const MAX: Duration = Duration::from_secs(365 * 24 * 3600);

    /// Checks a number of seconds.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for zero, negative, infinite, NaN or more
    /// than [`Self::MAX`].
    pub fn from_secs_f64(seconds: f64) -> Result<Self> {
        let refuse = |why: &str| Err(Error::invalid("accept the timeout", format!("{why}, not {seconds}")));
        if seconds.is_nan() || seconds <= 0.0 {
            return refuse("a timeout must be greater than 0");
        }
        if !seconds.is_finite() || seconds > Self::MAX.as_secs_f64() {
            return refuse("a timeout must be finite and at most 31536000 seconds");
        }
        // A positive value too small for the clock stays positive (RC-03).
        Self::new(Duration::from_secs_f64(seconds).max(Duration::from_nanos(1)))
    }

    /// Checks a duration.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for zero or more than [`Self::MAX`].
    pub fn new(duration: Duration) -> Result<Self> {
        if duration.is_zero() || duration > Self::MAX {
            return Err(Error::invalid(
                "accept the timeout",
                format!("a timeout must be greater than 0 and at most 31536000 seconds, not {duration:?}"),
            ));
        }
        Ok(Self(duration))
    }

    /// Returns the duration.
    #[must_use]
    pub fn get(self) -> Duration {
        self.0
    }
}

/// How many bytes of each stream are kept; at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutputLimit(usize);

impl OutputLimit {
    /// The most that can be asked for: 64 MiB per stream.
    pub const MAX_BYTES: usize = 64 << 20;

    /// Checks a number of bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for 0 or more than [`Self::MAX_BYTES`] (BK-05).
    pub fn new(bytes: usize) -> Result<Self> {
        if bytes == 0 || bytes > Self::MAX_BYTES {
            return Err(Error::invalid(
                "accept the output limit",
                format!("an output limit must be between 1 and {} bytes, not {bytes}", Self::MAX_BYTES),
            ));
        }
        Ok(Self(bytes))
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn get(self) -> usize {
        self.0
    }
}

/// Keeps the tail of a stream in bounded memory while it is read (P39), and counts all of it (P40).
#[derive(Debug)]
pub struct TailBuffer {
    limit: usize,
    ring: Vec<u8>,
    /// Where the oldest byte lies once the ring is full.
    start: usize,
    total: u64,
    /// Whether the byte before the oldest one ended a line, so that the tail starts with a whole line.
    at_line_start: bool,
}

impl TailBuffer {
    /// Returns an empty buffer that never keeps more than `limit` bytes.
    #[must_use]
    pub fn new(limit: OutputLimit) -> Self {
        Self { limit: limit.get(), ring: Vec::new(), start: 0, total: 0, at_line_start: true }
    }

    /// Appends bytes, forgetting the oldest ones beyond the limit.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if let Some(dropped) = bytes.len().checked_sub(self.limit + 1) {
            self.at_line_start = bytes[dropped] == b'\n';
            self.ring.clear();
            self.ring.extend_from_slice(&bytes[dropped + 1..]);
            self.start = 0;
            return;
        }
        let room = self.limit - self.ring.len();
        let (fill, wrap) = bytes.split_at(bytes.len().min(room));
        if fill.len() > self.ring.capacity() - self.ring.len() {
            // Grows by doubling, as a `Vec` does, but never beyond the limit.
            let needed = self.ring.len() + fill.len();
            let capacity = needed.max(2 * self.ring.capacity()).min(self.limit);
            self.ring.reserve_exact(capacity - self.ring.len());
        }
        self.ring.extend_from_slice(fill);
        if wrap.is_empty() {
            return;
        }
        self.at_line_start = self.ring[(self.start + wrap.len() - 1) % self.limit] == b'\n';
        let first = wrap.len().min(self.limit - self.start);
        self.ring[self.start..self.start + first].copy_from_slice(&wrap[..first]);
        let rest = &wrap[first..];
        self.ring[..rest.len()].copy_from_slice(rest);
        self.start = (self.start + wrap.len()) % self.limit;
    }

    /// Returns the bytes pushed so far.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Returns the tail. When something was dropped, a leading partial line goes too, but only if at least half of
    /// the limit survives that (BK-07, BK-08).
    #[must_use]
    pub fn finish(mut self) -> Captured {
        self.ring.rotate_left(self.start);
        let truncated = self.total > self.ring.len() as u64;
        let mut bytes = Bytes::from(self.ring);
        if truncated
            && !self.at_line_start
            && let Some(newline) = bytes.iter().position(|byte| *byte == b'\n')
        {
            let whole_lines = bytes.slice(newline + 1..);
            if whole_lines.len() * 2 >= self.limit {
                bytes = whole_lines;
            }
        }
        Captured { bytes, truncated, total_bytes: self.total }
    }
}
