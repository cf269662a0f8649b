//! Sandboxes that other processes made: found, described, marked, and used.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ringfence_core::attach::{MAX_TAG_BYTES, tag_bytes};
use ringfence_core::{
    Attachable, Created, Error, ErrorKind, Events, EventsFrom, Inspection, Leftover, Process, Reach, Result,
    SandboxId, SandboxInfo, SandboxList, SandboxSpec, SilentSandbox, Tagged, Tags, Usage, claim,
};
use serde_json::json;

use crate::access::Access;
use crate::audit::{Audit, reader};
use crate::backend::LocalBackend;
use crate::create::{Wanted, encode_tags};
use crate::directory::Directory;
use crate::error::{lost, unexpected};
use crate::link::{self, Link};
use crate::note::Note;
use crate::sandbox::{FILE_DEADLINE, Sandbox};
use crate::wire::{AgentRequest, Reply, SandboxReply, SandboxRequest, State};
use crate::{SCHEME, view};

impl LocalBackend {
    fn directory(&self, operation: &'static str) -> Result<Option<Directory>> {
        Directory::open(operation, &self.config().runtime_directory())
    }

    async fn directory_with(&self, operation: &'static str, id: &SandboxId) -> Result<Directory> {
        match self.directory(operation)? {
            Some(directory) => Ok(directory),
            None => {
                self.tidy_in_passing().await;
                Err(lost(operation, id))
            }
        }
    }

    /// The way to the launcher of a sandbox, whoever started that.
    pub(crate) async fn link_to(&self, operation: &'static str, id: &SandboxId) -> Result<Link> {
        let directory = self.directory_with(operation, id).await?;
        let connected = directory.connect(operation, id).await.map(Link::Others);
        self.tidy_in_passing().await;
        connected
    }

    /// Attaches to a sandbox of another process.
    pub(crate) async fn attach(&self, operation: &'static str, id: &SandboxId) -> Result<Arc<Sandbox>> {
        let directory = self.directory_with(operation, id).await?;
        let connected = directory.connect(operation, id).await.map(Link::Others);
        let asked = async {
            let link = connected?;
            let (agent, note) = ask_to_attach(operation, id, &link).await?;
            Ok::<_, Error>((link, agent, note))
        };
        // While the launcher answers.
        let (asked, ()) = tokio::join!(asked, self.tidy_in_passing());
        let (link, agent, note) = asked?;
        // A note without content is one of a sandbox whose creation did not come to an end.
        let note = Note::read(note).await.map_err(|error| {
            unexpected(
                operation,
                "read what the creator left; it may have died while it made the sandbox",
                error,
            )
        })?;
        // Later writes of the same process find it, and a race between two makes no difference: the first counts.
        let name = SandboxId::new(id.as_str()).ok_or_else(|| lost(operation, id))?;
        let sandbox = Arc::new(Sandbox {
            id: name.clone(),
            link,
            first: None,
            agent,
            environment: view::environment(&note.spec, note.shell),
            shell: note.shell.as_str(),
            landlock_abi: note.landlock_abi,
            memory: note.memory,
            pids: note.pids,
            requests: Arc::default(),
            full: AtomicBool::new(false),
            note: None,
            audit: Some(Audit::of(directory.path())),
        });
        Ok(Arc::clone(self.sandboxes().entry(name).or_insert(sandbox)))
    }

    /// How a sandbox stands, asked of whoever knows.
    async fn state(&self, operation: &'static str, id: &SandboxId) -> Result<State> {
        let known = self.sandboxes().get(id).cloned();
        let reply = match &known {
            Some(known) => known.link.ask(operation, id, SandboxRequest::Look).await?.0,
            None => self.link_to(operation, id).await?.ask(operation, id, SandboxRequest::Look).await?.0,
        };
        match reply {
            SandboxReply::State(state) => Ok(state),
            other => Err(link::refusal(operation, id, &other)),
        }
    }

    async fn info(&self, operation: &'static str, id: &SandboxId) -> Result<SandboxInfo> {
        let state = self.state(operation, id).await?;
        let now = SystemTime::now();
        let created_at = now.checked_sub(Duration::from_millis(state.age_millis)).unwrap_or(now);
        Ok(SandboxInfo {
            id: SandboxId::new(id.as_str()).ok_or_else(|| lost(operation, id))?,
            created_at,
            reach: match (state.version, state.kept) {
                (0, _) => Reach::Private,
                (_, false) => Reach::Listed,
                (_, true) => Reach::Kept,
            },
            remaining: limited(state.remaining_millis),
            remaining_idle: limited(state.remaining_idle_millis),
            tagged: tagged(operation, &state, now)?,
        })
    }
}

async fn ask_to_attach(operation: &'static str, id: &SandboxId, link: &Link) -> Result<(OwnedFd, OwnedFd)> {
    let (reply, fds) = link.ask(operation, id, SandboxRequest::Attach).await?;
    match (reply, <[OwnedFd; 2]>::try_from(fds)) {
        (SandboxReply::Attached, Ok([agent, note])) => {
            rustix::fs::fcntl_setfl(&agent, rustix::fs::OFlags::NONBLOCK)
                .map_err(|error| unexpected(operation, "set up a socket", error.into()))?;
            Ok((agent, note))
        }
        (reply, _) => Err(link::refusal(operation, id, &reply)),
    }
}

fn limited(millis: u64) -> Option<Duration> {
    (millis != u64::MAX).then(|| Duration::from_millis(millis))
}

/// The tags as they stand, with the expiry as the launcher's clock has it now (AT-09).
fn tagged(operation: &'static str, state: &State, now: SystemTime) -> Result<Tagged> {
    let mut tags: Tags = match state.tags.as_slice() {
        [] => Tags::new(),
        tags => serde_json::from_slice(tags)
            .map_err(|error| unexpected(operation, "understand the tags", error.into()))?,
    };
    if let Some(expiry) = limited(state.remaining_millis).and_then(|remaining| now.checked_add(remaining)) {
        tags.insert(claim::EXPIRES_AT.to_owned(), claim::time_text(expiry));
    }
    Ok(Tagged { version: state.version, tags })
}

/// What is said of a launcher that does not answer.
fn silence(launcher: Option<u32>) -> String {
    let process = launcher.map_or_else(String::new, |pid| format!(", process {pid},"));
    format!(
        "its launcher{process} does not answer within {} s; if it was stopped, `kill -CONT` lets it go on",
        LIST_PATIENCE.as_secs()
    )
}

/// How long a list waits for one launcher, which answers at once unless it is stopped.
const LIST_PATIENCE: Duration = Duration::from_secs(2);

#[async_trait]
impl Attachable for LocalBackend {
    async fn create_reachable(&self, spec: &SandboxSpec, reach: Reach) -> Result<Created> {
        self.create_wanted(Wanted::new(spec, reach)?).await
    }

    async fn tags(&self, sandbox: &SandboxId) -> Result<Tagged> {
        const OPERATION: &str = "read the tags";
        let state = self.state(OPERATION, sandbox).await?;
        tagged(OPERATION, &state, SystemTime::now())
    }

    async fn set_tags(&self, sandbox: &SandboxId, expected: u64, tags: &Tags) -> Result<u64> {
        const OPERATION: &str = "write the tags";
        let mut tags = tags.clone();
        // Told by the launcher's clock each time.
        tags.remove(claim::EXPIRES_AT);
        if tag_bytes(&tags) > MAX_TAG_BYTES {
            let message =
                format!("the tags have {} bytes, at most {MAX_TAG_BYTES} are kept", tag_bytes(&tags));
            return Err(Error::new(ErrorKind::InvalidArgument, SCHEME, OPERATION, message));
        }
        let access = self.sandbox(OPERATION, sandbox).await?;
        // Without a holder no claim stands, so every fence is of one that is over.
        let held = tags.contains_key(claim::HOLDER);
        let fence = claim::fence_of(&tags).filter(|_| held).map_or(0, ringfence_core::Fence::get);
        let request = SandboxRequest::SetTags { expected, fence, tags: encode_tags(&tags) };
        match access.link.ask(OPERATION, sandbox, request).await?.0 {
            SandboxReply::Tagged(version) => {
                let facts = json!({"version": version, "holder": tags.get(claim::HOLDER), "fence": fence});
                access.record("tags", facts);
                Ok(version)
            }
            SandboxReply::Conflict(version) => {
                let message = format!("they have version {version} by now, not {expected}");
                Err(Error::new(ErrorKind::Conflict, SCHEME, OPERATION, message)
                    .context("sandbox", sandbox.as_str())
                    .hint("read them again"))
            }
            other => Err(link::refusal(OPERATION, sandbox, &other)),
        }
    }

    async fn list(&self) -> Result<SandboxList> {
        const OPERATION: &str = "list the sandboxes";
        let Some(directory) = self.directory(OPERATION)? else {
            self.tidy_well().await;
            return Ok(SandboxList::default());
        };
        let ids =
            directory.sandboxes().map_err(|error| unexpected(OPERATION, "read the directory", error))?;
        let (mut sandboxes, mut silent) = (Vec::new(), Vec::new());
        // One that does not answer for one of its sandboxes is not waited for with the next.
        let mut stopped = HashSet::new();
        for id in ids {
            let launcher = directory.launcher_of(&id);
            let asked = match launcher {
                Some(launcher) if stopped.contains(&launcher) => None,
                _ => tokio::time::timeout(LIST_PATIENCE, self.info(OPERATION, &id)).await.ok(),
            };
            let fault = match asked {
                Some(Ok(info)) => {
                    sandboxes.push(info);
                    continue;
                }
                // Gone meanwhile, or its launcher is.
                Some(Err(error)) if *error.kind() == ErrorKind::SandboxLost => continue,
                // What hint there is goes with it: nobody else says it.
                Some(Err(error)) => match error.hint_text() {
                    Some(hint) => format!("{}; {hint}", error.message()),
                    None => error.message().to_owned(),
                },
                None => {
                    stopped.extend(launcher);
                    silence(launcher)
                }
            };
            // What nobody has the lock of is no sandbox.
            if directory.is_held(&id) {
                silent.push(SilentSandbox { id, fault });
            } else {
                tracing::warn!(sandbox = id.as_str(), "it is left out of the list: {fault}");
            }
        }
        self.tidy_well().await;
        sandboxes.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        Ok(SandboxList { sandboxes, silent })
    }

    async fn inspect(&self, sandbox: &SandboxId) -> Result<Inspection> {
        const OPERATION: &str = "inspect the sandbox";
        let own = self.sandboxes().get(sandbox).and_then(|known| known.note.clone());
        let note = match own {
            Some(note) => note,
            None => {
                let link = self.link_to(OPERATION, sandbox).await?;
                let (_agent, note) = ask_to_attach(OPERATION, sandbox, &link).await?;
                Note::read(note)
                    .await
                    .map_err(|error| unexpected(OPERATION, "read what the creator left", error))?
            }
        };
        let access = self.sandbox(OPERATION, sandbox).await?;
        let (stored, processes) = look(OPERATION, &access).await?;
        Ok(Inspection {
            info: self.info(OPERATION, sandbox).await?,
            usage: usage(&note, stored, processes.len()),
            spec: note.spec,
            statement: note.statement,
            processes,
        })
    }

    async fn renew(&self, sandbox: &SandboxId, lifetime: Option<Duration>) -> Result<Duration> {
        const OPERATION: &str = "renew the sandbox";
        let access = self.sandbox(OPERATION, sandbox).await?;
        let renewed = access.renew(OPERATION, lifetime).await?.ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                SCHEME,
                OPERATION,
                "it has no lifetime that could begin anew",
            )
            .context("sandbox", sandbox.as_str())
            .hint("say how long it shall live from now on")
        })?;
        access.record("renewed", json!({"seconds": renewed.as_secs_f64()}));
        Ok(renewed)
    }

    async fn prune(&self, dry_run: bool) -> Result<Vec<Leftover>> {
        const OPERATION: &str = "look for leftovers";
        self.prune_leftovers(OPERATION, dry_run).await
    }

    async fn events(&self, from: &EventsFrom) -> Result<Events> {
        const OPERATION: &str = "read the audit record";
        let Some(directory) = self.directory(OPERATION)? else { return Ok(reader::nothing()) };
        let page = reader::read(&Audit::of(directory.path()), from)
            .map_err(|error| unexpected(OPERATION, "read its files", error))?;
        page.ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, SCHEME, OPERATION, "the position is none of this record")
        })
    }
}

/// What is stored and what runs, as the sandbox itself says.
async fn look(operation: &'static str, access: &Access) -> Result<(u64, Vec<Process>)> {
    let looking = async {
        let channel = access.ask(operation, AgentRequest::Look, &[]).await?;
        let mut stored = 0;
        let mut processes: HashMap<u32, Process> = HashMap::new();
        loop {
            let answer = channel.receive::<Reply>().await;
            let answer = answer.map_err(|error| unexpected(operation, "hear from the sandbox", error))?;
            match answer {
                Some((Reply::Stored(bytes), _)) => stored = bytes,
                Some((Reply::Processes(some), _)) => {
                    processes.extend(some.into_iter().take(MAX_PROCESSES).map(|seen| {
                        let command = seen.command;
                        (seen.pid, Process { pid: seen.pid, parent: seen.parent, command })
                    }));
                    if processes.len() > MAX_PROCESSES {
                        break;
                    }
                }
                Some((Reply::EndOfProcesses, _)) => break,
                Some((reply, _)) => {
                    access.check_fence(operation, &reply)?;
                    return Err(unexpected(
                        operation,
                        "understand the sandbox",
                        std::io::ErrorKind::InvalidData.into(),
                    ));
                }
                None if access.survives().await => {
                    return Err(unexpected(
                        operation,
                        "look at its processes",
                        std::io::ErrorKind::BrokenPipe.into(),
                    ));
                }
                None => return Err(lost(operation, &access.id)),
            }
        }
        let mut processes: Vec<Process> = processes.into_values().collect();
        processes.sort_unstable_by_key(|process| process.pid);
        Ok((stored, processes))
    };
    tokio::time::timeout(FILE_DEADLINE, looking).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::DeadlineExceeded, SCHEME, operation, "no answer within 120 s"))
    })
}

/// More processes than these are not shown.
const MAX_PROCESSES: usize = 16_384;

/// What the kernel counts, where there is a control group for it.
fn usage(note: &Note, stored: u64, processes: usize) -> Usage {
    let read =
        |file: &str| note.cgroups.iter().find_map(|group: &std::path::PathBuf| number(&group.join(file)));
    let mut usage = Usage::default();
    usage.memory_bytes = read("memory.current").or_else(|| read("memory.usage_in_bytes"));
    usage.pids = read("pids.current").or(Some(processes as u64));
    usage.disk_bytes = Some(stored);
    let micros = note.cgroups.iter().find_map(|group| {
        let stat = std::fs::read_to_string(group.join("cpu.stat")).ok()?;
        stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()
    });
    usage.cpu_time =
        micros.map(Duration::from_micros).or_else(|| read("cpuacct.usage").map(Duration::from_nanos));
    usage
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
