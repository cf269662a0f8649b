//! What is measured.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringfence::{
    Backend, BackendSettings, CommandRequest, Ending, Invocation, OutputLimit, Registry, SandboxId,
    SandboxSpec, Timeout,
};

use crate::peers::{Peers, bwrap_command, timed};
use crate::rounds::{Series, table};

/// Rounds that warm caches up and are not counted.
const WARM_UP: usize = 5;

/// One command in a sandbox of its own, from the start of the program to its end.
pub(crate) fn whole_process(binary: &Path, peers: &Peers, rounds: usize) -> Result<String> {
    let mut ours = Series::ours("`ringfence run -- true`");
    let mut bwrap = Series::peer(0, "`bwrap`, all namespaces, proc, dev, tmp, /usr read-only");
    let mut runc = Series::peer(0, "`runc run`, bundle prepared before");
    for round in 0..rounds + WARM_UP {
        let counted = round >= WARM_UP;
        take(&mut ours, counted, timed(Command::new(binary).args(["run", "--", "true"]))?);
        if let Some(program) = &peers.bwrap {
            take(&mut bwrap, counted, timed(&mut bwrap_command(program))?);
        }
        if let Some(peer) = &peers.runc {
            take(&mut runc, counted, peer.run_once()?);
        }
    }
    let mut series = vec![ours];
    series.extend(peers.bwrap.is_some().then_some(bwrap));
    series.extend(peers.runc.is_some().then_some(runc));
    Ok(table("One command, one sandbox: the whole process", &series, &peers.absent))
}

/// One more command in a sandbox that is already there.
pub(crate) async fn command_in_living_sandbox(peers: &Peers, rounds: usize) -> Result<String> {
    let backend = backend()?;
    let sandbox = backend.create(&SandboxSpec::new()).await.context("create a sandbox")?.id;
    let living = peers.runc.as_ref().map(|runc| runc.start()).transpose()?;
    let program = || Invocation::Program(vec![b"true".to_vec()]);
    let shell = || Invocation::Shell("true".to_owned());

    let mut ours = Series::ours("`run_command`, the program `true`");
    let mut ours_shell = Series::ours("`run_command`, the shell text `true`");
    let mut bare = Series::peer(0, "no sandbox: start `true` and wait for it");
    let mut bare_shell = Series::peer(1, "no sandbox: start `bash -c true` and wait for it");
    let mut runc = Series::peer(0, "`runc exec`");
    for round in 0..rounds + WARM_UP {
        let counted = round >= WARM_UP;
        take(&mut ours, counted, run(&*backend, &sandbox, program()).await?);
        take(&mut bare, counted, timed(&mut Command::new("true"))?);
        take(&mut ours_shell, counted, run(&*backend, &sandbox, shell()).await?);
        take(&mut bare_shell, counted, timed(Command::new("bash").args(["-c", "true"]))?);
        if let Some(living) = &living {
            take(&mut runc, counted, living.exec_true()?);
        }
    }
    drop(living);
    backend.destroy(&sandbox).await.context("destroy the sandbox")?;
    let mut series = vec![ours, ours_shell, bare, bare_shell];
    series.extend(peers.runc.is_some().then_some(runc));
    Ok(table("One more command in a living sandbox", &series, &[]))
}

/// The calls around the commands.
pub(crate) async fn lifetime(rounds: usize) -> Result<String> {
    let backend = backend()?;
    let mut create = Series::ours("`create` returns, the sandbox is ready");
    let mut first = Series::ours("first command, the program `true`");
    let mut destroy = Series::ours("`destroy` returns, nothing is left");
    for round in 0..rounds + WARM_UP {
        let counted = round >= WARM_UP;
        let begun = Instant::now();
        let sandbox = backend.create(&SandboxSpec::new()).await.context("create a sandbox")?.id;
        take(&mut create, counted, begun.elapsed());
        let invocation = Invocation::Program(vec![b"true".to_vec()]);
        take(&mut first, counted, run(&*backend, &sandbox, invocation).await?);
        let begun = Instant::now();
        backend.destroy(&sandbox).await.context("destroy the sandbox")?;
        take(&mut destroy, counted, begun.elapsed());
    }
    Ok(table("The calls around it, in one process", &[create, first, destroy], &[]))
}

fn backend() -> Result<std::sync::Arc<dyn Backend>> {
    Registry::new(BackendSettings::default()).open("local").context("open the local backend")
}

async fn run(backend: &dyn Backend, sandbox: &SandboxId, invocation: Invocation) -> Result<Duration> {
    let timeout = Timeout::new(Duration::from_secs(30)).context("a timeout")?;
    let limit = OutputLimit::new(1 << 16).context("an output limit")?;
    let begun = Instant::now();
    let result = backend.run_command(sandbox, CommandRequest::new(invocation, timeout, limit)).await;
    let took = begun.elapsed();
    match result.context("run a command")?.ending {
        Ending::Exited(0) => Ok(took),
        ending => bail!("the command ended with {ending:?}"),
    }
}

fn take(series: &mut Series, counted: bool, time: Duration) {
    if counted {
        series.add(time);
    }
}
