//! Every refusal, before anything is made (BK-02): what this machine, or this backend, cannot enforce.

use ringfence_core::{
    ByteSize, Capabilities, Error, Isolation, Limits, NetworkPolicy, Result, SandboxSpec, SpecField,
};

use crate::backend::LocalBackend;
use crate::cgroup::Controller;
use crate::error::CGROUP_REMEDY;
use crate::{SCHEME, view};

/// What a disk limit has to leave of a memory limit, where it takes more than half: the disk lies in memory and is counted with
/// it, and a full one that leaves nothing would have every later command ended, the one that removes files too (P70).
const LEAST_PROCESS_BYTES: u64 = 32 << 20;

/// Fewer processes than these cannot run a command: agent, shim, shell and one program.
const LEAST_PIDS: u32 = 4;

/// First directories of a working directory that belong to the read-only view or the kernel.
const RESERVED: [&str; 12] =
    ["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"];

/// What a sandbox has of its own in its file system, and a little more.
const LEAST_DISK_BYTES: u64 = 256 << 10;

/// Refuses a disk that would leave its processes no memory. No more than half is always fine.
fn judge_disk(limits: &Limits) -> Result<()> {
    if let Some(disk) = limits.disk.filter(|disk| disk.get() < LEAST_DISK_BYTES) {
        let message = format!("the limit of {disk} leaves no room for the files that every sandbox has");
        return Err(
            Error::refused(SCHEME, SpecField::Disk, message).hint("raise the disk limit to 256KiB or more")
        );
    }
    let (Some(memory), Some(disk)) = (limits.memory, limits.disk) else { return Ok(()) };
    let most = memory.get().saturating_sub(LEAST_PROCESS_BYTES).max(memory.get() / 2);
    if disk.get() <= most {
        return Ok(());
    }
    let message = format!(
        "the disk lies in memory and counts as such: filled up, {disk} of disk would leave too little of {memory} of memory for \
         processes to run"
    );
    let least = disk.get().saturating_add(LEAST_PROCESS_BYTES).min(disk.get().saturating_mul(2));
    let shown =
        |bytes| ByteSize::from_bytes(bytes).map_or_else(|_| bytes.to_string(), |size| size.to_string());
    Err(Error::refused(SCHEME, SpecField::Disk, message).hint(format!(
        "with this memory limit the disk may have {}; this disk limit needs {} of memory; without a disk limit it has no more than half of the memory",
        shown(most),
        shown(least)
    )))
}

fn judge_workdir(spec: &SandboxSpec) -> Result<()> {
    let Some(workdir) = spec.workdir() else { return Ok(()) };
    let refuse = |message: String| {
        Err(Error::refused(SCHEME, SpecField::Workdir, message)
            .hint("choose a directory such as /workspace or /srv/project"))
    };
    let mut parts = workdir.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
    match parts.peek() {
        None => refuse("the root cannot be the working directory: it is read-only".to_owned()),
        Some(first) if RESERVED.contains(first) => {
            refuse(format!("{workdir} lies in a directory that belongs to the system"))
        }
        Some(_) if workdir.split('/').any(|part| part == "..") => {
            refuse(format!("{workdir} leads back through `..`"))
        }
        Some(_) => Ok(()),
    }
}

impl LocalBackend {
    /// Refuses what cannot be enforced, by the field's name.
    pub(crate) fn refuse(&self, spec: &SandboxSpec) -> Result<()> {
        let limits = spec.limits();
        let hint = CGROUP_REMEDY;
        let no_cgroup = |field: SpecField, controller: Controller| {
            let message = format!("no {} cgroup can be written by this process", controller.name());
            Err(Error::refused(SCHEME, field, message).hint(hint))
        };
        // Asked one by one, because looking at the hierarchies costs time that most sandboxes need not spend.
        if limits.memory.is_some() && self.hierarchies().mechanism(Controller::Memory).is_none() {
            return no_cgroup(SpecField::Memory, Controller::Memory);
        }
        if limits.cpus.is_some() && self.hierarchies().mechanism(Controller::Cpu).is_none() {
            return no_cgroup(SpecField::Cpus, Controller::Cpu);
        }
        if limits.pids.is_some_and(|pids| pids.get() < LEAST_PIDS) {
            let message = format!("a command needs at least {LEAST_PIDS} processes, agent and shim included");
            return Err(Error::refused(SCHEME, SpecField::Pids, message));
        }
        judge_disk(limits)?;
        if !matches!(spec.network(), NetworkPolicy::Blocked) {
            let field = match spec.network() {
                NetworkPolicy::Allow(list) if !list.hosts().is_empty() => SpecField::AllowEgressTo,
                NetworkPolicy::Allow(_) => SpecField::AllowEgressToCidrs,
                _ => SpecField::Network,
            };
            return Err(Error::refused(
                SCHEME,
                field,
                "it has no network stack to let anything out with yet, only a closed network",
            )
            .hint("block the network"));
        }
        judge_workdir(spec)?;
        view::judge(self.config(), &view::workdir_of(spec))?;
        let claimed = Capabilities {
            memory_limit: true,
            cpu_limit: true,
            pids_limit: true,
            ..self.fixed_capabilities()
        };
        claimed.refuse_unclaimed(SCHEME, spec)
    }

    /// What does not depend on this machine's cgroups.
    pub(crate) fn fixed_capabilities(&self) -> Capabilities {
        Capabilities {
            block_network: true,
            disk_limit: true,
            isolation: Isolation::SharedKernel,
            lifetime: true,
            idle: true,
            attach: true,
            background: true,
            labels: true,
            stdin: true,
            streaming: true,
            terminal: true,
            shell: self.shell().as_str().into(),
            ..Capabilities::default()
        }
    }
}
