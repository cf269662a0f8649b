//! Where limits can be enforced: one look at the machine's cgroup hierarchies, controller by controller, because on hybrid
//! machines some are v1 and some v2.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringfence_core::{Leftover, Limits, SandboxId, SpecField, object_only};
use rustix::fs::{Access, FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::processes::{self, Standing};
use crate::tidy::Left;
use crate::wire::limits::count;
use crate::wire::{CgroupAction, CgroupStep, Subject};

/// The accounting period of CPU quotas, in microseconds; the kernel's default.
const CPU_PERIOD_MICROS: u64 = 100_000;

/// How the directories of sandboxes begin: see [`Name`].
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
#[serde(remote = "Self")]
pub(crate) struct Counter {
    path: PathBuf,
    key: Cow<'static, str>,
}

object_only!(Counter);

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
        let namespace = processes::namespace().unwrap_or(UNKNOWN);
        let name = &format!("{PREFIX}{}-{launcher}-{namespace}-{sandbox}", std::process::id());
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
        let mut emptying = false;
        let more_to_come = self.for_each_abandoned(ask, |_, path| {
            emptying |= fs::remove_dir(path).is_err() && is_emptying(path);
        });
        more_to_come || emptying
    }

    /// Shows the directories of ours whose launcher is gone, and says whether one of at most so many that are there was just killed. A
    /// launcher that lives puts away what it made, also after its owner.
    fn for_each_abandoned(&self, mut ask: usize, mut act: impl FnMut(Name, &Path)) -> bool {
        let parents = self.v1.iter().map(|(_, parent)| parent).chain(self.v2.iter().map(|v2| &v2.parent));
        let entries = parents.flat_map(fs::read_dir).flatten().flatten();
        // All of them first: what is removed would be missed in the midst of it.
        let ours: Vec<(Name, PathBuf)> = entries
            .filter_map(|entry| Some((Name::parse(entry.file_name().to_str()?)?, entry.path())))
            .collect();
        let here = LazyCell::new(processes::namespace);
        let mut living = BTreeMap::new();
        let mut more_to_come = false;
        for (name, path) in ours {
            if name.namespace == UNKNOWN || Some(name.namespace) != *here {
                // The processes of another pid namespace cannot be seen, so the lock tells. Had until it is removed: a directory that is just
                // being made is not locked yet, and who makes it then waits and makes it again.
                if let Some(_lock) = lock(&path) {
                    act(name, &path);
                }
                continue;
            }
            let lives = *living.entry(name.launcher).or_insert_with(|| {
                if !processes::is_launcher(name.launcher) {
                    return false;
                }
                if ask == 0 || more_to_come {
                    return true;
                }
                ask -= 1;
                let standing = processes::standing(name.launcher);
                more_to_come = standing == Standing::Ends;
                standing != Standing::Gone
            });
            if !lives {
                act(name, &path);
            }
        }
        more_to_come
    }

    /// What launchers left behind that are gone. Removed unless `dry_run`.
    pub(crate) fn leftovers(&self, dry_run: bool) -> Left {
        let mut found = Vec::new();
        let more_to_come = self.for_each_abandoned(usize::MAX, |name, path| {
            let Some(id) = SandboxId::new(name.sandbox) else { return };
            let removed = !dry_run && fs::remove_dir(path).is_ok();
            // Gone already: somebody else was faster.
            if dry_run || removed || path.exists() {
                found.push(Leftover {
                    id,
                    what: path.display().to_string(),
                    removed,
                    fault: (!dry_run && !removed).then(|| in_use_by(path)),
                });
            }
        });
        Left { found, more_to_come }
    }
}

/// The pid namespace of those who cannot know theirs. The kernel gives none this number.
const UNKNOWN: u64 = 0;

/// What stands in the name of a directory: the owner for people who look, launcher and pid namespace for whoever looks for what is left, and
/// the sandbox, since other machines' and later processes have the same numbers.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    launcher: u32,
    namespace: u64,
    sandbox: String,
}

impl Name {
    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(4, '-');
        let _owner: u32 = parts.next()?.parse().ok()?;
        let (launcher, namespace) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { launcher, namespace, sandbox: parts.next()?.to_owned() })
    }
}

/// The lock of a directory, if nobody has it. A launcher has it from when it makes a directory until that is removed.
fn lock(directory: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
}

/// Whether what is in a directory is ending, so that it will be empty in a moment. What somebody put there from outside is not.
pub(crate) fn is_emptying(directory: &Path) -> bool {
    let members = members(directory);
    members.is_empty() || members.into_iter().any(processes::is_ending)
}

/// Why a directory that launchers left behind stays.
fn in_use_by(directory: &Path) -> String {
    // 0 is one of another pid namespace.
    let seen = members(directory).into_iter().filter(|pid| *pid != 0);
    let members: Vec<String> = seen.take(5).map(|pid| pid.to_string()).collect();
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
    /// Its file, and which line of that counts.
    pub(crate) fn open(&self) -> io::Result<(File, Vec<u8>)> {
        Ok((File::open(&self.path)?, self.key.as_bytes().to_vec()))
    }

    /// How often the limit struck; 0 when the file is gone.
    pub(crate) fn read(&self) -> u64 {
        count(&fs::read_to_string(&self.path).unwrap_or_default(), &self.key)
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
    fn launcher_pid_namespace_and_sandbox_stand_in_the_name() {
        let expected = Name { launcher: 34, namespace: 4_026_531_836, sandbox: "sb-0123".to_owned() };
        assert_eq!(Name::parse("ringfence-12-34-4026531836-sb-0123"), Some(expected));
        for other in [
            "ringfence",
            "ringfence-12-34",
            "ringfence-12-34-56",
            "ringfence-12-34-sb-0123",
            "ringfence-x-3-4-sb",
            "docker-12-3-4-sb",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }

    #[test]
    fn mountinfo_lines_are_taken_apart() {
        let line = "31 30 0:27 /docker /sys/fs/cgroup/pids rw,nosuid shared:1 - cgroup cgroup rw,pids";
        let expected = (PathBuf::from("/sys/fs/cgroup/pids"), "/docker".to_owned(), "cgroup", "rw,pids");
        assert_eq!(mount_of(line), Some(expected));
    }
}
