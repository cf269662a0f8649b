//! Many sandboxes alive at once, and what an idle one costs.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Bench;
use crate::processes::{descendants, kernel_kib, pss_kib};
use crate::rounds::milliseconds;
use crate::table::{Drawn, Row, Table, Target, number};

pub(super) fn alive(bench: &Bench) -> Result<Table> {
    let count = bench.rounds(1000);
    // Starts the launcher, which is the owner's and not the sandbox's.
    let first = bench.create()?.0;
    bench.destroy(&first)?;
    let kernel_before = settled()?;
    let own = descendants(std::process::id());

    let mut sandboxes = Vec::new();
    let mut create = Vec::new();
    for _ in 0..count {
        let (sandbox, took) = bench.create().with_context(|| format!("with {} alive", sandboxes.len()))?;
        sandboxes.push(sandbox);
        create.push(milliseconds(took));
    }
    let kernel = (settled()? - kernel_before) / f64::from(u32::try_from(count)?);
    let agents: Vec<u32> =
        descendants(std::process::id()).into_iter().filter(|pid| !own.contains(pid)).collect();
    if agents.len() != count {
        bail!("{count} idle sandboxes have {} processes", agents.len());
    }
    let memory = agents.iter().map(|&pid| pss_kib(pid)).collect::<Result<Vec<f64>>>();
    let mut destroy = Vec::new();
    for sandbox in &sandboxes {
        destroy.push(milliseconds(bench.destroy(sandbox)?));
    }

    let times = |name: &str, times| Row::ours(name).with_samples(times);
    let (create, destroy) = (times("create", create), times("destroy", destroy));
    let mut rows = vec![Row::ours("kernel memory: slab, stacks, page tables").with_samples(vec![kernel])];
    let took = |row: &Row| format!("{} / {} ms", number(row.median()), number(row.percentile(99)));
    let mut notes = vec![format!(
        "Measured with {count} alive at once, owned by one process. `create` took {} (p50 / p99) while they became so \
         many, `destroy` {}.",
        took(&create),
        took(&destroy)
    )];
    match memory {
        Ok(memory) => {
            let all_told = memory.iter().map(|own| own + kernel).collect();
            rows.push(Row::ours("proportional set size of its one process").with_samples(memory));
            rows.push(Row::ours("all told").target(Target::AtMost(512.0, None)).with_samples(all_told));
        }
        // Its process shows itself to nobody but root.
        Err(error) => notes.push(format!("Not measured: the memory of its process; {error:#}.")),
    }
    Ok(Table { title: "An idle sandbox", drawn: Drawn::Nowhere, unit: "KiB", rows, notes })
}

/// What the kernel uses, once it has stopped putting away what came before: it does so in the background.
fn settled() -> Result<f64> {
    let mut before = kernel_kib()?;
    for _ in 0..50 {
        sleep(Duration::from_millis(200));
        let now = kernel_kib()?;
        if (now - before).abs() < 256.0 {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}
