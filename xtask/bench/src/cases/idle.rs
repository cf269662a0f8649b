//! What an idle sandbox costs in memory, all told.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::bench::Bench;
use crate::processes::{Memory, descendants, parent, pss_kib};
use crate::table::{Drawn, Row, Table, Target};

/// How much one may cost.
const MOST_KIB: f64 = 512.0;

/// The sum over many that are alive at once, divided by their number. What processes have is asked of each of them; what
/// the kernel has and what lies in files in memory is the growth of the machine's own counts, since a memory control group
/// is not charged with all of that.
pub(super) fn memory(bench: &Bench) -> Result<Table> {
    let count = bench.rounds(1000);
    // Starts the launcher, whose own start is not the sandboxes' growth.
    let first = bench.create()?.0;
    bench.destroy(&first)?;
    let me = std::process::id();
    let others = descendants(me);
    let owner_before = pss_kib(me);
    let before = Memory::settled()?;
    let sandboxes = bench.create_many(count)?;
    // Before anything is asked of the new processes: that would make the kernel's memory grow further.
    let grown = Memory::settled()?.since(&before);
    let theirs: Vec<u32> = descendants(me).into_iter().filter(|pid| !others.contains(pid)).collect();
    if theirs.len() < count {
        bail!("{count} idle sandboxes have {} processes", theirs.len());
    }
    let processes = owner_before.and_then(|before| processes(&theirs, &others, before));
    for sandbox in &sandboxes {
        bench.destroy(sandbox)?;
    }

    let each = f64::from(u32::try_from(count)?);
    let row = |name: &str, label: &str, kib: f64| Row::ours(name).drawn(label).with_samples(vec![kib / each]);
    let mut rows: Vec<Row> = vec![
        row("kernel: objects (slab)", "kernel: objects", grown.slab),
        row("kernel: page tables", "kernel: page tables", grown.page_tables),
        row("kernel: stacks", "kernel: stacks", grown.stacks),
        row("kernel: per processor, and mapped areas", "kernel: the rest", grown.rest),
        row("its files in memory", "files in memory", grown.files),
    ];
    let mut notes = vec![format!(
        "Measured with {count} alive at once, owned by one process; they are {} processes.",
        theirs.len()
    )];
    let drawn = if processes.is_ok() { Drawn::Parts } else { Drawn::Nowhere };
    match processes {
        Ok([theirs, launcher, owner]) => {
            rows.push(row("proportional set size of its processes", "its processes", theirs));
            rows.push(row("the same of the launcher, shared by all", "launcher, shared", launcher));
            rows.push(row("the same of the owner: its growth", "owner: growth", owner));
            let all_told = rows.iter().map(Row::median).sum();
            let all_told = Row::ours("all told").drawn("all told").with_samples(vec![all_told]);
            rows.push(all_told.target(Target::AtMost(MOST_KIB, None)));
        }
        // Its process shows itself to nobody but root.
        Err(error) => notes.push(format!("Not measured: the memory of processes; {error:#}.")),
    }
    Ok(Table { title: "An idle sandbox", drawn, unit: "KiB", rows, notes })
}

/// The proportional set sizes of the sandboxes' processes and of those that started them, and by how much that of this
/// process has grown, in KiB.
fn processes(theirs: &[u32], others: &[u32], owner_before: f64) -> Result<[f64; 3]> {
    let sum = |pids: &BTreeSet<u32>| pids.iter().map(|&pid| pss_kib(pid)).sum::<Result<f64>>();
    let parents = theirs.iter().filter_map(|&pid| parent(pid));
    let launchers = parents.filter(|pid| others.contains(pid)).collect();
    let owner = pss_kib(std::process::id())? - owner_before;
    Ok([sum(&theirs.iter().copied().collect())?, sum(&launchers)?, owner])
}
