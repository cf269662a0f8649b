//! What the recording backend does with each operation.

use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::sandbox::Sandbox;
use super::{Answer, Operation, RecordedCommand, RecordedExport, RecordedWrite, RecordingBackend};
use crate::attach::{Attachable, Reach};
use crate::backend::{Backend, Created, Plan, SandboxId};
use crate::capability::Capabilities;
use crate::command::{CommandRequest, CommandResult, Stdin, StreamName};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{GuestPath, ListRequest, Listing};
use crate::output::OutputLimit;
use crate::spec::SandboxSpec;
use crate::statement::{EnforcementRow, EnforcementStatement, Evidence};

const RUN: &str = "run the command";

/// Who can reach a sandbox of which nothing else was said.
fn default_reach(spec: &SandboxSpec) -> Reach {
    if spec.owner().is_some() || !spec.labels().is_empty() { Reach::Listed } else { Reach::Private }
}

/// Keeps a sandbox from idling while a command runs, however that ends.
struct InUse<'a> {
    backend: &'a RecordingBackend,
    sandbox: &'a SandboxId,
}

impl<'a> InUse<'a> {
    fn new(backend: &'a RecordingBackend, sandbox: &'a SandboxId) -> Self {
        if let Some(found) = backend.state().sandboxes.get_mut(sandbox) {
            found.commands += 1;
        }
        Self { backend, sandbox }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if let Some(found) = self.backend.state().sandboxes.get_mut(self.sandbox) {
            found.commands = found.commands.saturating_sub(1);
            found.touch(Instant::now());
        }
    }
}

impl RecordingBackend {
    /// Creates a sandbox as all ways to create one do.
    pub(super) async fn provision(
        &self,
        spec: &SandboxSpec,
        reach: Reach,
        lifetime: Option<Duration>,
        parked: bool,
    ) -> Result<Created> {
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
        let now = Instant::now();
        let mut sandbox = Sandbox::new(spec, statement.clone(), tree, reach, lifetime, now);
        if !parked {
            sandbox.start(now);
        }
        state.sandboxes.insert(id.clone(), sandbox);
        Ok(Created { id, statement })
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
        self.provision(spec, default_reach(spec), spec.lifetime(), false).await
    }

    async fn create_parked(&self, spec: &SandboxSpec) -> Result<Created> {
        self.provision(spec, default_reach(spec), spec.lifetime(), true).await
    }

    async fn unpark(&self, sandbox: &SandboxId) -> Result<()> {
        let delay = self.state().unpark_delay;
        pass(delay).await;
        let mut state = self.state();
        state.check(Operation::Unpark)?;
        self.look(&mut state, "unpark the sandbox", sandbox)?.start(Instant::now());
        Ok(())
    }

    fn attachable(&self) -> Option<&dyn Attachable> {
        self.capabilities.attach.then_some(self as &dyn Attachable)
    }

    async fn run_command(&self, sandbox: &SandboxId, request: CommandRequest) -> Result<CommandResult> {
        let stdin = match request.stdin {
            Stdin::Closed => Vec::new(),
            Stdin::Bytes(bytes) => bytes.to_vec(),
            Stdin::Reader(reader) => {
                let mut bytes = Vec::new();
                let read = reader.take(OutputLimit::MAX_BYTES as u64).read_to_end(&mut bytes).await;
                if let Err(error) = read {
                    return Err(Error::new(ErrorKind::Unexpected, &self.name, RUN, "standard input failed")
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
            match self.reach(&mut state, RUN, sandbox) {
                Err(error) if *error.kind() == ErrorKind::ClaimLost => return Err(error),
                // Whether it still stands is seen when the command has ended.
                Ok(_) | Err(_) => state.command_delay,
            }
        };
        let in_use = InUse::new(self, sandbox);
        pass(delay).await;
        drop(in_use);
        let result = {
            let mut state = self.state();
            state.check(Operation::Command)?;
            self.reach(&mut state, RUN, &sandbox.clone().unfenced())?;
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
        match self.look(&mut state, "destroy the sandbox", sandbox) {
            Err(error) if *error.kind() == ErrorKind::ClaimLost => return Err(error),
            Ok(_) | Err(_) => drop(state.sandboxes.remove(sandbox)),
        }
        Ok(())
    }

    async fn read_file(&self, sandbox: &SandboxId, path: &GuestPath, limit_bytes: u64) -> Result<Vec<u8>> {
        const OPERATION: &str = "read the file";
        let mut state = self.state();
        state.check(Operation::Read)?;
        let content = self.tree(&mut state, OPERATION, sandbox, path)?.read(path, limit_bytes);
        content.map(<[u8]>::to_vec).map_err(|kind| self.file_error(kind, OPERATION, sandbox, path))
    }

    async fn write_file(&self, sandbox: &SandboxId, path: &GuestPath, content: &[u8]) -> Result<()> {
        const OPERATION: &str = "write the file";
        let mut state = self.state();
        state.writes.push(RecordedWrite {
            sandbox: sandbox.clone(),
            path: path.clone(),
            content: content.to_vec(),
        });
        state.check(Operation::Write)?;
        let written = self.tree(&mut state, OPERATION, sandbox, path)?.write(path, content.to_vec());
        written.map_err(|kind| self.file_error(kind, OPERATION, sandbox, path))
    }

    async fn list_directory(
        &self,
        sandbox: &SandboxId,
        path: &GuestPath,
        request: ListRequest,
    ) -> Result<Listing> {
        const OPERATION: &str = "list the directory";
        let mut state = self.state();
        state.check(Operation::List)?;
        let entries = self.tree(&mut state, OPERATION, sandbox, path)?.list(path);
        let entries = entries.map_err(|kind| self.file_error(kind, OPERATION, sandbox, path))?;
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
            let content = self.tree(&mut state, OPERATION, sandbox, path)?.read(path, limit_bytes);
            let content = content
                .map(<[u8]>::to_vec)
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
