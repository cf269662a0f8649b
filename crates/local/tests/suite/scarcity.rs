//! Hosts that run out of something: a clear error with the way out, nothing half made, and what stands goes on.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringfence_core::{Attachable, Backend, CommandResult, Error, ErrorKind, Reach, SandboxSpec};

use rustix::process::{Resource, Rlimit};

use super::kept::Place;
use super::support::{children_of, has_program, is_alone, is_root, shell, skip, slowness, until};

/// Asserts that no sandbox could be made for want of something, and that the remedy names the limit.
#[track_caller]
fn assert_used_up(error: &Error, limit: &str, round: impl Display) {
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::Unavailable, true), "{round}: {error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains(limit)), "{round}: {error}");
}

#[test]
fn a_launcher_without_descriptors_refuses_and_keeps_what_it_has() {
    const TEST: &str = "a_launcher_without_descriptors_refuses_and_keeps_what_it_has";
    if !has_program(TEST, "prlimit") || !is_alone(&format!("suite::scarcity::{TEST}")) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let place = Place::new();
        let backend = place.backend();
        let mut ids = vec![backend.create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap().id];
        let [launcher] = children_of(std::process::id())[..] else { panic!("one launcher") };
        // The owner needs some for each sandbox too, so only the launcher's limit is lowered.
        let lower = |count: usize| {
            let limit = format!("--nofile={count}:");
            let launcher = launcher.to_string();
            assert!(Command::new("prlimit").args(["--pid", &launcher, &limit]).status().unwrap().success());
        };
        // Each number makes it stop at another step.
        for count in [40, 70, 71, 72, 73, 74, 75, 76, 77, 200] {
            lower(count);
            let error = loop {
                match backend.create_reachable(&SandboxSpec::new(), Reach::Kept).await {
                    Ok(created) => ids.push(created.id),
                    Err(error) => break error,
                }
            };
            assert_used_up(&error, "ulimit -Hn", count);
            assert!(error.message().starts_with("no descriptor is left for another sandbox: "), "{error}");
            // Nothing of it is there, and the others are.
            assert_eq!(place.names().len(), 2 * ids.len(), "{count}");
            assert!(until(5.0, || children_of(launcher).len() == ids.len()).await, "{count}");
            let said = place.backend().run_command(&ids[0], shell("echo fine", 20.0)).await;
            assert_eq!(
                said.map_err(|error| error.to_string()),
                Ok(CommandResult::exited(0, "fine\n", "")),
                "{count}"
            );
        }
        assert!(ids.len() > 20, "{}", ids.len());
        backend.destroy(&ids.pop().unwrap()).await.unwrap();
        ids.push(backend.create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap().id);
        for id in &ids {
            backend.destroy(id).await.unwrap();
        }
        assert!(until(5.0, || place.names().is_empty()).await, "{:?}", place.names());
    });
}

#[test]
fn an_owner_without_descriptors_is_told_and_goes_on_with_more() {
    const TEST: &str = "suite::scarcity::an_owner_without_descriptors_is_told_and_goes_on_with_more";
    if !is_alone(TEST) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let place = Place::new();
        let backend = place.backend();
        let id = backend.create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap().id;
        let [launcher] = children_of(std::process::id())[..] else { panic!("one launcher") };
        let names = place.names();
        let full = rustix::process::getrlimit(Resource::Nofile);
        let say = || backend.run_command(&id, shell("echo fine", 20.0));
        let fine = Ok(CommandResult::exited(0, "fine\n", ""));
        let (mut refused, mut failed) = (0, 0);
        for more in 0..24 {
            let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
            rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(open + more), ..full })
                .unwrap();
            let created = backend.create_reachable(&SandboxSpec::new(), Reach::Kept).await;
            let said = say().await;
            rustix::process::setrlimit(Resource::Nofile, full).unwrap();
            match created {
                Ok(created) => backend.destroy(&created.id).await.unwrap(),
                Err(error) => {
                    assert_used_up(&error, "ulimit -n", more);
                    refused += 1;
                }
            }
            if let Err(error) = said {
                assert!(!error.is_terminal(), "{more}: {error}");
                assert!(error.hint_text().is_some_and(|hint| hint.contains("ulimit -n")), "{more}: {error}");
                failed += 1;
            }
            // Nothing is left of either, and the sandbox goes on.
            let clean = || (place.names(), children_of(launcher).len()) == (names.clone(), 1);
            assert!(until(5.0, clean).await, "{more}: {:?} {:?}", place.names(), children_of(launcher));
            assert_eq!(say().await.map_err(|error| error.to_string()), fine, "{more}");
        }
        assert!((2..24).contains(&refused) && (2..24).contains(&failed), "{refused} {failed}");
        backend.destroy(&id).await.unwrap();
    });
}

/// A limit of processes around this one alone.
enum Around {
    /// A control group, whose number of processes is written here.
    Group(PathBuf),
    /// A user of its own: in a user namespace of its own only what is in it counts.
    User,
}

impl Around {
    /// Allows so many more than there are.
    fn allow(&self, more: u64) {
        match self {
            Self::Group(directory) => {
                let now: u64 =
                    fs::read_to_string(directory.join("pids.current")).unwrap().trim().parse().unwrap();
                fs::write(directory.join("pids.max"), (now + more).to_string()).unwrap();
            }
            Self::User => {
                let threads = fs::read_dir("/proc/self/task").unwrap().count() as u64;
                let limit = rustix::process::getrlimit(Resource::Nproc);
                rustix::process::setrlimit(
                    Resource::Nproc,
                    Rlimit { current: Some(threads + more), ..limit },
                )
                .unwrap();
            }
        }
    }
}

/// Tells a process of the next test what is around it: a control group, or nothing.
const AROUND: &str = "RINGFENCE_TEST_AROUND";

#[test]
fn without_processes_creation_is_refused_at_whatever_step_and_nothing_is_left() {
    const TEST: &str = "without_processes_creation_is_refused_at_whatever_step_and_nothing_is_left";
    if let Some(around) = std::env::var_os(AROUND) {
        let around = if around.is_empty() { Around::User } else { Around::Group(around.into()) };
        return tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(run_short(&around));
    }
    let itself = || {
        let mut arguments = vec![std::env::current_exe().unwrap().into_os_string()];
        arguments.extend(["--exact".into(), format!("suite::scarcity::{TEST}").into()]);
        arguments
    };
    let hierarchy = is_root().then(hierarchy_of_pids).flatten();
    let output = if let Some(hierarchy) = hierarchy {
        let group = hierarchy.join(format!("scarcity-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let enter = "echo $$ > $0/cgroup.procs; exec \"$@\"";
        let output =
            Command::new("sh").args(["-c", enter]).arg(&group).args(itself()).env(AROUND, &group).output();
        // The last process may just be going.
        for _ in 0..500 {
            if fs::remove_dir(&group).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(!group.exists(), "what was started there has ended");
        output.unwrap()
    } else if !is_root() && has_program(TEST, "unshare") {
        let unshare = ["--user", "--map-current-user", "--"];
        Command::new("unshare").args(unshare).args(itself()).env(AROUND, "").output().unwrap()
    } else {
        return skip(TEST, "a limit of processes that holds for this user");
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("test result: ok. 1 passed"), "{said}{told}");
}

/// The root of the control groups that can limit processes.
fn hierarchy_of_pids() -> Option<PathBuf> {
    let v1 = Path::new("/sys/fs/cgroup/pids");
    if v1.join("cgroup.procs").exists() {
        return Some(v1.to_owned());
    }
    // Version 2 has the controller below its root only after this.
    let v2 = Path::new("/sys/fs/cgroup");
    fs::write(v2.join("cgroup.subtree_control"), "+pids").ok().map(|()| v2.to_owned())
}

async fn run_short(around: &Around) {
    // Measured by starting programs, which is over from here on.
    slowness();
    let place = Place::new();
    let mut refused = Vec::new();
    for more in 0..8 {
        let backend = place.backend();
        around.allow(more);
        match backend.create_reachable(&SandboxSpec::new(), Reach::Kept).await {
            Ok(created) => backend.destroy(&created.id).await.unwrap(),
            Err(error) => {
                assert_used_up(&error, "ulimit -u", more);
                assert!(
                    error.message().starts_with("no process can be started any more: "),
                    "{more}: {error}"
                );
                refused.push((more, error.message().to_owned()));
            }
        }
        assert!(until(5.0, || place.names().is_empty()).await, "{more}: {:?}", place.names());
        drop(backend);
        assert!(until(5.0, || children_of(std::process::id()).is_empty()).await, "{more}");
    }
    // At more than one step, and not at all with enough.
    let steps: std::collections::BTreeSet<&String> = refused.iter().map(|(_, message)| message).collect();
    assert!(steps.len() >= 2 && refused.iter().all(|(more, _)| *more < 6), "{refused:?}");
}
