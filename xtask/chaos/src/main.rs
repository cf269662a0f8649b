//! Kills everything that Ringfence starts, at random moments, and counts what is left: nothing may be, at the latest a second after the
//! next call of `ringfence`.
//!
//! Called by `cargo xtask chaos`, which builds what is needed. It touches only processes below itself, each by a descriptor.
#![expect(clippy::print_stdout, reason = "the report is the output")]

mod blow;
mod cast;
mod dice;
mod neighbour;
mod owner;
mod processes;
mod remains;
mod round;
mod tally;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::cast::Stage;
use crate::dice::Dice;
use crate::neighbour::Neighbour;
use crate::owner::Limited;
use crate::processes::{Tree, signal};
use crate::round::Round;
use crate::tally::Tally;

const USAGE: &str = "usage: ringfence-chaos BINARY [--rounds N] [--seed S] [--from ROUND] [--keep-going]";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    rounds: u64,
    seed: u64,
    from: u64,
    keep_going: bool,
}

impl Asked {
    fn read(options: &[&str], seed: u64) -> Result<Self> {
        let mut asked = Self { rounds: 100, seed, from: 0, keep_going: false };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut number = || -> Result<u64> { options.next().context(USAGE)?.parse().context(USAGE) };
            match *option {
                "--rounds" => asked.rounds = number()?,
                "--seed" => asked.seed = number()?,
                "--from" => asked.from = number()?,
                "--keep-going" => asked.keep_going = true,
                _ => bail!(USAGE),
            }
        }
        Ok(asked)
    }
}

fn main() -> ExitCode {
    match dispatch() {
        Ok(true) => ExitCode::SUCCESS,
        // What was found has been told.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// False where something was left.
fn dispatch() -> Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // What this program does when it is started by itself.
        [owner::ROLE, ref role @ ..] => owner::be(role).map(|()| true),
        [binary, ref options @ ..] => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            let asked = Asked::read(options, u64::from(now.subsec_nanos()))?;
            Tree::adopt()?;
            let clean = rounds(Path::new(binary), &asked);
            // Also where it was given up: what is below this process nobody else would end.
            for process in Tree::look().all() {
                signal(process.id, Signal::KILL)?;
            }
            clean
        }
        [] => bail!(USAGE),
    }
}

fn rounds(binary: &Path, asked: &Asked) -> Result<bool> {
    let folder = tempfile::Builder::new().prefix("ringfence-chaos-").tempdir()?;
    // Others pass it on the way to what is theirs.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))?;
    let program = folder.path().join("ringfence");
    fs::copy(binary, &program).context("copy the program")?;
    let limited = limits_here(&stage(folder.path(), "probe", &program, Limited::Nothing)?)?;
    let is_root = rustix::process::geteuid().is_root();
    println!(
        "seed {}, rounds {} to {}, as {}, limits: {}",
        asked.seed,
        asked.from,
        asked.from + asked.rounds,
        if is_root { "root" } else { "a plain user" },
        limited.word()
    );
    let mut neighbours =
        vec![Neighbour::settle(stage(folder.path(), "neighbour", &program, limited)?, false)?];
    if is_root {
        let pids = if limited == Limited::Nothing { limited } else { Limited::Pids };
        neighbours.push(Neighbour::settle(stage(folder.path(), "stranger", &program, pids)?, true)?);
    }
    let spared = neighbours.iter().flat_map(|neighbour| neighbour.processes().iter().copied()).collect();
    let begun = Instant::now();
    let mut tally = Tally::default();
    let mut found = 0;
    for number in asked.from..asked.from + asked.rounds {
        let stage = stage(folder.path(), &format!("round-{number}"), &program, limited)?;
        let round = Round::new(number, Dice::of_round(asked.seed, number), &stage, &spared);
        let mut findings = round.play(&mut tally)?;
        let tree = Tree::look();
        findings.extend(neighbours.iter().flat_map(|neighbour| neighbour.disturbed(&tree)));
        tally.rounds += 1;
        for finding in &findings {
            println!("round {number}: {finding}");
        }
        if !findings.is_empty() {
            found += 1;
            println!(
                "round {number}: again: cargo xtask chaos --seed {} --from {number} --rounds 1",
                asked.seed
            );
            if !asked.keep_going {
                break;
            }
        }
        // What was found must not be found in the next round again.
        for process in tree.all().filter(|process| !spared.contains(&process.id)) {
            signal(process.id, Signal::KILL)?;
        }
        let root = stage.runtime.parent().context("a folder")?.to_owned();
        fs::remove_dir_all(&root).with_context(|| format!("remove {}", root.display()))?;
    }
    let took = begun.elapsed();
    for neighbour in neighbours {
        for left in neighbour.leave()? {
            found += 1;
            println!("{left}");
        }
    }
    println!("{}", tally.table());
    let (slowest, slowest_in) = tally.slowest.unwrap_or_default();
    println!(
        "{} rounds in {:.0} s, {} processes killed, {} kept sandboxes lived on as they had to; left: {}; \
         slowest until nothing was left, from the begin of the next call: {:.0} ms (round {slowest_in})",
        tally.rounds,
        took.as_secs_f64(),
        tally.killed(),
        tally.survivors,
        if found == 0 { "0".to_owned() } else { format!("something after {found} rounds") },
        slowest.as_secs_f64() * 1000.0,
    );
    Ok(found == 0)
}

fn stage(folder: &Path, name: &str, program: &Path, limited: Limited) -> Result<Stage> {
    let place = folder.join(name);
    let made = |path: PathBuf, mode| -> Result<PathBuf> {
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
    };
    let place = made(place, 0o711)?;
    Ok(Stage {
        program: program.to_owned(),
        runtime: made(place.join("runtime"), 0o700)?,
        temporary: made(place.join("temporary"), 0o700)?,
        marker: format!("{:07}{}", std::process::id(), name.rsplit('-').next().unwrap_or_default()),
        limited,
    })
}

/// What a sandbox can be limited by here.
fn limits_here(stage: &Stage) -> Result<Limited> {
    for limited in Limited::ALL.into_iter().rev() {
        let mut run = stage.ringfence(&[&["run"], limited.flags(), &["--", "true"]].concat());
        if run.status().context("start ringfence")?.success() {
            return Ok(limited);
        }
    }
    bail!("ringfence run does not work here: see ringfence doctor")
}

#[cfg(test)]
mod tests {
    use super::Asked;

    #[test]
    fn options_are_read() {
        let all = ["--rounds", "5", "--seed", "7", "--from", "2", "--keep-going"];
        let expected = Asked { rounds: 5, seed: 7, from: 2, keep_going: true };
        assert_eq!(Asked::read(&all, 1).unwrap(), expected);
        assert_eq!(Asked::read(&[], 1).unwrap(), Asked { rounds: 100, seed: 1, from: 0, keep_going: false });
        for bad in [&["--rounds"][..], &["--seed", "x"], &["more"]] {
            assert!(Asked::read(bad, 1).is_err(), "{bad:?}");
        }
    }
}
