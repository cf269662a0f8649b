//! A sandbox is made: the launcher is asked, and what it made is looked at.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use ringfence_core::attach::DEFAULT_KEPT_LIFETIME;
use ringfence_core::{Created, Error, ErrorKind, Reach, Result, SandboxId, SandboxSpec, SpecField, claim};
use serde_json::json;

use crate::audit::{Audit, millis};
use crate::backend::{CREATE, DEFAULT_PIDS, LocalBackend, PidsMechanism};
use crate::cgroup::CgroupPlan;
use crate::directory::{Directory, Record, unusable};
use crate::error::{launcher_ended, not_created, step_failed, unexpected};
use crate::launcher::{End, Launcher};
use crate::link::{Link, is_gone};
use crate::note::Note;
use crate::sandbox::Sandbox;
use crate::statement::{Known, read_back};
use crate::transport::{self, Channel};
use crate::wire::{self, AgentRequest, CreateReply, CreateRequest, Fenced, LauncherRequest};
use crate::{SCHEME, view};

/// How long the kernel may take to make a sandbox. It takes milliseconds; a machine that needs longer is not well.
const CREATE_DEADLINE: Duration = Duration::from_secs(30);

/// Size of the writable places where neither spec nor operator says.
const DEFAULT_DISK_BYTES: u64 = 1 << 30;

/// Files and directories per disk: one for each 4 KiB, at least this many, so that a small disk can hold a source tree.
const BYTES_PER_INODE: u64 = 4096;
const LEAST_INODES: u64 = 16_384;

/// Below this a memory limit is the likely reason when a sandbox does not start.
const LEAST_MEMORY_BYTES: u64 = 4 << 20;

/// What is to be made, every default filled in.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) spec: SandboxSpec,
    pub(crate) reach: Reach,
    pub(crate) parked: bool,
}

impl Wanted {
    /// A sandbox with an owner or labels is one that others look for; one that is kept has an end.
    pub(crate) fn new(spec: &SandboxSpec, reach: Reach) -> Result<Self> {
        let sought = spec.owner().is_some() || !spec.labels().is_empty();
        let reach = if sought { reach.max(Reach::Listed) } else { reach };
        let spec = match (reach, spec.lifetime()) {
            (Reach::Kept, None) => spec.clone().with_lifetime(DEFAULT_KEPT_LIFETIME)?,
            _ => spec.clone(),
        };
        Ok(Self { spec, reach, parked: false })
    }
}

/// What a sandbox that is to be found leaves where it is sought.
struct Listing {
    directory: Directory,
    note: OwnedFd,
}

impl LocalBackend {
    /// Judges the spec again and creates the sandbox.
    pub(crate) async fn create_wanted(&self, wanted: Wanted) -> Result<Created> {
        self.refuse(&wanted.spec)?;
        let name = format!("sb-{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        let Some(id) = SandboxId::new(name.as_str()) else {
            return Err(unexpected(CREATE, "name it", std::io::ErrorKind::InvalidData.into()).terminal());
        };
        view::judge_directory(self.config(), &self.config().runtime_directory())?;
        let listing = match wanted.reach {
            Reach::Private => None,
            Reach::Listed | Reach::Kept => Some(self.prepare_listing()?),
        };
        let Provisioned { landlock_abi, first, launcher, agent, cgroup } =
            self.provision(&wanted, &name, listing.as_ref()).await?;
        let Wanted { spec, reach, .. } = wanted;
        let shell = self.shell();
        let note = read_back(&cgroup).map(|limits| Note {
            spec: spec.clone(),
            statement: self.statement(&spec, reach, Some(&Known { landlock_abi, limits })),
            shell,
            landlock_abi,
            kept: reach == Reach::Kept,
            created_millis: millis(SystemTime::now()),
            memory: cgroup.memory.clone(),
            pids: cgroup.pids.clone(),
            cgroups: cgroup.directories(),
        });
        let audit = listing.as_ref().map(|listing| Audit::of(listing.directory.path()));
        let alone = listing.is_none() && cgroup.directories().is_empty();
        let sandbox = Arc::new(Sandbox {
            id: id.clone(),
            link: Link::Own(launcher),
            first: alone.then_some(first),
            agent,
            environment: view::environment(&spec, shell),
            shell: shell.as_str(),
            landlock_abi,
            memory: cgroup.memory.clone(),
            pids: cgroup.pids.clone(),
            requests: Arc::default(),
            full: AtomicBool::new(false),
            note: note.as_ref().ok().filter(|_| listing.is_none()).cloned(),
            audit,
        });
        let known = note.and_then(|note| {
            if let Some(listing) = listing {
                note.write(listing.note).map_err(|error| not_created("leave a note for others", error))?;
                let facts = json!({"reach": reach.name(), "labels": spec.labels(), "owner": spec.owner()});
                sandbox.record("created", facts);
            }
            Ok(note.statement)
        });
        let complete = match known {
            Ok(statement) if reach == Reach::Kept => outlive(&sandbox).await.map(|()| statement),
            known => known,
        };
        match complete {
            Ok(statement) => {
                self.remember(sandbox);
                Ok(Created { id, statement })
            }
            Err(refusal) => {
                // The reason counts; a sandbox that cannot be destroyed ends with this process, or its lifetime, at the latest.
                drop(sandbox.destroy().await);
                Err(refusal)
            }
        }
    }

    /// Makes the directory where it is missing.
    fn prepare_listing(&self) -> Result<Listing> {
        let directory = Directory::make(CREATE, &self.config().runtime_directory())?;
        Audit::of(directory.path())
            .begin()
            .map_err(|error| unusable(CREATE, directory.path(), "begin the audit record", error))?;
        let note = Note::file().map_err(|error| not_created("create a memory file", error))?;
        Ok(Listing { directory, note })
    }

    pub(crate) fn disk_bytes(&self, spec: &SandboxSpec) -> u64 {
        if let Some(disk) = spec.limits().disk {
            return disk.get();
        }
        let default = self.config().default_disk.map_or(DEFAULT_DISK_BYTES, |disk| disk.get());
        spec.limits().memory.map_or(default, |memory| default.min(memory.get() / 2))
    }

    fn request(
        &self,
        wanted: &Wanted,
        name: &str,
        cgroup: &CgroupPlan,
        (launcher, listing): (u32, Option<&Listing>),
    ) -> CreateRequest {
        let spec = &wanted.spec;
        let workdir = view::workdir_of(spec);
        let disk_bytes = self.disk_bytes(spec);
        let limits = spec.limits();
        let pids = limits.pids.map_or(0, |pids| pids.get());
        let mechanism = (pids > 0).then(|| self.pids_mechanism());
        let only = |wanted| if mechanism == Some(wanted) { pids } else { 0 };
        CreateRequest {
            name: name.as_bytes().to_vec(),
            uid: view::UID,
            host_name: view::HOST_NAME.as_bytes().to_vec(),
            view: view::compose(self.config(), &workdir),
            disk_bytes,
            inodes: (disk_bytes / BYTES_PER_INODE).max(LEAST_INODES),
            workdir,
            cgroup: cgroup.steps.clone(),
            pid_max: only(PidsMechanism::Namespace),
            user_processes: match pids {
                // Costs nothing where the sandbox's user has nothing else, and keeps a fork bomb from the host's numbers.
                0 if rustix::process::geteuid().is_root() => DEFAULT_PIDS,
                _ => only(PidsMechanism::UserLimit),
            },
            cpus: limits.cpus.map_or(0, |cpus| cpus.ceil()),
            filter: self.filter().to_vec(),
            lifetime_millis: spec.lifetime().map_or(0, whole_millis),
            idle_millis: spec.idle().map_or(0, whole_millis),
            parked: wanted.parked,
            listing: listing.map(|listing| wire::Listing {
                directory: listing.directory.path().as_os_str().as_encoded_bytes().to_vec(),
                record: Record::new(launcher, cgroup.directories()).encode(),
                kept: wanted.reach == Reach::Kept,
                // When it ends is told by the launcher's clock each time the tags are read.
                tags: encode_tags(&claim::stamp(spec, Some(spec.workdir().unwrap_or(view::WORKDIR)), None)),
            }),
        }
    }

    /// Asks a launcher for a sandbox; once more with a new one when the old one turns out to be gone.
    async fn provision(&self, wanted: &Wanted, name: &str, listing: Option<&Listing>) -> Result<Provisioned> {
        // First, so that one that has to be started gets ready while the request is put together.
        drop(self.launcher()?);
        let mut end = End::Unknown;
        let limits = wanted.spec.limits();
        let asked = limits.memory.is_some() || limits.cpus.is_some() || limits.pids.is_some();
        for _ in 0..2 {
            let launcher = self.launcher()?;
            let cgroup = if asked {
                self.hierarchies().plan(launcher.pid(), name, limits)
            } else {
                CgroupPlan::default()
            };
            let request = LauncherRequest::Create(Box::new(self.request(
                wanted,
                name,
                &cgroup,
                (launcher.pid(), listing),
            )));
            let (agent, theirs) = transport::pair().map_err(|error| not_created("create a socket", error))?;
            let fds: Vec<_> =
                [theirs.as_fd()].into_iter().chain(listing.map(|listing| listing.note.as_fd())).collect();
            let sent = tokio::time::timeout(CREATE_DEADLINE, launcher.send(&request, &fds)).await;
            drop(theirs);
            match sent.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok(()) => {
                    // While the launcher is at work.
                    let tidied = self.tidy();
                    let ready = ready(&agent, &wanted.spec).await;
                    self.finish_tidying(tidied).await;
                    match ready {
                        // It took the request and was killed before it had done it. Then nothing of it is left.
                        Err(_) if launcher.has_ended() => {
                            end = launcher.why_ended();
                            self.forget_launcher(&launcher);
                        }
                        made => {
                            let (landlock_abi, first) = made?;
                            return Ok(Provisioned { landlock_abi, first, launcher, agent, cgroup });
                        }
                    }
                }
                Err(error) if is_gone(&error) => {
                    end = launcher.why_ended();
                    self.forget_launcher(&launcher);
                }
                Err(error) => return Err(not_created("ask the launcher", error)),
            }
        }
        Err(launcher_ended(&end))
    }
}

/// A sandbox that has answered.
struct Provisioned {
    landlock_abi: u32,
    first: OwnedFd,
    launcher: Arc<Launcher>,
    agent: OwnedFd,
    cgroup: CgroupPlan,
}

/// Says that the sandbox is complete. Until then it ends with its creator: nobody could use it, or would know of it (P116). Nothing may
/// be waited for after this, because a creation that is given up leaves nothing.
async fn outlive(sandbox: &Sandbox) -> Result<()> {
    let request = Fenced { fence: 0, request: AgentRequest::Outlive };
    transport::send(sandbox.agent.as_fd(), &request, &[])
        .await
        .map_err(|error| not_created("let the sandbox outlive this process", error))
}

async fn ready(agent: &OwnedFd, spec: &SandboxSpec) -> Result<(u32, OwnedFd)> {
    let copy = agent
        .as_fd()
        .try_clone_to_owned()
        .and_then(Channel::new)
        .map_err(|error| not_created("wait for a socket", error))?;
    let reply = match tokio::time::timeout(CREATE_DEADLINE, copy.receive::<CreateReply>()).await {
        Ok(reply) => reply.map_err(|error| not_created("hear from the sandbox", error))?,
        Err(_) => {
            let message = format!("the kernel did not make it within {} s", CREATE_DEADLINE.as_secs());
            return Err(Error::new(ErrorKind::DeadlineExceeded, SCHEME, CREATE, message).terminal());
        }
    };
    match reply {
        Some((CreateReply::Ready { landlock_abi }, fds)) => {
            let first = fds.into_iter().next().ok_or_else(|| {
                unexpected(
                    CREATE,
                    "be given the sandbox's first process",
                    std::io::ErrorKind::InvalidData.into(),
                )
                .terminal()
            })?;
            Ok((landlock_abi, first))
        }
        // Its first process met the limit, and was gone at some step that the launcher then could not do.
        None | Some((CreateReply::Failed { .. }, _))
            if spec.limits().memory.is_some_and(|memory| memory.get() < LEAST_MEMORY_BYTES) =>
        {
            let message = "a sandbox cannot even start with so little memory";
            Err(Error::refused(SCHEME, SpecField::Memory, message)
                .hint("raise the memory limit to 4MiB or more"))
        }
        Some((CreateReply::Failed { subject, step, errno }, _)) => Err(step_failed(subject, &step, errno)),
        None => Err(Error::new(
            ErrorKind::Unavailable,
            SCHEME,
            CREATE,
            "it ended before it was ready: its lifetime was over, or it or its launcher was killed",
        )
        .hint(
            "where that happens each time, something around it ends what makes a sandbox: a system call filter that kills (the kernel's log \
             names it: type=1326, SIGSYS), or a limit on memory",
        )
        .terminal()),
    }
}

/// At least 1, because 0 is never.
pub(crate) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Tags as the launcher keeps them.
pub(crate) fn encode_tags(tags: &ringfence_core::Tags) -> Vec<u8> {
    // A map of texts is always a document.
    serde_json::to_vec(tags).unwrap_or_default()
}
