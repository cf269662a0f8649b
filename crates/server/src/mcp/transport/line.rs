//! Lines that are read, and what can still be made of a bad one.

use std::borrow::Cow;
use std::io;

use rmcp::model::RequestId;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// The longest message that is read, in bytes. A file that is written arrives in one message.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// How much of the end of a line is kept that is too long: some clients write the id last.
const KEPT_END_BYTES: usize = 256;

/// What was read.
#[derive(Debug)]
pub(super) enum Line {
    /// A line without its end.
    Whole(Vec<u8>),
    /// One that was dropped, with its request's id where that can be told.
    TooLong { id: Option<RequestId> },
}

/// Reads lines of bounded length. Dropping a read loses nothing.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    reader: BufReader<R>,
    max_bytes: usize,
    line: Vec<u8>,
    /// Of a line that is too long: its id if it was found at the beginning, and the last bytes so far.
    overlong: Option<(Option<RequestId>, Vec<u8>)>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self::bounded(reader, MAX_MESSAGE_BYTES)
    }

    fn bounded(reader: R, max_bytes: usize) -> Self {
        let reader = BufReader::with_capacity(64 << 10, reader);
        Self { reader, max_bytes, line: Vec::new(), overlong: None }
    }

    /// Returns the next line that is not empty; `None` at the end of the stream. The last line needs no end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let available = self.reader.fill_buf().await?;
            let at_end = available.is_empty();
            let newline = available.iter().position(|byte| *byte == b'\n');
            let taken = newline.map_or(available.len(), |at| at + 1);
            let content = &available[..newline.unwrap_or(taken)];
            match &mut self.overlong {
                Some((_, end)) => keep_end(end, content),
                None if self.line.len() + content.len() > self.max_bytes => {
                    let mut end = Vec::new();
                    keep_end(&mut end, &self.line);
                    keep_end(&mut end, content);
                    self.overlong = Some((id_of(&self.line), end));
                    self.line = Vec::new();
                }
                None => self.line.extend_from_slice(content),
            }
            self.reader.consume(taken);
            if newline.is_none() && !at_end {
                continue;
            }
            if let Some((id, end)) = self.overlong.take() {
                return Ok(Some(Line::TooLong { id: id.or_else(|| id_at_end(&end)) }));
            }
            let mut line = std::mem::take(&mut self.line);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if !line.is_empty() {
                return Ok(Some(Line::Whole(line)));
            }
            if at_end {
                return Ok(None);
            }
        }
    }
}

fn keep_end(end: &mut Vec<u8>, bytes: &[u8]) {
    end.extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT_END_BYTES)..]);
    end.drain(..end.len().saturating_sub(KEPT_END_BYTES));
}

/// Returns the text of a line with what has no meaning in it replaced by U+FFFD, as `TextEncoder` does: bytes that are not UTF-8, and
/// escapes of half a surrogate pair, which is what JavaScript writes for a text that was cut inside an emoji. A byte order mark at the
/// beginning is passed over (RFC 8259, 8.1).
pub(super) fn forgiven(line: &[u8]) -> Cow<'_, str> {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let text = String::from_utf8_lossy(line);
    match lone_surrogates(&text) {
        lone if lone.is_empty() => text,
        lone => {
            let mut whole = text.into_owned();
            for at in lone {
                whole.replace_range(at..at + ESCAPE, "\\ufffd");
            }
            Cow::Owned(whole)
        }
    }
}

/// The length of `\uXXXX`.
const ESCAPE: usize = 6;

/// Returns where escapes of half a pair are. The text is as long after they are replaced.
fn lone_surrogates(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut lone = Vec::new();
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|byte| *byte == b'\\') {
        at += next;
        match unit_at(bytes, at) {
            Some(0xd800..=0xdbff) if matches!(unit_at(bytes, at + ESCAPE), Some(0xdc00..=0xdfff)) => {
                at += 2 * ESCAPE;
            }
            Some(0xd800..=0xdfff) => {
                lone.push(at);
                at += ESCAPE;
            }
            // Another escape: what follows the backslash does not begin one.
            _ => at = (at + 2).min(bytes.len()),
        }
    }
    lone
}

/// Returns the code unit that is escaped at a place, if one is.
fn unit_at(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(escape).ok().filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

/// Returns the `id` of the object that a text begins with, whatever else is wrong with the text.
pub(super) fn id_of(text: &[u8]) -> Option<RequestId> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let end = string_end(text, at)?;
                if depth == 1
                    && &text[at..end] == b"\"id\""
                    && let Some(value) = after_colon(&text[end..])
                {
                    return id_value(value);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the `id` that the end of a text names last.
fn id_at_end(end: &[u8]) -> Option<RequestId> {
    let key = b"\"id\"";
    let at = end.windows(key.len()).rposition(|window| window == key)?;
    let value = after_colon(&end[at + key.len()..])?;
    // Nothing but the object's end may follow, or it is the id of something inside.
    let closed = value.iter().rev().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'}')
        && value.iter().filter(|byte| **byte == b'}').count() == 1
        && !value.contains(&b',');
    if closed { id_value(value) } else { None }
}

fn after_colon(text: &[u8]) -> Option<&[u8]> {
    Some(text.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
}

/// Returns where the string that begins at `start` has ended.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn id_value(text: &[u8]) -> Option<RequestId> {
    let end = match text.first()? {
        b'"' => string_end(text, 0)?,
        _ => text.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'.' | b'+' | b'e' | b'E'))?,
    };
    serde_json::from_slice(&text[..end]).ok()
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn number(id: i64) -> Option<RequestId> {
        Some(RequestId::Number(id))
    }

    #[test]
    fn an_id_is_found_in_what_is_not_json() {
        let cases: [(&str, Option<RequestId>); 9] = [
            (r#"{"jsonrpc":"2.0","id":7,"params":NaN}"#, number(7)),
            (r#"{"params":{"id":1,"x":[{"id":2}]},"id": -3 ,"#, number(-3)),
            (r#"{"a":"\"id\":9","id":"x\"y"}"#, Some(RequestId::String("x\"y".into()))),
            (r#"{"id":"unfinished"#, None),
            (r#"{"id":1.5}"#, None),
            (r#"{"id":null}"#, None),
            (r#"{"params":{"id":1}}"#, None),
            ("]]]", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(id_of(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(id_at_end(br#"xxxx"},"jsonrpc":"2.0","id":12}"#), number(12));
        assert_eq!(id_at_end(br#"xxxx","id":12}}"#), None);
        assert_eq!(id_at_end(br#""id":12},"x":1}"#), None);
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced_and_a_whole_one_stays() {
        let cases = [
            (r#""\ud83d\ude00 \ud83d""#, "\"\\ud83d\\ude00 \\ufffd\""),
            (r#""\ude00\\ud83d\ud83dx""#, r#""\ufffd\\ud83d\ufffdx""#),
            (r#""\u+83d \u12"#, r#""\u+83d \u12"#),
        ];
        for (written, expected) in cases {
            assert_eq!(forgiven(written.as_bytes()), expected);
        }
        assert_eq!(forgiven(b"\xef\xbb\xbf{\"a\xff\"}"), "{\"a\u{fffd}\"}");
    }

    #[tokio::test]
    async fn lines_end_in_either_way_and_the_last_needs_no_end() {
        let mut lines = LineReader::new(&b"one\r\n\n\ntwo\nthree"[..]);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            match line {
                Line::Whole(line) => read.push(String::from_utf8(line).unwrap()),
                Line::TooLong { .. } => panic!("{line:?}"),
            }
        }
        assert_eq!(read, ["one", "two", "three"]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_dropped_and_its_id_kept() {
        let filler = "x".repeat(MAX_MESSAGE_BYTES);
        for (long, expected) in [
            (format!(r#"{{"id":5,"params":"{filler}"}}"#), number(5)),
            (format!(r#"{{"params":"{filler}","jsonrpc":"2.0","id":6}}"#), number(6)),
            (filler.clone() + "y", None),
        ] {
            let text = format!("{long}\nnext\n");
            let mut lines = LineReader::new(text.as_bytes());
            let first = lines.next().await.unwrap();
            assert!(matches!(&first, Some(Line::TooLong { id }) if *id == expected), "{expected:?}");
            assert!(matches!(lines.next().await.unwrap(), Some(Line::Whole(line)) if line == b"next"));
        }
    }
}
