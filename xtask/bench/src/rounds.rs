//! Interleaved rounds.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::table::Row;

/// Rounds that warm caches up and are not counted.
const WARM_UP: usize = 5;

type Work<'a> = Box<dyn FnMut() -> Result<f64> + 'a>;

/// Cases that are measured together: each round does every case once, in the order of the table.
#[derive(Default)]
pub(crate) struct Rounds<'a> {
    cases: Vec<(Row, usize, Work<'a>)>,
}

impl<'a> Rounds<'a> {
    /// Adds a case; its work returns what it measured.
    pub(crate) fn add(&mut self, row: Row, work: impl FnMut() -> Result<f64> + 'a) {
        self.add_every(1, row, work);
    }

    /// Adds a case that is too slow for each round: it takes part in each `every`th.
    pub(crate) fn add_every(&mut self, every: usize, row: Row, work: impl FnMut() -> Result<f64> + 'a) {
        self.cases.push((row, every, Box::new(work)));
    }

    /// Runs all rounds and returns the rows.
    pub(crate) fn run(mut self, count: usize) -> Result<Vec<Row>> {
        for round in 0..WARM_UP + count {
            for (row, every, work) in &mut self.cases {
                // One round is enough to warm up what takes part seldom.
                let takes_part = match round.checked_sub(WARM_UP) {
                    Some(round) => round.is_multiple_of(*every),
                    None => *every == 1 || round == 0,
                };
                if !takes_part {
                    continue;
                }
                match work() {
                    Ok(measured) if round >= WARM_UP => row.samples.push(measured),
                    Ok(_) => {}
                    // Peers have bad days too, and one run of theirs is no reason to lose all of ours.
                    Err(_) if row.peer_of.is_some() && row.failures < row.samples.len().max(WARM_UP) => {
                        row.failures += 1;
                    }
                    Err(error) => return Err(error).with_context(|| row.name.clone()),
                }
            }
        }
        Ok(self.cases.into_iter().map(|(row, ..)| row).collect())
    }
}

impl fmt::Debug for Rounds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.cases.iter().map(|(row, ..)| &row.name)).finish()
    }
}

/// A time as the tables show it.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use anyhow::anyhow;

    use super::{Rounds, WARM_UP};
    use crate::table::Row;

    #[test]
    fn cases_take_turns_and_slow_ones_sit_out() {
        let order = RefCell::new(Vec::new());
        let mut rounds = Rounds::default();
        let note = |name: &'static str| {
            order.borrow_mut().push(name);
            Ok(1.0)
        };
        rounds.add(Row::ours("fast"), || note("fast"));
        rounds.add_every(2, Row::peer("slow", 0), || note("slow"));
        let rows = rounds.run(3).unwrap();
        let measured: Vec<usize> = rows.iter().map(|row| row.samples.len()).collect();
        assert_eq!(measured, [3, 2]);
        let order = order.into_inner();
        assert_eq!(order[..2], ["fast", "slow"]);
        assert_eq!(order[1 + WARM_UP..], ["fast", "slow", "fast", "fast", "slow"]);
    }

    #[test]
    fn a_failure_of_ours_ends_the_run_and_one_of_a_peer_is_counted() {
        let calls = Cell::new(0);
        let sometimes = || {
            calls.set(calls.get() + 1);
            if calls.get() == WARM_UP + 2 { Err(anyhow!("a bad day")) } else { Ok(1.0) }
        };
        let mut rounds = Rounds::default();
        rounds.add(Row::peer("peer", 0), sometimes);
        let rows = rounds.run(4).unwrap();
        assert_eq!((rows[0].samples.len(), rows[0].failures), (3, 1));

        calls.set(0);
        let mut rounds = Rounds::default();
        rounds.add(Row::ours("ours"), sometimes);
        assert_eq!(rounds.run(4).unwrap_err().root_cause().to_string(), "a bad day");

        let mut rounds = Rounds::default();
        rounds.add(Row::peer("never", 0), || Err(anyhow!("no day is good")));
        assert_eq!(rounds.run(4).unwrap_err().root_cause().to_string(), "no day is good");
    }
}
