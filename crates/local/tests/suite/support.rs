//! What all suites need: a sandbox, a command, its result.

use ringfence_core::{
    Backend, CommandRequest, CommandResult, Ending, Invocation, OutputLimit, SandboxId, SandboxSpec, Timeout,
};
use ringfence_local::{LocalBackend, LocalConfig};

/// A backend with one sandbox.
#[derive(Debug)]
pub(crate) struct Box {
    pub(crate) backend: LocalBackend,
    pub(crate) id: SandboxId,
}

/// What a command gave, as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) ending: Ending,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    pub(crate) fn ok(stdout: &str) -> Self {
        Self { ending: Ending::Exited(0), stdout: stdout.to_owned(), stderr: String::new() }
    }
}

pub(crate) fn seconds(seconds: f64) -> Timeout {
    Timeout::from_secs_f64(seconds).unwrap()
}

pub(crate) fn shell(command: &str, timeout: f64) -> CommandRequest {
    CommandRequest::shell(command, seconds(timeout), OutputLimit::new(1 << 20).unwrap())
}

pub(crate) fn program(arguments: &[&str]) -> CommandRequest {
    let arguments = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
    CommandRequest::new(Invocation::Program(arguments), seconds(60.0), OutputLimit::new(1 << 20).unwrap())
}

impl Box {
    pub(crate) async fn new() -> Self {
        Self::with(SandboxSpec::new()).await
    }

    pub(crate) async fn with(spec: SandboxSpec) -> Self {
        let backend = LocalBackend::new(LocalConfig::default());
        let id = backend.create(&spec).await.unwrap().id;
        Self { backend, id }
    }

    pub(crate) async fn request(&self, request: CommandRequest) -> CommandResult {
        self.backend.run_command(&self.id, request).await.unwrap()
    }

    pub(crate) async fn run(&self, command: &str) -> Said {
        self.run_for(command, 60.0).await
    }

    pub(crate) async fn run_for(&self, command: &str, timeout: f64) -> Said {
        let result = self.request(shell(command, timeout)).await;
        Said {
            ending: result.ending,
            stdout: String::from_utf8_lossy(&result.stdout.bytes).into_owned(),
            stderr: String::from_utf8_lossy(&result.stderr.bytes).into_owned(),
        }
    }
}
