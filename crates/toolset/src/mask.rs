//! Keeps secrets out of what the model reads (MK).
//!
//! Works on bytes and before anything is cut, so that no cut can leave half a secret behind (MK-01, MK-02). What is
//! handed out is masked once more as a whole (MK-03), which catches what only escaping or joining brought together.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use ringfence_core::{EnvMap, Error};
use serde_json::Value;

/// What stands where a secret was (MK-04).
pub const MASK: &str = "***";

/// Values of the spec's environment shorter than this are not masked.
///
/// An environment also carries `1`, `true`, `prod` and port numbers. Replacing those everywhere would garble ordinary
/// output and, worse, would tell the model where they occur; and nothing shorter than eight bytes is worth keeping as a
/// secret. A shorter value that must be hidden is registered explicitly, which has no minimum.
pub const LEAST_ENV_SECRET_BYTES: usize = 8;

/// The shortest end of a secret that is masked at a torn beginning. Fewer bytes give nothing away, and match the first
/// letters of ordinary output by chance.
const LEAST_TORN_BYTES: usize = 4;

/// Variables whose values every program needs and shows: places, languages, terminals. Never secrets.
const PUBLIC_VARIABLES: [&str; 17] = [
    "COLORTERM",
    "COLUMNS",
    "EDITOR",
    "HOME",
    "HOSTNAME",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LOGNAME",
    "PAGER",
    "PATH",
    "PWD",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
];

/// Replaces every occurrence of a set of byte strings by [`MASK`].
#[derive(Clone, Default)]
pub(crate) struct Masker {
    /// Longest first, so that of two secrets that start at one place the longer one wins.
    patterns: Vec<Vec<u8>>,
    /// Pattern indices by first byte, in the order of `patterns`; empty when there are no patterns.
    by_first_byte: Vec<Vec<usize>>,
}

impl Masker {
    /// Collects the secrets of `env`, but for the variables named in `public`, and those registered explicitly.
    pub(crate) fn new<'a>(
        env: &'a EnvMap,
        public: &[String],
        registered: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        let is_public = |name: &str| {
            PUBLIC_VARIABLES.contains(&name) || name.starts_with("LC_") || public.iter().any(|p| p == name)
        };
        let from_env = env
            .iter()
            .filter(|(name, value)| !is_public(name) && value.len() >= LEAST_ENV_SECRET_BYTES)
            .map(|(_, value)| value.as_bytes());
        let secrets = from_env.chain(registered).filter(|secret| !secret.is_empty());
        let mut patterns: Vec<Vec<u8>> = secrets.flat_map(shapes_of).collect();
        patterns.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        patterns.dedup();
        let mut by_first_byte = Vec::new();
        if !patterns.is_empty() {
            by_first_byte.resize(256, Vec::new());
        }
        for (index, pattern) in patterns.iter().enumerate() {
            by_first_byte[usize::from(pattern[0])].push(index);
        }
        Self { patterns, by_first_byte }
    }

    /// Returns whether there is anything to hide.
    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns how many bytes more than wanted a backend must keep of a tail, so that a secret which overlaps the
    /// wanted part is there in full.
    pub(crate) fn slack_bytes(&self) -> usize {
        self.patterns.first().map_or(0, |longest| longest.len() - 1)
    }

    /// Masks bytes.
    pub(crate) fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let spans = self.spans(bytes);
        if spans.is_empty() { Cow::Borrowed(bytes) } else { Cow::Owned(replaced(bytes, 0, &spans)) }
    }

    /// Masks text.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(masked) => Cow::Owned(String::from_utf8_lossy(&masked).into_owned()),
        }
    }

    /// Masks every text inside a JSON value; keys are ours and stay.
    pub(crate) fn json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.json(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Masks the tail of a stream that was asked for with [`Self::slack_bytes`] more than the `keep` bytes wanted.
    ///
    /// When the beginning is missing (`truncated`), the first bytes may be the end of a secret. The slack is dropped
    /// from the front, and whatever is left at the front that equals the end of a secret is masked too, for backends
    /// that gave less slack than asked.
    pub(crate) fn tail<'a>(&self, bytes: &'a [u8], truncated: bool, keep: usize) -> Cow<'a, [u8]> {
        if self.is_empty() || !truncated {
            return self.bytes(bytes);
        }
        let mut spans = self.spans(bytes);
        let torn = self.torn_end(bytes);
        if torn > 0 {
            spans.insert(0, 0..torn);
            merge(&mut spans);
        }
        let mut start = bytes.len().saturating_sub(keep);
        // A whole-line tail must not start in the middle of a line only because of our own slack (BK-07, BK-08).
        if start > 0
            && bytes[start - 1] != b'\n'
            && let Some(newline) = bytes[start..].iter().position(|byte| *byte == b'\n')
            && (bytes.len() - start - newline - 1) * 2 >= keep
        {
            start += newline + 1;
        }
        if start == 0 && spans.is_empty() {
            return Cow::Borrowed(bytes);
        }
        Cow::Owned(replaced(bytes, start, &spans))
    }

    /// Masks the end of a stream that is still being written: the last bytes may be the beginning of a secret, and where
    /// earlier ones were dropped (`torn`), the first may be the end of one.
    pub(crate) fn unfinished<'a>(&self, bytes: &'a [u8], torn: bool) -> Cow<'a, [u8]> {
        let mut spans = self.spans(bytes);
        let end = if torn { self.torn_end(bytes) } else { 0 };
        if end > 0 {
            spans.insert(0, 0..end);
        }
        let beginning = self.torn_beginning(bytes);
        if beginning > 0 {
            spans.push(bytes.len() - beginning..bytes.len());
            spans.sort_unstable_by_key(|span| span.start);
        }
        merge(&mut spans);
        if spans.is_empty() { Cow::Borrowed(bytes) } else { Cow::Owned(replaced(bytes, 0, &spans)) }
    }

    /// Returns an error that shows no secret (MK-03): the same one if it shows none, else one of the same kind and
    /// disposition with masked text and without its chain of causes.
    pub(crate) fn error(&self, error: Error) -> Error {
        if self.is_empty() {
            return error;
        }
        let shown = format!("{error}{error:?}");
        match self.text(&shown) {
            Cow::Borrowed(_) => error,
            Cow::Owned(_) => self.restated(&error),
        }
    }

    /// Returns a masked copy of an error: its kind, both axes, its facts and its whole text, but instead of the chain of
    /// causes only what they say.
    pub(crate) fn restated(&self, error: &Error) -> Error {
        let masked = |text: &str| self.text(text).into_owned();
        let mut causes: Vec<String> = Vec::new();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        let plain = |message: String| {
            let copy =
                Error::new(error.kind().clone(), masked(error.backend()), masked(error.operation()), message)
                    .retry(error.retry_policy());
            if error.is_terminal() { copy.terminal() } else { copy.recoverable() }
        };
        let mut copy = plain(masked(error.message()));
        for (name, value) in error.facts() {
            copy = copy.context(masked(name), masked(value));
        }
        if !causes.is_empty() {
            copy = copy.source(masked(&causes.join(": ")));
        }
        if let Some(hint) = error.hint_text() {
            copy = copy.hint(masked(hint));
        }
        match self.text(&copy.to_string()) {
            Cow::Borrowed(_) => copy,
            // What is shown joins and escapes the parts, and that can bring a secret together.
            Cow::Owned(text) => plain(text),
        }
    }

    /// Returns where secrets lie, merged where they overlap: replacing one of two overlapping secrets alone would leave
    /// the rest of the other in sight.
    fn spans(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut spans: Vec<Range<usize>> = Vec::new();
        if self.is_empty() {
            return spans;
        }
        for (start, first) in bytes.iter().enumerate() {
            let found = self.by_first_byte[usize::from(*first)]
                .iter()
                .map(|index| &self.patterns[*index])
                .find(|pattern| bytes[start..].starts_with(pattern));
            if let Some(pattern) = found {
                spans.push(start..start + pattern.len());
            }
        }
        merge(&mut spans);
        spans
    }

    /// Returns the length of the longest proper end of a secret with which `bytes` begin, 0 if there is none to speak of.
    fn torn_end(&self, bytes: &[u8]) -> usize {
        (LEAST_TORN_BYTES..=self.slack_bytes().min(bytes.len()))
            .rev()
            .find(|length| {
                self.patterns
                    .iter()
                    .any(|pattern| pattern.len() > *length && pattern.ends_with(&bytes[..*length]))
            })
            .unwrap_or(0)
    }

    /// Returns the length of the longest proper beginning of a secret with which `bytes` end, 0 if there is none to speak of.
    fn torn_beginning(&self, bytes: &[u8]) -> usize {
        (LEAST_TORN_BYTES..=self.slack_bytes().min(bytes.len()))
            .rev()
            .find(|length| {
                let end = &bytes[bytes.len() - length..];
                self.patterns.iter().any(|pattern| pattern.len() > *length && pattern.starts_with(end))
            })
            .unwrap_or(0)
    }
}

/// Shows how many, never which.
impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Masker").field("patterns", &self.patterns.len()).finish()
    }
}

/// Returns the shapes in which a secret shows up: as it is, without surrounding blanks, with line ends of either kind, and
/// as our own messages escape it.
fn shapes_of(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut bases = vec![secret];
    let trimmed = secret.trim_ascii();
    // A key file's final newline is not part of what is worth hiding, but what is left must not be next to nothing.
    if trimmed.len() >= LEAST_ENV_SECRET_BYTES {
        bases.push(trimmed);
    }
    let mut shapes = Vec::new();
    for base in bases {
        shapes.push(base.to_vec());
        shapes.push(base.escape_ascii().to_string().into_bytes());
        let Ok(text) = std::str::from_utf8(base) else { continue };
        let unix = text.replace("\r\n", "\n");
        shapes.push(unix.replace('\n', "\r\n").into_bytes());
        shapes.push(unix.into_bytes());
        shapes.push(text.escape_debug().to_string().into_bytes());
        shapes.push(on_one_line(text).into_bytes());
        if let Ok(json) = serde_json::to_string(text) {
            shapes.push(json.as_bytes()[1..json.len() - 1].to_vec());
        }
    }
    shapes
}

/// Returns text as errors show it: only what would break the line is escaped.
fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// Joins spans that overlap; the input is sorted by start. Spans that only touch stay apart.
fn merge(spans: &mut Vec<Range<usize>>) {
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans.drain(..) {
        match merged.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    *spans = merged;
}

/// Returns `bytes[start..]` with the spans replaced; a span that reaches into the part dropped is masked as a whole.
fn replaced(bytes: &[u8], start: usize, spans: &[Range<usize>]) -> Vec<u8> {
    let mut masked = Vec::with_capacity(bytes.len() - start);
    let mut position = start;
    for span in spans.iter().filter(|span| span.end > start) {
        masked.extend_from_slice(&bytes[position..span.start.max(position)]);
        masked.extend_from_slice(MASK.as_bytes());
        position = span.end;
    }
    masked.extend_from_slice(&bytes[position..]);
    masked
}

#[cfg(test)]
mod tests {
    use super::{MASK, Masker};
    use proptest::prelude::*;
    use ringfence_core::EnvMap;

    /// Masks `text[start..]` by looking at every position on its own.
    fn reference(text: &[u8], secrets: &[Vec<u8>], start: usize) -> Vec<u8> {
        let mut occurrences: Vec<(usize, usize)> = Vec::new();
        for at in 0..text.len() {
            let longest = secrets.iter().filter(|secret| text[at..].starts_with(secret)).map(Vec::len).max();
            occurrences.extend(longest.map(|length| (at, at + length)));
        }
        let mut masked = Vec::new();
        let mut at = start;
        while at < text.len() {
            if !occurrences.iter().any(|(from, to)| (*from..*to).contains(&at)) {
                masked.push(text[at]);
                at += 1;
                continue;
            }
            masked.extend_from_slice(MASK.as_bytes());
            // As long as some occurrence covers both neighbours, they belong to one mask.
            while occurrences.iter().any(|(from, to)| *from <= at && at + 1 < *to) {
                at += 1;
            }
            at += 1;
        }
        masked
    }

    fn masker(secrets: &[Vec<u8>]) -> Masker {
        Masker::new(&EnvMap::default(), &[], secrets.iter().map(Vec::as_slice))
    }

    fn secrets() -> impl Strategy<Value = Vec<Vec<u8>>> {
        proptest::collection::vec(proptest::collection::vec(b'a'..=b'c', 1..6), 1..4)
    }

    proptest! {
        #[test]
        fn mk_01_no_byte_of_a_secret_survives(
            secrets in secrets(),
            text in proptest::collection::vec(b'a'..=b'd', 0..60),
        ) {
            prop_assert_eq!(masker(&secrets).bytes(&text).into_owned(), reference(&text, &secrets, 0));
        }

        #[test]
        fn mk_01_nor_where_a_backend_kept_only_a_tail(
            secrets in secrets(),
            text in proptest::collection::vec(b'a'..=b'd', 0..60),
            keep in 1_usize..30,
        ) {
            let masker = masker(&secrets);
            let kept = &text[text.len().saturating_sub(keep + masker.slack_bytes())..];
            let truncated = kept.len() < text.len();
            let start = if truncated { text.len() - keep } else { 0 };
            prop_assert_eq!(
                masker.tail(kept, truncated, keep).into_owned(),
                reference(&text, &secrets, start)
            );
        }
    }
}
