//! What was not copied: said one by one, and counted.

use std::fmt::Display;

use crate::exit;

/// So many are said one by one. Whoever made the tree can have made any number.
const SAID: u64 = 20;

/// Counts what was not copied.
#[derive(Debug)]
pub(super) struct Skips {
    count: u64,
    say: fn(&str),
}

impl Skips {
    /// Returns a count that says each line with `say`.
    pub(super) fn new(say: fn(&str)) -> Self {
        Self { count: 0, say }
    }

    /// Says that something was not copied, and why.
    pub(super) fn note(&mut self, what: impl Display, why: impl Display) {
        self.count += 1;
        if self.count <= SAID {
            (self.say)(&format!("not copied: {what}: {why}"));
        }
    }

    /// Says how many there were beyond those that were said, and returns the exit status.
    pub(super) fn status(&self) -> u8 {
        let unsaid = self.count.saturating_sub(SAID);
        if unsaid > 0 {
            (self.say)(&format!("not copied: {unsaid} more"));
        }
        if self.count == 0 { exit::OK } else { exit::PARTIAL }
    }

    /// Returns how many there were.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static SAID_LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn s_40_a_tree_cannot_fill_a_terminal() {
        let mut skips = Skips::new(|line| SAID_LINES.with_borrow_mut(|lines| lines.push(line.to_owned())));
        assert_eq!(skips.status(), exit::OK);
        for number in 0..1_000_000 {
            skips.note(number, "why");
        }
        assert_eq!(skips.status(), exit::PARTIAL);
        let lines = SAID_LINES.take();
        assert_eq!((lines.len(), lines[0].as_str()), (21, "not copied: 0: why"));
        assert_eq!(lines[20], "not copied: 999980 more");
    }
}
