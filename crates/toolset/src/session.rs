//! One run of an agent: its sandbox, its calls, its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_core::{EnforcementStatement, Error, ErrorKind, NetworkPolicy, Result, SandboxId};
use serde_json::Value;

use crate::budget::CorrectionBudget;
use crate::definition::{MAX_CORRECTIONS, Tool, ToolDefinition};
use crate::kit::Kit;
use crate::outcome::{Correction, ToolError, ToolOutput};
use crate::place::Place;
use crate::provision::Live;
use crate::text::{general_number, quoted_path};
use crate::tools::list_directory::ListDirectory;
use crate::tools::read_file::{self, ReadFile};
use crate::tools::run_command::RunCommand;
use crate::tools::write_file::WriteFile;
use crate::watch::Watch;

/// An open run of a [`Toolset`](crate::Toolset): nothing is provisioned until the first call, all calls share one sandbox, and
/// [`Self::close`] destroys it (LC-01 to LC-03). Or one of an [`AttachedToolset`](crate::AttachedToolset): the sandbox is held already,
/// and [`Self::close`] gives it back (AT-12, AT-14).
///
/// Calls may be made from several tasks, threads and runtimes at once. They take effect one at a time, in the order in
/// which they were first polled; waiting holds no thread, and a call that is dropped gives up its turn (CM-02). Dropping
/// a call while its command runs ends the command; dropping it while the sandbox is being created does not, but the
/// sandbox is destroyed with the session.
///
/// A session dropped without being closed destroys its sandbox, or gives it back, in the background: on the current tokio runtime,
/// else on the one that created it or attached to it. If that runtime ends first, the sandbox is left to the backend's own clean-up, or
/// to the end of the lease, and a warning that names it is logged. Close sessions.
#[derive(Debug)]
pub struct Session {
    kit: Arc<Kit>,
    place: Place,
    turn: Arc<tokio::sync::Mutex<()>>,
    budget: Mutex<CorrectionBudget>,
}

/// What a caller can say about one call besides its name and arguments. The default says nothing.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CallOptions {
    /// The model turn that the call is part of: failures of one tool within one turn count once (ER-06). Turns are told
    /// apart by their number; without one every call is a turn of its own.
    pub turn: Option<u64>,
    /// The caller has no run that could end after too many corrections, as a server of tools has none: a failure of this call is
    /// not counted, so that a correction never becomes terminal (ER-06).
    pub uncounted: bool,
    /// Looks at the command while it runs.
    pub watch: Option<Watch>,
}

impl CallOptions {
    /// Sets the model turn that the call is part of.
    #[must_use]
    pub fn turn(mut self, turn: u64) -> Self {
        self.turn = Some(turn);
        self
    }

    /// Leaves a failure of this call out of the count of corrections.
    #[must_use]
    pub fn uncounted(mut self) -> Self {
        self.uncounted = true;
        self
    }

    /// Lets `watch` look at the command while it runs.
    #[must_use]
    pub fn watch(mut self, watch: Watch) -> Self {
        self.watch = Some(watch);
        self
    }
}

/// A call whose arguments are accepted.
#[derive(Debug)]
enum Call {
    RunCommand(RunCommand),
    ReadFile(ReadFile),
    WriteFile(WriteFile),
    ListDirectory(ListDirectory),
}

/// Why a call has no result, before it is counted.
enum Failure {
    /// Told to the model.
    Correctable(String),
    /// Ends the run.
    Terminal(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Terminal(error)
    }
}

impl Session {
    pub(crate) fn new(kit: Arc<Kit>, place: Place) -> Self {
        Self { kit, place, turn: Arc::default(), budget: Mutex::default() }
    }

    /// Returns the four tools as this run offers them, the same bytes until it is closed (TD-18). In a sandbox of the run's own they
    /// are those of the toolset; in an attached one they say what it was like when it was claimed (AT-17 to AT-19).
    #[must_use]
    pub fn definitions(&self) -> &[ToolDefinition] {
        &self.kit.definitions
    }

    /// Calls a tool by its full name, with its arguments as the model wrote them.
    ///
    /// # Errors
    /// See [`ToolError`]. After [`ToolError::Terminal`] the run should end and the session be closed.
    pub async fn call(&self, name: &str, arguments: &Value) -> Result<ToolOutput, ToolError> {
        self.call_with(name, arguments, CallOptions::default()).await
    }

    /// Calls a tool as [`Self::call`] does, with options.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn call_with(
        &self,
        name: &str,
        arguments: &Value,
        options: CallOptions,
    ) -> Result<ToolOutput, ToolError> {
        let Some(tool) = self.kit.tool_named(name) else {
            let known = self.kit.definitions.iter().map(|definition| definition.name.clone()).collect();
            let name = self.kit.masker.text(name).into_owned();
            return Err(ToolError::UnknownTool { name, known });
        };
        if let Some(fault) = self.place.fault() {
            return Err(ToolError::Terminal(fault));
        }
        let result = match self.parse(tool, arguments) {
            Ok(call) => self.perform(name, tool, call, options.watch.as_ref()).await,
            Err(faults) => Err(Failure::Correctable(format!("{name} was not run: {faults}"))),
        };
        self.settle(name, tool, &options, result)
    }

    /// Provisions the sandbox now instead of at the first call, and returns its handle. An attached one stands already.
    ///
    /// # Errors
    /// What kept it from being provisioned; always terminal (LC-10).
    pub async fn prepare(&self) -> Result<SandboxId> {
        let attempt = self.place.acquire()?;
        let live = self.place.wait(attempt).await.map_err(|error| self.kit.masker.error(error))?;
        Ok(live.id.clone())
    }

    /// Returns the handle of the sandbox that stands now, if any; of an attached one, as its holder names it.
    #[must_use]
    pub fn sandbox(&self) -> Option<SandboxId> {
        self.place.current().map(|live| live.id.clone())
    }

    /// Returns what is enforced on the sandbox that stands now, if any; of an attached one, if its backend says.
    #[must_use]
    pub fn statement(&self) -> Option<EnforcementStatement> {
        self.place.current().and_then(|live| live.statement.clone())
    }

    /// Returns what the network of the sandbox is: as the spec says, or of an attached one as its creator has written down, if that can be
    /// read (AT-10).
    #[must_use]
    pub fn network(&self) -> Option<&NetworkPolicy> {
        self.kit.network.as_ref()
    }

    pub(crate) fn backend_name(&self) -> &str {
        self.kit.backend.name()
    }

    /// Returns the failures in a row of a tool (ER-06).
    #[must_use]
    pub fn failures(&self, tool: Tool) -> u32 {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).failures(tool)
    }

    /// Destroys the sandbox, if there is one, and waits for that; an attached one is given back instead, after the command that runs in
    /// it was ended. Calls that are waiting fail, and so do later ones (LC-09, LC-14). Never fails: a sandbox that could not be destroyed
    /// or given back is named in a warning of the log (LC-04, AT-15). May be called more than once; dropping the future does not stop
    /// what it began.
    pub async fn close(&self) {
        match &self.place {
            Place::Own(provisioner) => provisioner.close().await,
            Place::Attached(hold) => hold.close(&self.turn).await,
        }
    }

    fn parse(&self, tool: Tool, arguments: &Value) -> Result<Call, String> {
        let parse = |arguments: &Value| {
            Ok(match tool {
                Tool::RunCommand => Call::RunCommand(RunCommand::parse(arguments, &self.kit.bounds)?),
                Tool::ReadFile => Call::ReadFile(ReadFile::parse(arguments)?),
                Tool::WriteFile => Call::WriteFile(WriteFile::parse(arguments)?),
                Tool::ListDirectory => Call::ListDirectory(ListDirectory::parse(arguments)?),
            })
        };
        parse(arguments).map_err(|faults: String| {
            // A fault repeats the beginning of a bad value. Masked first, it cannot end in half a secret (MK-01).
            let mut masked = arguments.clone();
            self.kit.masker.json(&mut masked);
            parse(&masked).err().unwrap_or(faults)
        })
    }

    async fn perform(
        &self,
        name: &str,
        tool: Tool,
        call: Call,
        watch: Option<&Watch>,
    ) -> Result<ToolOutput, Failure> {
        // Taken on arrival: whoever waits for a creation shares its outcome, good or bad (LC-21).
        let mut attempt = self.place.acquire()?;
        let _turn = self.turn.lock().await;
        let live = loop {
            let live = self.place.wait(attempt).await?;
            if let Some(fault) = self.place.fault() {
                return Err(fault.into());
            }
            // The call before this one may have lost the sandbox.
            if !live.is_lost() {
                break live;
            }
            attempt = self.place.acquire()?;
        };
        let result = match &self.place {
            Place::Own(_) => self.execute(name, tool, &call, None, watch, &live).await,
            Place::Attached(hold) => tokio::select! {
                biased;
                over = hold.interrupted() => Err(Failure::Terminal(over)),
                result = self.execute(name, tool, &call, hold.left(), watch, &live) => result,
            },
        };
        if matches!(&result, Err(Failure::Correctable(_)))
            && let Some(fault) = self.place.fault()
        {
            // Closing took the sandbox away under the call; nobody is left to correct anything.
            return Err(fault.into());
        }
        result
    }

    async fn execute(
        &self,
        name: &str,
        tool: Tool,
        call: &Call,
        left: Option<Duration>,
        watch: Option<&Watch>,
        live: &Arc<Live>,
    ) -> Result<ToolOutput, Failure> {
        let Kit { backend, spec, bounds, masker, tool_prefix: prefix, .. } = &*self.kit;
        match call {
            Call::RunCommand(call) => {
                let call = call.within(left)?;
                let mut request = call.request(bounds, masker)?;
                request.observer = watch.map(|watch| watch.start(masker));
                let result = backend
                    .run_command(&live.id, request)
                    .await
                    .map_err(|error| self.failure(name, tool, None, error, live))?;
                if result.sandbox_lost {
                    match &self.place {
                        Place::Own(provisioner) => provisioner.lost(live),
                        Place::Attached(hold) => return Err(hold.ended().into()),
                    }
                    if let Some(fault) = self.place.fault() {
                        // Nobody lost it: closing took it away, and there is no next call.
                        return Err(fault.into());
                    }
                }
                Ok(call.render(&result, spec, live.outlived(spec), bounds, masker)?)
            }
            Call::ReadFile(call) => {
                let content = backend
                    .read_file(&live.id, &call.path, bounds.max_read_bytes)
                    .await
                    .map_err(|error| self.failure(name, tool, Some(&call.shown_path), error, live))?;
                Ok(call.render(&content, bounds, prefix, masker)?)
            }
            Call::WriteFile(call) => {
                backend
                    .write_file(&live.id, &call.path, call.content.as_bytes())
                    .await
                    .map_err(|error| self.failure(name, tool, Some(&call.shown_path), error, live))?;
                Ok(call.render(masker)?)
            }
            Call::ListDirectory(call) => {
                let listing = backend
                    .list_directory(&live.id, &call.path, ListDirectory::request(bounds))
                    .await
                    .map_err(|error| self.failure(name, tool, Some(&call.shown_path), error, live))?;
                Ok(ListDirectory::render(&listing, bounds, prefix, masker)?)
            }
        }
    }

    /// Decides what a backend's error means for the run.
    fn failure(&self, name: &str, tool: Tool, path: Option<&str>, error: Error, live: &Arc<Live>) -> Failure {
        if let Place::Attached(hold) = &self.place
            && let Some(over) = hold.over(error.kind())
        {
            return Failure::Terminal(over.source(error));
        }
        if let Place::Own(provisioner) = &self.place
            && *error.kind() == ErrorKind::SandboxLost
        {
            // Learned from whatever operation, the handle is dead: forget it, say so, and go on in a new sandbox as after
            // a lost command (ER-08 done right). The backend's hint is for whoever can create a sandbox; a model cannot.
            provisioner.lost(live);
            let why = match live.outlived(&self.kit.spec) {
                Some(lifetime) => {
                    format!("the sandbox's lifetime of {} s was over", general_number(lifetime.as_secs_f64()))
                }
                None => error.summary().to_string(),
            };
            return Failure::Correctable(format!(
                "{name} failed: {why}. The sandbox was lost: its files and processes are gone, and the next call starts in a new \
                 one"
            ));
        }
        if error.is_terminal() {
            return Failure::Terminal(error);
        }
        let prefix = &self.kit.tool_prefix;
        let shown_path = || quoted_path(&self.kit.masker.text(path.unwrap_or_default()));
        // The backend's hints do not know what the tools are called here.
        let advice = match error.kind() {
            ErrorKind::FileTooLarge { size_bytes, limit_bytes } => {
                let cause = read_file::too_large(*size_bytes, *limit_bytes, prefix);
                return Failure::Correctable(format!("{name} failed: {} {cause}", shown_path()));
            }
            ErrorKind::IsADirectory => Some(format!("list it with {prefix}list_directory")),
            ErrorKind::NotADirectory if tool == Tool::ListDirectory => {
                Some(format!("read a file with {prefix}read_file"))
            }
            _ => error.hint_text().map(str::to_owned),
        };
        let on = match path {
            Some(_) if error.fact("path").is_none() => format!(" on {}", shown_path()),
            _ => String::new(),
        };
        let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
        Failure::Correctable(format!("{name} failed{on}: {}{advice}", error.summary()))
    }

    /// Masks what is handed out as a whole (MK-03) and counts failures (ER-06).
    fn settle(
        &self,
        name: &str,
        tool: Tool,
        options: &CallOptions,
        result: Result<ToolOutput, Failure>,
    ) -> Result<ToolOutput, ToolError> {
        let masker = &self.kit.masker;
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(mut output) => {
                budget.succeeded(tool, options.turn);
                output.text = masker.text(&output.text).into_owned();
                masker.json(&mut output.structured);
                Ok(output)
            }
            Err(Failure::Terminal(error)) => Err(ToolError::Terminal(masker.error(error))),
            Err(Failure::Correctable(text)) => {
                let text = masker.text(&text).into_owned();
                let failures = if options.uncounted { 0 } else { budget.failed(tool, options.turn) };
                if failures <= MAX_CORRECTIONS {
                    return Err(ToolError::Correction(Correction { text, failures }));
                }
                Err(ToolError::Terminal(
                    Error::new(
                        ErrorKind::Unexpected,
                        self.kit.backend.name(),
                        "call a tool",
                        format!("{name} failed {failures} times in a row, the last time: {text}"),
                    )
                    .terminal(),
                ))
            }
        }
    }
}
