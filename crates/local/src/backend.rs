//! The backend: judges a spec, then talks to the launcher.

use async_trait::async_trait;
use ringfence_core::{
    Backend, Capabilities, CommandRequest, CommandResult, Created, Error, ErrorKind, Plan, Result, SandboxId,
    SandboxSpec,
};

use crate::config::LocalConfig;
use crate::probe::ProbeReport;

/// Runs sandboxes in this process's own tree.
#[derive(Debug)]
pub struct LocalBackend {
    config: LocalConfig,
}

impl LocalBackend {
    /// Returns a backend. Performs no I/O (BK-01).
    #[must_use]
    pub fn new(config: LocalConfig) -> Self {
        Self { config }
    }

    /// Tries everything once on this machine.
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub async fn probe(&self) -> Result<ProbeReport> {
        Ok(ProbeReport { checks: Vec::new() })
    }
}

#[async_trait]
impl Backend for LocalBackend {
    fn name(&self) -> &str {
        crate::SCHEME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { block_network: true, shell: "bash", ..Capabilities::default() }
    }

    fn judge(&self, _spec: &SandboxSpec) -> Result<Plan> {
        Err(Error::new(ErrorKind::Unsupported, "local", "create", format!("{:?}", self.config)))
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Created> {
        self.judge(spec).map(|_| unreachable!())
    }

    async fn run_command(&self, _sandbox: &SandboxId, _request: CommandRequest) -> Result<CommandResult> {
        Err(Error::new(ErrorKind::Unsupported, "local", "run", ""))
    }

    async fn destroy(&self, _sandbox: &SandboxId) -> Result<()> {
        Ok(())
    }
}
