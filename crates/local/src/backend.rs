//! The backend: judges a spec against this machine, then talks to its launcher.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ringfence_core::{
    Backend, ByteSize, Capabilities, CommandRequest, CommandResult, Created, Error, ErrorKind, GuestPath,
    Isolation, Limits, ListRequest, Listing, NetworkPolicy, Plan, ProbeReport, Result, SandboxId,
    SandboxSpec, SpecField, Terminal, TerminalRequest, TreeGate,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::cgroup::{CgroupPlan, Controller, Hierarchies};
use crate::config::{LocalConfig, Shell};
use crate::error::{CGROUP_REMEDY, lost, step_failed, unexpected};
use crate::launcher::Launcher;
use crate::sandbox::{Sandbox, is_gone};
use crate::statement::{Known, read_back};
use crate::transport::{self, Channel};
use crate::wire::{CreateReply, CreateRequest, LauncherRequest};
use crate::{SCHEME, files, probe, run, seccomp, terminal, tree, view};

/// How long the kernel may take to make a sandbox. It takes milliseconds; a machine that needs longer is not well.
const CREATE_DEADLINE: Duration = Duration::from_secs(30);

/// Size of the writable places where neither spec nor operator says.
const DEFAULT_DISK_BYTES: u64 = 1 << 30;

/// Files and directories per disk: one for each 4 KiB, at least this many, so that a small disk can hold a source tree.
const BYTES_PER_INODE: u64 = 4096;
const LEAST_INODES: u64 = 16_384;

/// Processes of a sandbox without a limit, where it has a user of its own.
pub(crate) const DEFAULT_PIDS: u32 = 4096;

/// Below this a memory limit is the likely reason when a sandbox does not start.
const LEAST_MEMORY_BYTES: u64 = 4 << 20;

/// What a disk limit has to leave of a memory limit, where it takes more than half: the disk lies in memory and is counted with
/// it, and a full one that leaves nothing would have every later command ended, the one that removes files too (P70).
const LEAST_PROCESS_BYTES: u64 = 32 << 20;

/// Fewer processes than these cannot run a command: agent, shim, shell and one program.
const LEAST_PIDS: u32 = 4;

/// First directories of a working directory that belong to the read-only view or the kernel.
const RESERVED: [&str; 12] =
    ["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"];

pub(crate) const CREATE: &str = "create a sandbox";

/// Counted for the whole process, because the launcher makes the ids of a sandbox from process and token.
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(0);

/// Runs sandboxes in this process's own tree: no daemon, no container engine, root or not.
///
/// All of them end when this value is dropped or the process ends in any way.
#[derive(Debug)]
pub struct LocalBackend {
    config: LocalConfig,
    machine: OnceLock<Machine>,
    hierarchies: OnceLock<Hierarchies>,
    /// Whether control groups may have been left behind by a launcher that is gone.
    unswept: AtomicBool,
    launcher: Mutex<Option<Arc<Launcher>>>,
    sandboxes: Mutex<HashMap<SandboxId, Arc<Sandbox>>>,
}

/// What is asked of this machine once.
#[derive(Debug)]
struct Machine {
    shell: Shell,
    filter: Vec<u8>,
}

/// How the process limit is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PidsMechanism {
    Cgroup,
    /// Each sandbox has a user of its own, so the limit per user is one per sandbox.
    UserLimit,
    /// The pid namespace has no more numbers to give.
    Namespace,
}

impl LocalBackend {
    /// Returns a backend. Performs no I/O (BK-01).
    #[must_use]
    pub fn new(config: LocalConfig) -> Self {
        Self {
            config,
            machine: OnceLock::new(),
            hierarchies: OnceLock::new(),
            unswept: AtomicBool::new(true),
            launcher: Mutex::new(None),
            sandboxes: Mutex::new(HashMap::new()),
        }
    }

    fn machine(&self) -> &Machine {
        self.machine.get_or_init(|| Machine {
            shell: self.config.shell.unwrap_or_else(|| {
                let bash = ["/bin/bash", "/usr/bin/bash"].iter().any(|path| Path::new(path).exists());
                if bash { Shell::Bash } else { Shell::Sh }
            }),
            filter: seccomp::filter(),
        })
    }

    pub(crate) fn hierarchies(&self) -> &Hierarchies {
        self.hierarchies.get_or_init(Hierarchies::read)
    }

    /// The sandboxes of this value that were created and not destroyed.
    fn sandboxes(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Sandbox>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of a sandbox that turned out to be gone, however that was found out.
    fn forget_if_lost<T>(&self, id: &SandboxId, result: Result<T>) -> Result<T> {
        if result.as_ref().is_err_and(|error| *error.kind() == ErrorKind::SandboxLost) {
            self.sandboxes().remove(id);
        }
        result
    }

    pub(crate) fn sandbox(&self, operation: &'static str, id: &SandboxId) -> Result<Arc<Sandbox>> {
        self.sandboxes().get(id).cloned().ok_or_else(|| lost(operation, id))
    }

    fn launcher(&self) -> Result<Arc<Launcher>> {
        // Registering a descriptor would panic.
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::new(ErrorKind::Unexpected, SCHEME, CREATE, "there is no tokio runtime here")
                .hint("call it in a tokio runtime that has I/O and time enabled")
                .terminal());
        }
        let mut launcher = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*launcher {
            return Ok(Arc::clone(running));
        }
        let started = Launcher::start().map(Arc::new).map_err(|error| {
            unexpected(CREATE, "start the launcher from a memory file", error)
                .hint("that needs /proc, /dev/null, and the sysctl vm.memfd_noexec below 2")
                .terminal()
        })?;
        *launcher = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Forgets a launcher that does not answer, so that the next sandbox gets a new one.
    fn forget_launcher(&self, dead: &Arc<Launcher>) {
        dead.retire();
        self.unswept.store(true, Ordering::Relaxed);
        let mut launcher = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if launcher.as_ref().is_some_and(|current| Arc::ptr_eq(current, dead)) {
            *launcher = None;
        }
    }

    /// Removes control groups whose launcher is gone; again with the next sandbox where the kernel still puts processes away.
    fn sweep(&self) {
        if self.unswept.swap(false, Ordering::Relaxed) && !self.hierarchies().sweep() {
            self.unswept.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn pids_mechanism(&self) -> PidsMechanism {
        if self.hierarchies().mechanism(Controller::Pids).is_some() {
            PidsMechanism::Cgroup
        } else if rustix::process::geteuid().is_root() {
            PidsMechanism::UserLimit
        } else {
            PidsMechanism::Namespace
        }
    }

    pub(crate) fn disk_bytes(&self, spec: &SandboxSpec) -> u64 {
        if let Some(disk) = spec.limits().disk {
            return disk.get();
        }
        let default = self.config.default_disk.map_or(DEFAULT_DISK_BYTES, |disk| disk.get());
        spec.limits().memory.map_or(default, |memory| default.min(memory.get() / 2))
    }

    fn request(&self, spec: &SandboxSpec, token: u64, cgroup: &CgroupPlan) -> CreateRequest {
        let workdir = workdir_of(spec);
        let disk_bytes = self.disk_bytes(spec);
        let limits = spec.limits();
        let pids = limits.pids.map_or(0, |pids| pids.get());
        let mechanism = (pids > 0).then(|| self.pids_mechanism());
        let only = |wanted| if mechanism == Some(wanted) { pids } else { 0 };
        CreateRequest {
            token,
            uid: view::UID,
            host_name: view::HOST_NAME.as_bytes().to_vec(),
            view: view::compose(&self.config, &workdir),
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
            filter: self.machine().filter.clone(),
            lifetime_millis: spec
                .lifetime()
                .map_or(0, |lifetime| u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX).max(1)),
        }
    }

    /// Asks a launcher for a sandbox; once more with a new one when the old one turns out to be gone.
    async fn provision(&self, spec: &SandboxSpec, name: &str) -> Result<Provisioned> {
        let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
        // First, so that one that has to be started gets ready while the request is put together.
        drop(self.launcher()?);
        let limits = spec.limits();
        let asked = limits.memory.is_some() || limits.cpus.is_some() || limits.pids.is_some();
        for _ in 0..2 {
            let launcher = self.launcher()?;
            let cgroup = if asked {
                self.sweep();
                self.hierarchies().plan(launcher.number(), name, limits)
            } else {
                CgroupPlan::default()
            };
            let request = LauncherRequest::Create(Box::new(self.request(spec, token, &cgroup)));
            let (agent, theirs) =
                transport::pair().map_err(|error| unexpected(CREATE, "create a socket", error).terminal())?;
            let sent = tokio::time::timeout(CREATE_DEADLINE, launcher.send(&request, theirs)).await;
            match sent.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok(()) => {
                    return Ok(Provisioned {
                        landlock_abi: ready(&agent, spec).await?,
                        token,
                        launcher,
                        agent,
                        cgroup,
                    });
                }
                Err(error) if is_gone(&error) => self.forget_launcher(&launcher),
                Err(error) => return Err(unexpected(CREATE, "ask the launcher", error).terminal()),
            }
        }
        Err(Error::new(ErrorKind::Unavailable, SCHEME, CREATE, "the launcher ends as soon as it is started")
            .hint("ringfence doctor shows what works here")
            .terminal())
    }
}

/// A sandbox that has answered.
struct Provisioned {
    landlock_abi: u32,
    token: u64,
    launcher: Arc<Launcher>,
    agent: std::os::fd::OwnedFd,
    cgroup: CgroupPlan,
}

async fn ready(agent: &std::os::fd::OwnedFd, spec: &SandboxSpec) -> Result<u32> {
    let copy = agent
        .as_fd()
        .try_clone_to_owned()
        .and_then(Channel::new)
        .map_err(|error| unexpected(CREATE, "wait for a socket", error).terminal())?;
    let reply = match tokio::time::timeout(CREATE_DEADLINE, copy.receive::<CreateReply>()).await {
        Ok(reply) => reply.map_err(|error| unexpected(CREATE, "hear from the sandbox", error).terminal())?,
        Err(_) => {
            let message = format!("the kernel did not make it within {} s", CREATE_DEADLINE.as_secs());
            return Err(Error::new(ErrorKind::DeadlineExceeded, SCHEME, CREATE, message).terminal());
        }
    };
    match reply {
        Some((CreateReply::Ready { landlock_abi }, _)) => Ok(landlock_abi),
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
        .terminal()),
    }
}

fn workdir_of(spec: &SandboxSpec) -> Vec<u8> {
    spec.workdir().unwrap_or(view::WORKDIR).as_bytes().to_vec()
}

/// What every command sees unless the spec says otherwise.
fn environment(spec: &SandboxSpec, shell: Shell) -> Vec<(String, String)> {
    let defaults = [
        ("HOME", view::HOME),
        ("HOSTNAME", view::HOST_NAME),
        ("LANG", "C.UTF-8"),
        ("LOGNAME", view::USER),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("SHELL", if shell == Shell::Bash { "/bin/bash" } else { "/bin/sh" }),
        ("USER", view::USER),
    ];
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let given = spec.env().iter().map(|(name, value)| own((name.as_str(), value.as_str())));
    // Later ones win where they are put together.
    defaults.map(own).into_iter().chain(given).collect()
}

/// Refuses a disk that would leave its processes no memory. No more than half is always fine.
fn judge_disk(limits: &Limits) -> Result<()> {
    let (Some(memory), Some(disk)) = (limits.memory, limits.disk) else { return Ok(()) };
    let most = memory.get().saturating_sub(LEAST_PROCESS_BYTES).max(memory.get() / 2);
    if disk.get() <= most {
        return Ok(());
    }
    let message = format!(
        "the disk lies in memory and counts as such: filled up, {disk} of disk would leave too little of {memory} of memory for \
         processes to run"
    );
    let least = disk.get().saturating_add(LEAST_PROCESS_BYTES).min(disk.get().saturating_mul(2));
    let shown =
        |bytes| ByteSize::from_bytes(bytes).map_or_else(|_| bytes.to_string(), |size| size.to_string());
    Err(Error::refused(SCHEME, SpecField::Disk, message).hint(format!(
        "with this memory limit the disk may have {}; this disk limit needs {} of memory; without a disk limit it has no more than half of the memory",
        shown(most),
        shown(least)
    )))
}

fn judge_workdir(spec: &SandboxSpec) -> Result<()> {
    let Some(workdir) = spec.workdir() else { return Ok(()) };
    let refuse = |message: String| {
        Err(Error::refused(SCHEME, SpecField::Workdir, message)
            .hint("choose a directory such as /workspace or /srv/project"))
    };
    let mut parts = workdir.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
    match parts.peek() {
        None => refuse("the root cannot be the working directory: it is read-only".to_owned()),
        Some(first) if RESERVED.contains(first) => {
            refuse(format!("{workdir} lies in a directory that belongs to the system"))
        }
        Some(_) if workdir.split('/').any(|part| part == "..") => {
            refuse(format!("{workdir} leads back through `..`"))
        }
        Some(_) => Ok(()),
    }
}

#[async_trait]
impl Backend for LocalBackend {
    fn name(&self) -> &str {
        SCHEME
    }

    /// Looks at the cgroup hierarchies of this machine when asked the first time.
    fn capabilities(&self) -> Capabilities {
        let can = |controller| self.hierarchies().mechanism(controller).is_some();
        Capabilities {
            block_network: true,
            memory_limit: can(Controller::Memory),
            cpu_limit: can(Controller::Cpu),
            pids_limit: true,
            ..self.fixed_capabilities()
        }
    }

    fn judge(&self, spec: &SandboxSpec) -> Result<Plan> {
        self.refuse(spec)?;
        Ok(Plan { statement: self.statement(spec, None) })
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Created> {
        self.refuse(spec)?;
        let name = format!("sb-{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        let Some(id) = SandboxId::new(name.as_str()) else {
            return Err(unexpected(CREATE, "name it", std::io::ErrorKind::InvalidData.into()).terminal());
        };
        let Provisioned { landlock_abi, token, launcher, agent, cgroup } =
            self.provision(spec, &name).await?;
        let shell = self.machine().shell;
        let limits = read_back(&cgroup);
        let sandbox = Arc::new(Sandbox {
            id: id.clone(),
            token,
            launcher,
            agent,
            environment: environment(spec, shell),
            shell: shell.as_str(),
            landlock_abi,
            memory: cgroup.memory,
            pids: cgroup.pids,
            requests: Arc::default(),
            full: AtomicBool::new(false),
        });
        let limits = match limits {
            Ok(limits) => limits,
            Err(refusal) => {
                // The reason counts; a sandbox that cannot be destroyed ends with this process at the latest.
                drop(sandbox.destroy().await);
                return Err(refusal);
            }
        };
        let statement = self.statement(spec, Some(&Known { landlock_abi, limits }));
        self.sandboxes().insert(id.clone(), sandbox);
        Ok(Created { id, statement })
    }

    async fn run_command(&self, sandbox: &SandboxId, request: CommandRequest) -> Result<CommandResult> {
        let running = self.sandbox("run the command", sandbox)?;
        let result = run::run(&running, request).await;
        if result.as_ref().is_ok_and(|result| result.sandbox_lost) {
            self.sandboxes().remove(sandbox);
        }
        self.forget_if_lost(sandbox, result)
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<()> {
        let known = self.sandboxes().remove(sandbox);
        match known {
            Some(sandbox) => sandbox.destroy().await,
            None => Ok(()),
        }
    }

    async fn read_file(&self, sandbox: &SandboxId, path: &GuestPath, limit_bytes: u64) -> Result<Vec<u8>> {
        let living = self.sandbox("read the file", sandbox)?;
        self.forget_if_lost(sandbox, files::read(&living, path, limit_bytes).await)
    }

    async fn write_file(&self, sandbox: &SandboxId, path: &GuestPath, content: &[u8]) -> Result<()> {
        let living = self.sandbox("write the file", sandbox)?;
        self.forget_if_lost(sandbox, files::write(&living, path, content).await)
    }

    async fn list_directory(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        request: ListRequest,
    ) -> Result<Listing> {
        let living = self.sandbox("list the directory", sandbox)?;
        self.forget_if_lost(sandbox, files::list(&living, path, request).await)
    }

    async fn export_file(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        limit_bytes: u64,
        sink: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        let living = self.sandbox("export the file", sandbox)?;
        self.forget_if_lost(sandbox, files::export(&living, path, limit_bytes, sink).await)
    }

    async fn import_file(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        size: u64,
        executable: bool,
        source: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        let living = self.sandbox("write the file", sandbox)?;
        self.forget_if_lost(sandbox, tree::import(&living, path, size, executable, source).await)
    }

    async fn export_tree(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        gate: &mut TreeGate<'_>,
    ) -> Result<()> {
        let living = self.sandbox("copy the tree", sandbox)?;
        self.forget_if_lost(sandbox, tree::export(&living, path, gate).await)
    }

    async fn probe(&self) -> Result<ProbeReport> {
        Ok(probe::probe(self).await)
    }

    async fn open_terminal(&self, sandbox: &SandboxId, request: TerminalRequest) -> Result<Terminal> {
        let living = self.sandbox("open a terminal", sandbox)?;
        self.forget_if_lost(sandbox, terminal::open(living, request).await)
    }
}

impl LocalBackend {
    /// Every refusal, before anything is made (BK-02).
    fn refuse(&self, spec: &SandboxSpec) -> Result<()> {
        let limits = spec.limits();
        let hint = CGROUP_REMEDY;
        let no_cgroup = |field: SpecField, controller: Controller| {
            let message = format!("no {} cgroup can be written by this process", controller.name());
            Err(Error::refused(SCHEME, field, message).hint(hint))
        };
        // Asked one by one, because looking at the hierarchies costs time that most sandboxes need not spend.
        if limits.memory.is_some() && self.hierarchies().mechanism(Controller::Memory).is_none() {
            return no_cgroup(SpecField::Memory, Controller::Memory);
        }
        if limits.cpus.is_some() && self.hierarchies().mechanism(Controller::Cpu).is_none() {
            return no_cgroup(SpecField::Cpus, Controller::Cpu);
        }
        if limits.pids.is_some_and(|pids| pids.get() < LEAST_PIDS) {
            let message = format!("a command needs at least {LEAST_PIDS} processes, agent and shim included");
            return Err(Error::refused(SCHEME, SpecField::Pids, message));
        }
        judge_disk(limits)?;
        if !matches!(spec.network(), NetworkPolicy::Blocked) {
            let field = match spec.network() {
                NetworkPolicy::Allow(list) if !list.hosts().is_empty() => SpecField::AllowEgressTo,
                NetworkPolicy::Allow(_) => SpecField::AllowEgressToCidrs,
                _ => SpecField::Network,
            };
            return Err(Error::refused(
                SCHEME,
                field,
                "it has no network stack to let anything out with yet, only a closed network",
            )
            .hint("block the network"));
        }
        judge_workdir(spec)?;
        view::judge(&self.config, &workdir_of(spec))?;
        let claimed = Capabilities {
            memory_limit: true,
            cpu_limit: true,
            pids_limit: true,
            ..self.fixed_capabilities()
        };
        claimed.refuse_unclaimed(SCHEME, spec)
    }

    /// What does not depend on this machine's cgroups.
    fn fixed_capabilities(&self) -> Capabilities {
        Capabilities {
            block_network: true,
            disk_limit: true,
            isolation: Isolation::SharedKernel,
            lifetime: true,
            stdin: true,
            streaming: true,
            terminal: true,
            shell: self.machine().shell.as_str().into(),
            ..Capabilities::default()
        }
    }
}
