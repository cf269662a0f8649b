//! Limits: enforced to the letter, or refused by name.

use std::time::Duration;

use ringfence_core::{
    Backend, ByteSize, CommandRequest, Cpus, Ending, EnforcementRow, ErrorKind, Evidence, Limits, Pids,
    SandboxSpec, SpecField,
};
use ringfence_local::{LocalBackend, LocalConfig};

use super::support::{
    Box, Marker, Said, facts, has_cgroups, has_process_limit, has_program, is_alone, is_root, limit, seconds,
    shell, slowness, timed, until,
};

/// Tells tests that this process was started without a view of control groups.
const NO_CGROUPS: &str = "RINGFENCE_TEST_NO_CGROUPS";

fn memory(mebibytes: u64) -> Limits {
    Limits { memory: Some(ByteSize::from_bytes(mebibytes << 20).unwrap()), ..Limits::default() }
}

fn cpus(number: f64) -> Limits {
    Limits { cpus: Some(Cpus::new(number).unwrap()), ..Limits::default() }
}

fn pids(number: u32) -> Limits {
    Limits { pids: Some(Pids::new(number).unwrap()), ..Limits::default() }
}

fn disk(bytes: u64) -> Limits {
    Limits { disk: Some(ByteSize::from_bytes(bytes).unwrap()), ..Limits::default() }
}

/// Without control groups a limit of memory or processors is refused by name, which is asserted here; returns whether
/// there is more to test.
async fn enforces(field: SpecField, limits: Limits) -> bool {
    let enforced = has_cgroups();
    if !enforced {
        assert!(!is_root() || std::env::var_os(NO_CGROUPS).is_some(), "root without control groups");
        let backend = LocalBackend::new(LocalConfig::default());
        let spec = SandboxSpec::new().with_limits(limits);
        let expected = (ErrorKind::Refused, true, Some(field.key().to_owned()));
        assert_eq!(facts(&backend.judge(&spec).unwrap_err(), "field"), expected);
        assert_eq!(facts(&backend.create(&spec).await.unwrap_err(), "field"), expected);
    }
    enforced
}

async fn row(limits: Limits, field: SpecField) -> EnforcementRow {
    let backend = LocalBackend::new(LocalConfig::default());
    let created = backend.create(&SandboxSpec::new().with_limits(limits)).await.unwrap();
    backend.destroy(&created.id).await.unwrap();
    created.statement.row(field).unwrap().clone()
}

/// Fills memory by a variable of the shell.
const EAT: &str = "x=x; while :; do x=$x$x; done";

#[tokio::test]
async fn p_115_a_command_that_eats_all_memory_says_so() {
    if !enforces(SpecField::Memory, memory(64)).await {
        return;
    }
    let sandbox = Box::limited(memory(64)).await;
    let result = sandbox.request(shell(EAT, 20.0)).await;
    assert_eq!((result.ending, result.sandbox_lost), (Ending::MemoryExceeded, false));
    assert_eq!(result.ending.shell_status(), 137);
    // The sandbox and its later failures are not tainted.
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
    assert_eq!(sandbox.run("false").await, Said::ended(Ending::Exited(1), "", ""));
}

#[tokio::test]
async fn p_115_a_child_that_was_ended_by_the_limit_is_not_the_next_commands_fault() {
    if !enforces(SpecField::Memory, memory(64)).await {
        return;
    }
    let sandbox = Box::limited(memory(64)).await;
    // It copes with the loss of its child.
    let said = sandbox.run(&format!("(exec 2> /dev/null; {EAT}) 2> /dev/null; echo coped")).await;
    assert_eq!((said.ending, said.stdout.as_str()), (Ending::Exited(0), "coped\n"));
    assert_eq!(sandbox.run("exit 3").await, Said::ended(Ending::Exited(3), "", ""));
    // One that passes the kill on says why; one that chose another status keeps it.
    for (then, ending) in
        [("exit $?", Ending::MemoryExceeded), ("exit 1", Ending::Exited(1)), ("exit 42", Ending::Exited(42))]
    {
        let said = sandbox.run(&format!("({EAT}) 2> /dev/null || {then}")).await;
        assert_eq!(said.ending, ending, "{then}");
    }
}

#[tokio::test]
async fn p_115_a_limit_that_another_process_meets_hides_no_status() {
    if !enforces(SpecField::Memory, memory(64)).await {
        return;
    }
    let sandbox = Box::limited(memory(64)).await;
    // One process after the other meets the limit in the background. What is written counts them from outside the limit.
    sandbox
        .prepare(&format!(
            "(exec 2> /dev/null; while :; do ({EAT}); echo >> /tmp/met; done) > /dev/null 2>&1 &"
        ))
        .await;
    let met =
        "before=$(wc -l < /tmp/met); until [ $(wc -l < /tmp/met) -gt $((before + 1)) ]; do sleep 0.05; done";
    sandbox.prepare("until [ -s /tmp/met ]; do sleep 0.05; done").await;
    for status in [0, 1, 2, 3] {
        let said = sandbox.run_for(&format!("{met}; exit {status}"), 60.0).await;
        assert_eq!(said, Said::ended(Ending::Exited(status), "", ""));
    }
    // Control: a command that meets it says so, whoever else does.
    assert_eq!(sandbox.run_for(&format!("({EAT}) 2> /dev/null"), 60.0).await.ending, Ending::MemoryExceeded);
}

#[tokio::test]
async fn p_114_a_limit_that_another_process_meets_hides_no_status() {
    const TEST: &str = "p_114_a_limit_that_another_process_meets_hides_no_status";
    if !has_process_limit(TEST).await {
        return;
    }
    // Round by round, more than there is room for; each leaves room when it is over.
    let round = "(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do sleep 0.2 & done; wait)";
    let rounds = format!(
        "until [ -e /tmp/go ]; do sleep 0.05; done; while :; do {round}; echo >> /tmp/met; sleep 0.2; done"
    );
    // Two rounds long, without a process of its own.
    let met = "count() { n=0; while read -r _; do n=$((n + 1)); done < /tmp/met; }; : > /tmp/go; n=0; \
               while [ $n -lt 2 ]; do count; done";
    for status in [1, 2] {
        let sandbox = Box::limited(pids(20)).await;
        sandbox.prepare(&format!(": > /tmp/met; ({rounds}) > /dev/null 2>&1 &")).await;
        let said = sandbox.run_for(&format!("{met}; exit {status}"), 60.0).await;
        assert_eq!(said, Said::ended(Ending::Exited(status), "", ""));
    }
}

#[tokio::test]
async fn p_114_a_sandbox_that_background_processes_fill_has_a_way_out() {
    if !has_process_limit("p_114_a_sandbox_that_background_processes_fill_has_a_way_out").await {
        return;
    }
    let refused = Said::ended(
        Ending::PidsExceeded,
        "",
        "ringfence: no more processes in this sandbox: what was left in the background fills it. The next command that finds no room \
         ends all of that first\n",
    );
    let filled = async |marker: &Marker| {
        let sandbox = Box::limited(pids(16)).await;
        assert_eq!(sandbox.write("kept", b"kept\n").await, Ok(()));
        // Agent, shim and the shell that leaves them: 13 more. Then there is one left, for the next shim, or none.
        let fill = format!("for i in $(seq 13); do sleep {marker} > /dev/null 2>&1 & done");
        sandbox.prepare(&fill).await;
        assert!(until(5.0, || marker.processes().len() == 13).await);
        assert_eq!(sandbox.run("cat kept").await, refused);
        // Between fork and exec one has no arguments for a moment.
        assert!(until(5.0, || marker.processes().len() == 13).await);
        sandbox
    };
    let marker = Marker::new();
    let sandbox = filled(&marker).await;
    let note = "ringfence: what was left in the background filled the sandbox and was ended\n";
    assert_eq!(sandbox.run("cat kept").await, Said::ended(Ending::Exited(0), "kept\n", note));
    // It starts as soon as enough of them have been put away.
    assert!(marker.dies_within(5.0).await);
    assert_eq!(sandbox.run("cat kept").await, Said::ok("kept\n"));
    // Control: where the second finds room, it ends nothing.
    let marker = Marker::new();
    let sandbox = filled(&marker).await;
    let ended = &marker.processes()[..3];
    for pid in ended {
        let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    // A process counts until it has been reaped, a moment after its end.
    let reaped = || ended.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(until(5.0, reaped).await);
    assert_eq!(sandbox.run("cat kept").await, Said::ok("kept\n"));
    assert_eq!(marker.processes().len(), 10);
}

#[tokio::test]
async fn p_114_a_status_of_its_own_choosing_survives_the_process_limit() {
    const TEST: &str = "p_114_a_status_of_its_own_choosing_survives_the_process_limit";
    if !has_program(TEST, "/usr/bin/python3") || !has_process_limit(TEST).await {
        return;
    }
    let sandbox = Box::limited(pids(8)).await;
    let program = "import os, sys
try:
    while True:
        if os.fork() == 0: os.pause() if hasattr(os, 'pause') else __import__('signal').pause()
except OSError:
    sys.exit(42)
";
    let request = super::support::program(&["/usr/bin/python3", "-c", program]);
    assert_eq!(sandbox.request(request).await.ending, Ending::Exited(42));
}

#[tokio::test]
async fn p_113_a_storm_that_eats_memory_leaves_the_sandbox_usable_or_lost() {
    if !enforces(SpecField::Memory, memory(64)).await {
        return;
    }
    let sandbox = Box::limited(Limits { pids: Some(Pids::new(64).unwrap()), ..memory(64) }).await;
    let storm = format!("for i in $(seq 20); do ({EAT}) & done; wait $!");
    let result = sandbox.request(CommandRequest::shell(storm, seconds(20.0), limit(1000))).await;
    assert_eq!(result.ending, Ending::MemoryExceeded);
    let after = sandbox.backend.run_command(&sandbox.id, shell("echo on", 60.0)).await;
    match after {
        Ok(after) => assert_eq!(after.stdout.text(), "on\n"),
        Err(error) => assert_eq!(*error.kind(), ErrorKind::SandboxLost),
    }
}

#[tokio::test]
async fn p_115_files_count_as_memory() {
    if !enforces(SpecField::Memory, memory(64)).await {
        return;
    }
    // The default disk is half of the memory: a full disk is an error, not the end of a process (P70).
    let sandbox = Box::limited(memory(64)).await;
    let said = sandbox.run("cat /dev/zero > /dev/shm/f; stat -c %s /dev/shm/f").await;
    assert_eq!(said.ending, Ending::Exited(0));
    let size: u64 = said.stdout.trim().parse().unwrap();
    assert!((31 << 20..=32 << 20).contains(&size), "{size}");
}

#[tokio::test]
async fn p_114_a_process_limit_is_exact() {
    if !has_process_limit("p_114_a_process_limit_is_exact").await {
        return;
    }
    let sandbox = Box::limited(pids(20)).await;
    let marker = Marker::new();
    // Agent, shim and this shell count: 17 are left.
    let fill = format!("for i in $(seq 30); do sleep {marker} & done; wait; exit 1");
    let filled = async {
        let result =
            sandbox.request(CommandRequest::shell(fill, seconds(10.0 * slowness()), limit(1000))).await;
        (result.ending, result.sandbox_lost)
    };
    let watched = async {
        let most = || marker.processes().len();
        assert!(until(9.0, || most() >= 18).await, "{} processes", most());
        for _ in 0..20 {
            // The shell's own arguments contain the marker too.
            assert!(most() <= 18, "{} processes", most());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (ending, ()) = tokio::join!(filled, watched);
    match ending {
        (Ending::TimedOut, false) => {
            marker.assert_dead();
            assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
        }
        // Where time runs slowly, bash gives up before; what it had left in the background lives on, and fills the sandbox.
        (Ending::PidsExceeded | Ending::Exited(_), false) => assert_eq!(marker.processes().len(), 17),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn p_114_a_process_limit_stays_exact_after_many_processes() {
    if !has_process_limit("p_114_a_process_limit_stays_exact_after_many_processes").await {
        return;
    }
    let sandbox = Box::limited(pids(20)).await;
    // More than the numbers that the kernel reserves for the first round.
    sandbox.prepare("for i in $(seq 700); do /bin/true; done").await;
    let marker = Marker::new();
    sandbox.prepare(&format!("for i in $(seq 14); do sleep {marker} & done")).await;
    assert!(until(5.0, || marker.processes().len() == 14).await);
    // Agent, that shim, 14 sleepers, the number of their session, a shim and a shell: one is left.
    assert_eq!(sandbox.run("/bin/true; echo $?").await, Said::ok("0\n"));
}

#[tokio::test]
async fn p_114_a_command_that_cannot_start_says_why() {
    if !has_process_limit("p_114_a_command_that_cannot_start_says_why").await {
        return;
    }
    let sandbox = Box::limited(pids(4)).await;
    assert_eq!(sandbox.run("/bin/true; echo $?").await, Said::ok("0\n"));
    let marker = Marker::new();
    let hold = format!("sleep {marker} & sleep {marker}");
    let tried = async {
        assert!(until(5.0, || marker.processes().len() >= 2).await);
        sandbox.run("echo hi").await
    };
    let said = tokio::select! {
        said = sandbox.run(&hold) => panic!("{said:?}"),
        said = tried => said,
    };
    let refused = Said::ended(Ending::PidsExceeded, "", "ringfence: no more processes in this sandbox\n");
    assert_eq!(said, refused);
    assert!(marker.dies_within(2.0).await);
    // A process counts until it has been reaped, a moment after its end.
    let mut said = sandbox.run("echo on").await;
    while said.ending == Ending::PidsExceeded {
        said = sandbox.run("echo on").await;
    }
    assert_eq!((said.ending, said.stdout.as_str()), (Ending::Exited(0), "on\n"));
}

#[tokio::test]
async fn p_114_a_handled_refusal_is_not_the_next_commands_fault() {
    if !has_process_limit("p_114_a_handled_refusal_is_not_the_next_commands_fault").await {
        return;
    }
    let sandbox = Box::limited(pids(8)).await;
    let busy = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2 & done 2> /dev/null; wait; true";
    let said = sandbox.run(busy).await;
    if said.ending == Ending::Exited(0) {
        assert_eq!(sandbox.run("exit 3").await, Said::ended(Ending::Exited(3), "", ""));
    }
}

#[tokio::test]
async fn p_114_too_few_processes_for_any_command_are_refused() {
    let backend = LocalBackend::new(LocalConfig::default());
    for number in 1..4 {
        let error = backend.create(&SandboxSpec::new().with_limits(pids(number))).await.unwrap_err();
        assert_eq!(facts(&error, "field"), (ErrorKind::Refused, true, Some("limits.pids".to_owned())));
    }
}

#[tokio::test]
async fn sp_a_processor_limit_shows_and_holds() {
    if !enforces(SpecField::Cpus, cpus(0.3)).await {
        return;
    }
    let sandbox = Box::limited(cpus(0.3)).await;
    assert_eq!(sandbox.run("nproc").await, Said::ok("1\n"));
    // Two loops, each of which would take all it gets; the sum of what they had, in milliseconds.
    let burn = "for i in 1 2; do (while [ $SECONDS -lt 2 ]; do :; done) & done; wait; cat /proc/$$/stat";
    let said = sandbox.run(burn).await;
    let fields: Vec<u64> =
        said.stdout.rsplit(") ").next().unwrap().split(' ').filter_map(|field| field.parse().ok()).collect();
    // Of the children that were waited for: user and system time, in hundredths.
    let hundredths = fields[12] + fields[13];
    assert!((20..=90).contains(&hundredths), "{hundredths} hundredths of a second: {}", said.stdout);
}

#[tokio::test]
async fn sp_nproc_shows_whole_processors() {
    if !enforces(SpecField::Cpus, cpus(1.5)).await {
        return;
    }
    let here = std::thread::available_parallelism().unwrap().get();
    for (asked, shown) in [(1.0, 1), (1.5, 2), (1000.0, 1000)] {
        let sandbox = Box::limited(cpus(asked)).await;
        assert_eq!(sandbox.run("nproc").await, Said::ok(&format!("{}\n", shown.min(here))));
    }
}

#[tokio::test]
async fn p_70_a_full_disk_is_an_error_and_the_process_lives() {
    let sandbox = Box::limited(disk(8 << 20)).await;
    let said = sandbox.run("head -c 100M /dev/zero > /tmp/f; echo \"alive $?\"; stat -c %s /tmp/f").await;
    assert_eq!(said.stderr, "head: error writing 'standard output': No space left on device\n");
    let size: u64 = said.stdout.strip_prefix("alive 1\n").unwrap().trim().parse().unwrap();
    assert!((7 << 20..=8 << 20).contains(&size), "{size}");
    // All writable places share the limit.
    for directory in ["/workspace", "/home/sandbox", "/var/tmp", "/dev/shm"] {
        let said = sandbox.run(&format!("head -c 1M /dev/zero > {directory}/g")).await;
        assert_eq!(said.ending, Ending::Exited(1), "{directory}");
    }
}

fn memory_and_disk(memory_mebibytes: u64, disk_mebibytes: u64) -> Limits {
    Limits { disk: disk(disk_mebibytes << 20).disk, ..memory(memory_mebibytes) }
}

#[tokio::test]
async fn p_70_a_disk_that_would_leave_processes_no_memory_is_refused() {
    if !enforces(SpecField::Memory, memory(64)).await {
        return;
    }
    let backend = LocalBackend::new(LocalConfig::default());
    for (memory, disk, may, needs) in [
        (512, 1024, "480MiB", "1056MiB"),
        (512, 512, "480MiB", "544MiB"),
        (512, 481, "480MiB", "513MiB"),
        (64, 33, "32MiB", "65MiB"),
        (32, 17, "16MiB", "34MiB"),
    ] {
        let spec = SandboxSpec::new().with_limits(memory_and_disk(memory, disk));
        let hint = format!(
            "with this memory limit the disk may have {may}; this disk limit needs {needs} of memory; without a disk limit it has no \
             more than half of the memory"
        );
        for error in [backend.judge(&spec).unwrap_err(), backend.create(&spec).await.unwrap_err()] {
            assert_eq!(facts(&error, "field"), (ErrorKind::Refused, true, Some("limits.disk".to_owned())));
            assert_eq!(error.hint_text(), Some(hint.as_str()));
        }
    }
    for (memory, disk) in [(512, 480), (64, 32), (32, 16), (4, 1)] {
        let spec = SandboxSpec::new().with_limits(memory_and_disk(memory, disk));
        assert!(backend.judge(&spec).is_ok(), "{memory} {disk}");
    }
}

#[tokio::test]
async fn p_70_the_largest_disk_of_a_memory_limit_can_be_filled_and_emptied() {
    if !enforces(SpecField::Memory, memory(64)).await {
        return;
    }
    let sandbox = Box::limited(memory_and_disk(96, 64)).await;
    let said = sandbox.run("head -c 200M /dev/zero > /tmp/f; echo \"alive $?\"").await;
    assert_eq!((said.ending, said.stdout.as_str()), (Ending::Exited(0), "alive 1\n"));
    assert_eq!(sandbox.run("ls /tmp | sort").await, Said::ok("f\n"));
    assert_eq!(sandbox.run("rm /tmp/f; ls /tmp").await, Said::ok(""));
}

#[tokio::test]
async fn p_70_a_storm_of_files_ends_at_the_number_of_inodes() {
    let sandbox = Box::limited(disk(1 << 20)).await;
    let said = sandbox.run("seq 20000 | xargs touch 2>&1 | grep -c 'No space left'; ls | wc -l").await;
    let counts: Vec<u32> = said.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u32>(), 20_000);
    assert!((10_000..=16_384).contains(&counts[1]), "{counts:?}");
    assert_eq!(sandbox.write("new", b"").await, Err(ErrorKind::StorageFull));
    assert_eq!(sandbox.run("rm 1 2; echo on > new; cat new").await, Said::ok("on\n"));
}

#[tokio::test]
async fn sp_a_memory_limit_is_read_back() {
    if !enforces(SpecField::Memory, memory(64)).await {
        return;
    }
    let row = row(memory(64), SpecField::Memory).await;
    assert_eq!(row.evidence, Evidence::ReadBack);
    // On v1 socket buffers are counted apart, so both together are what was asked.
    let expected = [
        "cgroup v1 memory.limit_in_bytes = 62914560, memory.kmem.tcp.limit_in_bytes = 4194304",
        "cgroup v1 memory.limit_in_bytes = 67108864",
        "cgroup v2 memory.max = 67108864",
    ];
    assert!(expected.iter().any(|start| row.mechanism.starts_with(start)), "{}", row.mechanism);
}

#[tokio::test]
async fn sp_a_processor_limit_is_read_back() {
    if !enforces(SpecField::Cpus, cpus(0.5)).await {
        return;
    }
    let row = row(cpus(0.5), SpecField::Cpus).await;
    let expected = [
        "cgroup v1 cpu.cfs_period_us = 100000, cpu.cfs_quota_us = 50000",
        "cgroup v2 cpu.max = 50000 100000",
    ];
    assert_eq!(row.evidence, Evidence::ReadBack);
    assert!(expected.contains(&row.mechanism.as_str()), "{}", row.mechanism);
}

#[tokio::test]
async fn sp_a_process_limit_is_stated_as_it_is_enforced() {
    if !has_process_limit("sp_a_process_limit_is_stated_as_it_is_enforced").await {
        return;
    }
    let row = row(pids(64), SpecField::Pids).await;
    let strength = "counts the sandbox's agent, and a shim for each running command";
    assert_eq!(row.strength.as_deref(), Some(strength));
    let expected = [
        ("cgroup v1 pids.max = 64", Evidence::ReadBack),
        ("cgroup v2 pids.max = 64", Evidence::ReadBack),
        ("RLIMIT_NPROC = 64 of the sandbox's own user", Evidence::Applied),
        ("pid_max of the pid namespace, which leaves 64 numbers", Evidence::Applied),
    ];
    assert!(expected.contains(&(row.mechanism.as_str(), row.evidence)), "{row:?}");
}

#[tokio::test]
async fn sp_a_disk_limit_is_stated() {
    let expected = EnforcementRow::new(SpecField::Disk, "tmpfs size = 8388608", Evidence::Applied);
    assert_eq!(row(disk(8 << 20), SpecField::Disk).await, expected);
    let default =
        EnforcementRow::new(SpecField::Disk, "tmpfs size = 1073741824 (default)", Evidence::Applied);
    assert_eq!(row(Limits::default(), SpecField::Disk).await, default);
}

#[tokio::test]
async fn sp_limits_that_are_not_asked_are_not_stated() {
    for field in [SpecField::Memory, SpecField::Cpus] {
        assert_eq!(row(Limits::default(), field).await, EnforcementRow::not_asked(field));
    }
}

#[tokio::test]
async fn p_114_without_a_limit_a_sandbox_with_its_own_user_has_a_default_one() {
    let stated = row(Limits::default(), SpecField::Pids).await;
    let sandbox = Box::new().await;
    let limit = sandbox.run("ulimit -u").await;
    if rustix::process::geteuid().is_root() {
        let mechanism = "RLIMIT_NPROC = 4096 of the sandbox's own user (default)";
        assert_eq!(stated, EnforcementRow::new(SpecField::Pids, mechanism, Evidence::Applied));
        assert_eq!(limit, Said::ok("4096\n"));
    } else {
        // The user's own processes would count, so that there is no number that could be right.
        assert_eq!(stated, EnforcementRow::not_asked(SpecField::Pids));
        assert_ne!(limit, Said::ok("4096\n"));
    }
}

#[tokio::test]
async fn sp_two_backends_of_one_process_limit_their_sandboxes_apart() {
    if !has_process_limit("sp_two_backends_of_one_process_limit_their_sandboxes_apart").await {
        return;
    }
    let (one, other) = (Box::limited(pids(30)).await, Box::limited(pids(40)).await);
    let hold = Marker::new();
    one.prepare(&format!("for i in $(seq 25); do sleep {hold} & done")).await;
    assert_eq!(other.run("for i in $(seq 30); do sleep 0.2 & done; wait; echo ok").await, Said::ok("ok\n"));
    one.destroy().await;
    hold.assert_dead();
    assert_eq!(other.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn sp_all_limits_together() {
    let all = Limits {
        cpus: Some(Cpus::new(1.0).unwrap()),
        pids: pids(50).pids,
        disk: disk(4 << 20).disk,
        ..memory(64)
    };
    if !enforces(SpecField::Memory, all).await {
        return;
    }
    let sandbox = Box::limited(all).await;
    let (said, took) = timed(sandbox.run("nproc; echo $(df --output=size -B1 /workspace | tail -1)")).await;
    assert_eq!(said, Said::ok("1\n4194304\n"));
    super::support::assert_took(took, 0.0, 0.5);
}

#[tokio::test]
async fn p_115_python_sees_a_memory_error_or_its_end() {
    if !has_program("p_115_python_sees_a_memory_error_or_its_end", "python3")
        || !enforces(SpecField::Memory, memory(128)).await
    {
        return;
    }
    let sandbox = Box::limited(memory(128)).await;
    let result = sandbox.request(shell("exec python3 -c 'bytearray(2 * 10**8)'", 20.0)).await;
    assert_eq!((result.ending, result.sandbox_lost), (Ending::MemoryExceeded, false));
}

/// What an ordinary user meets without delegated control groups, root meets where nothing is mounted: the other mechanisms.
#[tokio::test]
async fn sp_root_without_control_groups_limits_what_it_can() {
    if !is_root() || std::env::var_os(NO_CGROUPS).is_some() {
        // The other tests of this file are that test already.
        return;
    }
    if !has_program("sp_root_without_control_groups_limits_what_it_can", "unshare") {
        return;
    }
    let script = "umount -R /sys/fs/cgroup && exec \"$@\"";
    let tests = ["suite::limits::p_114", "suite::limits::sp_a_", "suite::limits::p_115_a"];
    let output = std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(tests)
        .env(NO_CGROUPS, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("test result: ok."), "{said}");
}

#[tokio::test]
async fn sp_a_memory_limit_that_no_process_fits_in_is_an_error_and_leaves_nothing() {
    if !enforces(SpecField::Memory, memory(64)).await {
        return;
    }
    if !is_alone("suite::limits::sp_a_memory_limit_that_no_process_fits_in_is_an_error_and_leaves_nothing") {
        return;
    }
    let backend = LocalBackend::new(LocalConfig::default());
    for bytes in [1, 4096, 65_536] {
        let limits = Limits { memory: Some(ByteSize::from_bytes(bytes).unwrap()), ..Limits::default() };
        let (created, took) = timed(backend.create(&SandboxSpec::new().with_limits(limits))).await;
        let error = created.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Refused), "{bytes}: {error}");
        assert!(
            error.is_terminal() && error.hint_text().unwrap().contains("memory limit"),
            "{bytes}: {error}"
        );
        super::support::assert_took(took, 0.0, 0.5);
    }
    // The launcher removes them when it has reaped, just after the error is heard.
    assert!(until(2.0, || super::support::cgroups_made_by(std::process::id()).is_empty()).await);
}

#[tokio::test]
async fn sp_a_disk_limit_that_nothing_fits_in_is_refused() {
    let backend = LocalBackend::new(LocalConfig::default());
    for bytes in [1, 4096] {
        let error = backend.create(&SandboxSpec::new().with_limits(disk(bytes))).await.unwrap_err();
        assert_eq!(facts(&error, "field"), (ErrorKind::Refused, true, Some("limits.disk".to_owned())));
    }
    // The smallest that a command can be expected to use.
    let sandbox = Box::limited(disk(1 << 20)).await;
    assert_eq!(sandbox.run("echo on > f; cat f").await, Said::ok("on\n"));
}
