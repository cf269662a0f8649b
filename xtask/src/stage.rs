//! Stages: each is one line when it passes, and its whole output when it does not.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::metadata::cargo;
use crate::report;

/// Runs stages in order and keeps what each printed under `target/xtask/`.
#[derive(Debug)]
pub(crate) struct Stages {
    folder: PathBuf,
    begun: Instant,
}

impl Stages {
    pub(crate) fn new(target: &Path) -> Result<Self> {
        let folder = target.join("xtask");
        std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(Self { folder, begun: Instant::now() })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Runs a stage that is code of ours; it returns the remark for its line.
    pub(crate) fn check(&self, name: &str, stage: impl FnOnce() -> Result<String>) -> Result<()> {
        let begun = Instant::now();
        match stage() {
            Ok(remark) => {
                report::say(&line(name, "ok", begun.elapsed(), &remark));
                Ok(())
            }
            Err(error) => {
                report::say(&line(name, "FAILED", begun.elapsed(), ""));
                Err(error.context(format!("stage {name}")))
            }
        }
    }

    /// Runs a stage that is one command and returns what it printed, on both streams in order.
    pub(crate) fn command(
        &self,
        name: &str,
        command: &mut Command,
        remark: impl FnOnce(&str) -> String,
    ) -> Result<String> {
        let begun = Instant::now();
        let log = self.folder.join(format!("{}.log", name.replace(' ', "-")));
        let status = run_into(&log, command)?;
        let output = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
        if status {
            report::say(&line(name, "ok", begun.elapsed(), &remark(&output)));
            return Ok(output);
        }
        report::say(&output);
        report::say(&line(name, "FAILED", begun.elapsed(), ""));
        for closing in closing_lines(&output) {
            report::say(&closing);
        }
        bail!("stage {name} failed: {}", shown(command))
    }
}

/// Returns a cargo command without the variables that `cargo run` left for this process and that are wrong for others.
pub(crate) fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(cargo());
    command.args(arguments).env("CARGO_TERM_COLOR", "never").env("CARGO_TERM_PROGRESS_WHEN", "never");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"].iter().any(|p| name.starts_with(p))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the test runner's own closing lines: nextest's `Summary`, or cargo's `test result:` of each binary with tests.
pub(crate) fn closing_lines(output: &str) -> Vec<String> {
    let summaries: Vec<String> =
        output.lines().filter(|line| line.trim_start().starts_with("Summary [")).map(str::to_owned).collect();
    if !summaries.is_empty() {
        // Whatever else looks like a closing line is the quoted output of a test.
        return summaries;
    }
    output
        .lines()
        .filter(|line| line.starts_with("test result:") && !line.contains(" 0 passed; 0 failed; 0 ignored"))
        .map(str::to_owned)
        .collect()
}

fn run_into(log: &Path, command: &mut Command) -> Result<bool> {
    let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let status = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("start {}", shown(command)))?;
    Ok(status.success())
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy());
    std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
}

fn line(name: &str, verdict: &str, took: Duration, remark: &str) -> String {
    format!("{name:<14} {verdict:<6} {:>6.1} s  {remark}", took.as_secs_f64()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::closing_lines;

    #[test]
    fn closing_lines_are_the_runners_own() {
        let cargo = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured\n\
                     test result: ok. 3 passed; 0 failed; 0 ignored\n";
        assert_eq!(closing_lines(cargo), ["test result: ok. 3 passed; 0 failed; 0 ignored"]);
        let nextest = "test result: FAILED. 0 passed; 1 failed\n     Summary [   0.1s] 3 tests run: 2 passed, 1 failed\n";
        assert_eq!(closing_lines(nextest), ["     Summary [   0.1s] 3 tests run: 2 passed, 1 failed"]);
    }
}
