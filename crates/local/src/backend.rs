//! The backend: judges a spec against this machine, then talks to its launcher, and to those of other processes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use ringfence_core::{
    Attachable, Backend, Background, Capabilities, CommandRequest, CommandResult, Created, Error, ErrorKind,
    GuestPath, ListRequest, Listing, Plan, ProbeReport, Reach, Result, SandboxId, SandboxSpec, Terminal,
    TerminalRequest, TreeGate,
};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::access::Access;
use crate::audit::Noted;
use crate::cgroup::{Controller, Hierarchies};
use crate::config::{LocalConfig, Shell};
use crate::create::Wanted;
use crate::error::no_launcher;
use crate::launcher::Launcher;
use crate::sandbox::Sandbox;
use crate::wire::SandboxRequest;
use crate::{SCHEME, audit, files, link, probe, run, seccomp, terminal, tree};

/// Processes of a sandbox without a limit, where it has a user of its own.
pub(crate) const DEFAULT_PIDS: u32 = 4096;

pub(crate) const CREATE: &str = "create a sandbox";

/// Runs sandboxes in this process's own tree: no daemon, no container engine, root or not.
///
/// Those made by [`Backend::create`] end when this value is dropped or the process ends in any way. Those made to be listed or kept
/// ([`Attachable::create_reachable`]) are found by other processes of the same user, and every call takes their ids too.
#[derive(Debug)]
pub struct LocalBackend {
    config: LocalConfig,
    machine: OnceLock<Machine>,
    hierarchies: OnceLock<Hierarchies>,
    /// When it was last looked for what launchers left behind that are gone.
    tidied: Mutex<Option<Instant>>,
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
            tidied: Mutex::new(None),
            launcher: Mutex::new(None),
            sandboxes: Mutex::new(HashMap::new()),
        }
    }

    pub(crate) fn config(&self) -> &LocalConfig {
        &self.config
    }

    /// The shell of every sandbox that is made here.
    pub(crate) fn shell(&self) -> Shell {
        self.machine().shell
    }

    /// The system call filter.
    pub(crate) fn filter(&self) -> &[u8] {
        &self.machine().filter
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

    /// The sandboxes that this value created or attached to, and did not destroy.
    pub(crate) fn sandboxes(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Sandbox>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of a sandbox that turned out to be gone, however that was found out.
    pub(crate) fn forget_if_lost<T>(&self, id: &SandboxId, result: Result<T>) -> Result<T> {
        if result.as_ref().is_err_and(|error| *error.kind() == ErrorKind::SandboxLost) {
            self.sandboxes().remove(id);
        }
        result
    }

    /// Makes a sandbox known to later calls.
    pub(crate) fn remember(&self, sandbox: Arc<Sandbox>) {
        self.sandboxes().insert(sandbox.id.clone(), sandbox);
    }

    /// A sandbox as whoever has this id may use it; one that is not known yet is attached to.
    pub(crate) async fn sandbox(&self, operation: &'static str, id: &SandboxId) -> Result<Access> {
        let known = self.sandboxes().get(id).cloned();
        let sandbox = match known {
            Some(sandbox) => sandbox,
            None => self.attach(operation, id).await?,
        };
        Ok(Access::new(sandbox, id.fence()))
    }

    pub(crate) fn launcher(&self) -> Result<Arc<Launcher>> {
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
        let started = Launcher::start().map(Arc::new).map_err(no_launcher)?;
        *launcher = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Forgets a launcher that does not answer, so that the next sandbox gets a new one.
    pub(crate) fn forget_launcher(&self, dead: &Arc<Launcher>) {
        *self.last_tidied() = None;
        let mut launcher = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if launcher.as_ref().is_some_and(|current| Arc::ptr_eq(current, dead)) {
            *launcher = None;
        }
    }

    pub(crate) fn last_tidied(&self) -> MutexGuard<'_, Option<Instant>> {
        self.tidied.lock().unwrap_or_else(PoisonError::into_inner)
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
        Ok(Plan { statement: self.statement(spec, Reach::Private, None) })
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Created> {
        self.create_wanted(Wanted::new(spec, Reach::Private)?).await
    }

    async fn create_parked(&self, spec: &SandboxSpec) -> Result<Created> {
        self.create_wanted(Wanted { parked: true, ..Wanted::new(spec, Reach::Private)? }).await
    }

    async fn unpark(&self, sandbox: &SandboxId) -> Result<()> {
        const OPERATION: &str = "hand the sandbox out";
        let parked = self.sandbox(OPERATION, sandbox).await?;
        let result = parked.renew(OPERATION, None).await.map(drop);
        self.forget_if_lost(sandbox, result)
    }

    fn attachable(&self) -> Option<&dyn Attachable> {
        Some(self)
    }

    fn background(&self) -> Option<&dyn Background> {
        Some(self)
    }

    async fn run_command(&self, sandbox: &SandboxId, request: CommandRequest) -> Result<CommandResult> {
        let running = self.sandbox("run the command", sandbox).await?;
        let noted = Noted::new(&running, "command", || audit::command(&self.config, &request.invocation));
        let noted = noted.begin("command_began");
        let result = run::run(&running, request).await;
        if result.as_ref().is_ok_and(|result| result.sandbox_lost) {
            self.sandboxes().remove(sandbox);
        }
        noted.ended(&result, audit::command_result);
        self.forget_if_lost(sandbox, result)
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<()> {
        const OPERATION: &str = "destroy the sandbox";
        let known = self.sandboxes().get(sandbox).cloned();
        match known {
            Some(known) => {
                Access::new(known, sandbox.fence()).destroy().await?;
                // Only now: what is let go of ends, and a claim that is over ends nothing.
                self.sandboxes().remove(sandbox);
                Ok(())
            }
            None => match self.link_to(OPERATION, sandbox).await {
                Ok(others) => {
                    let answer = others.ask(OPERATION, sandbox, SandboxRequest::Destroy).await?;
                    link::destroyed(OPERATION, sandbox, &answer.0)
                }
                Err(error) if *error.kind() == ErrorKind::SandboxLost => Ok(()),
                Err(error) => Err(error),
            },
        }
    }

    async fn read_file(&self, sandbox: &SandboxId, path: &GuestPath, limit_bytes: u64) -> Result<Vec<u8>> {
        let living = self.sandbox("read the file", sandbox).await?;
        let noted = Noted::new(&living, "read", || audit::file(&self.config, path));
        let result = files::read(&living, path, limit_bytes).await;
        noted.ended(&result, |content| json!({"bytes": content.len()}));
        self.forget_if_lost(sandbox, result)
    }

    async fn write_file(&self, sandbox: &SandboxId, path: &GuestPath, content: &[u8]) -> Result<()> {
        let living = self.sandbox("write the file", sandbox).await?;
        let noted = Noted::new(&living, "write", || audit::file(&self.config, path));
        let result = files::write(&living, path, content).await;
        noted.ended(&result, |()| json!({"bytes": content.len()}));
        self.forget_if_lost(sandbox, result)
    }

    async fn list_directory(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        request: ListRequest,
    ) -> Result<Listing> {
        let living = self.sandbox("list the directory", sandbox).await?;
        let noted = Noted::new(&living, "list", || audit::file(&self.config, path));
        let result = files::list(&living, path, request).await;
        noted.ended(&result, |listing| json!({"entries": listing.entries.len()}));
        self.forget_if_lost(sandbox, result)
    }

    async fn export_file(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        limit_bytes: u64,
        sink: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        let living = self.sandbox("export the file", sandbox).await?;
        let noted = Noted::new(&living, "export", || audit::file(&self.config, path)).begin("export_began");
        let result = files::export(&living, path, limit_bytes, sink).await;
        noted.ended(&result, |bytes| json!({"bytes": bytes}));
        self.forget_if_lost(sandbox, result)
    }

    async fn import_file(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        size: u64,
        executable: bool,
        source: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        let living = self.sandbox("write the file", sandbox).await?;
        let noted = Noted::new(&living, "write", || audit::file(&self.config, path));
        let result = tree::import(&living, path, size, executable, source).await;
        noted.ended(&result, |()| json!({"bytes": size}));
        self.forget_if_lost(sandbox, result)
    }

    async fn export_tree(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        gate: &mut TreeGate<'_>,
    ) -> Result<()> {
        let living = self.sandbox("copy the tree", sandbox).await?;
        let noted = Noted::new(&living, "export_tree", || audit::file(&self.config, path));
        let noted = noted.begin("export_tree_began");
        let result = tree::export(&living, path, gate).await;
        noted.ended_at(&result, |_| audit::tree(gate.so_far()));
        self.forget_if_lost(sandbox, result)
    }

    async fn probe(&self) -> Result<ProbeReport> {
        Ok(probe::probe(self).await)
    }

    async fn open_terminal(&self, sandbox: &SandboxId, request: TerminalRequest) -> Result<Terminal> {
        let living = self.sandbox("open a terminal", sandbox).await?;
        let noted = Noted::new(&living, "terminal", || match &request.invocation {
            Some(invocation) => audit::command(&self.config, invocation),
            None => json!({"kind": "interactive shell"}),
        });
        let result = terminal::open(&living, request).await;
        noted.ended(&result, |_| json!({}));
        self.forget_if_lost(sandbox, result)
    }
}
