//! Ending what runs: one command's tree, a sandbox with it, and everything of an owner that is killed.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ringfence::SandboxId;

use crate::bench::{Bench, shell};
use crate::owner::{self, LIMITED};
use crate::processes::{Watch, descendants, name};
use crate::rounds::{Rounds, milliseconds};
use crate::table::{Drawn, Row, Table, Target};

/// Processes of the tree that is ended, each in a session of its own.
const TREE: usize = 100;
/// Sandboxes of the owner that is killed.
const OWNED: usize = 100;

pub(super) fn how_fast(bench: &Bench) -> Result<Table> {
    let cgroups_left = Cell::new(0);
    let kill = |spec| {
        let aftermath = owner::kill(OWNED, spec)?;
        cgroups_left.set(cgroups_left.get() + aftermath.cgroups_left);
        Ok(milliseconds(aftermath.gone_after))
    };
    let mut rounds = Rounds::default();
    rounds.add(
        Row::ours("the caller drops a call with a tree of 100 processes")
            .drawn("kill a tree of 100")
            .target(Target::AtMost(8.0, Some(15.0))),
        || {
            let sandbox = bench.create()?.0;
            let took = drop_call(bench, &sandbox)?;
            bench.destroy(&sandbox)?;
            Ok(milliseconds(took))
        },
    );
    rounds.add(
        Row::ours("the owner of 100 sandboxes is killed")
            .drawn("owner killed, 100 sandboxes")
            .target(Target::AtMost(30.0, None)),
        || kill("closed"),
    );
    rounds.add(
        Row::ours("the same, each sandbox with a limit of processes").target(Target::AtMost(30.0, None)),
        || kill(LIMITED),
    );
    let rows = rounds.run(bench.rounds(20))?;
    let notes = vec![format!(
        "From the call or the signal until the last process had ended. Control groups left behind by killed owners: {}.",
        cgroups_left.get()
    )];
    Ok(Table { title: "Ending it: until everything is gone", drawn: Drawn::Below, unit: "ms", rows, notes })
}

/// Starts the tree and drops the call; returns how long its processes lived after that.
fn drop_call(bench: &Bench, sandbox: &SandboxId) -> Result<Duration> {
    let before = descendants(std::process::id());
    let (backend, owned) = (Arc::clone(&bench.backend), sandbox.clone());
    let request = shell(&format!("for i in $(seq {TREE}); do setsid sleep 1000 & done; wait"))?;
    let (watch, begun) = bench.runtime.block_on(async {
        let call = tokio::spawn(async move { backend.run_command(&owned, request).await });
        let tree = loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut tree = descendants(std::process::id());
            tree.retain(|pid| !before.contains(pid));
            if tree.iter().filter(|pid| name(**pid) == "sleep").count() == TREE {
                break tree;
            }
            if call.is_finished() {
                bail!("the command ended by itself: {:?}", call.await);
            }
        };
        let watch = Watch::new(&tree)?;
        let begun = Instant::now();
        call.abort();
        // The call is dropped by now, and this says that it was.
        drop(call.await);
        Ok((watch, begun))
    })?;
    watch.gone_since(begun)
}
