//! Choices that a seed repeats. What they meet is not repeated: when a kernel does what is nobody's choice.

/// A sequence of numbers that looks random (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The sequence of one round.
    pub(crate) fn of_round(seed: u64, round: u64) -> Self {
        let mut dice = Self(seed);
        // Neighbouring rounds have nothing in common.
        Self(dice.next() ^ Self(round).next())
    }

    /// The sequence that begins with `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them; `None` where there is none.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = self.below(u64::try_from(from.len()).ok().filter(|length| *length > 0)?);
        from.get(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn a_seed_and_a_round_say_what_is_chosen() {
        let first = |seed, round| {
            let mut dice = Dice::of_round(seed, round);
            [dice.next(), dice.next()]
        };
        assert_eq!(first(7, 3), first(7, 3));
        assert_ne!(first(7, 3), first(7, 4));
        assert_ne!(first(7, 3), first(8, 3));
        assert_ne!(first(7, 3)[0], first(7, 3)[1]);
    }

    #[test]
    fn choices_stay_within_what_there_is() {
        let mut dice = Dice::new(1);
        assert_eq!(dice.pick::<u8>(&[]), None);
        let picked: std::collections::BTreeSet<u8> =
            (0..100).filter_map(|_| dice.pick(&[1, 2, 3]).copied()).collect();
        assert_eq!(picked.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert!((0..1000).all(|_| dice.below(5) < 5));
        assert!(!dice.percent(0) && dice.percent(100));
    }
}
