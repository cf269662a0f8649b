//! A process that owns sandboxes and is going to be killed: this program, started by itself.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringfence::{BackendSettings, Limits, Pids, Registry, SandboxSpec};

use crate::processes::{Watch, cgroups_made_by, descendants};

/// Tells this program to be one.
pub(crate) const ROLE: &str = "--owner";
/// Its sandboxes have a limit of processes, and so control groups where those enforce it.
pub(crate) const LIMITED: &str = "limited";

/// Creates `count` sandboxes, says so, and waits to be killed.
pub(crate) fn be(count: usize, limited: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let backend = Registry::new(BackendSettings::default()).open("local")?;
    let mut spec = SandboxSpec::new();
    if limited {
        spec = spec.with_limits(Limits { pids: Some(Pids::new(64)?), ..Limits::default() });
    }
    for _ in 0..count {
        runtime.block_on(backend.create(&spec)).context("create a sandbox")?;
    }
    writeln!(std::io::stdout(), "ready")?;
    // Its end means that whoever started this is gone.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// What became of an owner's sandboxes.
#[derive(Debug)]
pub(crate) struct Aftermath {
    /// From the signal until the last of its processes had ended.
    pub(crate) gone_after: Duration,
    pub(crate) cgroups_left: usize,
}

/// Starts an owner of `count` sandboxes and kills it.
pub(crate) fn kill(count: usize, spec: &str) -> Result<Aftermath> {
    let mut owner = Owner(
        Command::new(std::env::current_exe()?)
            .args([ROLE, &count.to_string(), spec])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start an owner")?,
    );
    let mut line = String::new();
    BufReader::new(owner.0.stdout.take().context("the owner's output")?).read_line(&mut line)?;
    let pids = descendants(owner.0.id());
    if line.trim() != "ready" || pids.len() <= count {
        bail!("the owner of {count} sandboxes said {line:?} and has {} processes", pids.len());
    }
    let watch = Watch::new(&pids)?;
    let begun = Instant::now();
    owner.0.kill()?;
    let gone_after = watch.gone_since(begun)?;
    owner.0.wait()?;
    Ok(Aftermath { gone_after, cgroups_left: cgroups_made_by(owner.0.id()) })
}

struct Owner(Child);

impl Drop for Owner {
    fn drop(&mut self) {
        // It has ended, unless something went wrong.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
