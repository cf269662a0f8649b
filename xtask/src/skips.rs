//! Tests that could not run here, and how many of them are expected: a silent skip cannot pass.
//!
//! The contract with tests: one that finds a primitive missing appends the line `skipped: <test>: <missing primitive>`
//! to the file named by `RINGFENCE_TEST_SKIP_LOG` (opened for appending, one write) and returns.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::report;
use crate::second_pass::Identity;

/// Names the file that tests append to.
pub(crate) const LOG_VARIABLE: &str = "RINGFENCE_TEST_SKIP_LOG";
/// Tells tests which pass they are in: `root` or `user`.
pub(crate) const IDENTITY_VARIABLE: &str = "RINGFENCE_TEST_AS";

/// The skips of one pass.
#[derive(Debug)]
pub(crate) struct Skips {
    log: PathBuf,
    identity: Identity,
}

impl Skips {
    /// Makes an empty log that anybody may append to. It lies outside the target folder, which may be private.
    pub(crate) fn new(folder: &Path, identity: Identity) -> Result<Self> {
        let unique = format!("ringfence-skips-{}-{identity}.log", std::process::id());
        let log = std::env::temp_dir().join(unique);
        std::fs::write(&log, "").with_context(|| format!("create {}", log.display()))?;
        std::fs::set_permissions(&log, Permissions::from_mode(0o666))
            .context(folder.display().to_string())?;
        Ok(Self { log, identity })
    }

    pub(crate) fn hand_to(&self, command: &mut Command) {
        command.env(LOG_VARIABLE, &self.log).env(IDENTITY_VARIABLE, self.identity.to_string());
    }

    /// Returns each skip once: a runner may start a test twice.
    fn lines(&self) -> Result<BTreeSet<String>> {
        let text = std::fs::read_to_string(&self.log).context("read the log of skipped tests")?;
        Ok(text.lines().filter(|line| line.starts_with("skipped: ")).map(str::to_owned).collect())
    }

    /// Returns the line or lines for the report.
    pub(crate) fn summary(&self) -> Result<String> {
        let lines = self.lines()?;
        let mut text = format!("skipped as {}: {}", self.identity, lines.len());
        for line in lines {
            text.push_str("\n  ");
            text.push_str(line.trim_start_matches("skipped: "));
        }
        Ok(text)
    }
}

impl Drop for Skips {
    fn drop(&mut self) {
        // The log has been read; a leftover in the temporary folder would harm nobody.
        drop(std::fs::remove_file(&self.log));
    }
}

/// `xtask/skips.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectations {
    environment: Vec<Environment>,
}

/// How many tests are skipped where.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Environment {
    /// The emulated machine, or nothing for the one that runs the tests.
    machine: Option<String>,
    identity: String,
    /// What limits the caller can set, see [`limits_here`]; not given for emulated machines.
    limits: Option<String>,
    count: usize,
}

impl Expectations {
    fn read(root: &Path) -> Result<Self> {
        let path = root.join("xtask/skips.toml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        toml::from_str(&text).context("parse xtask/skips.toml")
    }

    fn compare(
        &self,
        machine: Option<&str>,
        identity: &str,
        limits: Option<&str>,
        found: usize,
    ) -> Result<()> {
        let place = match (machine, limits) {
            (Some(machine), _) => format!("{identity} on {machine}"),
            (None, limits) => format!("{identity} with limits by {}", limits.unwrap_or("nothing")),
        };
        let known = self.environment.iter().find(|environment| {
            environment.machine.as_deref() == machine
                && environment.identity == identity
                && environment.limits.as_deref() == limits
        });
        match known {
            Some(environment) if environment.count != found => bail!(
                "as {place}, {found} tests were skipped and {} are expected: if that is right, record it in \
                 xtask/skips.toml",
                environment.count
            ),
            Some(_) => {}
            None => report::say(&format!(
                "no expectation is recorded for {place}: read the list of skipped tests"
            )),
        }
        Ok(())
    }
}

/// Compares the number of skipped tests with what is recorded for this kind of machine. Tests of programs that are known to
/// be missing here do not count; those of programs that are here do.
pub(crate) fn compare(root: &Path, passes: &[Skips], missing_programs: &[&str]) -> Result<()> {
    let expectations = Expectations::read(root)?;
    for pass in passes {
        let limits = limits_here(pass.identity);
        let lines = pass.lines()?;
        let found = lines.iter().filter(|line| !lacks_program(line, missing_programs)).count();
        expectations.compare(None, &pass.identity.to_string(), Some(limits), found)?;
    }
    Ok(())
}

/// Whether a test was skipped for want of one of these programs.
fn lacks_program(line: &str, programs: &[&str]) -> bool {
    line.rsplit_once(": the program ").is_some_and(|(_, name)| programs.contains(&name))
}

/// Prints and compares the skips of one section of an emulated machine; only sections of tests have any.
pub(crate) fn compare_machine(root: &Path, machine: &str, section: &str, lines: &[String]) -> Result<()> {
    let Some(identity) = section.strip_prefix("tests as ") else { return Ok(()) };
    for line in lines {
        report::say(&format!("    {}", line.trim_start_matches("skipped: ")));
    }
    Expectations::read(root)?.compare(Some(machine), identity, None, lines.len())
}

/// Returns what this identity can limit a tree of processes with: `v1`, `v2` or `nothing`.
fn limits_here(identity: Identity) -> &'static str {
    let root = identity == Identity::Root;
    if root && Path::new("/sys/fs/cgroup/memory/cgroup.procs").exists() {
        "v1"
    } else if root && Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        "v2"
    } else {
        "nothing"
    }
}
