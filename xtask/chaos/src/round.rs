//! A round: owners start, something is killed, the next call comes, and then nothing may be left.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringfence::{BackendSettings, Registry, SandboxId};
use rustix::process::Signal;

use crate::blow::Blows;
use crate::cast::{Actor, Role, Said, Stage};
use crate::dice::Dice;
use crate::neighbour;
use crate::processes::{self, Id, Part, Process, Tree};
use crate::remains::{self, Before, Scene};
use crate::tally::Tally;

/// How long after the next call something may be left.
const AT_THE_LATEST: Duration = Duration::from_secs(1);

/// How long a call may take at all.
const CALL_PATIENCE: Duration = Duration::from_secs(20);

const PAUSE: Duration = Duration::from_millis(2);

/// Who joins the one maker that is in each round.
const ROLES: [Role; 5] = [Role::Maker, Role::Kept, Role::Listed, Role::Run, Role::Visitor];

/// A round.
#[derive(Debug)]
pub(crate) struct Round<'a> {
    number: u64,
    stage: &'a Stage,
    spared: &'a BTreeSet<Id>,
    dice: Dice,
    owners: BTreeSet<u32>,
    command_was_hit: bool,
    ended: BTreeMap<u32, Option<i32>>,
    before: Before,
    findings: Vec<String>,
}

/// Which launcher each kept sandbox was seen with.
#[derive(Debug, Default)]
struct Launchers(BTreeMap<String, u32>);

impl<'a> Round<'a> {
    /// Prepares one.
    pub(crate) fn new(number: u64, dice: Dice, stage: &'a Stage, spared: &'a BTreeSet<Id>) -> Self {
        Self {
            number,
            stage,
            spared,
            dice,
            owners: BTreeSet::new(),
            command_was_hit: false,
            ended: BTreeMap::new(),
            before: Before::look(),
            findings: Vec::new(),
        }
    }

    /// Plays it; returns what was wrong.
    pub(crate) fn play(mut self, tally: &mut Tally) -> Result<Vec<String>> {
        let mut actors = Vec::new();
        let mut roles = vec![Role::Maker];
        roles.extend((0..3).filter_map(|_| self.dice.pick(&ROLES).copied()));
        for role in roles {
            let actor = Actor::start(self.stage, role, &mut self.dice)?;
            self.owners.insert(actor.id.pid);
            actors.push(actor);
        }
        let mut launchers = Launchers::default();
        let blows = Blows::choose(&mut self.dice);
        let hit = blows.strike(&actors, self.spared, &mut self.dice.clone(), tally, |tree| {
            for (id, launcher) in remains::living(&self.stage.directory(), tree) {
                // The first that had it: later it may be somebody who tidies up.
                launchers.0.entry(id).or_insert(launcher);
            }
        })?;
        self.command_was_hit = hit.iter().any(|hit| hit.part == Part::Command);
        if self.dice.percent(30) {
            // Somebody tidies up while others are at work.
            self.prune()?;
        }
        let at_fault = faults(&mut actors, &hit);
        self.findings.extend(at_fault);
        for actor in &actors {
            if matches!(actor.role, Role::Listed | Role::Run) && self.dice.percent(30) {
                processes::signal(actor.id, Signal::TERM)?;
                self.wait_for(actor.id.pid)?;
            }
            actor.kill()?;
        }
        let clean_after = self.next_call()?;
        let said: Vec<Said> = actors.iter_mut().map(Actor::last_words).collect();
        match clean_after {
            Some(took) => tally.clean_after(took, self.number),
            None => return Ok(self.findings),
        }
        tally.survivors += self.look_after_kept(&said, &hit, &launchers)?;
        self.expect(0, &["rm", "-f", "--all"])?;
        let emptied = self.clean_within(|left, living| left.is_empty() && living.is_empty())?;
        if let Err(left) = emptied {
            self.findings.extend(left.into_iter().map(|left| format!("after rm --all: {left}")));
        }
        Ok(self.findings)
    }

    /// Calls, and looks how long it takes until nothing is left; `None` where something stays.
    fn next_call(&mut self) -> Result<Option<Duration>> {
        let begun = Instant::now();
        let call = self.dice.below(5);
        match call {
            0 | 1 => self.expect(0, &["ps", "-q"])?,
            2 => self.prune()?,
            3 => self.expect(0, &["run", "--", "true"])?,
            _ => {
                let (one, other) = (self.start(&["prune"])?, self.start(&["ps", "-q"])?);
                for child in [one, other] {
                    if self.wait_for(child.id())?.is_none() {
                        self.findings.push("one of two calls at once was killed, or hangs".to_owned());
                    }
                }
            }
        }
        let took = begun.elapsed();
        match self.clean_within(|left, _| left.is_empty())? {
            Ok(()) => Ok(Some(begun.elapsed())),
            Err(left) => {
                self.findings.extend(left);
                let call = ["ps", "ps", "prune", "run", "prune and ps at once"].get(usize::try_from(call)?);
                self.findings
                    .push(format!("that was left after {call:?}, which took {} ms", took.as_millis()));
                Ok(None)
            }
        }
    }

    /// Looks until `done`, for as long as something may be left.
    fn clean_within(
        &mut self,
        done: impl Fn(&[String], &BTreeMap<String, u32>) -> bool,
    ) -> Result<Result<(), Vec<String>>> {
        let begun = Instant::now();
        let mut patience = AT_THE_LATEST;
        loop {
            self.ended.append(&mut processes::reap());
            let scene = Scene {
                stage: self.stage,
                spared: self.spared,
                command_was_hit: self.command_was_hit,
                owners: &self.owners,
                before: &self.before,
            };
            let living = remains::living(&self.stage.directory(), &Tree::look());
            let mut left = scene.left();
            if done(&left, &living) {
                return Ok(Ok(()));
            }
            if begun.elapsed() > patience {
                // Where something else takes all processors, a second is not a second.
                let slow = AT_THE_LATEST.mul_f64(slowness());
                if slow > patience {
                    patience = slow;
                    continue;
                }
                if left.is_empty() {
                    left.extend(living.keys().map(|id| format!("sandbox {id}")));
                }
                return Ok(Err(left));
            }
            sleep(PAUSE);
        }
    }

    /// Kept sandboxes that nobody hit live and answer, as all do that live. Returns how many had to.
    fn look_after_kept(&mut self, said: &[Said], hit: &[Process], launchers: &Launchers) -> Result<u64> {
        let deadline = Instant::now() + AT_THE_LATEST;
        loop {
            let (had_to, findings) = self.kept_as_they_should(said, hit, launchers)?;
            // One that was not complete may just be ending.
            if findings.is_empty() || Instant::now() > deadline {
                self.findings.extend(findings);
                return Ok(had_to);
            }
            sleep(PAUSE);
        }
    }

    fn kept_as_they_should(
        &mut self,
        said: &[Said],
        hit: &[Process],
        launchers: &Launchers,
    ) -> Result<(u64, Vec<String>)> {
        let mut findings = Vec::new();
        let ending: BTreeSet<&String> = said.iter().flat_map(|said| &said.ending).collect();
        let living = remains::living(&self.stage.directory(), &Tree::look());
        let mut had_to = 0;
        for id in said.iter().flat_map(|said| &said.kept).filter(|id| !ending.contains(id)) {
            let may_be_gone = hit.iter().any(|hit| match launchers.0.get(id) {
                Some(launcher) => hit.id.pid == *launcher || hit.parent == *launcher,
                None => matches!(hit.part, Part::Launcher | Part::Agent),
            });
            if !may_be_gone {
                had_to += 1;
                if !living.contains_key(id) {
                    let told = remains::audit(&self.stage.directory(), id);
                    let launcher = launchers.0.get(id);
                    let ended = launcher.and_then(|launcher| self.ended.get(launcher));
                    let hit: Vec<_> = hit.iter().map(|hit| (hit.part, hit.id.pid, hit.parent)).collect();
                    findings.push(format!(
                        "kept sandbox {id} is gone, and nobody touched it: {told}; launcher {launcher:?} ended: {ended:?}; hit: {hit:?}"
                    ));
                }
            }
        }
        let mut settings = BackendSettings::default();
        settings.local.runtime_dir = Some(self.stage.directory());
        let backend = Registry::new(settings).open("local")?;
        let listed = self.output(&["ps", "-q"])?;
        for id in living.keys() {
            if !listed.lines().any(|line| line == format!("local:{id}")) {
                findings.push(format!("kept sandbox {id} lives and is not listed"));
            }
            let sandbox = SandboxId::new(id.as_str()).context("an id")?;
            if let Err(error) = neighbour::says(&*backend, &sandbox, "echo on") {
                findings.push(format!("kept sandbox {id} lives and does not answer: {error:#}"));
            }
        }
        Ok((had_to, findings))
    }

    fn start(&mut self, arguments: &[&str]) -> Result<Child> {
        let child = self.stage.ringfence(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        self.owners.insert(child.id());
        Ok(child)
    }

    fn call(&mut self, arguments: &[&str]) -> Result<(Option<i32>, String)> {
        let mut child = self.start(arguments)?;
        let status = self.wait_for(child.id())?;
        let mut text = String::new();
        if status.is_some() {
            child.stdout.take().context("its output")?.read_to_string(&mut text)?;
            child.stderr.take().context("its errors")?.read_to_string(&mut text)?;
        }
        Ok((status, text))
    }

    fn output(&mut self, arguments: &[&str]) -> Result<String> {
        self.call(arguments).map(|(_, output)| output)
    }

    fn expect(&mut self, expected: i32, arguments: &[&str]) -> Result<()> {
        let (status, output) = self.call(arguments)?;
        if status != Some(expected) {
            let call = arguments.join(" ");
            self.findings.push(format!("ringfence {call} ended with {status:?}: {}", output.trim()));
        }
        Ok(())
    }

    /// What stays is no finding where it is not of this round: of the same user there may be more on this machine, and there was before.
    fn prune(&mut self) -> Result<()> {
        let (status, output) = self.call(&["prune"])?;
        let own = |line: &&str| {
            let made_here = |owner: &u32| line.contains(&format!("/ringfence-{owner}-"));
            line.contains(&*self.stage.runtime.to_string_lossy())
                || (self.owners.iter().any(made_here) && !self.before.is_named_in(line))
        };
        let stays: Vec<&str> = output.lines().filter(|line| line.starts_with("stays")).filter(own).collect();
        if !matches!(status, Some(0 | 1)) || !stays.is_empty() {
            self.findings.push(format!("ringfence prune ended with {status:?}: {}", output.trim()));
        }
        Ok(())
    }

    /// The exit status of a child; `None` where a signal ended it, or it hangs.
    fn wait_for(&mut self, pid: u32) -> Result<Option<i32>> {
        let deadline = Instant::now() + CALL_PATIENCE;
        while Instant::now() < deadline {
            self.ended.append(&mut processes::reap());
            if let Some(status) = self.ended.get(&pid) {
                return Ok(*status);
            }
            sleep(PAUSE / 4);
        }
        Ok(None)
    }
}

/// By how much this machine is slower now than where nothing else runs, and at least 1: by how long the start of a program takes.
fn slowness() -> f64 {
    // Ten times what it takes there.
    const EXPECTED: f64 = 0.02;
    let begun = Instant::now();
    // How it ends says nothing here.
    drop(std::process::Command::new("true").status());
    (begun.elapsed().as_secs_f64() / EXPECTED).max(1.0)
}

/// What failed for owners none of whose processes was hit: nothing should. Sandboxes that visitors reach are left out, as those end
/// them too, also while they are made.
fn faults(actors: &mut [Actor], hit: &[Process]) -> Vec<String> {
    let harmless = |hit: &Process| {
        matches!(hit.part, Part::Command | Part::Worker) || actors.iter().any(|actor| actor.id == hit.id)
    };
    if !hit.iter().all(harmless) {
        return Vec::new();
    }
    let hits = hit.iter().map(|hit| format!("{:?}", hit.part)).collect::<Vec<_>>().join(", ");
    let said = actors.iter().filter(|actor| actor.role == Role::Maker).flat_map(|actor| actor.said().faults);
    let own = said.filter(|fault| fault.starts_with("private "));
    own.map(|fault| format!("an owner that nobody touched failed: {fault}; hit were: {hits}")).collect()
}
