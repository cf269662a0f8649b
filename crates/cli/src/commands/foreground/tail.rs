//! What the command has written so far, for a run that does not come to a result.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence::{Captured, OutputLimit, OutputObserver, StreamName};

/// Keeps the end of both streams.
#[derive(Debug)]
pub(super) struct Tail {
    limit: usize,
    streams: [Mutex<Kept>; 2],
}

#[derive(Debug, Default)]
struct Kept {
    /// At most twice the limit, so that little is moved.
    bytes: Vec<u8>,
    total: u64,
}

impl Tail {
    pub(super) fn new(limit: OutputLimit) -> Self {
        Self { limit: limit.get(), streams: Default::default() }
    }

    /// Returns what was seen of a stream.
    pub(super) fn captured(&self, stream: StreamName) -> Captured {
        let kept = self.kept(stream);
        let start = kept.bytes.len().saturating_sub(self.limit);
        let bytes = kept.bytes[start..].to_vec();
        let truncated = bytes.len() as u64 != kept.total;
        Captured { truncated, total_bytes: kept.total, ..Captured::complete(bytes) }
    }

    fn kept(&self, stream: StreamName) -> MutexGuard<'_, Kept> {
        let index = match stream {
            StreamName::Stdout => 0,
            StreamName::Stderr => 1,
        };
        self.streams[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputObserver for Tail {
    fn output(&self, stream: StreamName, _offset: u64, bytes: &[u8]) {
        let mut kept = self.kept(stream);
        kept.total = kept.total.saturating_add(bytes.len() as u64);
        let end = &bytes[bytes.len().saturating_sub(self.limit)..];
        if kept.bytes.len() + end.len() > 2 * self.limit {
            let surplus = (kept.bytes.len() + end.len() - self.limit).min(kept.bytes.len());
            kept.bytes.drain(..surplus);
        }
        kept.bytes.extend_from_slice(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_end_of_what_was_written_in_any_pieces() {
        let text: Vec<u8> = (b'a'..=b'z').collect();
        for limit in [1, 3, 7, 26, 40] {
            for piece in 1..=26 {
                let tail = Tail::new(OutputLimit::new(limit).unwrap());
                text.chunks(piece).for_each(|bytes| tail.output(StreamName::Stderr, 0, bytes));
                let bytes = text[26 - limit.min(26)..].to_vec();
                let whole = Captured { truncated: limit < 26, total_bytes: 26, ..Captured::complete(bytes) };
                assert_eq!(tail.captured(StreamName::Stderr), whole, "{limit} {piece}");
                assert_eq!(tail.captured(StreamName::Stdout), Captured::complete(Vec::new()));
            }
        }
    }
}
