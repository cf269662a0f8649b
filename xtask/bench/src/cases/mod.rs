//! What is measured: a file for each subject.

mod command;
mod ending;
mod files;
mod lifetime;
mod many;
mod one_shot;
mod tool_call;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringfence::{
    Backend, BackendSettings, CommandRequest, Ending, Invocation, OutputLimit, Registry, SandboxId,
    SandboxSpec, Timeout,
};
use tokio::runtime::Runtime;

use crate::peers::Peers;
use crate::rounds::milliseconds;
use crate::table::Table;

/// What has a target and does not exist yet, so that nobody takes its absence for an oversight.
pub(crate) const NOT_YET: &str = "\
Not measured, because it does not exist yet: handing out a sandbox from a pool (target 0.1 / 0.5 ms); network egress
(target 4 Gbit/s at MTU 1500, 8 at 64 KiB, 0.2 ms on top of a connect).";

/// What all cases share.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) binary: PathBuf,
    pub(crate) peers: Peers,
    /// A tenth of the work: a look while working.
    quick: bool,
    runtime: Runtime,
    backend: Arc<dyn Backend>,
}

/// Runs the cases, or those named, in the order of the document.
pub(crate) fn all(bench: &Bench, only: Option<&str>) -> Result<Vec<Table>> {
    type Cases = fn(&Bench) -> Result<Table>;
    let known: [(&str, Cases); 10] = [
        ("one-shot", one_shot::hot),
        ("cold", one_shot::cold),
        ("command", command::in_living_sandbox),
        ("tool-call", tool_call::over_stdio),
        ("lifetime", lifetime::calls),
        ("rest", lifetime::calls_after_rest),
        ("ending", ending::how_fast),
        ("files", files::times),
        ("memory", files::memory),
        ("many", many::alive),
    ];
    if let Some(only) = only
        && !known.iter().any(|(name, _)| *name == only)
    {
        bail!("there are no cases {only:?}; known: {}", known.map(|(name, _)| name).join(", "));
    }
    let wanted = known.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
    wanted.map(|(name, cases)| cases(bench).with_context(|| format!("cases {name}"))).collect()
}

impl Bench {
    pub(crate) fn new(binary: PathBuf, quick: bool) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let backend =
            Registry::new(BackendSettings::default()).open("local").context("open the local backend")?;
        Ok(Self { binary, peers: Peers::find()?, quick, runtime, backend })
    }

    /// How often something is done, `full` times in a run that is kept.
    pub(crate) fn rounds(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(10) } else { full }
    }

    fn create(&self) -> Result<(SandboxId, Duration)> {
        let begun = Instant::now();
        let created = self.runtime.block_on(self.backend.create(&SandboxSpec::new()));
        let took = begun.elapsed();
        Ok((created.context("create a sandbox")?.id, took))
    }

    fn destroy(&self, sandbox: &SandboxId) -> Result<Duration> {
        let begun = Instant::now();
        let destroyed = self.runtime.block_on(self.backend.destroy(sandbox));
        let took = begun.elapsed();
        destroyed.context("destroy a sandbox")?;
        Ok(took)
    }

    /// Runs a command that succeeds, and returns the milliseconds that took.
    fn run(&self, sandbox: &SandboxId, request: CommandRequest) -> Result<f64> {
        let begun = Instant::now();
        let result = self.runtime.block_on(self.backend.run_command(sandbox, request));
        let took = begun.elapsed();
        match result.context("run a command")?.ending {
            Ending::Exited(0) => Ok(milliseconds(took)),
            ending => bail!("the command ended with {ending:?}"),
        }
    }
}

fn program(name: &str) -> Result<CommandRequest> {
    request(Invocation::Program(vec![name.as_bytes().to_vec()]))
}

fn shell(text: &str) -> Result<CommandRequest> {
    request(Invocation::Shell(text.to_owned()))
}

fn request(invocation: Invocation) -> Result<CommandRequest> {
    let timeout = Timeout::new(Duration::from_secs(60)).context("a timeout")?;
    Ok(CommandRequest::new(invocation, timeout, OutputLimit::new(1 << 20).context("an output limit")?))
}
