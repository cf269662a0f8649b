//! What is measured: a file for each subject, with one function for each of its tables.
//!
//! A new subject is such a file and a line in [`CASES`]; how it is measured goes into `docs/performance.md`.

mod attach;
mod command;
mod crowd;
mod ending;
mod files;
mod growth;
mod idle;
mod lifetime;
mod one_shot;
mod pool;
mod rate;
mod tool_call;

use anyhow::{Context, Result, bail};

use crate::bench::Bench;
use crate::table::Table;

/// What has a target or a question and does not exist yet, so that nobody takes its absence for an oversight.
pub(crate) const NOT_YET: &str = "\
Not measured, because it does not exist yet: network egress (target 4 Gbit/s at MTU 1500, 8 at 64 KiB, 0.2 ms on top of a
connect).";

/// The name under which a table can be asked for, and how it is measured.
type Case = (&'static str, fn(&Bench) -> Result<Table>);

/// All of them, in the order of the document.
const CASES: &[Case] = &[
    ("one-shot", one_shot::hot),
    ("cold", one_shot::cold),
    ("command", command::in_living_sandbox),
    ("tool-call", tool_call::over_stdio),
    ("lifetime", lifetime::calls),
    ("rest", lifetime::calls_after_rest),
    ("pool", pool::claim),
    ("attach", attach::from_a_handle),
    ("ending", ending::how_fast),
    ("files", files::times),
    ("memory", files::memory),
    ("idle", idle::memory),
    ("growth", growth::over_alive),
    ("rate", rate::of_many),
    ("crowd", crowd::commands),
];

/// A table, and the name it can be asked for by itself.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) case: &'static str,
    pub(crate) table: Table,
}

/// Measures all cases, or those that are named, separated by commas.
pub(crate) fn all(bench: &Bench, only: Option<&str>) -> Result<Vec<Measured>> {
    chosen(only)?
        .into_iter()
        .map(|(case, measure)| {
            let table = measure(bench).with_context(|| format!("cases {case}"))?;
            Ok(Measured { case, table })
        })
        .collect()
}

fn chosen(only: Option<&str>) -> Result<Vec<Case>> {
    let Some(only) = only else { return Ok(CASES.to_vec()) };
    let wanted: Vec<&str> = only.split(',').collect();
    if let Some(unknown) = wanted.iter().find(|name| !CASES.iter().any(|(case, _)| case == *name)) {
        let known: Vec<&str> = CASES.iter().map(|(case, _)| *case).collect();
        bail!("there are no cases {unknown:?}; known: {}", known.join(", "));
    }
    Ok(CASES.iter().filter(|(case, _)| wanted.contains(case)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::{CASES, chosen};

    #[test]
    fn cases_are_chosen_by_name_and_keep_their_order() {
        let names = |only| {
            chosen(only)
                .map(|cases| cases.iter().map(|(name, _)| *name).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(names(Some("idle,command")), Ok(vec!["command", "idle"]));
        assert_eq!(names(None).unwrap().len(), CASES.len());
        let unknown = names(Some("idle,fast")).unwrap_err();
        assert!(unknown.starts_with("there are no cases \"fast\"; known: one-shot, "), "{unknown}");
    }
}
