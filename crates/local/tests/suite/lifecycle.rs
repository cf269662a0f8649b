//! From creation to nothing left: who ends when, and what a sandbox finds when it starts.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{Backend, CommandResult, Ending, ErrorKind, Limits, ListRequest, Pids, SandboxSpec};
use ringfence_local::{LocalBackend, LocalConfig};
use rustix::process::{Pid, Signal};

use super::support::{
    Box, Marker, Said, assert_took, cgroups, cgroups_made_by, cgroups_of, children_of, ended, has_cgroups,
    is_alone, limits_processes, mounts, path, program, shell, slowness, timed, until,
};

/// Selects what this program does as an owner that is going to be killed.
const ROLE: &str = "RINGFENCE_TEST_ROLE";

/// Few processes where they can be limited: what these tests start is little, and the limit gives a sandbox a control group.
async fn few_pids(backend: &LocalBackend) -> SandboxSpec {
    if !limits_processes(backend).await {
        return SandboxSpec::new();
    }
    SandboxSpec::new().with_limits(Limits { pids: Some(Pids::new(64).unwrap()), ..Limits::default() })
}

/// A sandbox of a backend of its own.
async fn small_box() -> Box {
    let backend = LocalBackend::new(LocalConfig::default());
    let id = backend.create(&few_pids(&backend).await).await.unwrap().id;
    Box { backend, id }
}

/// Another process of this test program that owns sandboxes.
struct Owner {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Owner {
    fn start(role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "suite::lifecycle::owner", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// The rest of the line that says `word`.
    fn hear(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the owner ended before it said {word}");
            if let Some((_, rest)) = line.split_once(&format!("@{word} ")) {
                return rest.trim().to_owned();
            }
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn launcher(&self) -> u32 {
        let children = children_of(self.child.id());
        assert_eq!(children.len(), 1, "{children:?}");
        children[0]
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // It may have ended, as it should.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// Not a test: what the program does when it is started as an owner.
#[tokio::test]
async fn owner() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let backend = Arc::new(LocalBackend::new(LocalConfig::default()));
    let spec = few_pids(&backend).await;
    match role.as_str() {
        // Five sandboxes, each with a command and with processes that a command left behind.
        "five" => {
            let marker = Marker::new();
            let mut calls = Vec::new();
            for _ in 0..5 {
                let id = backend.create(&spec).await.unwrap().id;
                let left = shell(
                    &format!("setsid sh -c 'trap \"\" TERM HUP; sleep {marker} & sleep {marker}' &"),
                    60.0,
                );
                backend.run_command(&id, left).await.unwrap();
                let backend = Arc::clone(&backend);
                let command = shell(&format!("echo abc | gzip | gunzip; sleep {marker}"), 60.0);
                calls.push(tokio::spawn(async move { backend.run_command(&id, command).await }));
            }
            println!("@marker {marker}");
            let mut results = Vec::new();
            for call in calls {
                results.push(call.await.unwrap().unwrap());
            }
            let lost = results.iter().all(|result| result.sandbox_lost && result.ending == Ending::Unknown);
            println!("@lost {lost}");
            // The next sandbox gets a launcher of its own.
            let id = backend.create(&spec).await.unwrap().id;
            let said = backend.run_command(&id, shell("echo on", 60.0)).await.unwrap();
            println!("@said {}", said.stdout.text());
            backend.destroy(&id).await.unwrap();
            println!("@destroyed .");
        }
        // Creates and destroys until it is killed.
        "churn" => {
            let churn = || async {
                loop {
                    let id = backend.create(&spec).await.unwrap().id;
                    backend.run_command(&id, program(&["true"])).await.unwrap();
                    backend.destroy(&id).await.unwrap();
                }
            };
            backend.create(&spec).await.unwrap();
            println!("@churning .");
            tokio::join!(churn(), churn(), churn(), churn());
        }
        other => panic!("{other} is no role"),
    }
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

#[tokio::test]
async fn p_123_destroy_is_idempotent_and_what_comes_after_is_lost() {
    let sandbox = Box::new().await;
    sandbox.destroy().await;
    sandbox.destroy().await;
    let (backend, id) = (&sandbox.backend, &sandbox.id);
    let lost = |error: ringfence_core::Error| {
        (error.kind().clone(), error.is_terminal(), error.fact("sandbox").map(str::to_owned))
    };
    let expected = (ErrorKind::SandboxLost, true, Some(id.as_str().to_owned()));
    assert_eq!(lost(backend.run_command(id, shell("true", 1.0)).await.unwrap_err()), expected);
    assert_eq!(lost(backend.read_file(id, &path("f"), 1).await.unwrap_err()), expected);
    assert_eq!(lost(backend.write_file(id, &path("f"), b"").await.unwrap_err()), expected);
    assert_eq!(
        lost(backend.list_directory(id, &path("."), ListRequest::default()).await.unwrap_err()),
        expected
    );
    assert_eq!(lost(backend.export_file(id, &path("f"), 1, &mut Vec::new()).await.unwrap_err()), expected);
}

#[tokio::test]
async fn p_123_destroy_ends_a_running_command() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let command = format!("echo begun; trap '' TERM; setsid sleep {marker} & sleep {marker}");
    let call = sandbox.request(shell(&command, 60.0));
    let (result, took) = tokio::join!(call, async {
        assert!(until(10.0, || marker.processes().len() >= 2).await);
        let ((), took) = timed(sandbox.destroy()).await;
        marker.assert_dead();
        took
    });
    let lost = CommandResult { sandbox_lost: true, ..ended(Ending::Unknown, "begun\n", "") };
    assert_eq!(result, lost);
    assert_took(took, 0.0, 0.1);
}

#[tokio::test]
async fn p_123_destroy_twice_at_once() {
    let sandbox = Box::new().await;
    let (one, other) =
        tokio::join!(sandbox.backend.destroy(&sandbox.id), sandbox.backend.destroy(&sandbox.id));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
}

/// Whatever is under way when a sandbox goes comes to an end with it: done, or lost.
#[tokio::test]
async fn p_123_nothing_waits_for_a_sandbox_that_is_destroyed() {
    for delay in [0, 0, 1, 2, 4, 8] {
        let sandbox = Box::new().await;
        let (backend, id) = (&sandbox.backend, &sandbox.id);
        let content = vec![b'x'; 16 << 20];
        sandbox.write("f", &content).await.unwrap();
        let (file, mut sink) = (path("f"), Vec::new());
        let under_way = async {
            tokio::join!(
                backend.run_command(id, shell("sleep 60", 60.0)),
                backend.read_file(id, &file, 1 << 30),
                backend.write_file(id, &file, &content),
                backend.export_file(id, &file, 1 << 30, &mut sink),
                backend.list_directory(id, &file, ListRequest::default()),
            )
        };
        let destroyed = async {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            sandbox.destroy().await;
        };
        let both = async { tokio::join!(under_way, destroyed) };
        let (((ran, read, written, exported, listed), ()), took) = timed(both).await;
        assert_took(took, 0.0, 0.5);
        let kind = |error: ringfence_core::Error| error.kind().clone();
        let ran = ran.map(|result| (result.ending, result.sandbox_lost)).map_err(kind);
        assert!([Ok((Ending::Unknown, true)), Err(ErrorKind::SandboxLost)].contains(&ran), "{ran:?}");
        let files = [read.map(drop), written, exported.map(drop)].map(|result| result.map_err(kind));
        for result in files {
            assert!([Ok(()), Err(ErrorKind::SandboxLost)].contains(&result), "{delay} ms: {result:?}");
        }
        let listed = listed.map(drop).map_err(kind);
        assert!([Err(ErrorKind::NotADirectory), Err(ErrorKind::SandboxLost)].contains(&listed), "{listed:?}");
    }
}

#[tokio::test]
async fn lc_twenty_sandboxes_at_once() {
    let backend = Arc::new(LocalBackend::new(LocalConfig::default()));
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move {
                let id = backend.create(&SandboxSpec::new()).await.unwrap().id;
                let command = shell(&format!("echo {number} > f; sleep 0.1; cat f; ls /workspace"), 60.0);
                let said = backend.run_command(&id, command).await.unwrap();
                assert_eq!(said, CommandResult::exited(0, format!("{number}\nf\n"), ""));
                backend.destroy(&id).await.unwrap();
                id
            })
        })
        .collect();
    let mut ids = BTreeSet::new();
    for task in tasks {
        ids.insert(task.await.unwrap());
    }
    assert_eq!(ids.len(), 20);
}

#[tokio::test]
async fn lc_nothing_is_left_after_destroy() {
    let before = mounts();
    let sandbox = small_box().await;
    let marker = Marker::new();
    sandbox.prepare(&format!("setsid nohup sleep {marker} > /dev/null 2>&1 &")).await;
    let own = cgroups_of(marker.sleeper().await);
    assert_eq!(!own.is_empty(), has_cgroups(), "{own:?}");
    sandbox.destroy().await;
    marker.assert_dead();
    assert_eq!(cgroups().intersection(&own).count(), 0);
    assert_eq!(mounts(), before);
}

#[tokio::test]
async fn lc_the_end_of_the_backend_is_the_end_of_its_sandboxes() {
    let sandbox = small_box().await;
    let marker = Marker::new();
    sandbox.prepare(&format!("sleep {marker} &")).await;
    let own = cgroups_of(marker.sleeper().await);
    drop(sandbox);
    assert!(marker.dies_within(1.0).await);
    assert!(until(1.0, || cgroups().intersection(&own).count() == 0).await);
}

#[tokio::test]
async fn lc_a_creation_that_is_dropped_leaves_nothing() {
    if !is_alone("suite::lifecycle::lc_a_creation_that_is_dropped_leaves_nothing") {
        return;
    }
    let backend = LocalBackend::new(LocalConfig::default());
    let spec = few_pids(&backend).await;
    // So that the launcher is there.
    let id = backend.create(&spec).await.unwrap().id;
    let launcher: Vec<u32> = children_of(std::process::id());
    let sandboxes = || launcher.iter().flat_map(|pid| children_of(*pid)).count();
    let own = || cgroups_made_by(std::process::id()).len();
    let (processes, directories) = (sandboxes(), own());
    for micros in (0..4000).step_by(200) {
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_micros(micros)) => {}
            created = backend.create(&spec) => backend.destroy(&created.unwrap().id).await.unwrap(),
        }
    }
    // Dropped after the first poll: the request is sent, the answer never heard.
    for _ in 0..20 {
        let mut create = std::boxed::Box::pin(backend.create(&spec));
        assert!(
            std::future::poll_fn(|context| std::task::Poll::Ready(
                create.as_mut().poll(context).is_pending()
            ))
            .await
        );
    }
    assert!(
        until(3.0, || sandboxes() == processes && own() == directories).await,
        "{} {}",
        sandboxes(),
        own()
    );
    backend.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn p_27_an_owner_that_is_killed_takes_its_sandboxes_along() {
    let mut owner = Owner::start("five");
    let marker = Marker(owner.hear("marker"));
    assert!(until(10.0, || marker.processes().len() >= 15).await, "{}", marker.processes().len());
    let launcher = owner.launcher();
    owner.kill();
    assert!(marker.dies_within(1.0).await, "{:?}", marker.processes());
    assert!(until(1.0, || children_of(launcher).is_empty()).await);
    assert!(until(1.0, || cgroups_made_by(owner.child.id()).is_empty()).await);
}

#[tokio::test]
async fn p_27_a_launcher_that_is_killed_takes_its_sandboxes_along() {
    let mut owner = Owner::start("five");
    let marker = Marker(owner.hear("marker"));
    assert!(until(10.0, || marker.processes().len() >= 15).await, "{}", marker.processes().len());
    kill(owner.launcher());
    assert!(marker.dies_within(1.0).await, "{:?}", marker.processes());
    assert_eq!(owner.hear("lost"), "true");
    assert_eq!(owner.hear("said"), "on");
    owner.hear("destroyed");
    // Nobody was left to remove the directories; the next owner does.
    owner.tell("end");
    owner.child.wait().unwrap();
    drop(small_box().await);
    assert_eq!(cgroups_made_by(owner.child.id()), BTreeSet::new());
}

#[tokio::test]
async fn p_27_what_a_killed_launcher_leaves_is_removed_with_the_next() {
    if !is_alone("suite::lifecycle::p_27_what_a_killed_launcher_leaves_is_removed_with_the_next") {
        return;
    }
    let own = || cgroups_made_by(std::process::id());
    // Another launcher of the same process keeps its own.
    let other = LocalBackend::new(LocalConfig::default());
    let spec = few_pids(&other).await;
    let kept = other.create(&spec).await.unwrap().id;
    let [other_launcher] = children_of(std::process::id())[..] else { panic!("one launcher") };
    let lasting = own();
    assert_eq!(!lasting.is_empty(), has_cgroups());
    let backend = LocalBackend::new(LocalConfig::default());
    for _ in 0..3 {
        let id = backend.create(&spec).await.unwrap().id;
        let launchers: Vec<u32> =
            children_of(std::process::id()).into_iter().filter(|pid| *pid != other_launcher).collect();
        let left = own();
        assert_eq!(left.len(), 2 * lasting.len());
        kill(launchers[0]);
        assert!(
            until(5.0, || std::fs::read(format!("/proc/{}/cmdline", launchers[0])).unwrap().is_empty()).await
        );
        // The kernel may still be putting the processes inside away, and then the next sandbox removes them.
        let mut swept = false;
        for _ in 0..500 {
            let next = backend.create(&spec).await.unwrap().id;
            backend.destroy(&next).await.unwrap();
            swept = own() == lasting;
            if swept {
                break;
            }
        }
        assert!(swept, "{:?} of {left:?}", own());
        assert_eq!(
            backend.run_command(&id, shell("true", 5.0)).await.unwrap_err().kind(),
            &ErrorKind::SandboxLost
        );
    }
    let said = other.run_command(&kept, shell("echo on", 5.0)).await.unwrap();
    assert_eq!(said.stdout.text(), "on\n");
}

#[tokio::test]
async fn p_27_owner_and_launcher_killed_together_leave_no_process() {
    let mut owner = Owner::start("five");
    let marker = Marker(owner.hear("marker"));
    assert!(until(10.0, || marker.processes().len() >= 15).await);
    kill(owner.launcher());
    owner.kill();
    assert!(marker.dies_within(1.0).await, "{:?}", marker.processes());
    drop(small_box().await);
    assert_eq!(cgroups_made_by(owner.child.id()), BTreeSet::new());
}

#[tokio::test]
async fn p_25_an_owner_killed_at_any_moment_of_creation_leaves_nothing() {
    for round in 0..8u64 {
        let mut owner = Owner::start("churn");
        owner.hear("churning");
        tokio::time::sleep(Duration::from_micros(10_000 + 1_700 * round)).await;
        let launcher = owner.launcher();
        let sandboxes = children_of(launcher);
        owner.kill();
        let gone = || {
            sandboxes
                .iter()
                .chain([&launcher])
                .all(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().is_empty())
        };
        assert!(until(1.0, gone).await, "round {round}");
        assert!(until(1.0, || cgroups_made_by(owner.child.id()).is_empty()).await, "round {round}");
    }
}

#[tokio::test]
async fn p_25_a_launcher_killed_at_any_moment_of_creation_leaves_no_process() {
    for round in 0..8u64 {
        let mut owner = Owner::start("churn");
        owner.hear("churning");
        tokio::time::sleep(Duration::from_micros(10_000 + 1_700 * round)).await;
        let launcher = owner.launcher();
        let sandboxes = children_of(launcher);
        kill(launcher);
        owner.kill();
        let gone = || {
            sandboxes
                .iter()
                .all(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().is_empty())
        };
        assert!(until(1.0, gone).await, "round {round}");
    }
}

#[tokio::test]
async fn p_119_a_lifetime_ends_the_sandbox_and_not_before() {
    let other = small_box().await;
    let lifetime = Duration::from_millis(1200).mul_f64(slowness());
    let spec = few_pids(&other.backend).await.with_lifetime(lifetime).unwrap();
    let marker = Marker::new();
    let (sandbox, created) = timed(Box::with(spec)).await;
    let (result, took) = timed(sandbox.request(shell(&format!("echo on; sleep {marker}"), 60.0))).await;
    assert_eq!(result, CommandResult { sandbox_lost: true, ..ended(Ending::Unknown, "on\n", "") });
    // It begins at some moment of the creation.
    assert_took(created + took, lifetime.as_secs_f64(), (lifetime + created).as_secs_f64());
    assert!(marker.dies_within(0.5).await);
    let after = sandbox.backend.run_command(&sandbox.id, shell("true", 1.0)).await.unwrap_err();
    assert_eq!(*after.kind(), ErrorKind::SandboxLost);
    sandbox.destroy().await;
    assert_eq!(other.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn p_121_an_agent_that_is_gone_is_a_lost_sandbox() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    sandbox.prepare(&format!("sleep {marker} &")).await;
    let sleeper = marker.sleeper().await;
    // Up from the sleeper to the first process of the sandbox: shim, agent.
    let parent = |pid: u32| -> u32 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap();
        line.parse().unwrap()
    };
    kill(parent(parent(sleeper)));
    assert!(marker.dies_within(1.0).await);
    let error = sandbox.backend.run_command(&sandbox.id, shell("true", 1.0)).await;
    match error {
        Err(error) => assert_eq!(*error.kind(), ErrorKind::SandboxLost),
        Ok(result) => assert!(result.sandbox_lost, "{result:?}"),
    }
    sandbox.destroy().await;
}

#[tokio::test]
async fn bk_01_a_backend_that_is_only_made_starts_nothing() {
    if !is_alone("suite::lifecycle::bk_01_a_backend_that_is_only_made_starts_nothing") {
        return;
    }
    let backend = LocalBackend::new(LocalConfig::default());
    backend.judge(&SandboxSpec::new()).unwrap();
    assert_eq!(children_of(std::process::id()), Vec::<u32>::new());
}

#[tokio::test]
async fn p_77_the_user_has_a_name_and_a_home() {
    let sandbox = Box::new().await;
    assert_eq!(
        sandbox.run("id -un; id -gn; id -u; echo ~; touch ~/f && echo ok").await,
        Said::ok("sandbox\nsandbox\n1000\n/home/sandbox\nok\n")
    );
    let entry = "sandbox:x:1000:1000::/home/sandbox:/bin/sh\n";
    assert_eq!(sandbox.run("getent passwd 1000").await, Said::ok(entry));
    assert_eq!(sandbox.run("id -G").await, Said::ok("1000\n"));
}

#[tokio::test]
async fn p_112_nothing_of_the_hosts_environment_is_seen() {
    let sandbox = Box::new().await;
    let result = sandbox.request(program(&["env"])).await;
    let text = result.stdout.text().into_owned();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let shell_path =
        if std::path::Path::new("/bin/bash").exists() { "SHELL=/bin/bash" } else { "SHELL=/bin/sh" };
    let expected = [
        "HOME=/home/sandbox",
        "HOSTNAME=sandbox",
        "LANG=C.UTF-8",
        "LOGNAME=sandbox",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        shell_path,
        "USER=sandbox",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn p_84_the_time_zone_is_the_hosts() {
    let sandbox = Box::new().await;
    let here = Command::new("date").args(["-d", "@0", "+%H %Z"]).env_remove("TZ").output().unwrap();
    let here = String::from_utf8(here.stdout).unwrap();
    assert_eq!(sandbox.run("date -d @0 '+%H %Z'").await, Said::ok(&here));
    if std::path::Path::new("/usr/share/zoneinfo/Asia/Tokyo").exists() {
        assert_eq!(sandbox.run("TZ=Asia/Tokyo date -d @0 '+%H %Z'").await, Said::ok("09 JST\n"));
    } else {
        super::support::skip("p_84_the_time_zone_is_the_hosts", "zone files");
    }
}

#[tokio::test]
async fn p_85_text_is_utf_8() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.run("x=é; echo ${#x} $LANG").await, Said::ok("1 C.UTF-8\n"));
    assert_eq!(sandbox.run("locale 2>&1 | grep -c 'C.UTF-8'").await.ending, Ending::Exited(0));
}

#[tokio::test]
async fn p_rc_host_name_and_working_directory() {
    let sandbox = Box::new().await;
    let said = sandbox.run("uname -n; cat /etc/hostname; pwd; echo $PWD; stat -c '%U %a' .").await;
    assert_eq!(said, Said::ok("sandbox\nsandbox\n/workspace\n/workspace\nsandbox 755\n"));
    let spec = SandboxSpec::new().with_workdir("/srv/my project").unwrap();
    let sandbox = Box::with(spec).await;
    assert_eq!(sandbox.run("pwd; touch f && ls").await, Said::ok("/srv/my project\nf\n"));
    assert_eq!(sandbox.write("g/h", b"x").await, Ok(()));
    assert_eq!(sandbox.run("cat '/srv/my project/g/h'").await, Said::ok("x"));
}

#[tokio::test]
async fn sp_working_directories_of_the_system_are_refused() {
    let backend = LocalBackend::new(LocalConfig::default());
    for bad in ["/", "/usr/x", "/etc", "/proc/x", "/dev/shm/x", "//usr", "/./bin"] {
        let Ok(spec) = SandboxSpec::new().with_workdir(bad) else { continue };
        let error = backend.create(&spec).await.unwrap_err();
        let expected = (ErrorKind::Refused, true, Some("workdir".to_owned()));
        assert_eq!(super::support::facts(&error, "field"), expected, "{bad}");
    }
}

#[tokio::test]
async fn s_02_descriptors_of_the_host_are_not_inherited() {
    // Without the flag that closes them on exec, as a careless library leaves them.
    let open: Vec<OwnedFd> = (0..50)
        .map(|_| {
            let file = rustix::fs::open("/etc/passwd", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())
                .unwrap();
            rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
            file
        })
        .collect();
    let sandbox = Box::new().await;
    let said = sandbox.run("ls /proc/$$/fd; ls -l /proc/$PPID/fd /proc/1/fd 2>&1 | grep -c passwd").await;
    assert_eq!(said, Said::ended(Ending::Exited(1), "0\n1\n2\n0\n", ""));
    for pid in children_of(std::process::id()) {
        let names = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let leaked = names
            .filter(|name| std::fs::read_link(name.path()).is_ok_and(|to| to.ends_with("passwd")))
            .count();
        assert_eq!(leaked, 0, "in {pid}");
    }
    drop(open);
}

#[test]
fn bk_03_without_a_runtime_creation_is_an_error_and_no_panic() {
    let backend = LocalBackend::new(LocalConfig::default());
    let spec = SandboxSpec::new();
    let mut creating = backend.create(&spec);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = creating.as_mut().poll(&mut context) else {
        panic!("it must end at once with an error");
    };
    assert!(error.is_terminal());
    assert_eq!(error.message(), "there is no tokio runtime here");
}
