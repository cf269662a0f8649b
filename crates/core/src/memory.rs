//! The in-memory recording backend: the reference implementation and the double of the tests.

use std::sync::Mutex;

use async_trait::async_trait;

use crate::backend::{Backend, Created, Plan, SandboxId};
use crate::capability::Capabilities;
use crate::command::{CommandRequest, CommandResult};
use crate::error::Result;
use crate::spec::SandboxSpec;
use crate::statement::{EnforcementRow, EnforcementStatement};

/// A backend that provisions nothing and records everything.
#[derive(Debug, Default)]
pub struct RecordingBackend {
    created: Mutex<Vec<SandboxSpec>>,
}

#[async_trait]
impl Backend for RecordingBackend {
    fn name(&self) -> &str {
        "rec"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { block_network: true, shell: "sh", ..Capabilities::default() }
    }

    fn judge(&self, _spec: &SandboxSpec) -> Result<Plan> {
        Ok(Plan {
            statement: EnforcementStatement::build(None, EnforcementRow::not_asked),
            warnings: Vec::new(),
        })
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Created> {
        let statement = self.judge(spec)?.statement;
        let mut created = self.created.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        created.push(spec.clone());
        #[expect(clippy::expect_used, reason = "never empty")]
        let id = SandboxId::new(format!("box-{}", created.len())).expect("not empty");
        Ok(Created { id, statement })
    }

    async fn run_command(&self, _sandbox: &SandboxId, _request: CommandRequest) -> Result<CommandResult> {
        Ok(CommandResult::exited(0, "out\n", ""))
    }

    async fn destroy(&self, _sandbox: &SandboxId) -> Result<()> {
        Ok(())
    }
}
