//! What all cases share: the backend they ask, and the clock around each call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringfence::{
    Backend, BackendSettings, CommandRequest, Ending, Invocation, OutputLimit, Registry, SandboxId,
    SandboxSpec, Timeout,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::peers::Peers;
use crate::rounds::milliseconds;
use crate::table::Row;

/// What all cases share.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) binary: PathBuf,
    /// The same program without a dynamic loader, where it was built.
    pub(crate) linked_statically: Option<PathBuf>,
    pub(crate) peers: Peers,
    /// A tenth of the work: a look while working.
    quick: bool,
    pub(crate) runtime: Runtime,
    pub(crate) backend: Arc<dyn Backend>,
}

/// What several did at once.
#[derive(Debug)]
pub(crate) struct AtOnce<T> {
    /// What each piece of work returned, in the order of the times.
    pub(crate) done: Vec<T>,
    pub(crate) calls: Calls,
}

/// How long calls took, and all of them together.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// In milliseconds.
    pub(crate) times: Vec<f64>,
    /// From the start of the first to the end of the last.
    pub(crate) took: Duration,
}

impl Calls {
    pub(crate) fn add(&mut self, others: Self) {
        self.times.extend(others.times);
        self.took += others.took;
    }

    /// The row with these samples and their rate.
    pub(crate) fn into_row(self, row: Row) -> Row {
        row.with_samples(self.times).in_all(self.took)
    }
}

impl Bench {
    pub(crate) fn new(binary: PathBuf, linked_statically: Option<PathBuf>, quick: bool) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let backend =
            Registry::new(BackendSettings::default()).open("local").context("open the local backend")?;
        Ok(Self { binary, linked_statically, peers: Peers::find()?, quick, runtime, backend })
    }

    /// How often something is done, `full` times in a run that is kept.
    pub(crate) fn rounds(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(10) } else { full }
    }

    pub(crate) fn create(&self) -> Result<(SandboxId, Duration)> {
        let begun = Instant::now();
        let created = self.runtime.block_on(self.backend.create(&SandboxSpec::new()));
        let took = begun.elapsed();
        Ok((created.context("create a sandbox")?.id, took))
    }

    /// Creates so many that are alive together.
    pub(crate) fn create_many(&self, count: usize) -> Result<Vec<SandboxId>> {
        let one = |alive| Ok(self.create().with_context(|| format!("with {alive} alive"))?.0);
        (0..count).map(one).collect()
    }

    pub(crate) fn destroy(&self, sandbox: &SandboxId) -> Result<Duration> {
        let begun = Instant::now();
        let destroyed = self.runtime.block_on(self.backend.destroy(sandbox));
        let took = begun.elapsed();
        destroyed.context("destroy a sandbox")?;
        Ok(took)
    }

    /// Runs a command that succeeds, and returns the milliseconds that took.
    pub(crate) fn run(&self, sandbox: &SandboxId, request: CommandRequest) -> Result<f64> {
        let begun = Instant::now();
        let result = self.runtime.block_on(self.backend.run_command(sandbox, request));
        let took = begun.elapsed();
        succeeded(result.context("run a command")?.ending)?;
        Ok(milliseconds(took))
    }

    /// Does `work` with `workers` at once, `times` times each, on as many threads as there are processors: as a server
    /// does. `work` is told which worker it is for, the first being 0.
    pub(crate) fn at_once<T, W>(
        &self,
        workers: usize,
        times: usize,
        work: impl Fn(Arc<dyn Backend>, usize) -> W + Clone + Send + 'static,
    ) -> Result<AtOnce<T>>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut workers_left = JoinSet::new();
            let begun = Instant::now();
            for worker in 0..workers {
                let (backend, work) = (Arc::clone(&self.backend), work.clone());
                workers_left.spawn(async move {
                    let mut all = Vec::with_capacity(times);
                    for _ in 0..times {
                        let begun = Instant::now();
                        let done = work(Arc::clone(&backend), worker).await?;
                        all.push((done, milliseconds(begun.elapsed())));
                    }
                    anyhow::Ok(all)
                });
            }
            let (mut done, mut times) = (Vec::new(), Vec::new());
            while let Some(worker) = workers_left.join_next().await {
                let (its_done, its_times): (Vec<T>, Vec<f64>) = worker??.into_iter().unzip();
                done.extend(its_done);
                times.extend(its_times);
            }
            Ok(AtOnce { done, calls: Calls { times, took: begun.elapsed() } })
        })
    }
}

/// Refuses every ending but the exit status 0.
pub(crate) fn succeeded(ending: Ending) -> Result<()> {
    match ending {
        Ending::Exited(0) => Ok(()),
        ending => bail!("the command ended with {ending:?}"),
    }
}

pub(crate) fn program(name: &str) -> Result<CommandRequest> {
    request(Invocation::Program(vec![name.as_bytes().to_vec()]))
}

pub(crate) fn shell(text: &str) -> Result<CommandRequest> {
    request(Invocation::Shell(text.to_owned()))
}

fn request(invocation: Invocation) -> Result<CommandRequest> {
    let timeout = Timeout::new(Duration::from_secs(60)).context("a timeout")?;
    Ok(CommandRequest::new(invocation, timeout, OutputLimit::new(1 << 20).context("an output limit")?))
}
