//! The calls around the commands.

use std::cell::RefCell;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::{Bench, program};
use crate::rounds::{Rounds, milliseconds};
use crate::table::{Drawn, Row, Table, Target};

/// Long enough for processors and caches to have turned to something else.
const REST: Duration = Duration::from_millis(500);

pub(super) fn calls(bench: &Bench) -> Result<Table> {
    Ok(Table {
        title: "The calls around it, in one process",
        drawn: Drawn::Panel,
        unit: "ms",
        rows: rows(bench, Duration::ZERO, bench.rounds(300))?,
        notes: Vec::new(),
    })
}

pub(super) fn calls_after_rest(bench: &Bench) -> Result<Table> {
    Ok(Table {
        title: "The same after half a second of rest",
        drawn: Drawn::Beside,
        unit: "ms",
        rows: rows(bench, REST, bench.rounds(20))?,
        notes: Vec::new(),
    })
}

fn rows(bench: &Bench, rest: Duration, rounds: usize) -> Result<Vec<Row>> {
    let current = RefCell::new(None);
    let missing = "there is no sandbox";
    let judged = |row: Row, target| if rest.is_zero() { row.target(target) } else { row };
    let create = Row::ours("`create` returns, the sandbox is ready").drawn("create");
    let first = Row::ours("first command, the program `true`").drawn("first command");
    let destroy = Row::ours("`destroy` returns, nothing is left").drawn("destroy");
    let mut cases = Rounds::default();
    cases.add(judged(create, Target::AtMost(1.3, Some(4.0))), || {
        sleep(rest);
        let (sandbox, took) = bench.create()?;
        current.replace(Some(sandbox));
        Ok(milliseconds(took))
    });
    cases.add(first, || bench.run(current.borrow().as_ref().context(missing)?, program("true")?));
    cases.add(judged(destroy, Target::AtMost(0.3, Some(2.0))), || {
        Ok(milliseconds(bench.destroy(&current.take().context(missing)?)?))
    });
    cases.run(rounds)
}
