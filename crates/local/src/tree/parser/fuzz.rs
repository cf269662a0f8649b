//! A walk is read in the same way in whatever parts it comes.

#![expect(clippy::expect_used, reason = "what does not hold is said by panicking")]

use super::{EVENT_BYTES, Nonsense, Parser, Step};

/// What was said, and the content behind it.
type Said = Vec<(String, Vec<u8>)>;

/// The first byte says how many follow that are sizes of parts; then comes the walk.
pub(crate) fn target(bytes: &[u8]) {
    let Some((count, rest)) = bytes.split_first() else { return };
    let (parts, walk) = rest.split_at(usize::from(*count).min(rest.len()));
    let whole = read(walk, &[]);
    assert_eq!(read(walk, parts), whole);
    if whole.1 == Ok(Parser::Ended) {
        // Torn, it never ends; and nothing follows.
        assert_ne!(read(&walk[..walk.len() - 1], &[]).1, Ok(Parser::Ended));
        assert_eq!(read(&[walk, b"x"].concat(), parts).1, Err(Nonsense));
    }
}

/// All that a walk says, which comes in parts of these sizes in turn; as a whole where none is said.
fn read(walk: &[u8], parts: &[u8]) -> (Said, Result<Parser, Nonsense>) {
    let mut sizes = parts.iter().map(|size| usize::from(*size).max(1)).cycle();
    let mut parser = Parser::Event;
    let mut said = Said::new();
    let (mut start, mut end) = (0, 0);
    loop {
        let window = &walk[start..end];
        let used = match parser.step(window) {
            Err(nonsense) => return (said, Err(nonsense)),
            Ok(Step::Event(event, used)) => {
                said.push((format!("{event:?}"), Vec::new()));
                used
            }
            Ok(Step::Verdict(verdict, used)) => {
                said.push((format!("{verdict:?}"), Vec::new()));
                used
            }
            Ok(Step::Content(left)) if !window.is_empty() => {
                let count = window.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                parser.take(count as u64);
                said.last_mut().expect("a file was announced").1.extend_from_slice(&window[..count]);
                count
            }
            Ok(step) => {
                assert!(step != Step::More || window.len() < EVENT_BYTES, "{} bytes", window.len());
                if end == walk.len() {
                    return (said, Ok(parser));
                }
                end = sizes.next().map_or(walk.len(), |size| (end + size).min(walk.len()));
                continue;
            }
        };
        assert!(0 < used && used <= window.len());
        start += used;
        if parser == Parser::Ended && start == walk.len() {
            return (said, Ok(parser));
        }
        if parser == Parser::Ended && start == end {
            // What follows has not come yet.
            end = walk.len();
        }
    }
}
