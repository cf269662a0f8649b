//! What is enforced on a sandbox, by what, and how that is known.

use std::time::SystemTime;

use ringfence_core::{
    EnforcementRow, EnforcementStatement, Error, Evidence, Reach, Result, SandboxSpec, SpecField,
};

use crate::backend::{CREATE, DEFAULT_PIDS, LocalBackend, PidsMechanism};
use crate::cgroup::{CgroupPlan, Controller};
use crate::error::unexpected;
use crate::{SCHEME, view};

/// What is known of a sandbox once it exists.
#[derive(Debug)]
pub(crate) struct Known {
    /// 0: the kernel has none.
    pub(crate) landlock_abi: u32,
    /// Every limit that can be read back.
    pub(crate) limits: Vec<Kept>,
}

/// A limit as the kernel keeps it: `memory.max = 67108864`.
pub(crate) type Kept = (Controller, String);

/// Reads every limit back: a kernel may take a value and keep another.
pub(crate) fn read_back(cgroup: &CgroupPlan) -> Result<Vec<Kept>> {
    cgroup
        .to_read_back()
        .map(|(controller, path, asked)| {
            let kept = std::fs::read_to_string(path)
                .map_err(|error| unexpected(CREATE, "read a limit back", error).terminal())?;
            let kept = kept.trim();
            if !is_at_most(kept, asked) {
                let message = format!("{} is {kept} instead of {asked}", path.display());
                return Err(Error::refused(SCHEME, controller.field(), message));
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Ok((*controller, format!("{name} = {kept}")))
        })
        .collect()
}

/// Memory limits are kept in whole pages, so the kernel may lower one; nothing may be higher.
fn is_at_most(kept: &str, asked: &str) -> bool {
    match (kept.parse::<u64>(), asked.parse::<u64>()) {
        (Ok(kept), Ok(asked)) => kept <= asked,
        _ => kept == asked,
    }
}

impl LocalBackend {
    /// One row per field of the spec: planned, or as it is for a sandbox that exists.
    pub(crate) fn statement(
        &self,
        spec: &SandboxSpec,
        reach: Reach,
        created: Option<&Known>,
    ) -> EnforcementStatement {
        let at = created.map(|_| now());
        let applied = if created.is_some() { Evidence::Applied } else { Evidence::Planned };
        let limits = spec.limits();
        EnforcementStatement::build(at, |field| {
            let row = |mechanism: String, evidence| EnforcementRow::new(field, mechanism, evidence);
            let limit = |controller, value: Option<String>| match value {
                Some(value) => self.limit_row(field, controller, &value, created),
                None => EnforcementRow::not_asked(field),
            };
            match field {
                SpecField::Network => EnforcementRow {
                    strength: Some(
                        "kernel: no interface but loopback, so no addresses, names or datagrams".to_owned(),
                    ),
                    ..row("network namespace of its own, empty".to_owned(), applied)
                },
                SpecField::Memory => limit(Controller::Memory, limits.memory.map(|value| value.to_string())),
                SpecField::Cpus => limit(Controller::Cpu, limits.cpus.map(|value| value.to_string())),
                SpecField::Pids => match limits.pids {
                    Some(pids) => self.pids_row(field, pids.get(), created),
                    None if rustix::process::geteuid().is_root() => row(
                        format!("RLIMIT_NPROC = {DEFAULT_PIDS} of the sandbox's own user (default)"),
                        applied,
                    ),
                    None => EnforcementRow::not_asked(field),
                },
                SpecField::Disk => {
                    let asked = if limits.disk.is_some() { "" } else { " (default)" };
                    row(format!("tmpfs size = {}{asked}", self.disk_bytes(spec)), applied)
                }
                SpecField::Isolation => {
                    let landlock = created.map_or_else(
                        || "Landlock where the kernel has it".to_owned(),
                        |created| match created.landlock_abi {
                            0 => "no Landlock on this kernel".to_owned(),
                            abi => format!("Landlock ABI {abi}"),
                        },
                    );
                    EnforcementRow {
                        strength: Some("shared kernel".to_owned()),
                        ..row(
                            format!(
                                "user, mount, pid, ipc, uts, net and cgroup namespaces; no capabilities; seccomp \
                                 allow-list; {landlock}"
                            ),
                            applied,
                        )
                    }
                }
                SpecField::Env if !spec.env().is_empty() => {
                    row("passed to every command".to_owned(), applied)
                }
                SpecField::Workdir => {
                    let workdir = spec.workdir().unwrap_or(view::WORKDIR);
                    row(format!("{workdir}, writable"), applied)
                }
                SpecField::Lifetime if spec.lifetime().is_some() => {
                    let besides = match reach {
                        Reach::Kept => "whoever is left",
                        Reach::Private | Reach::Listed => "ends earlier when the creating process ends",
                    };
                    row(format!("timer of the launcher; {besides}"), applied)
                }
                SpecField::Idle if spec.idle().is_some() => {
                    row("timer of the launcher since the last operation was answered".to_owned(), applied)
                }
                SpecField::Owner if spec.owner().is_some() => EnforcementRow {
                    strength: Some("processes of the same user and root can reach it; among those the claim decides".to_owned()),
                    ..row(
                        "tag kept by the launcher, written on condition of its version; each operation of a holder is checked by the agent"
                            .to_owned(),
                        applied,
                    )
                },
                SpecField::Labels if !spec.labels().is_empty() => {
                    row("tags kept by the launcher".to_owned(), applied)
                }
                _ => EnforcementRow::not_asked(field),
            }
        })
    }

    fn limit_row(
        &self,
        field: SpecField,
        controller: Controller,
        asked: &str,
        created: Option<&Known>,
    ) -> EnforcementRow {
        let mechanism = self.hierarchies().mechanism(controller).unwrap_or("cgroup");
        let Some(created) = created else {
            return EnforcementRow::new(field, format!("{mechanism}, {asked}"), Evidence::Planned);
        };
        let settings: Vec<&str> = created
            .limits
            .iter()
            .filter(|(its, _)| *its == controller)
            .map(|(_, setting)| setting.as_str())
            .collect();
        EnforcementRow::new(field, format!("{mechanism} {}", settings.join(", ")), Evidence::ReadBack)
    }

    fn pids_row(&self, field: SpecField, pids: u32, created: Option<&Known>) -> EnforcementRow {
        let evidence = if created.is_some() { Evidence::Applied } else { Evidence::Planned };
        let row = match self.pids_mechanism() {
            PidsMechanism::UserLimit => EnforcementRow::new(
                field,
                format!("RLIMIT_NPROC = {pids} of the sandbox's own user"),
                evidence,
            ),
            PidsMechanism::Namespace => EnforcementRow::new(
                field,
                format!("pid_max of the pid namespace, which leaves {pids} numbers"),
                evidence,
            ),
            PidsMechanism::Cgroup => self.limit_row(field, Controller::Pids, &pids.to_string(), created),
        };
        EnforcementRow {
            strength: Some("counts the sandbox's agent, and a shim for each running command".to_owned()),
            ..row
        }
    }
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
