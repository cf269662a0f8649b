//! Looks at a command while it runs, for whoever reports progress.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ringfence_core::{OutputObserver, StreamName};

use crate::mask::Masker;
use crate::text::prints;

/// How many bytes of a stream's end are kept to find its last line in, besides what masking needs.
const KEPT_BYTES: usize = 4 << 10;
/// How much of a line is shown: enough to see what goes on.
const LINE_CHARACTERS: usize = 200;

/// What a running command has come to, seen from outside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Glimpse {
    /// Whether the command was started; until then the call waits for its turn or for the sandbox.
    pub started: bool,
    /// The bytes that it wrote so far to both streams.
    pub output_bytes: u64,
    /// The last line that is not blank of what it wrote last, with secrets masked and without what does something
    /// to a terminal; cut after 200 characters.
    pub last_line: Option<String>,
}

/// Lets a call be looked at while it runs: give one to [`CallOptions::watch`](crate::CallOptions::watch), keep a clone,
/// and ask it for a [`Glimpse`] as often as there is somebody to tell. One per call.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Set when the command is about to be started.
    masker: OnceLock<Arc<Masker>>,
    output: Mutex<Output>,
}

#[derive(Debug, Default)]
struct Output {
    total_bytes: u64,
    stdout: End,
    stderr: End,
    last: Option<StreamName>,
}

/// The end of one stream.
#[derive(Debug, Default)]
struct End {
    bytes: Vec<u8>,
    /// Whether anything before it was dropped.
    torn: bool,
}

impl Watch {
    /// Returns what there is to see now.
    #[must_use]
    pub fn glimpse(&self) -> Glimpse {
        let Some(masker) = self.seen.masker.get() else { return Glimpse::default() };
        let output = self.seen.lock();
        let last_line = output.last.and_then(|stream| last_line(output.end(stream), masker));
        Glimpse { started: true, output_bytes: output.total_bytes, last_line }
    }

    /// Starts to watch a command whose secrets `masker` knows, and returns what sees its output.
    pub(crate) fn start(&self, masker: &Arc<Masker>) -> Arc<dyn OutputObserver> {
        let masker = self.seen.masker.get_or_init(|| Arc::clone(masker));
        Arc::new(Feed { seen: Arc::clone(&self.seen), kept_bytes: KEPT_BYTES + masker.slack_bytes() })
    }
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Output> {
        // Nothing that can panic runs under the lock.
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Output {
    fn end(&self, stream: StreamName) -> &End {
        match stream {
            StreamName::Stdout => &self.stdout,
            StreamName::Stderr => &self.stderr,
        }
    }
}

#[derive(Debug)]
struct Feed {
    seen: Arc<Seen>,
    kept_bytes: usize,
}

impl OutputObserver for Feed {
    fn output(&self, stream: StreamName, _offset: u64, bytes: &[u8]) {
        let mut output = self.seen.lock();
        output.total_bytes += bytes.len() as u64;
        output.last = Some(stream);
        let end = match stream {
            StreamName::Stdout => &mut output.stdout,
            StreamName::Stderr => &mut output.stderr,
        };
        let fresh = &bytes[bytes.len().saturating_sub(self.kept_bytes)..];
        end.torn |= fresh.len() < bytes.len();
        // Twice what is kept, so that a byte is moved once and not at every write.
        if end.bytes.len() + fresh.len() > 2 * self.kept_bytes {
            let old = self.kept_bytes - fresh.len();
            end.bytes.drain(..end.bytes.len() - old.min(end.bytes.len()));
            end.torn = true;
        }
        end.bytes.extend_from_slice(fresh);
    }
}

/// Returns the last line that is not blank, as it can be shown. A carriage return ends a line too: progress bars rewrite theirs.
///
/// Masked twice: what does something to a terminal can be part of a secret, and can stand between two halves of one.
fn last_line(end: &End, masker: &Masker) -> Option<String> {
    let masked = masker.unfinished(&end.bytes, end.torn);
    let lines: Vec<u8> = masked.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect();
    let plain = String::from_utf8_lossy(&strip_ansi_escapes::strip(lines))
        .chars()
        .filter(|character| *character == '\n' || prints(*character))
        .collect::<String>();
    let masked = masker.unfinished(plain.as_bytes(), end.torn);
    let text = String::from_utf8_lossy(&masked);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    let mut characters = line.chars();
    let mut shown: String = characters.by_ref().take(LINE_CHARACTERS).collect();
    if characters.next().is_some() {
        shown.push_str("...");
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use ringfence_core::EnvMap;

    use super::*;

    fn watched(secrets: &[&[u8]]) -> (Watch, Arc<dyn OutputObserver>) {
        let watch = Watch::default();
        let feed = watch.start(&Arc::new(Masker::new(&EnvMap::default(), &[], secrets.iter().copied())));
        (watch, feed)
    }

    fn line(written: &[&str], secrets: &[&[u8]]) -> Option<String> {
        let (watch, feed) = watched(secrets);
        for bytes in written {
            feed.output(StreamName::Stdout, 0, bytes.as_bytes());
        }
        watch.glimpse().last_line
    }

    #[test]
    fn a_command_that_was_not_started_shows_nothing() {
        assert_eq!(Watch::default().glimpse(), Glimpse::default());
        let (watch, _) = watched(&[]);
        assert_eq!(watch.glimpse(), Glimpse { started: true, output_bytes: 0, last_line: None });
    }

    #[test]
    fn the_last_line_is_of_the_stream_that_wrote_last() {
        let (watch, feed) = watched(&[]);
        feed.output(StreamName::Stdout, 0, b"one\ntwo\n\n");
        let glimpse = Glimpse { started: true, output_bytes: 9, last_line: Some("two".to_owned()) };
        assert_eq!(watch.glimpse(), glimpse);
        feed.output(StreamName::Stderr, 0, b"warning: x");
        let glimpse = Glimpse { started: true, output_bytes: 19, last_line: Some("warning: x".to_owned()) };
        assert_eq!(watch.glimpse(), glimpse);
    }

    #[test]
    fn what_does_something_to_a_terminal_is_not_passed_on() {
        assert_eq!(line(&["10%\r50%\r"], &[]).unwrap(), "50%");
        assert_eq!(line(&["\x1b[32mok\x1b[0m done\x07\n"], &[]).unwrap(), "ok done");
        assert_eq!(line(&["\x1b]0;title\x07 \n \t\n"], &[]), None);
    }

    #[test]
    fn a_long_line_is_cut() {
        let long = "x".repeat(300);
        assert_eq!(line(&[&long], &[]).unwrap(), format!("{}...", "x".repeat(200)));
    }

    #[test]
    fn mk_01_a_secret_that_is_only_half_written_is_not_shown() {
        let secret: &[u8] = b"hunter2-and-more";
        assert_eq!(line(&["key hunter2-and-more\n"], &[secret]).unwrap(), "key ***");
        assert_eq!(line(&["key hunter2-an"], &[secret]).unwrap(), "key ***");
        // The rest arrives: now it is whole.
        assert_eq!(line(&["key hunter2-an", "d-more."], &[secret]).unwrap(), "key ***.");
        // Lines of a secret that spans lines.
        assert_eq!(line(&["begin\nline one\nline tw"], &[b"line one\nline two\nend"]).unwrap(), "***");
    }

    #[test]
    fn mk_01_nor_is_one_that_colours_or_other_invisible_characters_cut() {
        let secret: &[u8] = b"hunter2-S3CRET";
        assert_eq!(line(&["id hunter2-\x1b[01;31m\x1b[KS3CR\x1b[m\x1b[KET\n"], &[secret]).unwrap(), "id ***");
        assert_eq!(line(&["id hunter2-\x01S3CRET\n"], &[secret]).unwrap(), "id ***");
        assert_eq!(line(&["id hunter2-\x1b[0mS3C"], &[secret]).unwrap(), "id ***");
        // Nor where the secret itself has one.
        assert_eq!(line(&["id a\x1b[0mb-secret\n"], &[b"a\x1b[0mb-secret"]).unwrap(), "id ***");
    }

    #[test]
    fn mk_01_nor_is_one_whose_beginning_was_dropped() {
        let secret = b"a-secret-that-is-torn".as_slice();
        let (watch, feed) = watched(&[secret]);
        // Push so much that the kept part begins inside the secret.
        let mut written = secret.to_vec();
        written.resize(secret.len() + KEPT_BYTES + secret.len() - 1 - 10, b'x');
        feed.output(StreamName::Stdout, 0, &written);
        let shown = watch.glimpse().last_line.unwrap();
        assert!(shown.starts_with("***x"), "{shown}");
    }

    #[test]
    fn memory_stays_bounded() {
        let (watch, feed) = watched(&[]);
        for _ in 0..1000 {
            feed.output(StreamName::Stdout, 0, &[b'x'; 1500]);
        }
        assert!(watch.seen.lock().stdout.bytes.len() <= 2 * KEPT_BYTES);
        feed.output(StreamName::Stdout, 0, b"\nend\n");
        let glimpse = Glimpse { started: true, output_bytes: 1_500_005, last_line: Some("end".to_owned()) };
        assert_eq!(watch.glimpse(), glimpse);
    }
}
