//! `cargo xtask test`: everything that must hold, cheapest first, ended by the first failure.

use std::process::Command;

use anyhow::Result;

use crate::metadata::Metadata;
use crate::second_pass::{self, Identity};
use crate::skips::{self, Skips};
use crate::stage::{Stages, cargo_command, closing_lines};
use crate::tools;
use crate::{chaos, clients, deps, programs, report, targets};

/// The packages whose tests depend on who runs them.
pub(crate) const PRIVILEGE_DEPENDENT: &[&str] = &["ringfence-local", "ringfence-cli"];

/// The inner loop.
pub(crate) fn quick() -> Result<()> {
    let metadata = Metadata::members_only()?;
    let stages = Stages::new(&metadata.target_directory)?;
    format(&stages)?;
    stages.check("deps", deps::check)?;
    clippy(&stages)?;
    let runner = Runner::find();
    let skips = Skips::new(stages.folder(), Identity::mine())?;
    let mut command = runner.workspace();
    skips.hand_to(&mut command);
    let output = stages.command("tests", &mut command, counted)?;
    report::say(&skips.summary()?);
    finish(&stages, &[&output]);
    Ok(())
}

/// Everything that needs no other machine, engine or agent. What the runner of the tests said last is said last.
pub(crate) fn full() -> Result<()> {
    let metadata = Metadata::members_only()?;
    let stages = Stages::new(&metadata.target_directory)?;
    format(&stages)?;
    stages.check("deps", deps::check)?;
    tools::ensure_cargo_deny()?;
    // The licence check reads every platform's packages and may not use the network itself.
    stages.command("fetch", &mut cargo_command(&["fetch", "--locked"]), |_| String::new())?;
    let deny =
        ["deny", "--offline", "--all-features", "--color", "never", "check", "licenses", "bans", "sources"];
    stages.command("deny", &mut cargo_command(&deny), last_line)?;
    clippy(&stages)?;
    targets::check(&stages)?;
    let mut rustdoc = cargo_command(&["doc", "--no-deps", "--workspace", "--all-features"]);
    stages.command("rustdoc", rustdoc.env("RUSTDOCFLAGS", "-Dwarnings"), |_| String::new())?;
    let doc_tests = cargo_command(&["test", "--doc", "--workspace", "--all-features"]);
    stages.command("doc tests", &mut { doc_tests }, counted)?;

    let missing = programs::prepare(&stages, &metadata)?;
    let runner = Runner::find();
    let mine = Identity::mine();
    let first = Skips::new(stages.folder(), mine)?;
    let mut command = runner.workspace();
    first.hand_to(&mut command);
    let output = stages.command(&format!("tests as {mine}"), &mut command, counted)?;
    let mut logs = vec![first];
    let mut closing = vec![output];
    if mine == Identity::Root {
        let second = Skips::new(stages.folder(), Identity::User)?;
        let mut command = runner.packages(PRIVILEGE_DEPENDENT);
        let pass = second_pass::prepare(&metadata, &mut command)?;
        second.hand_to(&mut command);
        closing.insert(0, stages.command("tests as user", &mut command, counted)?);
        pass.clean_up()?;
        logs.push(second);
    } else {
        report::say("tests as root  not run: this is an ordinary user");
    }
    chaos::check(&stages, &metadata)?;
    // After the tests, which have built the program.
    clients::check(&stages, &metadata)?;
    for log in &logs {
        report::say(&log.summary()?);
    }
    skips::compare(&metadata.workspace_root, &logs, &missing)?;
    finish(&stages, &closing.iter().map(String::as_str).collect::<Vec<_>>());
    Ok(())
}

fn format(stages: &Stages) -> Result<()> {
    stages.command("format", &mut cargo_command(&["fmt", "--all", "--check"]), |_| String::new()).map(drop)
}

fn clippy(stages: &Stages) -> Result<()> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    stages.command("clippy", &mut cargo_command(&arguments), |_| String::new()).map(drop)
}

fn finish(stages: &Stages, outputs: &[&str]) {
    report::say(&format!("everything passed in {:.0} s", stages.elapsed().as_secs_f64()));
    for line in outputs.iter().flat_map(|output| closing_lines(output)) {
        report::say(&line);
    }
}

fn last_line(output: &str) -> String {
    output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

/// Returns how many tests passed, from the closing lines of either runner.
fn counted(output: &str) -> String {
    let passed: u64 = closing_lines(output)
        .iter()
        .filter_map(|line| {
            let before = line.split(" passed").next()?;
            before.rsplit(' ').next()?.parse::<u64>().ok()
        })
        .sum();
    format!("{passed} passed")
}

/// The test runner of this machine.
#[derive(Debug, Clone, Copy)]
enum Runner {
    Nextest,
    Cargo,
}

impl Runner {
    fn find() -> Self {
        if tools::has_cargo_subcommand("nextest") { Self::Nextest } else { Self::Cargo }
    }

    fn base(self) -> Command {
        match self {
            Self::Nextest => cargo_command(&["nextest", "run", "--color", "never", "--no-tests", "pass"]),
            Self::Cargo => {
                // Without --no-fail-fast a failure hides how the other binaries fared.
                let mut command = cargo_command(&["test", "--no-fail-fast"]);
                // Here the tests of a binary share a process, and some look at all of its children.
                command.env("RUST_TEST_THREADS", "1");
                command
            }
        }
    }

    fn workspace(self) -> Command {
        let mut command = self.base();
        command.args(["--workspace", "--all-features"]);
        if matches!(self, Self::Cargo) {
            // Doc tests are a stage of their own.
            command.arg("--all-targets");
        }
        command
    }

    /// The packages are chosen from the workspace's build, so that nothing is compiled a second time.
    fn packages(self, names: &[&str]) -> Command {
        match self {
            Self::Nextest => {
                let filter = names.iter().map(|name| format!("package({name})")).collect::<Vec<_>>();
                let mut command = self.workspace();
                command.args(["-E", &filter.join(" | ")]);
                command
            }
            Self::Cargo => {
                let mut command = self.base();
                command.args(["--all-features", "--all-targets"]);
                command.args(names.iter().flat_map(|name| ["--package", name]));
                command
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn passed_tests_are_counted_for_both_runners() {
        assert_eq!(counted("     Summary [   0.1s] 3 tests run: 3 passed, 1 skipped"), "3 passed");
        assert_eq!(
            counted("test result: ok. 2 passed; 0 failed; 0 ignored\ntest result: ok. 40 passed; 0 failed;"),
            "42 passed"
        );
    }
}
