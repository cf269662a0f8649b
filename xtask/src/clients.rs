//! `ringfence mcp` as real clients of the protocol see it: the official Python and TypeScript clients and the Inspector.
//!
//! What is checked stands in `xtask/clients/`, a script for each client. Here their packages are installed and they are run.
//! The coding agents themselves, 1.2 GB of packages, are not in the default run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::environments::Environments;
use crate::metadata::Metadata;
use crate::report;
use crate::stage::{Stages, cargo_command};

/// Runs the checks of every client against the program that the tests were built with.
pub(crate) fn check(stages: &Stages, metadata: &Metadata) -> Result<()> {
    let scripts = metadata.workspace_root.join("xtask/clients");
    let environments = install(stages, &scripts, &metadata.target_directory.join("clients"))?;
    // A script finds its packages beside itself.
    std::fs::copy(scripts.join(TYPESCRIPT), environments.node_folder().join(TYPESCRIPT))
        .with_context(|| format!("copy {TYPESCRIPT}"))?;
    let program = program(metadata);
    let python = |script: &str, era: &str| Client {
        interpreter: environments.python(),
        script: scripts.join(script),
        era: Some(era.to_owned()),
    };
    let typescript = Client {
        interpreter: environments.node_folder().join("node_modules/.bin/node"),
        script: environments.node_folder().join(TYPESCRIPT),
        era: None,
    };
    for (name, client) in [
        ("python legacy", python("python_client.py", "legacy")),
        ("python modern", python("python_client.py", "2026-07-28")),
        ("typescript", typescript),
        ("inspector legacy", python("inspector.py", "legacy")),
        ("inspector modern", python("inspector.py", "modern")),
    ] {
        client.run(stages, name, &environments, &program)?;
    }
    Ok(())
}

/// `cargo xtask test --clients`: the same alone, against a program built for it.
pub(crate) fn alone() -> Result<()> {
    with_program(check)
}

/// `cargo xtask test --agents`: the agents, each with a scripted model on loopback and no other network.
pub(crate) fn agents() -> Result<()> {
    with_program(|stages, metadata| {
        let scripts = metadata.workspace_root.join("xtask/clients");
        let folder = metadata.target_directory.join("clients/agents");
        let environments = install(stages, &scripts.join("agents"), &folder)?;
        for agent in ["claude", "codex", "opencode"] {
            let mut command = environments.command(environments.python())?;
            command.arg(scripts.join("agents.py")).arg(program(metadata));
            command.arg(environments.node_folder()).arg(agent);
            stages.command(agent, &mut command, passed)?;
        }
        Ok(())
    })
}

fn with_program(checks: impl FnOnce(&Stages, &Metadata) -> Result<()>) -> Result<()> {
    let metadata = Metadata::members_only()?;
    let stages = Stages::new(&metadata.target_directory)?;
    let build = ["build", "--package", "ringfence-cli", "--all-features"];
    stages.command("build", &mut cargo_command(&build), |_| String::new())?;
    checks(&stages, &metadata)?;
    report::say(&format!("everything passed in {:.0} s", stages.elapsed().as_secs_f64()));
    Ok(())
}

/// Returns where cargo puts the program.
fn program(metadata: &Metadata) -> PathBuf {
    metadata.target_directory.join("debug/ringfence")
}

fn install(stages: &Stages, pins: &Path, folder: &Path) -> Result<Environments> {
    let mut environments = None;
    stages.check("packages", || {
        environments = Some(Environments::install(pins, folder)?);
        Ok(String::new())
    })?;
    environments.context("the stage made them")
}

const TYPESCRIPT: &str = "typescript_client.ts";

/// A script that plays one client. It is given the program and, where the client has a choice, the era of the protocol.
struct Client {
    interpreter: PathBuf,
    script: PathBuf,
    era: Option<String>,
}

impl Client {
    fn run(&self, stages: &Stages, name: &str, environments: &Environments, program: &Path) -> Result<()> {
        let mut command = environments.command(&self.interpreter)?;
        command.arg(&self.script).arg(program).args(&self.era);
        stages.command(name, &mut command, passed).map(drop)
    }
}

/// Returns how many checks passed, from the closing line of a script: `NAME: N passed, N failed in N s`.
fn passed(output: &str) -> String {
    let closing = output.lines().rev().find(|line| line.contains(" passed, "));
    let count = closing.and_then(|line| line.split(" passed").next()?.rsplit(' ').next());
    count.map(|count| format!("{count} passed")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::passed;

    #[test]
    fn passed_checks_are_counted_from_the_closing_line() {
        assert_eq!(passed("warning\npython legacy: 20 passed, 0 failed in 13.4 s\n"), "20 passed");
    }
}
