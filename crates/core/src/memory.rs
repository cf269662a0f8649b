//! The in-memory recording backend: the reference implementation of the contract and the double of the tests.
//!
//! It provisions nothing and runs nothing. Commands are answered with a fixed or scripted result; files live in a tree
//! per sandbox, without symbolic links, modes or a size limit. Time passes only through tokio's clock, so a paused
//! clock works.

mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::backend::{Backend, Created, Plan, SandboxId};
use crate::capability::Capabilities;
use crate::command::{CommandRequest, CommandResult, Invocation, Stdin, StreamName};
use crate::env::EnvMap;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{GuestPath, ListRequest, Listing, file_error};
use crate::memory::tree::Tree;
use crate::network::NetworkStrength;
use crate::output::{OutputLimit, Timeout};
use crate::spec::{Isolation, SandboxSpec};
use crate::statement::{EnforcementRow, EnforcementStatement, Evidence};

/// Where relative paths start unless the spec names a working directory.
pub const DEFAULT_WORKDIR: &str = "/workspace";

/// An operation that can be told to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Backend::create`], after its delay.
    Create,
    /// [`Backend::run_command`].
    Command,
    /// [`Backend::read_file`].
    Read,
    /// [`Backend::write_file`].
    Write,
    /// [`Backend::list_directory`].
    List,
    /// [`Backend::export_file`], before its first byte.
    Export,
    /// [`Backend::export_file`], after its first byte; no effect on an empty file.
    ExportAfterFirstByte,
    /// [`Backend::destroy`]. The sandbox stays.
    Destroy,
}

/// A command that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCommand {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// What was to be run.
    pub invocation: Invocation,
    /// Its timeout.
    pub timeout: Timeout,
    /// The tail of each stream that was to be kept.
    pub output_limit: OutputLimit,
    /// All of its standard input, at most [`OutputLimit::MAX_BYTES`].
    pub stdin: Vec<u8>,
    /// Its working directory.
    pub workdir: Option<GuestPath>,
    /// Its own variables.
    pub env: EnvMap,
}

/// A file that was to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedWrite {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The path as given.
    pub path: GuestPath,
    /// The content.
    pub content: Vec<u8>,
}

/// A file that was to be exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedExport {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The path as given.
    pub path: GuestPath,
    /// The largest size accepted, in bytes.
    pub limit_bytes: u64,
    /// Whether the sandbox had been destroyed before (EX-01).
    pub already_destroyed: bool,
}

enum Fault {
    Once(Error),
    Always(Box<dyn Fn() -> Error + Send>),
}

enum Answer {
    Fixed(CommandResult),
    Scripted(Box<Script>),
}

type Script = dyn FnMut(&RecordedCommand) -> Result<CommandResult> + Send;

struct State {
    create_delay: Duration,
    command_delay: Duration,
    answer: Answer,
    faults: BTreeMap<Operation, Fault>,
    image: Tree,
    sandboxes: BTreeMap<SandboxId, Tree>,
    created: Vec<SandboxSpec>,
    destroyed: Vec<SandboxId>,
    commands: Vec<RecordedCommand>,
    writes: Vec<RecordedWrite>,
    exports: Vec<RecordedExport>,
}

/// A backend that provisions nothing and records everything. Sandboxes are called `box-1`, `box-2`, … in the order in
/// which they were asked for, failed creations counted.
///
/// Without further instructions it is called `rec`, claims all that a spec without an owner can ask for, and answers
/// every command with exit 0, `out\n` on standard output and nothing on standard error. An operation on a sandbox that
/// was destroyed, or never created, fails with [`ErrorKind::SandboxLost`].
pub struct RecordingBackend {
    name: String,
    capabilities: Capabilities,
    state: Mutex<State>,
}

impl Default for RecordingBackend {
    fn default() -> Self {
        Self {
            name: "rec".to_owned(),
            capabilities: Capabilities {
                block_network: true,
                open_network: true,
                host_allowlist: Some(NetworkStrength::Request),
                cidr_allowlist: true,
                memory_limit: true,
                cpu_limit: true,
                pids_limit: true,
                disk_limit: true,
                isolation: Isolation::OwnKernel,
                image: true,
                lifetime: true,
                idle: true,
                attach: false,
                background: false,
                labels: true,
                stdin: true,
                streaming: true,
                terminal: false,
                shell: "sh".into(),
            },
            state: Mutex::new(State {
                create_delay: Duration::ZERO,
                command_delay: Duration::ZERO,
                answer: Answer::Fixed(CommandResult::exited(0, "out\n", "")),
                faults: BTreeMap::new(),
                image: Tree::default(),
                sandboxes: BTreeMap::new(),
                created: Vec::new(),
                destroyed: Vec::new(),
                commands: Vec::new(),
                writes: Vec::new(),
                exports: Vec::new(),
            }),
        }
    }
}

impl fmt::Debug for RecordingBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingBackend").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RecordingBackend {
    /// Returns a backend without further instructions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name used in messages.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets what is claimed; [`Backend::judge`] refuses the rest.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Sets how long each creation takes from now on, by tokio's clock.
    pub fn set_create_delay(&self, delay: Duration) {
        self.state().create_delay = delay;
    }

    /// Sets how long each command takes from now on, by tokio's clock; its timeout is not looked at.
    pub fn set_command_delay(&self, delay: Duration) {
        self.state().command_delay = delay;
    }

    /// Sets the result of every command from now on. One with `sandbox_lost` also ends the sandbox.
    pub fn set_command_result(&self, result: CommandResult) {
        self.state().answer = Answer::Fixed(result);
    }

    /// Has every command answered by `answer` from now on. It must not call the backend.
    pub fn answer_commands(
        &self,
        answer: impl FnMut(&RecordedCommand) -> Result<CommandResult> + Send + 'static,
    ) {
        self.state().answer = Answer::Scripted(Box::new(answer));
    }

    /// Lets `operation` fail every time until [`Self::recover`].
    pub fn fail(&self, operation: Operation, error: impl Fn() -> Error + Send + 'static) {
        self.state().faults.insert(operation, Fault::Always(Box::new(error)));
    }

    /// Lets the next `operation` fail.
    pub fn fail_once(&self, operation: Operation, error: Error) {
        self.state().faults.insert(operation, Fault::Once(error));
    }

    /// Lets `operation` work again.
    pub fn recover(&self, operation: Operation) {
        self.state().faults.remove(&operation);
    }

    /// Puts a file, and its parent directories, into every sandbox created from now on.
    ///
    /// # Errors
    /// As [`Backend::write_file`]: a directory or a file is in the way.
    pub fn seed_file(&self, path: &str, content: impl Into<Vec<u8>>) -> Result<()> {
        let path = GuestPath::new(path)?;
        self.state().image.write(&path, content.into()).map_err(|kind| self.seed_error(kind, &path))
    }

    /// Puts a directory, and its parents, into every sandbox created from now on.
    ///
    /// # Errors
    /// A file is in the way.
    pub fn seed_directory(&self, path: &str) -> Result<()> {
        let path = GuestPath::new(path)?;
        self.state().image.create_directory(&path).map_err(|kind| self.seed_error(kind, &path))
    }

    fn seed_error(&self, kind: ErrorKind, path: &GuestPath) -> Error {
        Error::new(kind, &self.name, "seed the sandboxes", "the path is taken")
            .context("path", path.to_string())
    }

    /// Returns the specs of all creations that were not refused, failed ones included, in order.
    #[must_use]
    pub fn created(&self) -> Vec<SandboxSpec> {
        self.state().created.clone()
    }

    /// Returns the sandbox of every destruction asked for, failed ones included, in order.
    #[must_use]
    pub fn destroyed(&self) -> Vec<SandboxId> {
        self.state().destroyed.clone()
    }

    /// Returns the sandboxes that exist.
    #[must_use]
    pub fn alive(&self) -> Vec<SandboxId> {
        self.state().sandboxes.keys().cloned().collect()
    }

    /// Returns the commands asked for, in order.
    #[must_use]
    pub fn commands(&self) -> Vec<RecordedCommand> {
        self.state().commands.clone()
    }

    /// Returns the writes asked for, in order.
    #[must_use]
    pub fn writes(&self) -> Vec<RecordedWrite> {
        self.state().writes.clone()
    }

    /// Returns the exports asked for, in order.
    #[must_use]
    pub fn exports(&self) -> Vec<RecordedExport> {
        self.state().exports.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_error(
        &self,
        kind: ErrorKind,
        operation: &'static str,
        sandbox: &SandboxId,
        path: &GuestPath,
    ) -> Error {
        file_error(kind, &self.name, operation, sandbox, path)
    }
}

impl State {
    fn check(&mut self, operation: Operation) -> Result<()> {
        match self.faults.remove(&operation) {
            None => Ok(()),
            Some(Fault::Once(error)) => Err(error),
            Some(Fault::Always(make)) => {
                let error = make();
                self.faults.insert(operation, Fault::Always(make));
                Err(error)
            }
        }
    }

    fn tree(&mut self, sandbox: &SandboxId) -> Result<&mut Tree, ErrorKind> {
        self.sandboxes.get_mut(sandbox).ok_or(ErrorKind::SandboxLost)
    }
}

#[async_trait]
impl Backend for RecordingBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn judge(&self, spec: &SandboxSpec) -> Result<Plan> {
        self.capabilities.refuse_unclaimed(&self.name, spec)?;
        let statement = EnforcementStatement::build(None, |field| {
            if spec.asks_for(field) {
                EnforcementRow::new(field, "recorded", Evidence::Planned)
            } else {
                EnforcementRow::not_asked(field)
            }
        });
        Ok(Plan { statement })
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Created> {
        let statement = self.judge(spec)?.statement;
        let (number, delay) = {
            let mut state = self.state();
            state.created.push(spec.clone());
            (state.created.len(), state.create_delay)
        };
        pass(delay).await;
        let mut state = self.state();
        state.check(Operation::Create)?;
        #[expect(clippy::expect_used, reason = "the text is neither empty nor `None`")]
        let id = SandboxId::new(format!("box-{number}")).expect("a usable id");
        let mut tree = state.image.clone();
        if let Some(workdir) = spec.workdir() {
            let workdir = GuestPath::new(workdir)?;
            tree.set_workdir(&workdir).map_err(|kind| self.seed_error(kind, &workdir))?;
        }
        state.sandboxes.insert(id.clone(), tree);
        Ok(Created { id, statement })
    }

    async fn run_command(&self, sandbox: &SandboxId, request: CommandRequest) -> Result<CommandResult> {
        let stdin = match request.stdin {
            Stdin::Closed => Vec::new(),
            Stdin::Bytes(bytes) => bytes.to_vec(),
            Stdin::Reader(reader) => {
                let mut bytes = Vec::new();
                let read = reader.take(OutputLimit::MAX_BYTES as u64).read_to_end(&mut bytes).await;
                if let Err(error) = read {
                    return Err(Error::new(
                        ErrorKind::Unexpected,
                        &self.name,
                        "run the command",
                        "standard input failed",
                    )
                    .source(error));
                }
                bytes
            }
        };
        let command = RecordedCommand {
            sandbox: sandbox.clone(),
            invocation: request.invocation,
            timeout: request.timeout,
            output_limit: request.output_limit,
            stdin,
            workdir: request.workdir,
            env: request.env,
        };
        let delay = {
            let mut state = self.state();
            state.commands.push(command.clone());
            state.command_delay
        };
        pass(delay).await;
        let result = {
            let mut state = self.state();
            state.check(Operation::Command)?;
            if !state.sandboxes.contains_key(sandbox) {
                return Err(Error::new(
                    ErrorKind::SandboxLost,
                    &self.name,
                    "run the command",
                    "the sandbox no longer exists",
                )
                .context("sandbox", sandbox.as_str()));
            }
            let result = match &mut state.answer {
                Answer::Fixed(result) => result.clone(),
                Answer::Scripted(answer) => answer(&command)?,
            };
            if result.sandbox_lost {
                state.sandboxes.remove(sandbox);
            }
            result
        };
        if let Some(observer) = request.observer {
            observer.output(StreamName::Stdout, 0, &result.stdout.bytes);
            observer.output(StreamName::Stderr, 0, &result.stderr.bytes);
        }
        Ok(result)
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<()> {
        let mut state = self.state();
        state.destroyed.push(sandbox.clone());
        state.check(Operation::Destroy)?;
        state.sandboxes.remove(sandbox);
        Ok(())
    }

    async fn read_file(&self, sandbox: &SandboxId, path: &GuestPath, limit_bytes: u64) -> Result<Vec<u8>> {
        let mut state = self.state();
        state.check(Operation::Read)?;
        state
            .tree(sandbox)
            .and_then(|tree| tree.read(path, limit_bytes).map(<[u8]>::to_vec))
            .map_err(|kind| self.file_error(kind, "read the file", sandbox, path))
    }

    async fn write_file(&self, sandbox: &SandboxId, path: &GuestPath, content: &[u8]) -> Result<()> {
        let mut state = self.state();
        state.writes.push(RecordedWrite {
            sandbox: sandbox.clone(),
            path: path.clone(),
            content: content.to_vec(),
        });
        state.check(Operation::Write)?;
        state
            .tree(sandbox)
            .and_then(|tree| tree.write(path, content.to_vec()))
            .map_err(|kind| self.file_error(kind, "write the file", sandbox, path))
    }

    async fn list_directory(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        request: ListRequest,
    ) -> Result<Listing> {
        let mut state = self.state();
        state.check(Operation::List)?;
        let entries = state
            .tree(sandbox)
            .and_then(|tree| tree.list(path))
            .map_err(|kind| self.file_error(kind, "list the directory", sandbox, path))?;
        Ok(Listing::page(entries, &request))
    }

    async fn export_file(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        limit_bytes: u64,
        sink: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        const OPERATION: &str = "export the file";
        let (content, broken) = {
            let mut state = self.state();
            let already_destroyed = state.destroyed.contains(sandbox);
            state.exports.push(RecordedExport {
                sandbox: sandbox.clone(),
                path: path.clone(),
                limit_bytes,
                already_destroyed,
            });
            state.check(Operation::Export)?;
            let content = state
                .tree(sandbox)
                .and_then(|tree| tree.read(path, limit_bytes).map(<[u8]>::to_vec))
                .map_err(|kind| self.file_error(kind, OPERATION, sandbox, path))?;
            let broken =
                if content.is_empty() { Ok(()) } else { state.check(Operation::ExportAfterFirstByte) };
            (content, broken)
        };
        let sent = if broken.is_err() { &content[..1] } else { &content[..] };
        let written = async {
            sink.write_all(sent).await?;
            sink.flush().await
        };
        written.await.map_err(|error| {
            Error::new(ErrorKind::Unexpected, &self.name, OPERATION, "the destination failed")
                .context("path", path.to_string())
                .source(error)
        })?;
        broken.map(|()| content.len() as u64)
    }
}

/// Lets time pass; nothing for a zero delay, so that tests without a delay need no timer.
async fn pass(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}
