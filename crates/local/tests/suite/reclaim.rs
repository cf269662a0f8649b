//! Nothing is left behind, however anything dies: what ends by itself, and what whoever comes next takes away. `cargo xtask chaos` does the
//! same at random.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringfence_core::{
    Attachable, Backend, CommandResult, ErrorKind, Leftover, Limits, Pids, Reach, SandboxId, SandboxSpec,
};
use ringfence_local::{LocalBackend, LocalConfig};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::kept::{Place, run};
use super::support::{
    assert_took, cgroups_made_by, children_of, has_cgroups, is_alone, limits_processes, shell, skip, timed,
    until,
};

fn fine() -> Result<CommandResult, ErrorKind> {
    Ok(CommandResult::exited(0, "fine\n", ""))
}

/// A limit gives a sandbox a control group where there are any.
pub(super) async fn limited() -> SandboxSpec {
    if !limits_processes(&LocalBackend::new(LocalConfig::default())).await {
        return SandboxSpec::new();
    }
    SandboxSpec::new().with_limits(Limits { pids: Some(Pids::new(64).unwrap()), ..Limits::default() })
}

fn own_cgroups() -> BTreeSet<PathBuf> {
    cgroups_made_by(std::process::id())
}

fn launchers() -> BTreeSet<u32> {
    children_of(std::process::id()).into_iter().collect()
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// Whatever is dropped while it makes a kept sandbox: nobody would know of it.
#[test]
fn p_116_a_kept_sandbox_whose_creation_is_given_up_ends() {
    if !is_alone("suite::reclaim::p_116_a_kept_sandbox_whose_creation_is_given_up_ends") {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let place = Place::new();
        let backend = place.backend();
        let spec = limited().await;
        let id = backend.create_reachable(&spec, Reach::Kept).await.unwrap().id;
        let launcher = *launchers().first().unwrap();
        let (names, directories) = (place.names(), own_cgroups());
        for micros in (0..6000).step_by(150) {
            tokio::select! {
                biased;
                () = tokio::time::sleep(Duration::from_micros(micros)) => {}
                created = backend.create_reachable(&spec, Reach::Kept) => {
                    backend.destroy(&created.unwrap().id).await.unwrap();
                }
            }
        }
        // Dropped after the first poll: the request is sent, the answer never heard.
        for _ in 0..20 {
            let mut create = backend.create_reachable(&spec, Reach::Kept);
            let poll = std::future::poll_fn(|context| {
                std::task::Poll::Ready(create.as_mut().poll(context).is_pending())
            });
            assert!(poll.await);
        }
        let clean = || {
            (place.names(), own_cgroups(), children_of(launcher).len())
                == (names.clone(), directories.clone(), 1)
        };
        assert!(until(5.0, clean).await, "{:?} {:?}", place.names(), children_of(launcher));
        assert_eq!(run(&place.backend(), &id, "echo fine").await, fine());
        backend.destroy(&id).await.unwrap();
    });
}

/// Tells a process of the next test where to make kept sandboxes until it is killed.
const KEEP: &str = "RINGFENCE_TEST_KEEP";

#[test]
fn p_116_a_kept_sandbox_whose_creator_is_killed_is_whole_or_gone() {
    const TEST: &str = "suite::reclaim::p_116_a_kept_sandbox_whose_creator_is_killed_is_whole_or_gone";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Some(directory) = std::env::var_os(KEEP) {
        let mut config = LocalConfig::default();
        config.runtime_dir = Some(directory.into());
        let backend = LocalBackend::new(config);
        return runtime.block_on(async {
            loop {
                backend.create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap();
            }
        });
    }
    for round in 0..8u64 {
        let place = Place::new();
        let mut creator = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST])
            .env(KEEP, place.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        runtime.block_on(async {
            assert!(until(20.0, || !place.names().is_empty()).await, "it makes some");
            tokio::time::sleep(Duration::from_micros(700 * round)).await;
            creator.kill().unwrap();
            creator.wait().unwrap();
            let other = place.backend();
            let (mut left, mut answers) = (Vec::new(), Vec::new());
            // One that was just being made ends with its creator, which takes a moment.
            for _ in 0..200 {
                left = other.list().await.unwrap().sandboxes.into_iter().map(|info| info.id).collect();
                answers.clear();
                for id in &left {
                    answers.push(run(&other, id, "echo fine").await);
                }
                if answers.iter().all(|answer| *answer == fine()) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(answers, vec![fine(); left.len()], "round {round}");
            for id in &left {
                other.destroy(id).await.unwrap();
            }
            // The last may not even have been listed yet when it was looked.
            assert!(until(5.0, || place.names().is_empty()).await, "round {round}: {:?}", place.names());
        });
    }
}

/// What is found of this process's. Of the same user there may be more on this machine.
async fn prune(backend: &LocalBackend) -> Vec<Leftover> {
    let own = format!("/ringfence-{}-", std::process::id());
    let left = backend.prune(false).await.unwrap();
    left.into_iter().filter(|left| left.what.contains(&own) || !left.what.starts_with("/sys/")).collect()
}

/// A call of whoever comes next.
#[derive(Debug, Clone, Copy)]
enum Call {
    List,
    Prune,
    Create,
    CreateKept,
    Attach,
    Destroy,
}

impl Call {
    async fn make(self, backend: &LocalBackend) {
        let unknown = SandboxId::new("sb-000000000000").unwrap();
        match self {
            Self::List => assert_eq!(backend.list().await.unwrap().sandboxes, []),
            Self::Prune => {
                let left = prune(backend).await;
                assert!(left.iter().all(|left| left.removed && left.fault.is_none()), "{left:?}");
            }
            Self::Create => {
                let id = backend.create(&SandboxSpec::new()).await.unwrap().id;
                backend.destroy(&id).await.unwrap();
            }
            Self::CreateKept => {
                let id = backend.create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap().id;
                backend.destroy(&id).await.unwrap();
            }
            Self::Attach => assert_eq!(run(backend, &unknown, "true").await, Err(ErrorKind::SandboxLost)),
            Self::Destroy => backend.destroy(&unknown).await.unwrap(),
        }
    }
}

#[test]
fn p_117_every_call_takes_away_what_a_killed_launcher_left() {
    if !is_alone("suite::reclaim::p_117_every_call_takes_away_what_a_killed_launcher_left") {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let spec = limited().await;
        for call in [Call::List, Call::Prune, Call::Create, Call::CreateKept, Call::Attach, Call::Destroy] {
            let place = Place::new();
            let before = launchers();
            // It lives on, and has not noticed anything when the next one comes.
            let creator = place.backend();
            creator.create(&spec).await.unwrap();
            let kept = creator.create_reachable(&spec, Reach::Kept).await.unwrap().id;
            let busy = "for i in 1 2 3 4; do sleep 1000 > /dev/null 2>&1 & done; echo fine";
            assert_eq!(run(&creator, &kept, busy).await, fine());
            assert_eq!((place.names().len(), own_cgroups().len() >= 2), (2, has_cgroups()), "{call:?}");
            let launcher = *launchers().difference(&before).next().unwrap();
            kill(launcher);
            // At once: the kernel still puts away what was in it.
            call.make(&place.backend()).await;
            assert_eq!((place.names(), own_cgroups()), (Vec::new(), BTreeSet::new()), "{call:?}");
            waitpid(Pid::from_raw(launcher.cast_signed()), WaitOptions::empty()).unwrap();
        }
    });
}

#[test]
fn p_117_every_call_takes_away_control_groups_also_where_there_is_no_runtime_directory() {
    const TEST: &str = "p_117_every_call_takes_away_control_groups_also_where_there_is_no_runtime_directory";
    if !has_cgroups() {
        return skip(TEST, "control groups");
    }
    if !is_alone(&format!("suite::reclaim::{TEST}")) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        for call in [Call::List, Call::Prune, Call::Create, Call::Attach, Call::Destroy] {
            let before = launchers();
            let creator = Place::new().backend();
            creator.create(&limited().await).await.unwrap();
            assert!(!own_cgroups().is_empty());
            let launcher = *launchers().difference(&before).next().unwrap();
            kill(launcher);
            let place = Place::new();
            call.make(&place.backend()).await;
            assert_eq!((own_cgroups(), place.path().exists()), (BTreeSet::new(), false), "{call:?}");
            waitpid(Pid::from_raw(launcher.cast_signed()), WaitOptions::empty()).unwrap();
        }
    });
}

/// A process that has nothing to do with any sandbox.
struct Stranger(Child);

impl Stranger {
    /// Somebody puts it into a control group.
    fn start_in(directory: &Path) -> Self {
        let mut sleep = Command::new("sleep");
        let stranger = Self(sleep.arg("1000").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        std::fs::write(directory.join("cgroup.procs"), stranger.0.id().to_string()).unwrap();
        stranger
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // It may have been ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn p_117_what_a_killed_launcher_left_in_use_is_named_and_in_nobodys_way() {
    const TEST: &str = "p_117_what_a_killed_launcher_left_in_use_is_named_and_in_nobodys_way";
    if !has_cgroups() {
        return skip(TEST, "control groups");
    }
    if !is_alone(&format!("suite::reclaim::{TEST}")) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let place = Place::new();
        let creator = place.backend();
        let id = creator.create(&limited().await).await.unwrap().id;
        let [directory] = own_cgroups().into_iter().collect::<Vec<_>>().try_into().unwrap();
        let mut stranger = Stranger::start_in(&directory);
        let launcher = *launchers().iter().find(|pid| **pid != stranger.0.id()).unwrap();
        kill(launcher);
        assert!(until(20.0, || children_of(launcher).is_empty()).await);
        let next = place.backend();
        let (left, took) = timed(prune(&next)).await;
        let what = directory.display().to_string();
        let fault = Some(format!("processes are in it: {}", stranger.0.id()));
        assert_eq!(left, [Leftover { id: id.clone(), what: what.clone(), removed: false, fault }]);
        assert_took(took, 0.0, 0.3);
        let (created, took) = timed(place.backend().create_reachable(&SandboxSpec::new(), Reach::Kept)).await;
        assert_took(took, 0.0, 0.3);
        place.backend().destroy(&created.unwrap().id).await.unwrap();
        stranger.end();
        // By this call, or by whoever else of this user has come in between.
        let left = prune(&next).await;
        assert!(left.is_empty() || left == [Leftover { id, what, removed: true, fault: None }], "{left:?}");
        assert_eq!(own_cgroups(), BTreeSet::new());
    });
}

#[test]
fn p_117_a_control_group_that_stays_is_said_and_removed_with_the_next_sandbox() {
    const TEST: &str = "p_117_a_control_group_that_stays_is_said_and_removed_with_the_next_sandbox";
    if !has_cgroups() {
        return skip(TEST, "control groups");
    }
    if !is_alone(&format!("suite::reclaim::{TEST}")) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let place = Place::new();
        let creator = place.backend();
        let spec = limited().await;
        let id = creator.create_reachable(&spec, Reach::Kept).await.unwrap().id;
        let left = own_cgroups();
        let mut stranger = Stranger::start_in(left.first().unwrap());
        let other = place.backend();
        // It goes on with others while it tries.
        let meanwhile = async {
            let id = creator.create(&SandboxSpec::new()).await.unwrap().id;
            creator.run_command(&id, shell("echo fine", 20.0)).await.unwrap().stdout.text().into_owned()
        };
        let (destroyed, said) = tokio::join!(timed(other.destroy(&id)), timed(meanwhile));
        assert_eq!(said.0, "fine\n");
        assert_took(said.1, 0.0, 1.0);
        let error = destroyed.0.unwrap_err();
        let told = "its processes are gone, but a cgroup directory of it could not be removed";
        assert_eq!((error.kind(), error.message()), (&ErrorKind::Unexpected, told));
        assert_took(destroyed.1, 4.9, 6.0);
        assert_eq!((place.names(), own_cgroups()), (Vec::new(), left));
        stranger.end();
        creator.create(&SandboxSpec::new()).await.unwrap();
        assert_eq!(own_cgroups(), BTreeSet::new());
    });
}
