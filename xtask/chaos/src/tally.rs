//! What was done in all rounds, for the report.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::blow::Victim;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    hits: BTreeMap<String, BTreeMap<Victim, u64>>,
    pub(crate) rounds: u64,
    /// Kept sandboxes that had to live, and did.
    pub(crate) survivors: u64,
    /// The longest time from the begin of the next call until nothing was left, and the round it was in.
    pub(crate) slowest: Option<(Duration, u64)>,
}

impl Tally {
    pub(crate) fn hit(&mut self, phase: &str, victim: Victim) {
        *self.hits.entry(phase.to_owned()).or_default().entry(victim).or_default() += 1;
    }

    pub(crate) fn clean_after(&mut self, took: Duration, round: u64) {
        if self.slowest.is_none_or(|(slowest, _)| took > slowest) {
            self.slowest = Some((took, round));
        }
    }

    /// The table: who was killed while its owner did what.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{:<10}", "while");
        // Writing into a text does not fail.
        for victim in Victim::ALL {
            write!(text, "{:>12}", victim.name()).ok();
        }
        for (phase, victims) in &self.hits {
            write!(text, "\n{phase:<10}").ok();
            for victim in Victim::ALL {
                write!(text, "{:>12}", victims.get(&victim).copied().unwrap_or_default()).ok();
            }
        }
        text
    }

    /// All hits.
    pub(crate) fn killed(&self) -> u64 {
        self.hits.values().flat_map(BTreeMap::values).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Tally;
    use crate::blow::Victim;

    #[test]
    fn the_table_counts_by_phase_and_victim() {
        let mut tally = Tally::default();
        for victim in [Victim::Agent, Victim::Agent, Victim::Creator] {
            tally.hit("create", victim);
        }
        tally.clean_after(Duration::from_millis(2), 1);
        tally.clean_after(Duration::from_millis(1), 2);
        assert_eq!((tally.killed(), tally.slowest), (3, Some((Duration::from_millis(2), 1))));
        let expected = "while          creator    launcher       agent        shim     command  everything\n\
                        create               1           0           2           0           0           0";
        assert_eq!(tally.table(), expected);
    }
}
