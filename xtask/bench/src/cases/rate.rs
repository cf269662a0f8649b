//! How fast many come and go.

use std::time::Instant;

use anyhow::Result;
use ringfence::SandboxSpec;

use crate::bench::{Bench, Calls};
use crate::owner;
use crate::processes::Memory;
use crate::rounds::milliseconds;
use crate::table::{Drawn, Row, Table, Target};

pub(super) fn of_many(bench: &Bench) -> Result<Table> {
    let count = bench.rounds(1000);
    let (mut alone, mut in_pairs, mut destroy) = (Calls::default(), Calls::default(), Calls::default());
    let (mut destroyed, mut ended) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(3) {
        for (creators, calls) in [(1, &mut alone), (2, &mut in_pairs)] {
            // The kernel takes what was destroyed before apart in the background.
            Memory::settled()?;
            let created = bench.at_once(creators, count / creators, |backend, _| async move {
                Ok(backend.create(&SandboxSpec::new()).await?.id)
            })?;
            calls.add(created.calls);
            let begun = Instant::now();
            let times: Result<Vec<f64>> =
                created.done.iter().map(|sandbox| bench.destroy(sandbox).map(milliseconds)).collect();
            let took = begun.elapsed();
            destroy.add(Calls { times: times?, took });
            destroyed.push(milliseconds(took));
        }
        Memory::settled()?;
        ended.push(milliseconds(owner::kill(count, "closed")?.gone_after));
    }
    let rows = vec![
        alone.into_row(Row::ours("`create`, one after the other")).target(Target::PerSecond(500.0)),
        in_pairs.into_row(Row::ours("`create`, two at once")).target(Target::PerSecond(1000.0)),
        destroy.into_row(Row::ours("`destroy`, one after the other")),
        Row::ours(&format!("all {count} destroyed, one after the other")).with_samples(destroyed),
        Row::ours(&format!("the owner of {count} is killed: all are gone")).with_samples(ended),
    ];
    Ok(Table { title: "Many come and go", drawn: Drawn::Nowhere, unit: "ms", rows, notes: Vec::new() })
}
