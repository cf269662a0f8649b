//! Where limits can be enforced: one look at the machine's cgroup hierarchies, controller by controller, because on hybrid
//! machines some are v1 and some v2.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringfence_core::{Leftover, Limits, SandboxId, SpecField};
use rustix::fs::Access;
use serde::{Deserialize, Serialize};

use crate::processes;
use crate::tidy::Left;
use crate::wire::{CgroupAction, CgroupStep, Subject};

/// The accounting period of CPU quotas, in microseconds; the kernel's default.
const CPU_PERIOD_MICROS: u64 = 100_000;

/// How the directories of sandboxes begin; their owner's process and their launcher's follow.
pub(crate) const PREFIX: &str = "ringfence-";

/// What part of a v1 memory limit goes to socket buffers, one in so many, and the most of it.
const SOCKET_SHARE: u64 = 16;
const MOST_FOR_SOCKETS: u64 = 64 << 20;

/// Which controller a limit needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Controller {
    /// Memory.
    Memory,
    /// CPU time.
    Cpu,
    /// Processes.
    Pids,
}

impl Controller {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    /// The kernel's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }

    /// The field of the spec that it is for.
    pub(crate) fn field(self) -> SpecField {
        match self {
            Self::Memory => SpecField::Memory,
            Self::Cpu => SpecField::Cpus,
            Self::Pids => SpecField::Pids,
        }
    }

    fn subject(self) -> Subject {
        match self {
            Self::Memory => Subject::Memory,
            Self::Cpu => Subject::Cpus,
            Self::Pids => Subject::Pids,
        }
    }
}

/// The hierarchies of this machine, from inside this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hierarchies {
    v1: Vec<(Controller, PathBuf)>,
    v2: Option<V2>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct V2 {
    /// An ancestor of ours, or the root, that we may make children in and whose processes are elsewhere.
    parent: PathBuf,
    controllers: Vec<Controller>,
    /// Directories from the root down in which the controllers have to be passed on first.
    enable_in: Vec<PathBuf>,
}

/// A limit file to read after a command, and the number that says that the limit struck.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counter {
    path: PathBuf,
    key: Cow<'static, str>,
}

/// What limits cost in cgroup work, and where to see that they struck.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CgroupPlan {
    pub(crate) steps: Vec<CgroupStep>,
    /// Kills by the memory limit.
    pub(crate) memory: Option<Counter>,
    /// Forks refused by the process limit.
    pub(crate) pids: Option<Counter>,
    /// Values written: controller, file, value.
    applied: Vec<(Controller, PathBuf, String)>,
    /// The same for files that are not everywhere.
    optional: Vec<(Controller, PathBuf, String)>,
}

impl Hierarchies {
    /// Looks at this machine.
    pub(crate) fn read() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut hierarchies = Self::default();
        for line in mounts.lines() {
            let Some((point, root, kind, options)) = mount_of(line) else { continue };
            if kind == "cgroup2" && hierarchies.v2.is_none() {
                let Some(path) = own_path(&own, "") else { continue };
                hierarchies.v2 = find_v2(&point, &below(&point, &root, &path));
            }
            if kind == "cgroup" {
                for controller in Controller::ALL {
                    if !options.split(',').any(|option| option == controller.name()) {
                        continue;
                    }
                    let Some(path) = own_path(&own, controller.name()) else { continue };
                    let directory = below(&point, &root, &path);
                    if may_write(&directory) {
                        hierarchies.v1.push((controller, directory));
                    }
                }
            }
        }
        hierarchies
    }

    /// The mechanism for a controller, as a statement names it; `None` where a limit cannot be enforced.
    pub(crate) fn mechanism(&self, controller: Controller) -> Option<&'static str> {
        if self.v1.iter().any(|(known, _)| *known == controller) {
            return Some("cgroup v1");
        }
        let v2 = self.v2.as_ref()?;
        v2.controllers.contains(&controller).then_some("cgroup v2")
    }

    /// Plans the work for the limits that a controller is there for, in directories with the sandbox's name in theirs.
    pub(crate) fn plan(&self, launcher: u32, sandbox: &str, limits: &Limits) -> CgroupPlan {
        // The launcher for the sweep, the owner for people who look. Other pid namespaces have the same numbers, so the sandbox's part has to differ.
        let name = &format!("{PREFIX}{}-{launcher}-{sandbox}", std::process::id());
        let mut plan = CgroupPlan::default();
        let mut v2: Vec<Controller> = Vec::new();
        for controller in Controller::ALL {
            let asked = match controller {
                Controller::Memory => limits.memory.is_some(),
                Controller::Cpu => limits.cpus.is_some(),
                Controller::Pids => limits.pids.is_some(),
            };
            if !asked {
                continue;
            }
            match self.v1.iter().find(|(known, _)| *known == controller) {
                Some((_, parent)) => plan.add_v1(controller, &parent.join(name), limits),
                None => v2.push(controller),
            }
        }
        if let (Some(hierarchy), false) = (&self.v2, v2.is_empty()) {
            plan.add_v2(hierarchy, &hierarchy.parent.join(name), &v2, limits);
        }
        plan
    }
}

impl Hierarchies {
    /// Removes what launchers left behind that are gone. True where there is more to come: a launcher was just killed, of at most so many
    /// that are asked, or the kernel is still putting away what is in a directory.
    pub(crate) fn sweep(&self, ask: usize) -> bool {
        let (abandoned, more_to_come) = self.abandoned(ask);
        let emptying =
            abandoned.into_iter().filter(|path| fs::remove_dir(path).is_err() && is_emptying(path)).count();
        more_to_come || emptying > 0
    }

    /// Directories of ours whose launcher is gone, and whether one of at most so many that are there was just killed. A launcher that
    /// lives puts away what it made, also after its owner. In another pid namespace it cannot be seen; what it uses cannot be removed,
    /// so at worst a sandbox that is just being made there is refused.
    fn abandoned(&self, mut ask: usize) -> (Vec<PathBuf>, bool) {
        let parents = self.v1.iter().map(|(_, parent)| parent).chain(self.v2.iter().map(|v2| &v2.parent));
        let mut living = BTreeMap::new();
        let mut more_to_come = false;
        let mut abandoned = Vec::new();
        for entry in parents.flat_map(fs::read_dir).flatten().flatten() {
            let Some(launcher) = entry.file_name().to_str().and_then(launcher_in) else { continue };
            let lives = *living.entry(launcher).or_insert_with(|| {
                let lives = processes::is_launcher(launcher);
                if lives && ask > 0 && !more_to_come {
                    ask -= 1;
                    more_to_come = processes::was_killed(launcher);
                }
                lives
            });
            if !lives {
                abandoned.push(entry.path());
            }
        }
        (abandoned, more_to_come)
    }

    /// What launchers left behind that are gone. Removed unless `dry_run`.
    pub(crate) fn leftovers(&self, dry_run: bool) -> Left {
        let (abandoned, more_to_come) = self.abandoned(usize::MAX);
        let found = abandoned.into_iter().filter_map(|path| {
            let id = path.file_name()?.to_str()?.splitn(4, '-').last().and_then(SandboxId::new)?;
            if is_elsewhere(&path) {
                return None;
            }
            // Gone already: somebody else was faster.
            let removed = !dry_run && fs::remove_dir(&path).is_ok();
            (dry_run || removed || path.exists()).then(|| Leftover {
                id,
                what: path.display().to_string(),
                removed,
                fault: (!dry_run && !removed).then(|| in_use_by(&path)),
            })
        });
        Left { found: found.collect(), more_to_come }
    }
}

/// The launcher in the name of a directory of ours, behind the owner.
fn launcher_in(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let _owner: u32 = parts.next()?.parse().ok()?;
    parts.next()?.parse().ok()
}

/// Whether what is in a directory is ending, so that it will be empty in a moment. What somebody put there from outside is not.
pub(crate) fn is_emptying(directory: &Path) -> bool {
    let members = members(directory);
    members.is_empty() || members.into_iter().any(processes::is_ending)
}

/// Whether it is used in another pid namespace, whose launchers cannot be seen here.
fn is_elsewhere(directory: &Path) -> bool {
    let members = members(directory);
    !members.is_empty() && members.iter().all(|pid| *pid == 0)
}

/// Why a directory that launchers left behind stays.
fn in_use_by(directory: &Path) -> String {
    let members: Vec<String> = members(directory).iter().take(5).map(u32::to_string).collect();
    if members.is_empty() {
        "it is in use".to_owned()
    } else {
        format!("processes are in it: {}", members.join(", "))
    }
}

fn members(directory: &Path) -> Vec<u32> {
    let members = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    members.lines().filter_map(|pid| pid.parse().ok()).collect()
}

impl CgroupPlan {
    /// The directories that are the sandbox's alone.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let own = self.steps.iter().filter_map(|step| match &step.action {
            CgroupAction::Own(path) => Some(PathBuf::from(OsStr::from_bytes(path))),
            _ => None,
        });
        own.collect()
    }

    fn step(&mut self, controller: Controller, action: CgroupAction) {
        self.steps.push(CgroupStep { subject: controller.subject(), action });
    }

    fn write(&mut self, controller: Controller, path: PathBuf, value: String) {
        self.step(controller, CgroupAction::Write(bytes(&path), value.clone().into_bytes()));
        self.applied.push((controller, path, value));
    }

    /// For a file that is there only where the kernel accounts for swap.
    fn write_if_present(&mut self, controller: Controller, path: &Path, value: &str) {
        self.step(controller, CgroupAction::WriteIfPresent(bytes(path), value.as_bytes().to_vec()));
        self.optional.push((controller, path.to_owned(), value.to_owned()));
    }

    /// Every value written with the file to read it back from, without those that this kernel does not have.
    pub(crate) fn to_read_back(&self) -> impl Iterator<Item = &(Controller, PathBuf, String)> {
        let present = self.optional.iter().filter(|(_, path, _)| path.exists());
        self.applied.iter().chain(present)
    }

    fn add_v1(&mut self, controller: Controller, directory: &Path, limits: &Limits) {
        self.step(controller, CgroupAction::Own(bytes(directory)));
        match controller {
            Controller::Memory => {
                let asked = limits.memory.map_or(0, ringfence_core::ByteSize::get);
                // Socket buffers are counted apart and by nothing else, so the two limits share what was asked.
                let sockets = "memory.kmem.tcp.limit_in_bytes";
                let has_sockets = directory.with_file_name(sockets).exists();
                let for_sockets = if has_sockets { (asked / SOCKET_SHARE).min(MOST_FOR_SOCKETS) } else { 0 };
                let limit = (asked - for_sockets).to_string();
                self.write(controller, directory.join("memory.limit_in_bytes"), limit.clone());
                if has_sockets {
                    self.write(controller, directory.join(sockets), for_sockets.to_string());
                }
                // Swap counts too: else a limit would only move memory to the disk.
                self.write_if_present(controller, &directory.join("memory.memsw.limit_in_bytes"), &limit);
                self.memory =
                    Some(Counter { path: directory.join("memory.oom_control"), key: "oom_kill".into() });
            }
            Controller::Cpu => {
                self.write(controller, directory.join("cpu.cfs_period_us"), CPU_PERIOD_MICROS.to_string());
                self.write(controller, directory.join("cpu.cfs_quota_us"), quota(limits).to_string());
            }
            Controller::Pids => {
                let limit = limits.pids.map(|pids| pids.to_string()).unwrap_or_default();
                self.write(controller, directory.join("pids.max"), limit);
                self.pids = Some(Counter { path: directory.join("pids.events"), key: "max".into() });
            }
        }
        self.step(controller, CgroupAction::Attach(bytes(directory)));
    }

    fn add_v2(&mut self, v2: &V2, directory: &Path, controllers: &[Controller], limits: &Limits) {
        for parent in &v2.enable_in {
            for controller in controllers {
                self.step(*controller, CgroupAction::Ensure(bytes(parent)));
                let path = parent.join("cgroup.subtree_control");
                let value = format!("+{}", controller.name()).into_bytes();
                self.step(*controller, CgroupAction::Write(bytes(&path), value));
            }
        }
        let Some(first) = controllers.first() else { return };
        self.step(*first, CgroupAction::Own(bytes(directory)));
        for controller in controllers {
            match controller {
                Controller::Memory => {
                    let limit = limits.memory.map(|memory| memory.get().to_string()).unwrap_or_default();
                    self.write(*controller, directory.join("memory.max"), limit);
                    self.write_if_present(*controller, &directory.join("memory.swap.max"), "0");
                    self.memory =
                        Some(Counter { path: directory.join("memory.events"), key: "oom_kill".into() });
                }
                Controller::Cpu => {
                    let value = format!("{} {CPU_PERIOD_MICROS}", quota(limits));
                    self.write(*controller, directory.join("cpu.max"), value);
                }
                Controller::Pids => {
                    let limit = limits.pids.map(|pids| pids.to_string()).unwrap_or_default();
                    self.write(*controller, directory.join("pids.max"), limit);
                    self.pids = Some(Counter { path: directory.join("pids.events"), key: "max".into() });
                }
            }
        }
        self.step(*first, CgroupAction::CloneInto(bytes(directory)));
    }
}

impl Counter {
    /// How often the limit struck; 0 when the file is gone.
    pub(crate) fn read(&self) -> u64 {
        let content = fs::read_to_string(&self.path).unwrap_or_default();
        content
            .lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(key, _)| *key == self.key)
            .and_then(|(_, value)| value.trim().parse().ok())
            .unwrap_or(0)
    }
}

fn quota(limits: &Limits) -> u64 {
    limits.cpus.map_or(0, |cpus| u64::from(cpus.millis()) * CPU_PERIOD_MICROS / 1000)
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

/// Mount point, root within the file system, type and super options of a line of mountinfo.
fn mount_of(line: &str) -> Option<(PathBuf, String, &str, &str)> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let root = left.nth(3)?.to_owned();
    let point = PathBuf::from(left.next()?.replace("\\040", " "));
    let mut right = right.split(' ');
    let kind = right.next()?;
    Some((point, root, kind, right.nth(1)?))
}

/// Our path in the hierarchy of a controller; the empty name means v2.
fn own_path(own: &str, controller: &str) -> Option<String> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then(|| path.to_owned())
    })
}

/// The directory of `path` below a mount that shows only `root` of the hierarchy.
fn below(point: &Path, root: &str, path: &str) -> PathBuf {
    let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    point.join(inside.trim_start_matches('/'))
}

fn may_write(directory: &Path) -> bool {
    rustix::fs::access(directory, Access::WRITE_OK).is_ok()
}

/// A place for children. Processes and controllers for children exclude each other in one directory (the root excepted), so
/// ours cannot be a child of the directory we are in: the topmost ancestor that was handed to us is the place.
fn find_v2(point: &Path, own: &Path) -> Option<V2> {
    let ours = |directory: &Path| {
        may_write(directory)
            && may_write(&directory.join("cgroup.procs"))
            && may_write(&directory.join("cgroup.subtree_control"))
    };
    // A process is moved only where its mover may write in the common ancestor: going up must not leave our own part.
    let top =
        own.ancestors().take_while(|directory| directory.starts_with(point) && ours(directory)).last()?;
    let controllers = controllers_in(&top.join("cgroup.controllers"));
    let (parent, enable_in) = if top == point {
        // The root may hold processes and pass controllers on; a directory of our own keeps it tidy.
        let parent = point.join("ringfence");
        (parent.clone(), vec![point.to_owned(), parent])
    } else {
        if has_processes(top) {
            return None;
        }
        (top.to_owned(), vec![top.to_owned()])
    };
    Some(V2 { parent, controllers, enable_in })
}

fn controllers_in(path: &Path) -> Vec<Controller> {
    let content = fs::read_to_string(path).unwrap_or_default();
    Controller::ALL
        .into_iter()
        .filter(|controller| content.split_whitespace().any(|name| name == controller.name()))
        .collect()
}

fn has_processes(directory: &Path) -> bool {
    fs::read_to_string(directory.join("cgroup.procs")).is_ok_and(|processes| !processes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_a_partly_shown_hierarchy() {
        let point = Path::new("/sys/fs/cgroup/memory");
        assert_eq!(below(point, "/", "/"), point.join(""));
        assert_eq!(below(point, "/", "/user/1"), point.join("user/1"));
        assert_eq!(below(point, "/docker/abc", "/docker/abc/x"), point.join("x"));
    }

    #[test]
    fn own_path_finds_v1_controllers_and_v2() {
        let own = "12:cpu,cpuacct:/a\n3:memory:/b\n1:name=systemd:/init\n0::/c:d\n";
        assert_eq!(own_path(own, "cpu").as_deref(), Some("/a"));
        assert_eq!(own_path(own, "memory").as_deref(), Some("/b"));
        assert_eq!(own_path(own, "").as_deref(), Some("/c:d"));
        assert_eq!(own_path(own, "pids"), None);
    }

    #[test]
    fn the_launcher_stands_in_the_name() {
        assert_eq!(launcher_in("ringfence-12-34-sb-0123"), Some(34));
        for other in
            ["ringfence", "ringfence-12", "ringfence-12-sb-0123", "ringfence-x-3-sb", "docker-12-3-sb"]
        {
            assert_eq!(launcher_in(other), None, "{other}");
        }
    }

    #[test]
    fn mountinfo_lines_are_taken_apart() {
        let line = "31 30 0:27 /docker /sys/fs/cgroup/pids rw,nosuid shared:1 - cgroup cgroup rw,pids";
        let expected = (PathBuf::from("/sys/fs/cgroup/pids"), "/docker".to_owned(), "cgroup", "rw,pids");
        assert_eq!(mount_of(line), Some(expected));
    }
}
