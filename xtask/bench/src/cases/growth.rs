//! Whether calls get slower the more sandboxes are alive.

use anyhow::Result;

use crate::bench::{Bench, program};
use crate::rounds::milliseconds;
use crate::table::{Drawn, Row, Table};

/// How many are alive while calls are timed.
const ALIVE: [u32; 4] = [1, 10, 100, 1000];

/// What is timed at each step; all but `destroy` are drawn.
#[derive(Debug, Default)]
struct Step {
    create: Vec<f64>,
    command: Vec<f64>,
    destroy: Vec<f64>,
}

/// Once while the number grows and once while it falls, so that what the machine does meanwhile, and what earlier
/// sandboxes leave behind in the kernel, does not look like growth.
pub(super) fn over_alive(bench: &Bench) -> Result<Table> {
    let most = u32::try_from(bench.rounds(1000))?;
    let mut steps: Vec<(u32, Step)> =
        ALIVE.into_iter().filter(|&alive| alive <= most).map(|alive| (alive, Step::default())).collect();
    let mut sandboxes = Vec::new();
    for place in (0..steps.len()).chain((0..steps.len()).rev()) {
        let (alive, step) = &mut steps[place];
        let alive = usize::try_from(*alive)?;
        sandboxes.extend(bench.create_many(alive.saturating_sub(sandboxes.len()))?);
        for sandbox in sandboxes.drain(alive..) {
            bench.destroy(&sandbox)?;
        }
        for round in 0..bench.rounds(100) {
            let (another, create) = bench.create()?;
            step.create.push(milliseconds(create));
            // Of those that are alive in turn, as callers of many do; and not after `destroy`, whose traces the kernel
            // still removes then.
            step.command.push(bench.run(&sandboxes[round % alive], program("true")?)?);
            step.destroy.push(milliseconds(bench.destroy(&another)?));
        }
    }
    for sandbox in &sandboxes {
        bench.destroy(sandbox)?;
    }

    let mut rows = Vec::new();
    let mut add = |name: &str, label: &str, alive: u32, times: &Vec<f64>| {
        let row = Row::ours(&format!("{name}, {alive} alive")).drawn(label).at(alive);
        rows.push(row.with_samples(times.clone()));
    };
    for (alive, step) in &steps {
        add("`create` of one more", "create", *alive, &step.create);
    }
    for (alive, step) in &steps {
        add("`run_command`, the program `true`", "run_command, true", *alive, &step.command);
    }
    for (alive, step) in &steps {
        add("`destroy` of the one more", "", *alive, &step.destroy);
    }
    Ok(Table {
        title: "The same calls, the more sandboxes are alive",
        drawn: Drawn::Growth,
        unit: "ms",
        rows,
        notes: Vec::new(),
    })
}
