//! What this kernel grants, found out by trying.

use std::path::Path;

use ringfence_core::{
    Backend, ByteSize, Check, CommandRequest, Cpus, Ending, Error, ErrorKind, Limits, Outcome, OutputLimit,
    Pids, ProbeReport, Result, SandboxSpec, SpecField, Timeout,
};

use crate::backend::LocalBackend;
use crate::directory::Directory;

/// Enough for the shortest command; a real limit, so that the kernel has to take it.
const PROBE_MEMORY_BYTES: u64 = 64 << 20;
const PROBE_PIDS: u32 = 512;
const PROBE_CPUS: f64 = 1.0;
const PROBE_TIMEOUT_SECONDS: f64 = 20.0;

/// A sandbox that was made, used and destroyed.
struct Tried {
    /// How the field is enforced.
    mechanism: String,
    landlock_abi: u32,
}

/// Tries everything once on this machine, by creating sandboxes, running a command in each and destroying them (P90).
pub(crate) async fn probe(backend: &LocalBackend) -> ProbeReport {
    let mut checks = Vec::new();
    let fields = vec![SpecField::Isolation, SpecField::Network];
    let plain = try_spec(backend, &SandboxSpec::new(), SpecField::Isolation).await;
    checks.push(match &plain {
        Ok(tried) => Check::works("sandbox", tried.mechanism.as_str(), fields),
        Err(error) => Check::of_error("sandbox", Outcome::Failed, error, fields),
    });
    // Without any sandbox there is nothing to try a limit on, and one cause is reported once.
    let Ok(plain) = plain else { return ProbeReport { checks } };
    let limits = [
        (
            "memory limit",
            SpecField::Memory,
            Limits { memory: ByteSize::from_bytes(PROBE_MEMORY_BYTES).ok(), ..Limits::default() },
        ),
        ("cpu limit", SpecField::Cpus, Limits { cpus: Cpus::new(PROBE_CPUS).ok(), ..Limits::default() }),
        ("process limit", SpecField::Pids, Limits { pids: Pids::new(PROBE_PIDS).ok(), ..Limits::default() }),
        (
            "disk limit",
            SpecField::Disk,
            Limits { disk: ByteSize::from_bytes(PROBE_MEMORY_BYTES).ok(), ..Limits::default() },
        ),
    ];
    for (name, field, limits) in limits {
        let spec = SandboxSpec::new().with_limits(limits);
        checks.push(match try_spec(backend, &spec, field).await {
            Ok(tried) => Check::works(name, tried.mechanism, vec![field]),
            Err(error) => Check::of_error(name, Outcome::Absent, &error, vec![field]),
        });
    }
    checks.push(landlock(plain.landlock_abi));
    checks.push(kept(&backend.config().runtime_directory()));
    ProbeReport { checks }
}

/// Creates, runs `true`, destroys.
async fn try_spec(backend: &LocalBackend, spec: &SandboxSpec, field: SpecField) -> Result<Tried> {
    let created = backend.create(spec).await?;
    let landlock_abi = backend.sandbox("try the sandbox", &created.id).await?.landlock_abi;
    let timeout = Timeout::from_secs_f64(PROBE_TIMEOUT_SECONDS)?;
    let ran = backend
        .run_command(&created.id, CommandRequest::shell("true", timeout, OutputLimit::new(4096)?))
        .await;
    backend.destroy(&created.id).await?;
    let result = ran?;
    if result.ending != Ending::Exited(0) {
        let output = String::from_utf8_lossy(&result.stderr.bytes).trim().to_owned();
        return Err(Error::new(
                ErrorKind::Unavailable,
                crate::SCHEME,
                "run a command in a sandbox",
                format!("`true` ended with {:?} {output}", result.ending),
            )
            .hint("the host's own programs cannot run in a sandbox: a system without /usr/bin or with unusual libraries?"));
    }
    let mechanism = created.statement.row(field).map(|row| row.mechanism.clone()).unwrap_or_default();
    Ok(Tried { mechanism, landlock_abi })
}

/// Where sandboxes are found that others are to find. Other sandboxes work without.
fn kept(directory: &Path) -> Check {
    const NAME: &str = "kept sandboxes";
    let fields = vec![SpecField::Owner, SpecField::Labels];
    let shown = directory.display();
    match Directory::probe("look where sandboxes are found", directory) {
        Ok(true) => Check::works(NAME, format!("are found in {shown}"), fields),
        Ok(false) => Check::works(NAME, format!("are found in {shown}, which the first one makes"), fields),
        Err(error) => {
            let check = Check::of_error(NAME, Outcome::Absent, &error, fields);
            Check { detail: format!("{}, {shown}", check.detail), ..check }
        }
    }
}

/// 0 is what a kernel without it says.
fn landlock(abi: u32) -> Check {
    let fields = vec![SpecField::Isolation];
    if abi > 0 {
        return Check::works("Landlock", "the second wall behind the mount namespace", fields);
    }
    Check {
        name: "Landlock".to_owned(),
        outcome: Outcome::Absent,
        detail: "this kernel has none, or it is switched off".to_owned(),
        remedy: Some("boot with lsm=landlock,… on Linux 5.13 or newer; sandboxes work without it".to_owned()),
        fields,
    }
}
