//! A sandbox that another process made: from its handle to an answer.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use ringfence::{Backend, BackendSettings, Reach, Registry, SandboxId, SandboxSpec};

use crate::bench::{Bench, program};
use crate::rounds::{Rounds, milliseconds};
use crate::table::{Drawn, Row, Table};

pub(super) fn from_a_handle(bench: &Bench) -> Result<Table> {
    let place = tempfile::tempdir().context("make a directory")?;
    let mut settings = BackendSettings::default();
    settings.local.runtime_dir = Some(place.path().join("ringfence"));
    // Nothing is shared with the creator but the directory.
    let stranger = || Registry::new(settings.clone()).open("local").context("open the local backend");
    let creator = stranger()?;
    let spec = SandboxSpec::new();
    let creating = reachable(&creator)?.create_reachable(&spec, Reach::Kept);
    let sandbox = bench.runtime.block_on(creating).context("create a kept sandbox")?.id;
    let mut cases = Rounds::default();
    cases.add(Row::ours("the first answer: its tags"), || {
        let backend = stranger()?;
        let begun = Instant::now();
        let tags = bench.runtime.block_on(reachable(&backend)?.tags(&sandbox));
        let took = begun.elapsed();
        tags.context("read its tags")?;
        Ok(milliseconds(took))
    });
    cases
        .add(Row::ours("the first command's end, the program `true`").drawn("attach, first command"), || {
            run(bench, &stranger()?, &sandbox)
        });
    cases.add(Row::ours("the same for its creator"), || run(bench, &creator, &sandbox));
    let rows = cases.run(bench.rounds(300));
    bench.runtime.block_on(creator.destroy(&sandbox)).context("destroy the sandbox")?;
    Ok(Table {
        title: "A sandbox of another process, from its handle",
        drawn: Drawn::Panel,
        unit: "ms",
        rows: rows?,
        notes: Vec::new(),
    })
}

fn reachable(backend: &Arc<dyn Backend>) -> Result<&dyn ringfence::Attachable> {
    backend.attachable().context("the local backend can be attached to")
}

fn run(bench: &Bench, backend: &Arc<dyn Backend>, sandbox: &SandboxId) -> Result<f64> {
    let request = program("true")?;
    let begun = Instant::now();
    let result = bench.runtime.block_on(backend.run_command(sandbox, request));
    let took = begun.elapsed();
    crate::bench::succeeded(result.context("run a command")?.ending)?;
    Ok(milliseconds(took))
}
