//! The bytes of a walk as events. They come from inside a sandbox, so this is a function of bytes alone that can be tried with any
//! (S40).

use crate::wire::{Message, TreeEvent, TreeSkip};

/// The most bytes of one event: a name, a target, and what stands around them.
pub(super) const EVENT_BYTES: usize = 8 << 10;

/// Before each event: its length.
const PREFIX_BYTES: usize = 2;

/// What was said is not what can be said there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonsense;

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// That cannot be told from so few bytes; [`EVENT_BYTES`] are always enough.
    More,
    /// This event, in that many bytes.
    Event(TreeEvent, usize),
    /// Content of the file, that many bytes of it.
    Content(u64),
    /// The content has ended; whether it was the file's. In that many bytes.
    Verdict(Result<(), TreeSkip>, usize),
}

/// Where in a walk the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parser {
    /// Before an event.
    Event,
    /// In the content of a file, of which so much is left.
    Content(u64),
    /// Behind the end.
    Ended,
}

impl Parser {
    /// Says what the bytes begin with. Content has to be [taken](Self::take) before there is another step.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Step, Nonsense> {
        match *self {
            Self::Event => {
                let Some((event, used)) = event(bytes)? else { return Ok(Step::More) };
                match &event {
                    TreeEvent::File { size, .. } => *self = Self::Content(*size),
                    TreeEvent::End => *self = Self::Ended,
                    TreeEvent::Whole | TreeEvent::Broken(_) => return Err(Nonsense),
                    TreeEvent::Enter(_)
                    | TreeEvent::Leave
                    | TreeEvent::Symlink { .. }
                    | TreeEvent::Skipped { .. } => {}
                }
                Ok(Step::Event(event, used))
            }
            Self::Content(0) => {
                let Some((event, used)) = event(bytes)? else { return Ok(Step::More) };
                let verdict = match event {
                    TreeEvent::Whole => Ok(()),
                    TreeEvent::Broken(why) => Err(why),
                    _ => return Err(Nonsense),
                };
                *self = Self::Event;
                Ok(Step::Verdict(verdict, used))
            }
            Self::Content(left) => Ok(Step::Content(left)),
            Self::Ended => Err(Nonsense),
        }
    }

    /// Goes on behind so many bytes of content, at most those that are left.
    pub(super) fn take(&mut self, bytes: u64) {
        if let Self::Content(left) = self {
            *left = left.saturating_sub(bytes);
        }
    }
}

fn event(bytes: &[u8]) -> Result<Option<(TreeEvent, usize)>, Nonsense> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let length = usize::from(u16::from_le_bytes(*prefix));
    if length > EVENT_BYTES - PREFIX_BYTES {
        return Err(Nonsense);
    }
    let Some(event) = rest.get(..length) else { return Ok(None) };
    let event = TreeEvent::decode(event).map_err(|_| Nonsense)?;
    Ok(Some((event, PREFIX_BYTES + length)))
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What was said, and the content behind it.
    type Said = Vec<(String, Vec<u8>)>;

    /// All that bytes say, given in parts of `part` bytes.
    fn parse(bytes: &[u8], part: usize) -> (Said, Result<Parser, Nonsense>) {
        let mut parser = Parser::Event;
        let mut said = Said::new();
        let (mut start, mut end) = (0, 0);
        loop {
            let step = match parser.step(&bytes[start..end]) {
                Ok(step) => step,
                Err(nonsense) => return (said, Err(nonsense)),
            };
            let used = match step {
                Step::Event(event, used) => {
                    said.push((format!("{event:?}"), Vec::new()));
                    used
                }
                Step::Verdict(verdict, used) => {
                    said.push((format!("{verdict:?}"), Vec::new()));
                    used
                }
                Step::Content(left) if start < end => {
                    let count = (end - start).min(usize::try_from(left).unwrap_or(usize::MAX));
                    parser.take(count as u64);
                    if let Some((_, content)) = said.last_mut() {
                        content.extend_from_slice(&bytes[start..start + count]);
                    }
                    count
                }
                Step::Content(_) | Step::More => {
                    assert!(step != Step::More || end - start < EVENT_BYTES, "{} bytes", end - start);
                    if end == bytes.len() || parser == Parser::Ended {
                        return (said, Ok(parser));
                    }
                    end = (end + part).min(bytes.len());
                    0
                }
            };
            start += used;
            if parser == Parser::Ended && start == bytes.len() {
                return (said, Ok(parser));
            }
        }
    }

    fn told(event: &TreeEvent, content: &[u8]) -> Vec<u8> {
        let event = event.encode();
        [&(event.len() as u16).to_le_bytes(), event.as_slice(), content].concat()
    }

    fn file(size: u64) -> TreeEvent {
        TreeEvent::File { name: b"f".to_vec(), executable: false, size }
    }

    #[test]
    fn s_40_a_walk_is_read_as_it_was_told() {
        let walk = [
            told(&TreeEvent::Enter(Vec::new()), b""),
            told(&file(3), b"abc"),
            told(&TreeEvent::Whole, b""),
            told(&file(0), b""),
            told(&TreeEvent::Broken(TreeSkip::Changed), b""),
            told(&TreeEvent::Symlink { name: vec![0xff; 255], target: vec![b'/'; 4095] }, b""),
            told(&TreeEvent::Leave, b""),
            told(&TreeEvent::End, b""),
        ]
        .concat();
        let (said, end) = parse(&walk, walk.len());
        assert_eq!(end, Ok(Parser::Ended));
        assert_eq!(said.len(), 8);
        assert_eq!(said[1].1, b"abc");
        for part in 1..9 {
            assert_eq!(parse(&walk, part), (said.clone(), end), "in parts of {part}");
        }
        // Torn anywhere, it never ends.
        for length in 0..walk.len() {
            assert_ne!(parse(&walk[..length], 5).1, Ok(Parser::Ended), "cut to {length}");
        }
        // Nothing follows the end.
        assert_eq!(parse(&[walk.as_slice(), b"x"].concat(), 7).1, Err(Nonsense));
    }

    #[test]
    fn s_40_what_cannot_be_said_there_is_nonsense() {
        let whole = told(&TreeEvent::Whole, b"");
        for bytes in [
            whole.clone(),
            told(&TreeEvent::Broken(TreeSkip::Special), b""),
            [told(&file(1), b"x"), told(&file(0), b"")].concat(),
            [told(&file(1), b"x"), told(&TreeEvent::End, b"")].concat(),
            [told(&file(0), b""), whole.clone(), whole].concat(),
            vec![0, 0],
            vec![0xff, 0xff],
            [1, 0, 99].to_vec(),
            // Longer than the event in it.
            [&[2, 0], TreeEvent::Leave.encode().as_slice(), b"x"].concat(),
        ] {
            assert_eq!(parse(&bytes, 3).1, Err(Nonsense), "{}", bytes.escape_ascii());
        }
    }

    /// The start of a walk, then whatever bytes.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let event = prop_oneof![
            Just(told(&TreeEvent::Enter(b"d".to_vec()), b"")),
            (0..9u64).prop_map(|size| told(&file(size), b"abc")),
            Just(told(&TreeEvent::Whole, b"")),
            Just(told(&TreeEvent::End, b"")),
            proptest::collection::vec(any::<u8>(), 0..12),
        ];
        proptest::collection::vec(event, 0..8).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn s_40_any_bytes_are_read_in_the_same_way_however_they_come(bytes in bytes(), part in 1..20usize) {
            let whole = parse(&bytes, bytes.len().max(1));
            prop_assert_eq!(parse(&bytes, part), whole);
        }
    }
}
