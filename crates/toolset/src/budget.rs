//! Counts how often each tool failed in a row (ER-06).

use std::collections::BTreeMap;

use crate::definition::Tool;

/// Consecutive failures per tool, as data. A model that asks for several calls at once makes the same mistake several
/// times before it reads the first answer, so within one model turn a tool's failures count once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CorrectionBudget {
    counts: BTreeMap<Tool, Count>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    failures: u32,
    turn: Option<u64>,
}

impl CorrectionBudget {
    /// Notes a failure and returns how many there are now in a row. Without a turn number every call is a turn of its own.
    pub(crate) fn failed(&mut self, tool: Tool, turn: Option<u64>) -> u32 {
        let count = self.counts.entry(tool).or_insert(Count { failures: 0, turn: None });
        if count.failures == 0 || turn.is_none() || count.turn != turn {
            count.failures = count.failures.saturating_add(1);
            count.turn = turn;
        }
        count.failures
    }

    /// Notes a success, which clears the count unless the tool failed in the same turn.
    pub(crate) fn succeeded(&mut self, tool: Tool, turn: Option<u64>) {
        let failed_in_this_turn =
            turn.is_some() && self.counts.get(&tool).is_some_and(|count| count.turn == turn);
        if !failed_in_this_turn {
            self.counts.remove(&tool);
        }
    }

    /// Returns the failures in a row of a tool.
    #[must_use]
    pub(crate) fn failures(&self, tool: Tool) -> u32 {
        self.counts.get(&tool).map_or(0, |count| count.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn er_06_the_budget_is_plain_data() {
        let mut budget = CorrectionBudget::default();
        assert_eq!(budget.failed(Tool::ReadFile, Some(0)), 1);
        assert_eq!(budget.failed(Tool::ReadFile, Some(0)), 1);
        assert_eq!(budget.failed(Tool::ReadFile, Some(1)), 2);
        assert_eq!(budget.failed(Tool::ReadFile, None), 3);
        assert_eq!(budget.failed(Tool::ReadFile, None), 4);
        assert_eq!(budget.failures(Tool::WriteFile), 0);
        budget.succeeded(Tool::ReadFile, None);
        assert_eq!(budget, CorrectionBudget::default());
    }
}
