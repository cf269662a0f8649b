//! The in-memory recording backend: the reference implementation of the contract and the double of the tests.
//!
//! It provisions nothing and runs nothing. Commands are answered with a fixed or scripted result; files live in a tree
//! per sandbox, without symbolic links, modes or a size limit. Time passes only through tokio's clock, so a paused
//! clock works.

mod attach;
mod backend;
mod sandbox;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::attach::Tags;
use crate::backend::SandboxId;
use crate::capability::Capabilities;
use crate::claim;
use crate::clock::Clock;
use crate::command::{CommandResult, Invocation};
use crate::env::EnvMap;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{GuestPath, file_error};
use crate::memory::sandbox::Sandbox;
use crate::memory::tree::Tree;
use crate::network::NetworkStrength;
use crate::output::{OutputLimit, Timeout};
use crate::spec::{Isolation, SandboxSpec};

/// Where relative paths start unless the spec names a working directory.
pub const DEFAULT_WORKDIR: &str = "/workspace";

/// An operation that can be told to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Backend::create`](crate::Backend::create), after its delay.
    Create,
    /// [`Backend::run_command`](crate::Backend::run_command).
    Command,
    /// [`Backend::read_file`](crate::Backend::read_file).
    Read,
    /// [`Backend::write_file`](crate::Backend::write_file).
    Write,
    /// [`Backend::list_directory`](crate::Backend::list_directory).
    List,
    /// [`Backend::export_file`](crate::Backend::export_file), before its first byte.
    Export,
    /// [`Backend::export_file`](crate::Backend::export_file), after its first byte; no effect on an empty file.
    ExportAfterFirstByte,
    /// [`Backend::destroy`](crate::Backend::destroy). The sandbox stays.
    Destroy,
    /// [`Backend::unpark`](crate::Backend::unpark).
    Unpark,
    /// [`Attachable::inspect`](crate::Attachable::inspect).
    Inspect,
    /// [`Attachable::tags`](crate::Attachable::tags).
    Tags,
    /// [`Attachable::set_tags`](crate::Attachable::set_tags). The tags stay.
    SetTags,
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

/// Someone who writes tags just before the backend's caller does.
type Rival = Box<dyn FnMut(&mut Tags) -> bool + Send>;

struct State {
    create_delay: Duration,
    unpark_delay: Duration,
    command_delay: Duration,
    answer: Answer,
    faults: BTreeMap<Operation, Fault>,
    rival: Option<Rival>,
    image: Tree,
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    /// Whether sandboxes end when their clocks have run out.
    clocks: bool,
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
///
/// One that [can be attached to](Self::with_attach) also takes owners, ends sandboxes by their clocks, and refuses operations with
/// the fence of a claim that is over. Commands are refused when they start, not when they end.
pub struct RecordingBackend {
    name: String,
    capabilities: Capabilities,
    /// The time of day at a moment of tokio's clock.
    started: (SystemTime, Instant),
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
            started: (whole_milliseconds(SystemTime::now()), Instant::now()),
            state: Mutex::new(State {
                create_delay: Duration::ZERO,
                unpark_delay: Duration::ZERO,
                command_delay: Duration::ZERO,
                answer: Answer::Fixed(CommandResult::exited(0, "out\n", "")),
                faults: BTreeMap::new(),
                rival: None,
                image: Tree::default(),
                sandboxes: BTreeMap::new(),
                clocks: false,
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

    /// Sets what is claimed; [`Backend::judge`](crate::Backend::judge) refuses the rest.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.state().clocks = capabilities.attach;
        self.capabilities = capabilities;
        self
    }

    /// Lets its sandboxes be found and held by others ([`Attachable`](crate::Attachable)).
    #[must_use]
    pub fn with_attach(self) -> Self {
        let capabilities = Capabilities { attach: true, ..self.capabilities.clone() };
        self.with_capabilities(capabilities)
    }

    /// Returns the time of day by which its sandboxes end: it passes as tokio's clock does.
    #[must_use]
    pub fn clock(&self) -> Clock {
        let (wall, since) = self.started;
        Clock::new(move || wall + since.elapsed())
    }

    /// Lets `rival` see, and change, the tags of a sandbox each time just before they are to be set; it returns whether it changed them. It
    /// must not call the backend.
    pub fn race_tags(&self, rival: impl FnMut(&mut Tags) -> bool + Send + 'static) {
        self.state().rival = Some(Box::new(rival));
    }

    /// Sets how long each creation takes from now on, by tokio's clock.
    pub fn set_create_delay(&self, delay: Duration) {
        self.state().create_delay = delay;
    }

    /// Sets how long each [`Backend::unpark`](crate::Backend::unpark) takes from now on, by tokio's clock.
    pub fn set_unpark_delay(&self, delay: Duration) {
        self.state().unpark_delay = delay;
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
    /// As [`Backend::write_file`](crate::Backend::write_file): a directory or a file is in the way.
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
        let mut state = self.state();
        state.bury(Instant::now());
        state.sandboxes.keys().cloned().collect()
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

    /// Returns the sandbox for an operation in it, which is also a use of it.
    fn reach<'a>(
        &self,
        state: &'a mut State,
        operation: &'static str,
        sandbox: &SandboxId,
    ) -> Result<&'a mut Sandbox> {
        let found = self.look(state, operation, sandbox)?;
        found.touch(Instant::now());
        Ok(found)
    }

    /// Returns the sandbox for an operation from outside, such as one on its tags, which does not keep it from idling.
    fn look<'a>(
        &self,
        state: &'a mut State,
        operation: &'static str,
        sandbox: &SandboxId,
    ) -> Result<&'a mut Sandbox> {
        state.bury(Instant::now());
        let Some(found) = state.sandboxes.get_mut(sandbox) else {
            return Err(self.lost(operation, sandbox));
        };
        claim::enforce_fence(&self.name, operation, sandbox, &found.tagged.tags)?;
        Ok(found)
    }

    /// Returns the sandbox's files for an operation on a path of it.
    fn tree<'a>(
        &self,
        state: &'a mut State,
        operation: &'static str,
        sandbox: &SandboxId,
        path: &GuestPath,
    ) -> Result<&'a mut Tree> {
        match self.reach(state, operation, sandbox) {
            Ok(found) => Ok(&mut found.tree),
            Err(error) if *error.kind() == ErrorKind::SandboxLost => {
                Err(self.file_error(ErrorKind::SandboxLost, operation, sandbox, path))
            }
            Err(error) => Err(error),
        }
    }

    fn lost(&self, operation: &'static str, sandbox: &SandboxId) -> Error {
        Error::new(ErrorKind::SandboxLost, &self.name, operation, "the sandbox no longer exists")
            .context("sandbox", sandbox.as_str())
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

    /// Removes the sandboxes whose clocks have run out.
    fn bury(&mut self, now: Instant) {
        if self.clocks {
            self.sandboxes.retain(|_, sandbox| !sandbox.is_over(now));
        }
    }
}

/// Drops what tags do not keep of a time.
fn whole_milliseconds(time: SystemTime) -> SystemTime {
    claim::read_time(&claim::time_text(time)).unwrap_or(time)
}
