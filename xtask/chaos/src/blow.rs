//! What is killed, how, and when.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use crate::cast::Actor;
use crate::dice::Dice;
use crate::processes::{Id, Part, Process, Tree, signal};
use crate::tally::Tally;

/// Whom a blow is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Creator,
    Launcher,
    Agent,
    Worker,
    Command,
    Everything,
}

impl Victim {
    pub(crate) const ALL: [Self; 6] =
        [Self::Creator, Self::Launcher, Self::Agent, Self::Worker, Self::Command, Self::Everything];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Creator => "creator",
            Self::Launcher => "launcher",
            Self::Agent => "agent",
            Self::Worker => "shim",
            Self::Command => "command",
            Self::Everything => "everything",
        }
    }
}

/// One signal, or the two of which the first only stops.
#[derive(Debug, Clone, Copy)]
struct Blow {
    after: Duration,
    victim: Victim,
    stopped_for: Option<Duration>,
}

/// The blows of a round.
#[derive(Debug)]
pub(crate) struct Blows(Vec<Blow>);

impl Blows {
    /// The first comes at any moment from the start of the first program to the middle of everything; the others while what it caused is
    /// still under way.
    pub(crate) fn choose(dice: &mut Dice) -> Self {
        let count = if dice.percent(50) { 1 } else { 2 + dice.below(4) };
        let first = if dice.percent(40) { dice.below(15_000) } else { dice.below(90_000) };
        let mut blows = Vec::new();
        for index in 0..count {
            let after = if index == 0 { first } else { dice.below(3_000) };
            let victim = if dice.percent(8) {
                Victim::Everything
            } else {
                *dice.pick(&Victim::ALL[..5]).unwrap_or(&Victim::Launcher)
            };
            let stopped_for = dice.percent(20).then(|| Duration::from_micros(dice.below(5_000)));
            blows.push(Blow { after: Duration::from_micros(after), victim, stopped_for });
        }
        Self(blows)
    }

    /// Strikes. Returns whoever was hit; `look` is called with what there was before each blow.
    pub(crate) fn strike(
        &self,
        actors: &[Actor],
        spared: &BTreeSet<Id>,
        dice: &mut Dice,
        tally: &mut Tally,
        mut look: impl FnMut(&Tree),
    ) -> Result<Vec<Process>> {
        let mut hit = Vec::new();
        for blow in &self.0 {
            sleep(blow.after);
            let tree = Tree::look();
            look(&tree);
            let mut there: Vec<&Process> = tree
                .all()
                .filter(|process| !spared.contains(&process.id) && suits(blow.victim, process, actors))
                .collect();
            if blow.victim != Victim::Everything {
                there = dice.pick(&there).copied().into_iter().collect();
            }
            for stop in [true, false] {
                if stop && blow.stopped_for.is_none() {
                    continue;
                }
                for process in &there {
                    let struck = signal(process.id, if stop { Signal::STOP } else { Signal::KILL })?;
                    if struck && !stop {
                        tally.hit(&phase(process, &tree, actors), blow.victim);
                        hit.push((*process).clone());
                    }
                }
                if let (true, Some(time)) = (stop, blow.stopped_for) {
                    sleep(time);
                }
            }
        }
        Ok(hit)
    }
}

fn suits(victim: Victim, process: &Process, actors: &[Actor]) -> bool {
    let is_actor = actors.iter().any(|actor| actor.id == process.id);
    match victim {
        Victim::Creator => is_actor,
        Victim::Launcher => process.part == Part::Launcher && !is_actor,
        Victim::Agent => process.part == Part::Agent,
        Victim::Worker => matches!(process.part, Part::Worker | Part::Assistant),
        Victim::Command => process.part == Part::Command,
        Victim::Everything => true,
    }
}

/// What the one was doing to whom a process belongs.
fn phase(process: &Process, tree: &Tree, actors: &[Actor]) -> String {
    let line = tree.line(process.id.pid);
    let whose = actors.iter().find(|actor| line.contains(&actor.id.pid));
    whose.map_or_else(|| "alone".to_owned(), |actor| actor.said().phase)
}

#[cfg(test)]
mod tests {
    use super::{Blows, Victim};
    use crate::dice::Dice;

    #[test]
    fn in_many_rounds_everybody_is_hit_and_some_are_stopped_before() {
        let blows: Vec<_> =
            (0..300).flat_map(|round| Blows::choose(&mut Dice::of_round(1, round)).0).collect();
        for victim in Victim::ALL {
            assert!(
                blows.iter().any(|blow| blow.victim == victim && blow.stopped_for.is_some()),
                "{victim:?}"
            );
        }
    }
}
