//! More commands at once than there are processors.

use anyhow::{Context, Result};
use ringfence::SandboxId;

use crate::bench::{Bench, Calls, program, succeeded};
use crate::room::timed;
use crate::rounds::milliseconds;
use crate::table::{Drawn, Row, Table};

/// Sandboxes that the commands are spread over.
const SANDBOXES: usize = 16;
/// Commands that run at any time.
const COMMANDS: usize = 64;
/// How many each of them is in one round, one after the other.
const EACH: usize = 5;

pub(super) fn commands(bench: &Bench) -> Result<Table> {
    let sandboxes = bench.create_many(SANDBOXES)?;
    let mut all = <[Calls; 4]>::default();
    for round in 0..1 + bench.rounds(10) {
        let measured = [
            ours(bench, COMMANDS, &sandboxes)?,
            bare(bench, COMMANDS)?,
            // In another one each round.
            ours(bench, 1, &sandboxes[round % SANDBOXES..])?,
            bare(bench, 1)?,
        ];
        // The first round warms up.
        if round > 0 {
            all.iter_mut().zip(measured).for_each(|(all, measured)| all.add(measured));
        }
    }
    for sandbox in &sandboxes {
        bench.destroy(sandbox)?;
    }
    let rows = [
        Row::ours(&format!("`run_command`, the program `true`: {COMMANDS} at once, {SANDBOXES} sandboxes")),
        // No ratio: threads that wait for a processor are served less evenly, so the rates are what can be compared.
        Row::ours(&format!("no sandbox: start `true` and wait for it: {COMMANDS} at once")),
        Row::ours("`run_command`, one after the other, in one of them"),
        Row::peer("no sandbox: one after the other", 2),
    ];
    let rows = rows.into_iter().zip(all).map(|(row, calls)| calls.into_row(row)).collect();
    Ok(Table { title: "Many commands at once", drawn: Drawn::Nowhere, unit: "ms", rows, notes: Vec::new() })
}

fn ours(bench: &Bench, workers: usize, sandboxes: &[SandboxId]) -> Result<Calls> {
    let sandboxes = sandboxes.to_vec();
    let all = bench.at_once(workers, times(workers), move |backend, worker| {
        let sandbox = sandboxes[worker % sandboxes.len()].clone();
        async move { succeeded(backend.run_command(&sandbox, program("true")?).await?.ending) }
    })?;
    Ok(all.calls)
}

/// The same without any sandbox, from threads that may wait; finding one is not part of the time.
fn bare(bench: &Bench, workers: usize) -> Result<Calls> {
    let all = bench.at_once(workers, times(workers), |_, _| async {
        let waiting = tokio::task::spawn_blocking(|| timed(&["true".to_owned()]));
        waiting.await.context("a thread that waits")?
    })?;
    Ok(Calls { times: all.done.into_iter().map(milliseconds).collect(), took: all.calls.took })
}

/// One alone does some more, so that there is something to take a percentile of.
fn times(workers: usize) -> usize {
    if workers == 1 { 4 * EACH } else { EACH }
}
