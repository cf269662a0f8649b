//! Owners in another pid namespace that use the same control groups, as in a container that has the host's: the numbers of their processes
//! mean nothing here, so the lock of a directory tells whether it is somebody's.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ringfence_core::{Attachable, Backend, Leftover, SandboxId};
use rustix::fs::{FlockOperation, flock};

use super::kept::Place;
use super::reclaim::limited;
use super::support::{cgroups, has_cgroups, has_program, is_root, skip, until};

/// Tells a process of these tests that it is elsewhere.
const ELSEWHERE: &str = "RINGFENCE_TEST_ELSEWHERE";

/// What it says begins so.
const SAYS: &str = "elsewhere: ";

/// Whether this can be tried here.
fn can_be_elsewhere(test: &str) -> bool {
    if !has_cgroups() {
        skip(test, "control groups");
        return false;
    }
    if !is_root() {
        skip(test, "root, who may move processes between control groups");
        return false;
    }
    has_program(test, "unshare")
}

#[expect(clippy::print_stdout, reason = "whoever started this process hears it there")]
fn say(what: &str) {
    // A line of its own: the test runner has begun one.
    println!("\n{SAYS}{what}");
}

/// A test in a pid namespace of its own, with a `/proc` of its own.
struct There {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl There {
    fn start(test: &str) -> Self {
        let mut child = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", &format!("suite::elsewhere::{test}")])
            .env(ELSEWHERE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The next that it says.
    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended and said nothing");
            if let Some(said) = line.trim_end().strip_prefix(SAYS) {
                return said.to_owned();
            }
        }
    }

    /// Ends it, and the kernel all of its namespace.
    fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for There {
    fn drop(&mut self) {
        // The test may have ended it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").unwrap().ino()
}

fn cgroups_of_namespace(number: &str) -> BTreeSet<PathBuf> {
    let part = format!("-{number}-sb-");
    let is_its = |path: &PathBuf| path.display().to_string().contains(&part);
    cgroups().into_iter().filter(is_its).collect()
}

/// Moves all processes of a control group up, to where that is allowed.
fn empty(directory: &Path) {
    for pid in fs::read_to_string(directory.join("cgroup.procs")).unwrap().lines() {
        let mut above = directory.ancestors().skip(1);
        assert!(above.any(|group| fs::write(group.join("cgroup.procs"), pid).is_ok()), "{pid}");
    }
}

#[tokio::test]
async fn p_117_what_is_left_of_another_pid_namespace_is_removed_when_that_is_gone_and_not_before() {
    const TEST: &str =
        "p_117_what_is_left_of_another_pid_namespace_is_removed_when_that_is_gone_and_not_before";
    if std::env::var_os(ELSEWHERE).is_some() {
        let place = Place::new();
        let backend = place.backend();
        let id = backend.create(&limited().await).await.unwrap().id;
        say(&format!("{} {} {}", namespace(), std::process::id(), id.as_str()));
        // Until it is killed.
        return std::future::pending().await;
    }
    if !can_be_elsewhere(TEST) {
        return;
    }
    let mut there = There::start(TEST);
    let said = there.hear();
    let [number, owner, id] = said.split(' ').collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert_ne!(number, namespace().to_string());
    assert_eq!(owner, "1", "its numbers are others than here");
    let theirs = cgroups_of_namespace(number);
    let first = theirs.first().unwrap();
    assert!(first.display().to_string().contains("/ringfence-1-"), "{theirs:?}");
    for directory in &theirs {
        empty(directory);
    }
    let place = Place::new();
    let here = place.backend();
    let named = |name: String| first.with_file_name(name);
    // Controls: without the lock it would be removed, whether the namespace is known or not. Nor is anything else what spares it.
    let unlocked =
        [named(format!("ringfence-1-1-{number}-sb-0a")), named("ringfence-1-1-0-sb-0b".to_owned())];
    let locked = named("ringfence-1-1-0-sb-0c".to_owned());
    for directory in unlocked.iter().chain([&locked]) {
        fs::create_dir(directory).unwrap();
    }
    let lock = File::open(&locked).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    here.list().await.unwrap();
    let left = here.prune(false).await.unwrap();
    assert!(!left.iter().any(|left| left.what.contains(&format!("-{number}-sb-"))), "{left:?}");
    assert_eq!(cgroups_of_namespace(number), theirs);
    assert_eq!((unlocked.each_ref().map(|path| path.exists()), locked.exists()), ([false; 2], true));
    drop(lock);
    there.end();
    // Its processes end with its first one, in a moment.
    let free = || {
        theirs
            .iter()
            .all(|path| flock(File::open(path).unwrap(), FlockOperation::NonBlockingLockExclusive).is_ok())
    };
    assert!(until(20.0, free).await);
    let found = here.prune(true).await.unwrap();
    assert_eq!(cgroups_of_namespace(number), theirs, "only looked at");
    let expected = |removed| {
        let of = |path: &PathBuf| Leftover {
            id: SandboxId::new(id).unwrap(),
            what: path.display().to_string(),
            removed,
            fault: None,
        };
        theirs.iter().map(of).collect::<Vec<_>>()
    };
    let of_it = |left: Vec<Leftover>| -> Vec<Leftover> {
        left.into_iter().filter(|left| left.id.as_str() == id).collect()
    };
    assert_eq!(of_it(found), expected(false));
    // By this, or by whoever else of this user has come in between.
    let found = of_it(here.prune(false).await.unwrap());
    assert!(found.is_empty() || found == expected(true), "{found:?}");
    assert_eq!((cgroups_of_namespace(number), locked.exists()), (BTreeSet::new(), false));
}

/// How many directories are to be taken away from those who make them, and how long that is tried.
const ENOUGH: usize = 3;
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn p_117_whoever_tidies_up_in_another_pid_namespace_is_in_no_creators_way() {
    const TEST: &str = "p_117_whoever_tidies_up_in_another_pid_namespace_is_in_no_creators_way";
    if std::env::var_os(ELSEWHERE).is_some() {
        let place = Place::new();
        let backend = place.backend();
        let spec = limited().await;
        let id = backend.create(&spec).await.unwrap().id;
        say(&namespace().to_string());
        let over = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
        let mut made = 0;
        while !over.is_finished() {
            let id = backend.create(&spec).await.unwrap().id;
            backend.destroy(&id).await.unwrap();
            made += 1;
        }
        backend.destroy(&id).await.unwrap();
        return say(&format!("{made} were made"));
    }
    if !can_be_elsewhere(TEST) {
        return;
    }
    let mut there = There::start(TEST);
    let number = there.hear();
    let first = cgroups_of_namespace(&number).into_iter().next().unwrap();
    let parent = first.parent().unwrap();
    let part = format!("-{number}-sb-");
    let deadline = Instant::now() + PATIENCE;
    let mut taken = 0;
    // What the sweep does with each directory, all the time and with nothing else.
    while taken < ENOUGH && Instant::now() < deadline {
        for entry in fs::read_dir(parent).unwrap().flatten() {
            if !entry.file_name().to_string_lossy().contains(&part) {
                continue;
            }
            let Ok(file) = File::open(entry.path()) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                taken += usize::from(fs::remove_dir(entry.path()).is_ok());
            }
        }
    }
    there.child.stdin.take().unwrap().write_all(b"over\n").unwrap();
    let said = there.hear();
    assert!(said.ends_with(" were made"), "{said}");
    // What was taken was made again. With one processor it may never be.
    eprintln!("{taken} directories were taken before they were locked; {said}");
    let place = Place::new();
    place.backend().list().await.unwrap();
    assert_eq!(cgroups_of_namespace(&number), BTreeSet::new());
}
