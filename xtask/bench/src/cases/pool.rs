//! Sandboxes that were made in advance.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringfence::{Backend, Pool, SandboxSpec};

use crate::bench::{Bench, program};
use crate::rounds::{Rounds, milliseconds};
use crate::table::{Drawn, Row, Table, Target};

/// How many are ready before each hand-out.
const SIZE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(3);

/// A pool is full again within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn claim(bench: &Bench) -> Result<Table> {
    let pool = Pool::new(Arc::clone(&bench.backend), SandboxSpec::new(), SIZE).context("make a pool")?;
    let current = RefCell::new(None);
    let missing = "there is no sandbox";
    let mut cases = Rounds::default();
    let handed_out = Row::ours("a sandbox from a pool").drawn("from a pool");
    cases.add(handed_out.target(Target::AtMost(0.1, Some(0.5))), || {
        full(bench, &pool)?;
        let begun = Instant::now();
        let created = bench.runtime.block_on(pool.create(&SandboxSpec::new()));
        let took = begun.elapsed();
        current.replace(Some(created.context("take a sandbox from the pool")?.id));
        Ok(milliseconds(took))
    });
    cases.add(Row::ours("its first command, the program `true`"), || {
        full(bench, &pool)?;
        bench.run(current.borrow().as_ref().context(missing)?, program("true")?)
    });
    cases.add(Row::ours("the same sandbox made when it is asked for"), || {
        bench.destroy(&current.take().context(missing)?)?;
        let (sandbox, took) = bench.create()?;
        bench.destroy(&sandbox)?;
        Ok(milliseconds(took))
    });
    let rows = cases.run(bench.rounds(300));
    bench.runtime.block_on(pool.close());
    Ok(Table {
        title: "A sandbox made in advance",
        drawn: Drawn::Panel,
        unit: "ms",
        rows: rows?,
        notes: vec![format!("Of a pool of {SIZE} that is full again before each hand-out.")],
    })
}

/// Waits until the pool is full, so that its refilling is not measured too.
fn full(bench: &Bench, pool: &Pool) -> Result<()> {
    bench.runtime.block_on(async {
        pool.fill();
        let deadline = Instant::now() + PATIENCE;
        while pool.ready() < SIZE.get() {
            if Instant::now() > deadline {
                bail!("the pool has {} of {SIZE} sandboxes after {} s", pool.ready(), PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    })
}
