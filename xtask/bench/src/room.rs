//! Where the peers are started from.
//!
//! Some engines refuse a machine that has control groups of version 1 with those of version 2 mounted beside them. They are
//! measured in a mount namespace in which the latter is hidden. A process of ours lives there, which starts what it is
//! told and says how long it took: entering the namespace is not part of the time.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::MemfdFlags;
use serde_json::{Value, json};

/// Tells this program to be the process in the namespace.
pub(crate) const ROLE: &str = "--room";

/// Where systems with both versions have the second.
const SECOND_VERSION: &str = "/sys/fs/cgroup/unified";

/// Starts commands and takes the time.
#[derive(Debug)]
pub(crate) enum Room {
    /// From this process.
    Here,
    /// From the one that does not see the second version.
    Hidden(RefCell<Servant>),
}

#[derive(Debug)]
pub(crate) struct Servant {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Room {
    /// Makes the namespace, where there is something to hide and this user may.
    pub(crate) fn hidden() -> Result<Self> {
        if !Path::new(SECOND_VERSION).join("cgroup.procs").exists() {
            bail!("nothing is mounted on {SECOND_VERSION}");
        }
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg(format!("umount {SECOND_VERSION} && exec \"$0\" {ROLE}"))
            .arg(std::env::current_exe()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start unshare")?;
        let input = child.stdin.take().context("the input of the room")?;
        let output = BufReader::new(child.stdout.take().context("the output of the room")?);
        let room = Self::Hidden(RefCell::new(Servant { child, input, output }));
        room.time(&["true".to_owned()]).context("hide the second version of control groups")?;
        Ok(room)
    }

    /// Runs a command to its end and returns how long that took; an exit status other than 0 is an error.
    pub(crate) fn time(&self, command: &[String]) -> Result<Duration> {
        match self {
            Self::Here => timed(command),
            Self::Hidden(servant) => servant.borrow_mut().time(command),
        }
    }
}

impl Servant {
    fn time(&mut self, command: &[String]) -> Result<Duration> {
        writeln!(self.input, "{}", json!(command))?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line).context("the room gave no answer")?;
        match answer["nanoseconds"].as_u64() {
            Some(nanoseconds) => Ok(Duration::from_nanos(nanoseconds)),
            None => bail!("{}", answer["error"].as_str().unwrap_or("no answer")),
        }
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        // It has nothing to lose.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Serves one command a line until the input ends.
pub(crate) fn serve() -> Result<()> {
    let mut output = std::io::stdout();
    for line in std::io::stdin().lines() {
        let command: Vec<String> = serde_json::from_str(&line?)?;
        let answer = match timed(&command) {
            Ok(took) => json!({"nanoseconds": u64::try_from(took.as_nanos())?}),
            Err(error) => json!({"error": format!("{error:#}")}),
        };
        writeln!(output, "{answer}")?;
    }
    Ok(())
}

/// Runs a command to its end and returns how long that took; an exit status other than 0 is an error with the last line
/// that the command wrote to standard error.
pub(crate) fn timed(words: &[String]) -> Result<Duration> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    // A pipe would have to be read meanwhile.
    let mut complaints = File::from(rustix::fs::memfd_create("complaints", MemfdFlags::CLOEXEC)?);
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints.try_clone()?);
    let begun = Instant::now();
    let status = command.status();
    let took = begun.elapsed();
    let status = status.with_context(|| format!("start {program}"))?;
    if !status.success() {
        let mut text = Vec::new();
        complaints.rewind()?;
        complaints.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        bail!("{program} ended with {status}: {}", text.lines().last().unwrap_or("it does not say why"));
    }
    Ok(took)
}
