//! The one place where text is cut to what a model may read.
//!
//! Works on text that was decoded and masked already (MK-01): a secret cut in half here would leak its other half.
//! It knows nothing of labels, exit codes or tools; the toolset adds those around what is returned.

use crate::error::{Error, Result};

/// The line put before text whose beginning is missing (OT-02, RC-19).
pub const EARLIER_TRUNCATED: &str = "[... earlier output truncated]";

/// The most lines and bytes of text that a model is shown; whichever is reached first cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClipLimits {
    max_lines: usize,
    max_bytes: usize,
}

impl ClipLimits {
    /// Checks the two bounds. A marker line counts against neither.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if one of them is 0.
    pub fn new(max_lines: usize, max_bytes: usize) -> Result<Self> {
        if max_lines == 0 || max_bytes == 0 {
            return Err(Error::invalid(
                "accept the text limits",
                format!(
                    "at least 1 line and 1 byte must be shown, not {max_lines} lines and {max_bytes} bytes"
                ),
            ));
        }
        Ok(Self { max_lines, max_bytes })
    }

    /// Returns the most lines shown.
    #[must_use]
    pub fn max_lines(self) -> usize {
        self.max_lines
    }

    /// Returns the most bytes shown: UTF-8 bytes and one for each newline that joins two lines (OT-03).
    #[must_use]
    pub fn max_bytes(self) -> usize {
        self.max_bytes
    }
}

/// Iterates over the lines of `text`: what LF or CRLF ends, and what is left after the last of them unless it is empty
/// (OT-09).
///
/// Nothing else ends a line (section 21, item 9). A lone CR, form feed, vertical tab, NEL or U+2028 stays where it is: to
/// shells, editors and compilers they are characters of a line, and a model that edits by line number must count as
/// those do.
pub fn lines(text: &str) -> impl DoubleEndedIterator<Item = &str> + Clone {
    text.lines()
}

/// Returns the last whole lines of `text` that fit, each line ending as one LF (RC-18), the final one dropped (OT-09).
///
/// When something is missing, here or because `already_truncated` says so, [`EARLIER_TRUNCATED`] and a newline come first
/// (OT-06). A last line that does not fit alone is shown by its last bytes, from a character boundary (OT-05); no other
/// line is ever shown in part (OT-04, OT-07). Of a truncated text of which nothing is left, only the marker is
/// returned, so that it cannot be mistaken for silence (section 21, item 10).
#[must_use]
pub fn tail(text: &str, limits: ClipLimits, already_truncated: bool) -> String {
    let mut kept = Vec::new();
    let mut bytes = 0;
    let mut truncated = already_truncated;
    for line in lines(text).rev() {
        let needed = line.len() + usize::from(!kept.is_empty());
        if kept.len() < limits.max_lines && needed <= limits.max_bytes - bytes {
            bytes += needed;
            kept.push(line);
            continue;
        }
        truncated = true;
        if kept.is_empty() {
            kept.extend(Some(last_bytes(line, limits.max_bytes)).filter(|part| !part.is_empty()));
        }
        break;
    }
    if truncated {
        kept.push(EARLIER_TRUNCATED);
    }
    kept.reverse();
    kept.join("\n")
}

/// The beginning of a text, and how much of it is not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Whole lines, joined by LF, without a final one.
    pub text: String,
    /// How many lines are shown. 0 of a text that is not empty: its first line alone exceeds the byte limit.
    pub shown: usize,
    /// How many lines follow after the last one shown.
    pub remaining: usize,
}

/// Returns the first whole lines that fit: the cut for listings and files, whose beginning matters (section 21, item 8).
#[must_use]
pub fn head<'a>(lines: impl IntoIterator<Item = &'a str>, limits: ClipLimits) -> Head {
    let mut lines = lines.into_iter();
    let mut head = Head { text: String::new(), shown: 0, remaining: 0 };
    while let Some(line) = lines.next() {
        let joint = usize::from(head.shown > 0);
        if head.shown == limits.max_lines || line.len() + joint > limits.max_bytes - head.text.len() {
            head.remaining = 1 + lines.count();
            break;
        }
        if joint == 1 {
            head.text.push('\n');
        }
        head.text.push_str(line);
        head.shown += 1;
    }
    head
}

/// Returns at most the last `max_bytes` bytes, starting at a character boundary.
fn last_bytes(text: &str, max_bytes: usize) -> &str {
    let from = text.len().saturating_sub(max_bytes);
    (from..=text.len()).find_map(|start| text.get(start..)).unwrap_or_default()
}

/// Shows a size for people and models: `512B`, `1.5KB`, `5.0MB`; powers of 1024 and no step above MB (OT-10).
#[must_use]
pub fn format_size(bytes: u64) -> String {
    const KB: u64 = 1 << 10;
    const MB: u64 = 1 << 20;
    match bytes {
        ..KB => format!("{bytes}B"),
        KB..MB => format!("{:.1}KB", bytes as f64 / KB as f64),
        MB.. => format!("{:.1}MB", bytes as f64 / MB as f64),
    }
}
