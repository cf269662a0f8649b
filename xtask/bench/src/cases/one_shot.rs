//! One command in a sandbox of its own, from the start of the program to its end.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::bench::Bench;
use crate::room::timed;
use crate::rounds::{Rounds, milliseconds};
use crate::table::{Drawn, Row, Table, Target};

/// Drops what is cached of files and directories, where nobody uses it.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

pub(super) fn hot(bench: &Bench) -> Result<Table> {
    Ok(Table {
        title: "One command, one sandbox: the whole process",
        drawn: Drawn::Panel,
        unit: "ms",
        rows: rounds(bench, || Ok(()))?.run(bench.rounds(200))?,
        notes: bench.peers.absent.clone(),
    })
}

/// Before each run the caches are dropped, so that programs and libraries come from the disk again.
pub(super) fn cold(bench: &Bench) -> Result<Table> {
    let mut table = Table {
        title: "The same, with cold caches",
        drawn: Drawn::Beside,
        unit: "ms",
        rows: Vec::new(),
        notes: vec![],
    };
    match fs::write(DROP_CACHES, "3") {
        Ok(()) => table.rows = rounds(bench, || Ok(fs::write(DROP_CACHES, "3")?))?.run(bench.rounds(20))?,
        Err(error) => table.notes.push(format!("Not measured: cold caches; {DROP_CACHES}: {error}.")),
    }
    Ok(table)
}

/// The cases; `prepare` is called before each run and is not part of the time.
fn rounds<'a>(bench: &'a Bench, prepare: impl Fn() -> Result<()> + Copy + 'a) -> Result<Rounds<'a>> {
    let words = |binary: &Path, rest: &[&str]| -> Vec<String> {
        let rest = rest.iter().map(|&word| word.to_owned());
        std::iter::once(binary.to_string_lossy().into_owned()).chain(rest).collect()
    };
    let run = move |command: Vec<String>| {
        move || {
            prepare()?;
            timed(&command).map(milliseconds)
        }
    };
    let mut rounds = Rounds::default();
    const RUN: [&str; 3] = ["run", "--", "true"];
    let mut ours = vec![(Row::ours("`ringfence run -- true`").drawn("ringfence"), &bench.binary)];
    ours.extend(
        bench.linked_statically.iter().map(|binary| (Row::ours("the same, linked statically"), binary)),
    );
    let bwrap =
        bench.peers.peers.iter().position(|peer| peer.name == "bwrap").map(|index| index + ours.len());
    for (row, binary) in ours {
        let row = bwrap.into_iter().fold(row, |row, bwrap| row.target(Target::Times(1.0, bwrap)));
        rounds.add(row, run(words(binary, &RUN)));
    }
    for peer in &bench.peers.peers {
        let row = Row::peer(&format!("`{}`: {}", peer.name, peer.job), 0).drawn(peer.name);
        rounds.add_every(peer.every, row, move || {
            prepare()?;
            peer.once().map(milliseconds)
        });
    }
    rounds.add(
        Row::ours("`ringfence --version`: of that, the program itself"),
        run(words(&bench.binary, &["--version"])),
    );
    rounds.add(
        Row::peer("no sandbox: start `true` and wait for it", 0).drawn("no sandbox"),
        run(vec!["true".to_owned()]),
    );
    Ok(rounds)
}
