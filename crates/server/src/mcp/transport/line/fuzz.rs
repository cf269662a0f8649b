//! Lines are the same in whatever parts they come, and what is made of a bad one is what it says.

#![expect(clippy::expect_used, reason = "what does not hold is said by panicking")]

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rmcp::model::RequestId;
use serde_json::Value;
use tokio::io::{AsyncRead, ReadBuf};

use super::{Line, LineReader, forgiven, id_of};

/// The longest line, far shorter than in the product.
const MAX_BYTES: usize = 300;

/// The first byte says how many follow that are sizes of parts; then come the lines.
pub(crate) fn target(bytes: &[u8]) {
    let Some((count, rest)) = bytes.split_first() else { return };
    let (parts, text) = rest.split_at(usize::from(*count).min(rest.len()));
    let expected = lines_of(text, MAX_BYTES);
    assert_eq!(read(text, &[]), expected);
    assert_eq!(read(text, parts), expected);
    for line in expected.iter().flatten() {
        check(line);
    }
}

/// What there is to be read, `None` for a line that is too long.
pub(crate) fn lines_of(text: &[u8], max_bytes: usize) -> Vec<Option<Vec<u8>>> {
    let line = |line: &[u8]| {
        if line.len() > max_bytes {
            return Some(None);
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        (!line.is_empty()).then(|| Some(line.to_vec()))
    };
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

fn read(text: &[u8], parts: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut lines = LineReader::bounded(Parts::new(text, parts), MAX_BYTES);
    let mut read = Vec::new();
    while let Some(line) = now(lines.next()).expect("memory can be read") {
        read.push(match line {
            Line::Whole(line) => Some(line),
            Line::TooLong { .. } => None,
        });
    }
    read
}

/// The result of something that waits for nothing.
fn now<F: Future>(future: F) -> F::Output {
    match std::pin::pin!(future).poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("there is nothing to wait for"),
    }
}

fn check(line: &[u8]) {
    let text = forgiven(line);
    if !text.starts_with('\u{feff}') {
        assert_eq!(forgiven(text.as_bytes()), text, "what was forgiven needs it no more");
    }
    match serde_json::from_str::<Value>(&text) {
        Err(error) => assert!(!error.to_string().contains("surrogate"), "{error}"),
        Ok(value) => {
            if let Ok(unforgiven) = serde_json::from_slice::<Value>(line) {
                assert_eq!(value, unforgiven, "there was nothing to forgive");
            }
            // What is looked for without understanding the text is what the text says, where that can be compared: no key is written
            // in escapes or twice.
            if value.is_object() && !text.contains('\\') && text.matches("\"id\"").count() < 2 {
                let id = value.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
                assert_eq!(id_of(text.as_bytes()), id);
                let end = super::id_at_end(text.as_bytes());
                assert!(end.is_none() || end == id, "{end:?}");
            }
        }
    }
}

/// Bytes in parts of these sizes in turn, as a whole where none is said.
pub(crate) struct Parts<'a> {
    rest: &'a [u8],
    sizes: &'a [u8],
    next: usize,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(rest: &'a [u8], sizes: &'a [u8]) -> Self {
        Self { rest, sizes, next: 0 }
    }
}

impl AsyncRead for Parts<'_> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let size = match this.sizes.len() {
            0 => this.rest.len(),
            count => usize::from(this.sizes[this.next % count]).max(1),
        };
        this.next += 1;
        let (part, rest) = this.rest.split_at(size.min(this.rest.len()).min(buf.remaining()));
        buf.put_slice(part);
        this.rest = rest;
        Poll::Ready(Ok(()))
    }
}
