//! One more command in a sandbox that is already there.

use anyhow::Result;

use crate::bench::{Bench, program, shell};
use crate::peers::Peer;
use crate::room::timed;
use crate::rounds::{Rounds, milliseconds};
use crate::table::{Drawn, Row, Table, Target};

pub(super) fn in_living_sandbox(bench: &Bench) -> Result<Table> {
    let sandbox = bench.create()?.0;
    let living: Vec<_> = bench.peers.peers.iter().map(Peer::start).collect::<Result<_>>()?;
    let bare = |words: &[&str]| -> Vec<String> { words.iter().map(|&word| word.to_owned()).collect() };
    let (bare_true, bare_shell) = (bare(&["true"]), bare(&["bash", "-c", "true"]));
    let mut rounds = Rounds::default();
    rounds.add(
        Row::ours("`run_command`, the program `true`")
            .drawn("ringfence")
            .target(Target::AtMost(1.0, Some(1.5)))
            .target(Target::Times(1.35, 1)),
        || bench.run(&sandbox, program("true")?),
    );
    rounds.add(Row::peer("no sandbox: start `true` and wait for it", 0).drawn("no sandbox"), || {
        timed(&bare_true).map(milliseconds)
    });
    rounds.add(Row::ours("`run_command`, the shell text `true`"), || bench.run(&sandbox, shell("true")?));
    rounds.add(Row::peer("no sandbox: start `bash -c true` and wait for it", 2), || {
        timed(&bare_shell).map(milliseconds)
    });
    for living in living.iter().flatten() {
        let name = format!("{} exec", living.peer.name);
        let row = Row::peer(&format!("`{name}`, the program `true`"), 0).drawn(&name);
        rounds.add_every(living.peer.every, row, || living.exec().map(milliseconds));
    }
    let rows = rounds.run(bench.rounds(200))?;
    bench.destroy(&sandbox)?;
    let unable = bench.peers.peers.iter().zip(&living).filter(|(_, living)| living.is_none());
    let notes = unable
        .map(|(peer, _)| format!("Not measured: {}, which keeps nothing for a second command.", peer.name));
    Ok(Table {
        title: "One more command in a living sandbox",
        drawn: Drawn::Panel,
        unit: "ms",
        rows,
        notes: notes.collect(),
    })
}
