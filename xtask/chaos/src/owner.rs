//! What this program does when it is started by itself as somebody who uses the library: it makes sandboxes, uses them, and uses those of
//! others, until it is killed. It says what it is doing, so that whoever kills it knows.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use ringfence::claim::claim;
use ringfence::{
    Attachable, Backend, BackendSettings, BackgroundRequest, ByteSize, Claimant, CommandRequest, Cpus,
    EnvMap, Error, GuestPath, Invocation, Lease, Limits, ListRequest, OutputLimit, Pids, Reach, Registry,
    SandboxId, SandboxSpec, StreamName, Timeout,
};

use crate::dice::Dice;

/// Tells this program to be one: a role, a seed, the runtime directory, the limits there are, and the marker of its commands.
pub(crate) const ROLE: &str = "--owner";
/// Of sandboxes of its own.
pub(crate) const MAKER: &str = "maker";
/// Of those that others made.
pub(crate) const VISITOR: &str = "visitor";

/// Ends the marker of what a command leaves in the background on purpose.
pub(crate) const LEFT: &str = "4";
/// Ends the marker of what ends with its command.
pub(crate) const WAITED_FOR: &str = "5";

/// At most so many sandboxes at a time.
const MANY: usize = 3;

/// Whose the sandboxes are that others may claim.
const OWNER: &str = "chaos";

/// Which limits a sandbox can have here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limited {
    Nothing,
    Pids,
    All,
}

impl Limited {
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::Pids, Self::All];

    /// As an argument of the owner.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Pids => "pids",
            Self::All => "all",
        }
    }

    /// As arguments of the command line program.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &[],
            Self::Pids => &["--pids", "64"],
            Self::All => &["--pids", "64", "--memory", "64MiB", "--cpus", "1"],
        }
    }

    fn limits(self) -> Result<Limits> {
        let mut limits = Limits::default();
        if self != Self::Nothing {
            limits.pids = Some(Pids::new(64)?);
        }
        if self == Self::All {
            limits.memory = Some(ByteSize::from_bytes(64 << 20)?);
            limits.cpus = Some(Cpus::new(1.0)?);
        }
        Ok(limits)
    }
}

/// A command with a deep tree: processes that leave their session, processes whose parent ends before them, and one that is waited for.
pub(crate) fn deep_tree(marker: &str, waits: &str) -> String {
    let left = format!("sleep 300.{marker}{LEFT}");
    format!(
        "for i in 1 2; do (setsid sh -c 'trap \"\" TERM HUP; {left} & {left}' > /dev/null 2>&1 &); done; \
         sh -c 'sh -c \"{left} > /dev/null 2>&1 & sleep {waits}{marker}{WAITED_FOR}\"'"
    )
}

/// What this program does in that role.
pub(crate) fn be(arguments: &[&str]) -> Result<()> {
    let [role, seed, directory, limited, marker] = *arguments else { bail!("an owner needs five arguments") };
    let limited =
        Limited::ALL.into_iter().find(|known| known.word() == limited).context("which limits there are")?;
    let mut settings = BackendSettings::default();
    settings.local.runtime_dir = Some(PathBuf::from(directory));
    let open = || Registry::new(settings.clone()).open("local");
    let owner = Owner {
        // Each has a launcher of its own.
        backends: [open()?, open()?],
        dice: Dice::new(seed.parse()?),
        limited,
        marker: marker.to_owned(),
        sandboxes: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match role {
            MAKER => owner.make().await,
            VISITOR => owner.visit().await,
            _ => bail!("no role is called {role}"),
        }
    })
}

/// A sandbox of an owner.
#[derive(Clone)]
struct Made {
    backend: Arc<dyn Backend>,
    id: SandboxId,
    reach: Reach,
}

struct Owner {
    backends: [Arc<dyn Backend>; 2],
    dice: Dice,
    limited: Limited,
    marker: String,
    sandboxes: Vec<Made>,
}

/// Says a word to whoever started this.
fn say(word: &str, what: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word} {what}")?;
    out.flush().context("say it")
}

fn path(name: &str) -> ringfence::Result<GuestPath> {
    GuestPath::new(name)
}

fn attachable(backend: &dyn Backend) -> Result<&dyn Attachable> {
    backend.attachable().context("sandboxes that others find")
}

impl Owner {
    /// Makes sandboxes and uses them.
    async fn make(mut self) -> Result<()> {
        loop {
            let choice = self.dice.below(10);
            if self.sandboxes.is_empty() || (choice < 4 && self.sandboxes.len() < MANY) {
                self.create().await?;
                continue;
            }
            let index = usize::try_from(self.dice.below(u64::try_from(self.sandboxes.len())?))?;
            let made = self.sandboxes[index].clone();
            let done = if choice < 9 {
                self.use_it(&*made.backend, &made.id).await?
            } else {
                self.sandboxes.remove(index);
                destroy(&*made.backend, &made.id).await?
            };
            if let Err(error) = done {
                fault(made.reach.name(), &error)?;
                self.sandboxes.retain(|other| other.id != made.id);
            }
        }
    }

    async fn create(&mut self) -> Result<()> {
        say("phase", "create")?;
        let reach = *self.dice.pick(&[Reach::Private, Reach::Listed, Reach::Kept]).context("a reach")?;
        let backend = self.dice.pick(&self.backends).context("a backend")?.clone();
        let limited = if self.dice.percent(60) { self.limited } else { Limited::Nothing };
        let mut spec = SandboxSpec::new().with_limits(limited.limits()?);
        if reach != Reach::Private {
            spec = spec.with_owner(OWNER)?;
        }
        let creating = attachable(&*backend)?.create_reachable(&spec, reach);
        let created = if self.dice.percent(10) {
            // Given up at some moment of it.
            let patience = Duration::from_micros(self.dice.below(6000));
            match tokio::time::timeout(patience, creating).await {
                Ok(created) => created,
                Err(_) => return Ok(()),
            }
        } else {
            creating.await
        };
        match created {
            Ok(created) => {
                if reach == Reach::Kept {
                    say("kept", created.id.as_str())?;
                }
                self.sandboxes.push(Made { backend: backend.clone(), id: created.id, reach });
            }
            Err(error) => fault(reach.name(), &error)?,
        }
        Ok(())
    }

    /// Uses what others made.
    async fn visit(mut self) -> Result<()> {
        loop {
            let backend = self.dice.pick(&self.backends).context("a backend")?.clone();
            say("phase", "attach")?;
            let listed = attachable(&*backend)?.list().await;
            let infos = match listed {
                Ok(list) => list.sandboxes,
                Err(error) => {
                    fault("list", &error)?;
                    continue;
                }
            };
            let Some(info) = self.dice.pick(&infos) else {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            };
            let id = info.id.clone();
            let done = match self.dice.below(30) {
                0 => destroy(&*backend, &id).await?,
                1 => attachable(&*backend)?.inspect(&id).await.map(drop),
                2 => attachable(&*backend)?.renew(&id, Some(Duration::from_secs(3600))).await.map(drop),
                3..8 => self.tag(&*backend, &id).await?,
                _ => self.use_it(&*backend, &id).await?,
            };
            if let Err(error) = done {
                fault("other", &error)?;
            }
        }
    }

    /// Claims it, or writes other tags.
    async fn tag(&mut self, backend: &dyn Backend, id: &SandboxId) -> Result<ringfence::Result<()>> {
        say("phase", "tags")?;
        let backend = attachable(backend)?;
        let claimant = Claimant::new(OWNER)?.with_holder(self.marker.clone())?;
        let lease = Lease::new(Duration::from_secs(5))?;
        Ok(match claim(backend, id, &claimant, lease, SystemTime::now()).await {
            Ok(claim) if self.dice.percent(80) => claim.release(backend).await.map(drop),
            claimed => claimed.map(drop),
        })
    }

    async fn use_it(&mut self, backend: &dyn Backend, id: &SandboxId) -> Result<ringfence::Result<()>> {
        let short = ["0.0", "0.002", "0.01"][usize::try_from(self.dice.below(3))?];
        let marker = self.marker.clone();
        Ok(match self.dice.below(5) {
            0 => {
                say("phase", "command")?;
                command(backend, id, &deep_tree(&marker, short), 10.0).await
            }
            1 => {
                say("phase", "timeout")?;
                command(backend, id, &deep_tree(&marker, "300."), 0.02).await
            }
            2 => {
                say("phase", "files")?;
                files(backend, id).await
            }
            3 => {
                say("phase", "background")?;
                background(backend, id, &deep_tree(&marker, short)).await
            }
            _ => {
                say("phase", "command")?;
                let text = deep_tree(&marker, short);
                let both = tokio::join!(command(backend, id, &text, 10.0), files(backend, id));
                both.0.and(both.1)
            }
        })
    }
}

fn fault(what: &str, error: &Error) -> Result<()> {
    say("fault", &format!("{what} {} {error}", error.kind().name()).replace('\n', " "))
}

async fn destroy(backend: &dyn Backend, id: &SandboxId) -> Result<ringfence::Result<()>> {
    say("phase", "destroy")?;
    say("ending", id.as_str())?;
    Ok(backend.destroy(id).await)
}

async fn command(backend: &dyn Backend, id: &SandboxId, text: &str, seconds: f64) -> ringfence::Result<()> {
    let timeout = Timeout::from_secs_f64(seconds)?;
    let request = CommandRequest::shell(text, timeout, OutputLimit::new(4096)?);
    backend.run_command(id, request).await.map(drop)
}

/// Starts a command, reads what it says, and leaves it to itself.
async fn background(backend: &dyn Backend, id: &SandboxId, text: &str) -> ringfence::Result<()> {
    let Some(commands) = backend.background() else { return Ok(()) };
    let request = BackgroundRequest {
        invocation: Invocation::Shell(text.to_owned()),
        timeout: None,
        output_limit: OutputLimit::new(4096)?,
        stdin: true,
        workdir: None,
        env: EnvMap::default(),
    };
    let command = commands.start_command(id, request).await?;
    commands.read_output(id, command, StreamName::Stdout, 0, Duration::from_millis(2)).await?;
    commands.wait_command(id, command, Duration::from_millis(2)).await.map(drop)
}

async fn files(backend: &dyn Backend, id: &SandboxId) -> ringfence::Result<()> {
    let content = vec![b'x'; 1 << 20];
    backend.write_file(id, &path("large")?, &content).await?;
    backend.write_file(id, &path("small")?, b"x").await?;
    backend.list_directory(id, &path(".")?, ListRequest::default()).await?;
    backend.read_file(id, &path("large")?, 1 << 21).await?;
    backend.export_file(id, &path("large")?, 1 << 21, &mut tokio::io::sink()).await.map(drop)
}
