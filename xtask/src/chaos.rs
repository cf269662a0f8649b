//! `cargo xtask chaos`: builds the program and whoever kills it (`xtask/chaos`), and lets that loose.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::metadata::Metadata;
use crate::report;
use crate::second_pass::{self, Identity};
use crate::stage::{Stages, cargo_command};

const PROGRAM: &str = "ringfence";
const CHAOS: &str = "ringfence-chaos";

/// Rounds and seed of the run that is part of the tests: always the same choices.
const SHORT_RUN: &[&str] = &["--rounds", "25", "--seed", "4"];

/// Runs it as whoever calls this, or with `--user` as a plain user.
pub(crate) fn chaos(options: &[&str]) -> Result<()> {
    let (user, options): (Vec<&str>, Vec<&str>) = options.iter().partition(|option| **option == "--user");
    let metadata = Metadata::members_only()?;
    let stages = Stages::new(&metadata.target_directory)?;
    for (name, package) in [("build ringfence", "ringfence-cli"), ("build chaos", CHAOS)] {
        let mut build = cargo_command(&["build", "--release", "--package", package]);
        stages.command(name, &mut build, |_| String::new())?;
    }
    let identity = if user.is_empty() { Identity::mine() } else { Identity::User };
    let place = Place::new(&metadata.target_directory.join("release"))?;
    let output = stages.command("chaos", &mut place.command(identity, &options)?, |_| String::new())?;
    report::say(&output);
    Ok(())
}

/// The short run, with what the tests were built with; as root a second time as a plain user.
pub(crate) fn check(stages: &Stages, metadata: &Metadata) -> Result<()> {
    let build = ["build", "--package", "ringfence-cli", "--package", CHAOS];
    stages.command("build chaos", &mut cargo_command(&build), |_| String::new())?;
    let place = Place::new(&metadata.target_directory.join("debug"))?;
    let mut identities = vec![Identity::mine()];
    if identities == [Identity::Root] {
        identities.push(Identity::User);
    }
    for identity in identities {
        let mut command = place.command(identity, SHORT_RUN)?;
        stages.command(&format!("chaos as {identity}"), &mut command, summary)?;
    }
    Ok(())
}

/// The line about all rounds, which is the last.
fn summary(output: &str) -> String {
    output.lines().last().unwrap_or_default().to_owned()
}

/// Copies of both programs where every user reaches them.
struct Place(PathBuf);

impl Place {
    fn new(built: &Path) -> Result<Self> {
        let place =
            Self(std::env::temp_dir().join(format!("ringfence-chaos-programs-{}", std::process::id())));
        std::fs::create_dir(&place.0).with_context(|| format!("create {}", place.0.display()))?;
        for name in [PROGRAM, CHAOS] {
            std::fs::copy(built.join(name), place.0.join(name)).with_context(|| format!("copy {name}"))?;
        }
        Ok(place)
    }

    fn command(&self, identity: Identity, options: &[&str]) -> Result<Command> {
        let mut arguments = vec![self.0.join(CHAOS).display().to_string()];
        arguments.push(self.0.join(PROGRAM).display().to_string());
        arguments.extend(options.iter().map(|&option| option.to_owned()));
        if identity == Identity::User && Identity::mine() == Identity::Root {
            return second_pass::user_command(&arguments);
        }
        let mut command = Command::new(&arguments[0]);
        command.args(&arguments[1..]);
        Ok(command)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Copies in the temporary folder would harm nobody.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
