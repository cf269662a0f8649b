//! What this kernel grants, found out by trying.

use ringfence_core::{
    Backend, ByteSize, CommandRequest, Cpus, Ending, Error, Limits, OutputLimit, Pids, Result, SandboxSpec,
    SpecField, Timeout,
};
use serde::Serialize;

use crate::backend::LocalBackend;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It works here.
    Works,
    /// Sandboxes work without it, but a spec that asks for it is refused.
    Absent,
    /// Without it there are no sandboxes here.
    Failed,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A short name, such as `user namespace` or `memory limit`.
    pub name: String,
    /// How it went.
    pub outcome: Outcome,
    /// The mechanism found, or the failing step with its error.
    pub detail: String,
    /// What to do where it does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The spec fields that depend on it.
    pub fields: Vec<SpecField>,
}

/// Everything that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeReport {
    /// In a fixed order.
    pub checks: Vec<Check>,
}

impl ProbeReport {
    /// Returns whether sandboxes can be created here.
    #[must_use]
    pub fn can_isolate(&self) -> bool {
        self.checks.iter().all(|check| check.outcome != Outcome::Failed)
    }
}

/// Enough for the shortest command; a real limit, so that the kernel has to take it.
const PROBE_MEMORY_BYTES: u64 = 64 << 20;
const PROBE_PIDS: u32 = 512;
const PROBE_CPUS: f64 = 1.0;
const PROBE_TIMEOUT_SECONDS: f64 = 20.0;

impl LocalBackend {
    /// Tries everything once on this machine, by creating sandboxes, running a command in each and destroying them (P90).
    ///
    /// # Errors
    /// None today; what does not work is in the report.
    pub async fn probe(&self) -> Result<ProbeReport> {
        let mut checks = Vec::new();
        let plain = self.try_spec(&SandboxSpec::new()).await;
        let works = plain.is_ok();
        checks.push(match &plain {
            Ok(isolation) => {
                works_with("sandbox", isolation.clone(), vec![SpecField::Isolation, SpecField::Network])
            }
            Err(error) => {
                failed("sandbox", Outcome::Failed, error, vec![SpecField::Isolation, SpecField::Network])
            }
        });
        let limits = [
            (
                "memory limit",
                SpecField::Memory,
                Limits { memory: ByteSize::from_bytes(PROBE_MEMORY_BYTES).ok(), ..Limits::default() },
            ),
            ("cpu limit", SpecField::Cpus, Limits { cpus: Cpus::new(PROBE_CPUS).ok(), ..Limits::default() }),
            (
                "process limit",
                SpecField::Pids,
                Limits { pids: Pids::new(PROBE_PIDS).ok(), ..Limits::default() },
            ),
            (
                "disk limit",
                SpecField::Disk,
                Limits { disk: ByteSize::from_bytes(PROBE_MEMORY_BYTES).ok(), ..Limits::default() },
            ),
        ];
        // Without any sandbox there is nothing to try a limit on, and one cause is reported once.
        for (name, field, limits) in limits.into_iter().filter(|_| works) {
            let spec = SandboxSpec::new().with_limits(limits);
            checks.push(match self.try_limited(&spec, field).await {
                Ok(mechanism) => works_with(name, mechanism, vec![field]),
                Err(error) => failed(name, Outcome::Absent, &error, vec![field]),
            });
        }
        if works {
            checks.push(self.landlock_check(plain.as_deref().unwrap_or_default()));
        }
        Ok(ProbeReport { checks })
    }

    async fn try_spec(&self, spec: &SandboxSpec) -> Result<String> {
        self.try_limited(spec, SpecField::Isolation).await
    }

    /// Creates, runs `true`, destroys; returns how the field is enforced.
    async fn try_limited(&self, spec: &SandboxSpec, field: SpecField) -> Result<String> {
        let created = self.create(spec).await?;
        let timeout = Timeout::from_secs_f64(PROBE_TIMEOUT_SECONDS)?;
        let ran = self
            .run_command(&created.id, CommandRequest::shell("true", timeout, OutputLimit::new(4096)?))
            .await;
        self.destroy(&created.id).await?;
        let result = ran?;
        if result.ending != Ending::Exited(0) {
            let output = String::from_utf8_lossy(&result.stderr.bytes).trim().to_owned();
            return Err(Error::new(
                ringfence_core::ErrorKind::Unavailable,
                crate::SCHEME,
                "run a command in a sandbox",
                format!("`true` ended with {:?} {output}", result.ending),
            )
            .hint("the host's own programs cannot run in a sandbox: a system without /usr/bin or with unusual libraries?"));
        }
        Ok(created.statement.row(field).map(|row| row.mechanism.clone()).unwrap_or_default())
    }

    fn landlock_check(&self, isolation: &str) -> Check {
        let present = !isolation.contains("no Landlock");
        Check {
            name: "Landlock".to_owned(),
            outcome: if present { Outcome::Works } else { Outcome::Absent },
            detail: if present {
                "the second wall behind the mount namespace"
            } else {
                "this kernel has none, or it is switched off"
            }
            .to_owned(),
            remedy: (!present).then(|| {
                "boot with lsm=landlock,… on Linux 5.13 or newer; sandboxes work without it".to_owned()
            }),
            fields: vec![SpecField::Isolation],
        }
    }
}

fn works_with(name: &str, detail: String, fields: Vec<SpecField>) -> Check {
    Check { name: name.to_owned(), outcome: Outcome::Works, detail, remedy: None, fields }
}

fn failed(name: &str, outcome: Outcome, error: &Error, fields: Vec<SpecField>) -> Check {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    Check {
        name: name.to_owned(),
        outcome,
        detail: format!("{}{source}", error.message()),
        remedy: error.hint_text().map(str::to_owned),
        fields,
    }
}
