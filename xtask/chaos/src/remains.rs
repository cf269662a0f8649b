//! What is left of a round: counted from outside, and not believed of anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cast::Stage;
use crate::owner::WAITED_FOR;
use crate::processes::{self, Id, Part, Tree};

const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Whose remains are counted.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) stage: &'a Stage,
    /// Not of this round.
    pub(crate) spared: &'a BTreeSet<Id>,
    /// Whether a program in a sandbox was killed: what it had started goes on, as after every end of a command.
    pub(crate) command_was_hit: bool,
    /// Everybody who may have made control groups.
    pub(crate) owners: &'a BTreeSet<u32>,
    /// What there was before.
    pub(crate) before: &'a Before,
}

/// What this machine had before a round: it is not of that.
#[derive(Debug)]
pub(crate) struct Before {
    mounts: String,
    /// Owners of a round may have the numbers of those who made these.
    control_groups: BTreeSet<PathBuf>,
}

impl Before {
    /// Looks.
    pub(crate) fn look() -> Self {
        Self { mounts: mounts(), control_groups: control_groups(|_, _| true).into_iter().collect() }
    }

    /// Whether a text names one of its control groups.
    pub(crate) fn is_named_in(&self, text: &str) -> bool {
        self.control_groups.iter().any(|group| text.contains(&*group.to_string_lossy()))
    }
}

/// The mounts that this process sees.
fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// The sandboxes that have a record whose lock somebody holds, and who: the launcher.
pub(crate) fn living(directory: &Path, tree: &Tree) -> BTreeMap<String, u32> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let holders: BTreeMap<u64, u32> = locks.lines().filter_map(holder).collect();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let held = entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.strip_suffix(".json")?.to_owned();
        let launcher = *holders.get(&entry.metadata().ok()?.ino())?;
        // Whoever tidies up has the lock of what is nobody's for a moment.
        tree.get(launcher).filter(|holder| holder.part == Part::Launcher).map(|_| (id, launcher))
    });
    held.collect()
}

/// What the audit record says of a sandbox at last.
pub(crate) fn audit(directory: &Path, id: &str) -> String {
    let text = fs::read_to_string(directory.join("audit.jsonl")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(id)).collect();
    lines[lines.len().saturating_sub(4)..].join("; ")
}

/// File and process of a line of `/proc/locks`.
fn holder(line: &str) -> Option<(u64, u32)> {
    let mut words = line.split_whitespace().skip(1);
    let is_whole_file = words.next()? == "FLOCK";
    let pid = words.nth(2)?.parse().ok()?;
    let inode = words.next()?.rsplit(':').next()?.parse().ok()?;
    is_whole_file.then_some((inode, pid))
}

impl Scene<'_> {
    /// Everything that is left besides sandboxes that live on: a line for each.
    pub(crate) fn left(&self) -> Vec<String> {
        let tree = Tree::look();
        let living = living(&self.stage.directory(), &tree);
        let mut left = self.processes(&tree, &living);
        left.extend(self.control_groups(&living));
        left.extend(self.files(&living));
        let now = mounts();
        left.extend(
            now.lines().filter(|line| !self.before.mounts.contains(line)).map(|line| format!("mount {line}")),
        );
        left
    }

    fn processes(&self, tree: &Tree, living: &BTreeMap<String, u32>) -> Vec<String> {
        let launchers: BTreeSet<u32> = living.values().copied().collect();
        let ours = || tree.all().filter(|process| !self.spared.contains(&process.id));
        let mut left = Vec::new();
        for process in ours() {
            if !tree.line(process.id.pid).iter().any(|pid| launchers.contains(pid)) {
                left.push(process.to_string());
            }
        }
        for launcher in &launchers {
            let agents =
                ours().filter(|found| found.part == Part::Agent && found.parent == *launcher).count();
            let records = living.values().filter(|holder| *holder == launcher).count();
            if agents != records {
                left.push(format!("launcher {launcher} has {records} kept sandboxes and {agents} agents"));
            }
        }
        // Whoever waited for it is gone, so it should be.
        let waited_for = format!("{}{WAITED_FOR}", self.stage.marker);
        let abandoned = processes::with_argument(&waited_for).into_iter();
        left.extend(abandoned.filter_map(|pid| match tree.get(pid) {
            Some(_) if self.command_was_hit => None,
            Some(process) => Some(format!("abandoned {process}")),
            None => Some(format!("escaped process {pid}")),
        }));
        let networks: BTreeSet<PathBuf> =
            ours().filter_map(|process| network_of(&process.id.pid.to_string())).collect();
        let own = network_of("self");
        let count = networks.iter().filter(|network| Some(*network) != own.as_ref()).count();
        if count > living.len() {
            left.push(format!("{count} network namespaces of {} sandboxes", living.len()));
        }
        left
    }

    fn control_groups(&self, living: &BTreeMap<String, u32>) -> Vec<String> {
        self.control_groups_below(Path::new(CONTROL_GROUPS), living)
    }

    fn control_groups_below(&self, root: &Path, living: &BTreeMap<String, u32>) -> Vec<String> {
        let found = control_groups_below(root, |owner, name| {
            self.owners.contains(&owner) && !living.keys().any(|id| name.ends_with(&format!("-{id}")))
        });
        let new = found.into_iter().filter(|path| !self.before.control_groups.contains(path));
        new.map(|path| format!("control group {}", path.display())).collect()
    }

    fn files(&self, living: &BTreeMap<String, u32>) -> Vec<String> {
        let names = |folder: &Path| -> Vec<String> {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let is_known = |name: &str| {
            let id = name.strip_suffix(".json").or_else(|| name.strip_suffix(".sock"));
            matches!(name, "audit.jsonl" | "audit.1.jsonl") || id.is_some_and(|id| living.contains_key(id))
        };
        let records = names(&self.stage.directory()).into_iter().filter(|name| !is_known(name));
        let others = names(&self.stage.runtime).into_iter().filter(|name| name != "ringfence");
        records.chain(others).chain(names(&self.stage.temporary)).map(|name| format!("file {name}")).collect()
    }
}

fn network_of(pid: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// The control groups of sandboxes that `of` takes, by the process in their names and the whole name.
pub(crate) fn control_groups(of: impl FnMut(u32, &str) -> bool) -> Vec<PathBuf> {
    control_groups_below(Path::new(CONTROL_GROUPS), of)
}

fn control_groups_below(root: &Path, mut of: impl FnMut(u32, &str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(root.to_owned(), 5)];
    while let Some((folder, depth)) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let rest = name.strip_prefix("ringfence-").and_then(|rest| rest.split('-').next());
            match rest.and_then(|pid| pid.parse().ok()) {
                Some(pid) if of(pid, &name) => found.push(entry.path()),
                None if depth > 0 => open.push((entry.path(), depth - 1)),
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::{Child, Command};
    use std::sync::{MutexGuard, PoisonError};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use rustix::process::Signal;

    use super::{Before, Scene, control_groups_below, holder, mounts};
    use crate::cast::Stage;
    use crate::owner::{Limited, WAITED_FOR};
    use crate::processes::{CHILDREN, Id, id_of, signal, with_argument};

    #[test]
    fn the_holder_of_a_lock_is_read() {
        let line = "1: FLOCK  ADVISORY  WRITE 18775 fe:00:10502158 0 EOF";
        assert_eq!(holder(line), Some((10_502_158, 18_775)));
        assert_eq!(holder("2: POSIX  ADVISORY  WRITE 18775 fe:00:10502158 0 EOF"), None);
        assert_eq!(holder(""), None);
    }

    /// A round in which nothing has happened yet.
    struct Empty {
        _alone: MutexGuard<'static, ()>,
        folder: tempfile::TempDir,
        stage: Stage,
        spared: BTreeSet<Id>,
        owners: BTreeSet<u32>,
        before: Before,
    }

    impl Empty {
        fn new(name: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let made = |name: &str| {
                let path = folder.path().join(name);
                fs::create_dir_all(path.join("ringfence")).unwrap();
                path
            };
            let stage = Stage {
                program: "/bin/true".into(),
                runtime: made("runtime"),
                temporary: folder.path().join("temporary"),
                marker: format!("{}{name}", std::process::id()),
                limited: Limited::Nothing,
            };
            fs::create_dir(&stage.temporary).unwrap();
            let _alone = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
            let (spared, owners) = (BTreeSet::new(), BTreeSet::new());
            Self { _alone, folder, stage, spared, owners, before: Before::look() }
        }

        fn scene(&self) -> Scene<'_> {
            Scene {
                stage: &self.stage,
                spared: &self.spared,
                command_was_hit: false,
                owners: &self.owners,
                before: &self.before,
            }
        }

        fn left(&self) -> Vec<String> {
            self.scene().left()
        }

        /// Waits until something is left, and tells what: a line with each of these words, and no other.
        #[track_caller]
        fn assert_left(&self, expected: &[&str]) {
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                let left = self.left();
                let all = left.len() == expected.len()
                    && left.iter().zip(expected).all(|(line, word)| line.contains(word));
                if all {
                    return;
                }
                assert!(Instant::now() < deadline, "{left:#?} and not {expected:?}");
                sleep(Duration::from_millis(5));
            }
        }

        /// A word for the arguments of a process that somebody waited for.
        fn waited_for(&self) -> String {
            format!("300.{}{WAITED_FOR}", self.stage.marker)
        }
    }

    /// A process that is ended with the test.
    struct Left(Child);

    impl Left {
        fn start(program: &Path, arguments: &[&str]) -> Self {
            Self(Command::new(program).args(arguments).spawn().unwrap())
        }
    }

    impl Drop for Left {
        fn drop(&mut self) {
            // The test may have ended it.
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    #[test]
    fn a_process_and_a_command_that_is_abandoned_are_counted() {
        let mut empty = Empty::new("1");
        empty.assert_left(&[]);
        let one = Left::start(Path::new("sleep"), &["300"]);
        empty.assert_left(&["process "]);
        drop(one);
        empty.assert_left(&[]);
        let mut one = Left::start(Path::new("sleep"), &[&empty.waited_for()]);
        empty.assert_left(&["process ", "abandoned process "]);
        // One that has ended is none any more, also where nobody has asked how.
        one.0.kill().unwrap();
        empty.assert_left(&[]);
        // One of somebody else is nobody's business here.
        let other = Left::start(Path::new("sleep"), &["300"]);
        empty.spared.insert(id_of(other.0.id()).unwrap());
        assert_eq!(empty.left(), [""; 0]);
    }

    #[test]
    fn a_process_that_has_escaped_is_counted() {
        let empty = Empty::new("3");
        let word = empty.waited_for();
        // Its parent ends, and nobody below whom it was adopts it.
        let text = format!("sleep {word} > /dev/null 2>&1 &");
        assert!(Command::new("sh").args(["-c", &text]).status().unwrap().success());
        empty.assert_left(&["escaped process "]);
        for pid in with_argument(&word) {
            signal(id_of(pid).unwrap(), Signal::KILL).unwrap();
        }
        empty.assert_left(&[]);
    }

    #[test]
    fn a_network_namespace_is_counted() {
        let empty = Empty::new("4");
        let _one = Left::start(Path::new("unshare"), &["--user", "--net", "sleep", "300"]);
        empty.assert_left(&["process ", "1 network namespaces of 0 sandboxes"]);
    }

    #[test]
    fn files_are_counted_but_of_a_sandbox_whose_launcher_lives() {
        let empty = Empty::new("5");
        let directory = empty.stage.directory();
        for name in ["audit.jsonl", ".sb-1", "sb-2.sock", "sb-3.json"] {
            fs::write(directory.join(name), "").unwrap();
        }
        fs::write(empty.stage.runtime.join("other"), "").unwrap();
        fs::write(empty.stage.temporary.join("more"), "").unwrap();
        let mut left = empty.left();
        left.sort();
        let expected = ["file .sb-1", "file more", "file other", "file sb-2.sock", "file sb-3.json"];
        assert_eq!(left, expected);
        for name in [".sb-1", "sb-2.sock"] {
            fs::remove_file(directory.join(name)).unwrap();
        }
        fs::remove_file(empty.stage.runtime.join("other")).unwrap();
        fs::remove_file(empty.stage.temporary.join("more")).unwrap();
        // Somebody who is called like a launcher takes its lock, and has no agent.
        let launcher = empty.folder.path().join("ringfence");
        symlink("/bin/sleep", &launcher).unwrap();
        let record = directory.join("sb-3.json").display().to_string();
        let _one =
            Left::start(Path::new("flock"), &["--no-fork", &record, &launcher.display().to_string(), "300"]);
        empty.assert_left(&["has 1 kept sandboxes and 0 agents"]);
    }

    #[test]
    fn a_mount_is_counted() {
        let mut empty = Empty::new("6");
        let all = mounts();
        let (first, others) = all.split_once('\n').unwrap();
        empty.before.mounts = others.to_owned();
        assert_eq!(empty.left(), [format!("mount {first}")]);
    }

    #[test]
    fn control_groups_are_found_by_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join("pids/a/ringfence-7-8-9-sb-1");
        for path in
            [&ours, &folder.path().join("pids/ringfence-6-8-9-sb-2"), &folder.path().join("ringfence")]
        {
            fs::create_dir_all(path).unwrap();
        }
        assert_eq!(control_groups_below(folder.path(), |owner, _| owner == 7), [ours]);
    }

    #[test]
    fn control_groups_are_counted_but_those_of_an_earlier_owner_of_the_same_number() {
        let mut empty = Empty::new("7");
        let made = |name: &str| {
            let path = empty.folder.path().join("groups").join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let before = made("pids/ringfence-7-1-9-sb-1");
        let [new, _alive, _other] =
            ["7-8-9-sb-2", "7-8-9-sb-3", "6-8-9-sb-4"].map(|name| made(&format!("pids/ringfence-{name}")));
        empty.owners.insert(7);
        empty.before.control_groups.insert(before.clone());
        let left = empty
            .scene()
            .control_groups_below(&empty.folder.path().join("groups"), &[("sb-3".to_owned(), 1)].into());
        assert_eq!(left, [format!("control group {}", new.display())]);
        assert!(empty.before.is_named_in(&format!("stays {}: it has a process", before.display())));
        assert!(!empty.before.is_named_in(&format!("stays {}: it has a process", new.display())));
    }
}
