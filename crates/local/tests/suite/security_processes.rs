//! Processes: what a command can see, signal, trace and read of its sandbox's own machinery, of the host and of neighbours.

use ringfence_core::{Backend, Ending, GuestPath, SandboxSpec};

use super::security_support::{
    Canary, Machinery, has_python, inside, is_root, lines, outside, script, skipped,
};
use super::support::{Box, Marker, Said, assert_took, program, shell, slowness, timed};

#[tokio::test]
async fn s_06_no_capability_in_any_set() {
    let sandbox = Box::new().await;
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let expected: String = sets.iter().map(|set| format!("{set}:\t0000000000000000\n")).collect();
    for command in [
        "grep ^Cap /proc/self/status",
        "sh -c 'sh -c \"grep ^Cap /proc/self/status\" & wait'",
        "(setsid grep ^Cap /proc/self/status)",
    ] {
        assert_eq!(sandbox.run(command).await, Said::ok(&expected), "{command}");
    }
    // Control: capabilities can be had on the host, by root at once, by others in a user namespace.
    let host = outside(&format!(
        "if os.geteuid(): assert call({}, 0x10000000) == 'ok'\nprint(open('/proc/self/status').read())",
        libc::SYS_unshare
    ));
    assert!(host.contains("CapBnd:") && !host.contains("CapBnd:\t0000000000000000"));
    assert!(!host.contains("CapEff:\t0000000000000000"));
}

#[tokio::test]
async fn s_06_no_new_privileges_and_a_filter_in_every_process() {
    let sandbox = Box::new().await;
    // The agent, the shim and the command.
    let said = sandbox.run("grep -hE '^(NoNewPrivs|Seccomp):' /proc/[0-9]*/status | sort | uniq -c").await;
    let counts: Vec<String> =
        said.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(counts.len() == 2, "{said:?}");
    let of = |counts: &str, name: &str| {
        counts.strip_suffix(name).and_then(|count| count.trim().parse::<u32>().ok())
    };
    assert!(of(&counts[0], "NoNewPrivs: 1").is_some_and(|count| count >= 3), "{counts:?}");
    assert!(of(&counts[1], "Seccomp: 2").is_some_and(|count| count >= 3), "{counts:?}");
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(own.contains("Seccomp:"), "a kernel that tells");
}

/// Prints what happens when one process reaches for another: `TARGET` is its number.
fn reach(target: &str) -> String {
    format!(
        r"
target = {target}
def read_memory():
    buffer = ctypes.create_string_buffer(8)
    here = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 8)
    there = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 8)
    return call({readv}, target, here, 1, there, 1, 0)
print('attach', child(lambda: call({ptrace}, 16, target, 0, 0)))
print('seize', child(lambda: call({ptrace}, 0x4206, target, 0, 0)))
print('readv', read_memory())
def steal():
    fd = libc.syscall({open}, target, 0)
    return call({getfd}, fd, 0, 0) if fd >= 0 else errno.errorcode[ctypes.get_errno()]
print('getfd', steal())
",
        readv = libc::SYS_process_vm_readv,
        ptrace = libc::SYS_ptrace,
        open = libc::SYS_pidfd_open,
        getfd = libc::SYS_pidfd_getfd,
    )
}

/// Whether a user may trace its own descendants only.
fn yama_forbids() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|scope| scope != "0\n")
}

#[tokio::test]
async fn s_12_nothing_of_ours_or_the_hosts_can_be_traced_or_read() {
    const TEST: &str = "s_12_nothing_of_ours_or_the_hosts_can_be_traced_or_read";
    if !has_python(TEST) {
        return;
    }
    let mut canary = Canary::new();
    let sandbox = Box::new().await;
    let refused = "attach EPERM\nseize EPERM\nreadv EPERM\ngetfd EPERM\n";
    // The agent and the shim.
    for target in ["1", "os.getppid()"] {
        assert_eq!(inside(&sandbox, &reach(target)).await, refused, "{target}");
    }
    let sibling = "sibling = os.fork()\nif sibling == 0: signal.pause()\n";
    let probe = format!("{sibling}{}\nos.kill(sibling, 9)", reach("sibling"));
    // A sibling can be stopped and looked at, as a checker for leaks does, where the host lets a user do that.
    let yama =
        std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|scope| scope != "0\n");
    let attached = if yama { "attach EPERM\n" } else { "attach ok\n" };
    let sibling = format!("{attached}seize EPERM\nreadv EPERM\ngetfd EPERM\n");
    assert_eq!(inside(&sandbox, &probe).await, sibling);
    // A process of the host of the same user has no number here.
    let host = canary.pid().to_string();
    let expected = "attach ESRCH\nseize EPERM\nreadv EPERM\ngetfd ESRCH\n";
    assert_eq!(inside(&sandbox, &reach(&host)).await, expected);
    // Control: the host lets a parent do all of that to its child.
    let found = lines(&outside(&probe));
    assert_eq!(found["readv"], "ok");
    assert_eq!(found["getfd"], "ok");
    if is_root() {
        assert_eq!((found["attach"].as_str(), found["seize"].as_str()), ("ok", "ok"));
    }
    canary.assert_alive();
}

/// One that holds another in its stop, and the other way round, so that neither goes on without the other.
#[tokio::test]
async fn s_12_processes_that_trace_each_other_end_like_all() {
    const TEST: &str = "s_12_processes_that_trace_each_other_end_like_all";
    if !has_python(TEST) {
        return;
    }
    let marker = Marker::new();
    let probe = script(&format!(
        r"
PTRACE = {ptrace}
# Where Yama asks for it: its child may trace this one.
libc.prctl(0x59616d61, ctypes.c_ulong(2 ** 64 - 1), 0, 0, 0)
first = os.getpid()
go, tell = os.pipe()
other = os.fork()
if other == 0:
    os.read(go, 1)
    # That the other one stops is told by a signal, at which this one stops too: once it has said so.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    assert call(PTRACE, 16, first, 0, 0) == 'ok'
    os.write(1, b'both\n')
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    signal.pause()
else:
    assert call(PTRACE, 16, other, 0, 0) == 'ok'
    os.waitpid(other, 0)
    assert call(PTRACE, 7, other, 0, 0) == 'ok'
    os.write(tell, b'x')
    signal.pause()
",
        ptrace = libc::SYS_ptrace
    ));
    let sandbox = Box::new().await;
    let file = GuestPath::new("/tmp/t.py").unwrap();
    sandbox.backend.write_file(&sandbox.id, &file, probe.as_bytes()).await.unwrap();
    let timeout = 2.0 * slowness();
    let (said, took) = timed(sandbox.run_for(&format!("python3 /tmp/t.py {marker}"), timeout)).await;
    assert_eq!(said, Said::timed_out("both\n"));
    assert_took(took, timeout, timeout + 2.5);
    marker.assert_dead();
    // And with the sandbox.
    let command = format!("python3 /tmp/t.py {marker} >/tmp/said & while ! [ -s /tmp/said ]; do :; done");
    assert_eq!(sandbox.run(&command).await, Said::ok(""));
    assert_eq!(marker.processes().len(), 2);
    sandbox.destroy().await;
    assert!(marker.dies_within(2.0).await);
}

/// What an earlier command left behind can lay hold of a later one, so that nobody may collect it: then it ends too.
#[tokio::test]
async fn s_12_a_command_that_is_held_by_another_ends_in_time_and_so_does_what_holds_it() {
    const TEST: &str = "s_12_a_command_that_is_held_by_another_ends_in_time_and_so_does_what_holds_it";
    if !has_python(TEST) {
        return;
    }
    if yama_forbids() {
        return skipped(TEST, "tracing of processes that are no descendants, which Yama forbids here");
    }
    let marker = Marker::new();
    let probe = script(&format!(
        r"
while True:
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            victim = open(f'/proc/{{pid}}/comm').read() == 'sleep\n'
        except OSError:
            continue
        if victim:
            print(call({}, 16, int(pid), 0, 0), flush=True)
            signal.pause()
",
        libc::SYS_ptrace
    ));
    let sandbox = Box::new().await;
    let file = GuestPath::new("/tmp/t.py").unwrap();
    sandbox.backend.write_file(&sandbox.id, &file, probe.as_bytes()).await.unwrap();
    let holder = Marker::new();
    let hold = format!("python3 /tmp/t.py {holder} >/tmp/said &");
    assert_eq!(sandbox.run(&hold).await, Said::ok(""));
    // Long enough for it to start.
    let timeout = 1.0 * slowness();
    let (said, took) = timed(sandbox.run_for(&format!("sleep {marker}"), timeout)).await;
    assert_eq!(said, Said::timed_out(""));
    // The timeout, and the time to end by itself: what is held does not.
    assert_took(took, timeout + 2.0, timeout + 2.0);
    marker.assert_dead();
    assert_eq!(sandbox.read("/tmp/said").await, Ok(b"ok\n".to_vec()));
    assert!(holder.dies_within(2.0).await);
}

#[tokio::test]
async fn s_12_the_agent_and_the_shims_show_nothing_of_themselves() {
    const TEST: &str = "s_12_the_agent_and_the_shims_show_nothing_of_themselves";
    if !has_python(TEST) {
        return;
    }
    let probe = r"
for pid in sys.argv[1:] or [1, os.getppid()]:
    for name in ['mem', 'environ', 'maps', 'smaps', 'auxv', 'pagemap', 'syscall', 'io']:
        print(f'{name}', attempt(lambda: os.read(os.open(f'/proc/{pid}/{name}', 0), 16)))
    for name in ['fd', 'map_files', 'fdinfo']:
        print(f'{name}', attempt(os.listdir, f'/proc/{pid}/{name}'))
    for name in ['exe', 'cwd', 'root', 'ns/mnt', 'ns/user']:
        print(f'{name}', attempt(os.readlink, f'/proc/{pid}/{name}'))
    print('fd_0', attempt(os.open, f'/proc/{pid}/fd/0', 0))
    print('through_root', attempt(os.open, f'/proc/{pid}/root/etc/passwd', 0))
    for name in ['oom_score_adj', 'timerslack_ns', 'comm', 'mem']:
        print(f'write_{name}', attempt(lambda: os.write(os.open(f'/proc/{pid}/{name}', os.O_WRONLY), b'900')))
";
    let sandbox = Box::new().await;
    let found = inside(&sandbox, probe).await;
    assert_eq!(found.lines().count(), 44);
    for line in found.lines() {
        let errno = line.split(' ').nth(1).unwrap();
        assert!(["EACCES", "EPERM"].contains(&errno), "{line}");
    }
    // Control: a process shows all of that of itself, inside and outside.
    let own = probe.replace("[1, os.getppid()]", "[os.getpid()]");
    for text in [inside(&sandbox, &own).await, outside(&own)] {
        let found = lines(&text);
        for name in ["mem", "environ", "maps", "fd", "exe", "root", "through_root", "write_oom_score_adj"] {
            // Address 0 of memory is not there.
            assert_eq!(found[name], if name == "mem" { "EIO" } else { "ok" }, "{name}");
        }
    }
}

#[tokio::test]
async fn s_12_file_operations_reach_no_more_of_the_agent_than_commands() {
    let sandbox = Box::new().await;
    for name in ["maps", "environ", "auxv", "mem", "fdinfo/0", "smaps", "status", "task/1/maps"] {
        for path in
            [format!("/proc/self/{name}"), format!("/proc/1/{name}"), format!("/proc/thread-self/{name}")]
        {
            let path = ringfence_core::GuestPath::new(path).unwrap();
            let error = sandbox.backend.read_file(&sandbox.id, &path, 1 << 20).await.unwrap_err();
            let expected = [
                ringfence_core::ErrorKind::NotARegularFile,
                ringfence_core::ErrorKind::PermissionDenied,
                ringfence_core::ErrorKind::NotFound,
            ];
            assert!(expected.contains(error.kind()), "{path}: {error}");
        }
    }
    for path in ["/proc/self/exe", "/proc/self/fd/0", "/proc/1/root/etc/passwd", "/proc/self/cwd/x"] {
        let path = ringfence_core::GuestPath::new(path).unwrap();
        let error = sandbox.backend.read_file(&sandbox.id, &path, 1 << 20).await.unwrap_err();
        assert!(
            error.message().contains("symbolic links")
                || *error.kind() == ringfence_core::ErrorKind::PermissionDenied,
            "{path}: {error}"
        );
    }
    // Control: what is kept somewhere is read.
    let path = ringfence_core::GuestPath::new("/usr/bin/env").unwrap();
    assert!(!sandbox.backend.read_file(&sandbox.id, &path, 8 << 20).await.unwrap().is_empty());
}

#[tokio::test]
async fn no_signal_from_inside_harms_the_first_process() {
    const TEST: &str = "no_signal_from_inside_harms_the_first_process";
    if !has_python(TEST) {
        return;
    }
    let sandbox = Box::new().await;
    let machinery = Machinery::of(&sandbox).await;
    let probe = format!(
        r"
for number in range(1, 65):
    print(number, call({kill}, 1, number), call({tgkill}, 1, 1, number))
print('queue', call({queue}, 1, 9, struct.pack('3i116x', 9, 0, -1)))
fd = libc.syscall({open}, 1, 0)
print('pidfd', call({send}, fd, 9, 0, 0))
",
        kill = libc::SYS_kill,
        tgkill = libc::SYS_tgkill,
        queue = libc::SYS_rt_sigqueueinfo,
        open = libc::SYS_pidfd_open,
        send = libc::SYS_pidfd_send_signal,
    );
    let found = inside(&sandbox, &probe).await;
    assert_eq!(found.lines().count(), 66);
    assert!(found.lines().all(|line| line.split(' ').skip(1).all(|outcome| outcome == "ok")), "{found}");
    assert_eq!(sandbox.run("echo alive").await, Said::ok("alive\n"));
    assert_eq!(Machinery::of(&sandbox).await, machinery);
    // Control: the same signal ends a process that is no first one.
    assert_eq!(
        outside(
            "pid = os.fork()\nif pid == 0: signal.pause()\nos.kill(pid, 15)\nprint(os.waitpid(pid, 0)[1])"
        ),
        "15\n"
    );
}

#[tokio::test]
async fn no_limit_and_no_priority_of_the_first_process_can_be_changed() {
    const TEST: &str = "no_limit_and_no_priority_of_the_first_process_can_be_changed";
    if !has_python(TEST) {
        return;
    }
    // A processor time limit would end even the first process; a descriptor limit would make it deaf.
    let probe = format!(
        r"
def limits(target):
    for resource in range(16):
        yield call({prlimit}, target, resource, struct.pack('QQ', 1, 1), 0)
print('limits', *sorted(set(limits(1))))
print('scheduler', call({setscheduler}, 1, 5, struct.pack('i', 0)))
print('parameter', call({setparam}, 1, struct.pack('i', 0)))
print('attributes', call({setattr}, 1, struct.pack('IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0), 0))
print('affinity', call({setaffinity}, 1, 8, struct.pack('Q', 1)))
other = os.fork()
if other == 0: signal.pause()
print('other', call({prlimit}, other, 7, struct.pack('QQ', 9, 9), 0), call({setscheduler}, other, 5, struct.pack('i', 0)),
    call({setpriority}, 0, other, 19), call({setpriority}, 2, 0, 19))
print('own', call({prlimit}, 0, 7, struct.pack('QQ', 9, 9), 0), call({setscheduler}, 0, 5, struct.pack('i', 0)),
    call({setpriority}, 0, 0, 19))
os.kill(other, 9)
",
        prlimit = libc::SYS_prlimit64,
        setscheduler = libc::SYS_sched_setscheduler,
        setparam = libc::SYS_sched_setparam,
        setattr = libc::SYS_sched_setattr,
        setaffinity = libc::SYS_sched_setaffinity,
        setpriority = libc::SYS_setpriority,
    );
    let sandbox = Box::new().await;
    // Shims have the user of the commands, so what a command may not do to them it may not do to others either.
    let expected = "limits EPERM\nscheduler EPERM\nparameter EPERM\nattributes EPERM\naffinity EPERM\n\
                    other EPERM EPERM EPERM EPERM\nown ok ok ok\n";
    assert_eq!(inside(&sandbox, &probe).await, expected);
    assert_eq!(sandbox.run("echo alive").await, Said::ok("alive\n"));
}

#[tokio::test]
async fn s_51_killing_everything_reaches_nothing_outside() {
    let mut canary = Canary::new();
    let sandbox = Box::new().await;
    let other = sandbox.backend.create(&SandboxSpec::new()).await.unwrap().id;
    let started = sandbox.backend.run_command(&other, shell("sleep 60 & echo $!", 5.0)).await.unwrap();
    let sleeper = String::from_utf8_lossy(&started.stdout.bytes).trim().to_owned();
    // Everything but the first process, the caller's own shim included: the command counts as killed, the sandbox lives.
    let killed = sandbox.run("kill -KILL -1; sleep 5").await;
    assert!(matches!(killed.ending, Ending::Signalled(9)), "{killed:?}");
    assert_eq!(sandbox.run("echo alive").await, Said::ok("alive\n"));
    let check = shell(&format!("kill -0 {sleeper} && echo alive"), 5.0);
    let lives = sandbox.backend.run_command(&other, check).await.unwrap();
    assert_eq!(&lives.stdout.bytes[..], b"alive\n");
    canary.assert_alive();
    // By number, of this user: there is no such process.
    if has_python("s_51_killing_everything_reaches_nothing_outside") {
        let probe = |pid: u32| format!("print(attempt(os.kill, {pid}, 0), attempt(os.killpg, {pid}, 0))");
        for pid in [canary.pid(), std::process::id(), Machinery::of(&sandbox).await.launcher] {
            // Small numbers can be somebody's inside.
            if pid > 1000 {
                assert_eq!(inside(&sandbox, &probe(pid)).await, "ESRCH ESRCH\n");
            }
        }
        assert_eq!(outside(&format!("print(attempt(os.kill, {}, 0))", canary.pid())), "ok\n");
    }
}

#[tokio::test]
async fn a_command_that_kills_its_shim_ends_with_all_it_started() {
    let sandbox = Box::new().await;
    let said = sandbox.run("setsid sleep 60 & kill -KILL $PPID; sleep 60").await;
    assert_eq!(said.ending, Ending::Signalled(9));
    // The agent ends what lost its shim: left are the agent, this shim and this shell.
    let left = "for _ in 1 2 3 4 5 6 7 8 9 10; do set -- /proc/[0-9]*; [ $# = 3 ] && break; sleep 0.1; done; echo $#";
    assert_eq!(sandbox.run(left).await, Said::ok("3\n"));
}

#[tokio::test]
async fn a_neighbour_is_neither_seen_nor_reached() {
    const TEST: &str = "a_neighbour_is_neither_seen_nor_reached";
    if !has_python(TEST) {
        return;
    }
    let first = Box::new().await;
    let start = r"
key = 0x52464e43
assert libc.shmget(key, 4096, 0o1666) >= 0
server = socket.socket(socket.AF_UNIX); server.bind('\0neighbour'); server.listen()
tcp = socket.socket(); tcp.bind(('127.0.0.1', 4711)); tcp.listen()
open('/tmp/neighbour', 'w').write('x'); os.chmod('/tmp/neighbour', 0o666)
if os.fork(): os._exit(0)
for fd in (0, 1, 2): os.close(fd)
signal.pause()
";
    inside(&first, start).await;
    let probe = r"
print('file', attempt(os.open, '/tmp/neighbour', 0))
print('abstract', attempt(socket.socket(socket.AF_UNIX).connect, '\0neighbour'))
print('tcp', attempt(socket.socket().connect, ('127.0.0.1', 4711)))
print('shm', 'ok' if libc.shmget(0x52464e43, 0, 0) >= 0 else errno.errorcode[ctypes.get_errno()])
print('processes', sum(name.isdigit() for name in os.listdir('/proc')))
";
    // Control: in the same sandbox all of it is there.
    let expected = "file ok\nabstract ok\ntcp ok\nshm ok\nprocesses 5\n";
    assert_eq!(inside(&first, probe).await, expected);
    let unreached = "file ENOENT\nabstract ECONNREFUSED\ntcp ECONNREFUSED\nshm ENOENT\nprocesses 3\n";
    let by_the_same_launcher = first.backend.create(&SandboxSpec::new()).await.unwrap().id;
    let request = program(&["/usr/bin/python3", "-ISc", &script(probe)]);
    let result = first.backend.run_command(&by_the_same_launcher, request).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&result.stdout.bytes), unreached);
    let by_another_launcher = Box::new().await;
    assert_eq!(inside(&by_another_launcher, probe).await, unreached);
}

#[tokio::test]
async fn s_48_ipc_of_the_host_is_not_there() {
    const TEST: &str = "s_48_ipc_of_the_host_is_not_there";
    if !has_python(TEST) {
        return;
    }
    let key = 0x5200_0000 + std::process::id();
    let name = format!("ringfence-{}", std::process::id());
    let make = format!(
        "print('shm', 'ok' if libc.shmget({key}, 4096, 0o1666) >= 0 else errno.errorcode[ctypes.get_errno()])\nprint('queue', \
         call({mq_open}, b'{name}', os.O_CREAT | os.O_RDWR, 0o666, 0))",
        mq_open = libc::SYS_mq_open
    );
    let look = format!(
        "print('shm', 'ok' if libc.shmget({key}, 0, 0) >= 0 else errno.errorcode[ctypes.get_errno()])\nprint('queue', \
         call({mq_open}, b'{name}', os.O_RDWR, 0, 0))",
        mq_open = libc::SYS_mq_open
    );
    let remove = format!(
        "libc.shmctl(libc.shmget({key}, 0, 0), 0, 0)\ncall({mq_unlink}, b'{name}')",
        mq_unlink = libc::SYS_mq_unlink
    );
    assert_eq!(outside(&make), "shm ok\nqueue ok\n");
    let sandbox = Box::new().await;
    let found = inside(&sandbox, &look).await;
    let control = outside(&look);
    outside(&remove);
    let found = lines(&found);
    assert_eq!(found["shm"], "ENOENT");
    // Landlock takes the place where queues live for a directory nobody may read.
    assert!(["ENOENT", "EACCES"].contains(&found["queue"].as_str()), "{found:?}");
    assert_eq!(control, "shm ok\nqueue ok\n");
    assert_eq!(sandbox.run("ls -A /dev/mqueue").await.ending, Ending::Exited(2));
}

#[tokio::test]
async fn nothing_inside_names_a_process_of_the_host() {
    let sandbox = Box::new().await;
    let said =
        sandbox.run("cat /proc/1/cmdline /proc/$PPID/cmdline | tr '\\0' ' '; cat /proc/1/comm; env").await;
    let owner = std::process::id().to_string();
    assert_eq!(said.ending, Ending::Exited(0));
    let named =
        said.stdout.split(|character: char| !character.is_ascii_digit()).any(|number| number == owner);
    assert!(!named, "{said:?}");
}

#[tokio::test]
async fn the_launcher_and_the_agent_take_nothing_from_the_environment_of_their_owner() {
    const TEST: &str = "the_launcher_and_the_agent_take_nothing_from_the_environment_of_their_owner";
    if !has_python(TEST) {
        return;
    }
    let sandbox = Box::new().await;
    // By the kernel's own account, from outside.
    let launcher = Machinery::of(&sandbox).await.launcher;
    let environment = std::fs::read(format!("/proc/{launcher}/environ"));
    let own = std::fs::read("/proc/self/environ").unwrap();
    assert!(!own.is_empty());
    if let Ok(environment) = environment {
        let text = String::from_utf8_lossy(&environment).into_owned();
        assert!(!text.contains("PATH=") && !text.contains("HOME="), "{text}");
    }
    let said = sandbox.run("env | cut -d= -f1 | sort | tr '\\n' ' '").await;
    let expected = "HOME HOSTNAME LANG LOGNAME PATH PWD SHELL SHLVL USER _ ";
    let without_shell = "HOME HOSTNAME LANG LOGNAME PATH PWD SHELL USER ";
    assert!([expected, without_shell].contains(&said.stdout.as_str()), "{said:?}");
}
