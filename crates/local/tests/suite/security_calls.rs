//! System calls that a sandbox must not make: exact errors inside, the same call on the host as control.

use std::fmt::Write as _;

use super::security_support::{has_python, inside, is_root, lines, outside, skipped};
use super::support::Box;

/// A probe that makes each call and prints its outcome. Each in a child of its own, because some change the caller.
fn table(calls: &[(&str, libc::c_long, &str)]) -> String {
    let mut probe = String::new();
    for (name, number, arguments) in calls {
        writeln!(probe, "print('{name}', child(lambda: call({number}, {arguments})))").unwrap();
    }
    probe
}

/// Name, number and arguments that the host refuses with another error than EPERM, or takes without effect, when its caller
/// may make the call at all. The flag says that only root may.
const DANGEROUS: [(&str, libc::c_long, &str, bool); 53] = [
    ("acct", libc::SYS_acct, "1", true),
    ("add_key", libc::SYS_add_key, "0, 0, 0, 0, 0", false),
    ("adjtimex", libc::SYS_adjtimex, "0", false),
    ("bpf", libc::SYS_bpf, "9999, 0, 0", true),
    ("chroot", libc::SYS_chroot, "b'/'", true),
    ("clock_adjtime", libc::SYS_clock_adjtime, "9999, 0", false),
    ("clock_settime", libc::SYS_clock_settime, "9999, 0", false),
    ("delete_module", libc::SYS_delete_module, "0, 0", true),
    ("fanotify_init", libc::SYS_fanotify_init, "0xffffffff, 0", true),
    ("fanotify_mark", libc::SYS_fanotify_mark, "-1, 0, 0, -1, 0", false),
    ("finit_module", libc::SYS_finit_module, "-1, 0, 0", true),
    ("fsconfig", libc::SYS_fsconfig, "-1, 0, 0, 0, 0", false),
    ("fsmount", libc::SYS_fsmount, "-1, 0, 0", true),
    ("fsopen", libc::SYS_fsopen, "0, 0", true),
    ("fspick", libc::SYS_fspick, "-1, 0, 0", true),
    ("init_module", libc::SYS_init_module, "0, 0, 0", true),
    ("io_uring_enter", libc::SYS_io_uring_enter, "-1, 0, 0, 0, 0, 0", false),
    ("io_uring_register", libc::SYS_io_uring_register, "-1, 0, 0, 0", false),
    ("io_uring_setup", libc::SYS_io_uring_setup, "1, 0", false),
    ("kcmp", libc::SYS_kcmp, "os.getpid(), os.getpid(), 99, 0, 0", false),
    ("kexec_file_load", libc::SYS_kexec_file_load, "-1, -1, 0, 0, 0x80", true),
    ("kexec_load", libc::SYS_kexec_load, "0, 0, 0, 0xff", true),
    ("keyctl", libc::SYS_keyctl, "9999, 0, 0, 0, 0", false),
    ("migrate_pages", libc::SYS_migrate_pages, "0, 1, 0, 0", false),
    ("mount", libc::SYS_mount, "0, 0, 0, 0, 0", false),
    ("mount_setattr", libc::SYS_mount_setattr, "-1, 0, 0, 0, 0", false),
    ("move_mount", libc::SYS_move_mount, "-1, 0, -1, 0, 0", true),
    ("move_pages", libc::SYS_move_pages, "0, 0, 0, 0, 0, 0", false),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, "-1, 0, 0", true),
    ("open_tree", libc::SYS_open_tree, "-1, 0, 0", false),
    ("perf_event_open", libc::SYS_perf_event_open, "0, 0, -1, -1, 0", false),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, "-1, 0, 0", false),
    ("pivot_root", libc::SYS_pivot_root, "0, 0", true),
    ("process_madvise", libc::SYS_process_madvise, "-1, 0, 0, 0, 0", false),
    ("process_vm_readv", libc::SYS_process_vm_readv, "os.getpid(), 0, 0, 0, 0, 0", false),
    ("process_vm_writev", libc::SYS_process_vm_writev, "os.getpid(), 0, 0, 0, 0, 0", false),
    ("ptrace", libc::SYS_ptrace, "0, 0, 0, 0", false),
    ("quotactl", libc::SYS_quotactl, "0, 0, 0, 0", false),
    ("quotactl_fd", libc::SYS_quotactl_fd, "-1, 0, 0, 0", false),
    ("reboot", libc::SYS_reboot, "0, 0, 0, 0", true),
    ("request_key", libc::SYS_request_key, "0, 0, 0, 0", false),
    ("setdomainname", libc::SYS_setdomainname, "0, -1", true),
    ("sethostname", libc::SYS_sethostname, "0, -1", true),
    ("setns", libc::SYS_setns, "-1, 0", false),
    ("settimeofday", libc::SYS_settimeofday, "1, 0", false),
    ("swapoff", libc::SYS_swapoff, "0", true),
    ("swapon", libc::SYS_swapon, "0, 0", true),
    ("syslog", libc::SYS_syslog, "10, 0, 0", true),
    ("umount2", libc::SYS_umount2, "0, 0", false),
    ("unshare_mount", libc::SYS_unshare, "0x20000", true),
    ("unshare_user", libc::SYS_unshare, "0x10000000", false),
    ("userfaultfd", libc::SYS_userfaultfd, "0xffff", false),
    ("vhangup", libc::SYS_vhangup, "", true),
];

#[tokio::test]
async fn s_16_every_dangerous_call_is_refused_with_eperm() {
    const TEST: &str = "s_16_every_dangerous_call_is_refused_with_eperm";
    if !has_python(TEST) {
        return;
    }
    let calls: Vec<_> =
        DANGEROUS.iter().map(|(name, number, arguments, _)| (*name, *number, *arguments)).collect();
    let sandbox = Box::new().await;
    let found = lines(&inside(&sandbox, &table(&calls)).await);
    let expected = calls.iter().map(|(name, ..)| ((*name).to_owned(), "EPERM".to_owned())).collect();
    assert_eq!(found, expected);
    // Control: on the host the same calls get past permissions, as far as this user may make them.
    let host = lines(&outside(&table(&calls)));
    for (name, _, _, only_root) in DANGEROUS {
        if is_root() || !only_root {
            assert_ne!(host[name], "EPERM", "{name} proves nothing");
        }
    }
}

#[tokio::test]
async fn s_16_calls_nobody_has_thought_about_do_not_exist() {
    const TEST: &str = "s_16_calls_nobody_has_thought_about_do_not_exist";
    if !has_python(TEST) {
        return;
    }
    let calls = [
        ("clone3", libc::SYS_clone3, "0, 0"),
        ("memfd_secret", 447, "0xff"),
        ("process_mrelease", 448, "-1, 0"),
        ("statmount", 457, "0, 0, 0, 0"),
        ("listmount", 458, "0, 0, 0, 0"),
        ("lsm_list_modules", 461, "0, 0, 0"),
        ("open_tree_attr", 467, "-1, 0, 0, 0, 0"),
        ("the next one", 480, "0"),
        ("far away", 100_000, "0"),
    ];
    let sandbox = Box::new().await;
    let probe = table(&calls.map(|(name, number, arguments)| (name, number, arguments)))
        .replace("the next one", "next");
    let probe = probe.replace("far away", "far");
    let found = lines(&inside(&sandbox, &probe).await);
    assert_eq!(found.len(), calls.len());
    assert!(found.values().all(|errno| errno == "ENOSYS"), "{found:?}");
    // Control: the host has clone3, which complains about its size.
    assert_eq!(outside(&table(&calls[..1])), "clone3 EINVAL\n");
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn s_16_the_x32_entry_is_shut() {
    const TEST: &str = "s_16_the_x32_entry_is_shut";
    if !has_python(TEST) {
        return;
    }
    const X32: libc::c_long = 0x4000_0000;
    let sandbox = Box::new().await;
    let mut calls = vec![("getpid", libc::SYS_getpid | X32, "")];
    calls.extend(DANGEROUS.iter().map(|(name, number, arguments, _)| (*name, number | X32, *arguments)));
    // x32 has numbers of its own for some: execve, ioctl, ptrace.
    calls.extend([("execve_x32", 520 | X32, "0, 0, 0"), ("ioctl_x32", 514 | X32, "0, 0x5412, 0")]);
    calls.push(("ptrace_x32", 521 | X32, "0, 0, 0, 0"));
    let found = lines(&inside(&sandbox, &table(&calls)).await);
    assert_eq!(found.len(), calls.len());
    assert!(found.values().all(|errno| errno == "ENOSYS"), "{found:?}");
    // Control: without the bit the first one succeeds in the same place.
    assert_eq!(inside(&sandbox, &table(&[("getpid", libc::SYS_getpid, "")])).await, "getpid ok\n");
}

/// Makes 32-bit calls by `int 0x80` from a 64-bit process. Each in a child, because the filter ends the caller.
#[cfg(target_arch = "x86_64")]
const I386: &str = r"
import mmap
def enter(number):
    page = mmap.mmap(-1, 4096, prot=7)
    # push rbx; mov eax, number; xor ebx, ebx; xor ecx, ecx; xor edx, edx; int 0x80; pop rbx; ret
    page.write(b'\x53\xb8' + struct.pack('<I', number) + b'\x31\xdb\x31\xc9\x31\xd2\xcd\x80\x5b\xc3')
    code = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    result = code()
    return 'ok' if result >= 0 else errno.errorcode[-result]
for name, number in [('getpid', 20), ('mount', 21), ('ptrace', 26), ('ioctl', 54), ('unshare', 310),
                     ('bpf', 357), ('userfaultfd', 374), ('io_uring_setup', 425), ('clone3', 435)]:
    print(name, child(lambda: enter(number)))
";

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn s_16_the_i386_entry_ends_the_process() {
    const TEST: &str = "s_16_the_i386_entry_ends_the_process";
    if !has_python(TEST) {
        return;
    }
    let host = lines(&outside(I386));
    if host["getpid"] == "SIGSEGV" {
        return skipped(TEST, "32-bit system calls in this kernel");
    }
    assert_eq!(host["getpid"], "ok");
    let sandbox = Box::new().await;
    let found = lines(&inside(&sandbox, I386).await);
    assert_eq!(found.len(), 9);
    assert!(found.values().all(|ending| ending == "SIGSYS"), "{found:?}");
}

#[tokio::test]
async fn s_13_no_new_namespace_of_any_kind() {
    const TEST: &str = "s_13_no_new_namespace_of_any_kind";
    if !has_python(TEST) {
        return;
    }
    let flags = [
        ("time", 0x80u64),
        ("mount", 0x2_0000),
        ("cgroup", 0x200_0000),
        ("uts", 0x400_0000),
        ("ipc", 0x800_0000),
        ("user", 0x1000_0000),
        ("pid", 0x2000_0000),
        ("net", 0x4000_0000),
    ];
    let mut probe = String::new();
    for (name, flag) in flags {
        writeln!(probe, "print('unshare_{name}', child(lambda: call({}, {flag})))", libc::SYS_unshare)
            .unwrap();
        if name != "time" {
            // SIGCHLD, as fork has. Where it works the child ends at once.
            writeln!(
                probe,
                "def act():\n  pid = libc.syscall({clone}, ctypes.c_ulong({flag} | 17), 0, 0, 0, 0)\n  if pid == 0: \
                 os._exit(0)\n  return 'ok' if pid > 0 else errno.errorcode[ctypes.get_errno()]\nprint('clone_{name}', \
                 child(act))",
                clone = libc::SYS_clone
            )
            .unwrap();
        }
    }
    writeln!(probe, "print('setns', attempt(os.open, '/proc/self/ns/net', 0) + child(lambda: call({}, os.open('/proc/self/ns/net', 0), 0)))", libc::SYS_setns).unwrap();
    writeln!(probe, "print('plain', child(lambda: call({}, 0x400)))", libc::SYS_unshare).unwrap();
    let sandbox = Box::new().await;
    let mut found = lines(&inside(&sandbox, &probe).await);
    assert_eq!(found.remove("setns").as_deref(), Some("okEPERM"));
    // What makes no namespace is allowed: CLONE_FILES.
    assert_eq!(found.remove("plain").as_deref(), Some("ok"));
    assert_eq!(found.len(), 15);
    assert!(found.values().all(|errno| errno == "EPERM"), "{found:?}");
    // Control: a user namespace at least is what everybody may make here, or there were no sandbox.
    let host = lines(&outside(&probe));
    assert_eq!((host["unshare_user"].as_str(), host["clone_user"].as_str()), ("ok", "ok"));
    if is_root() {
        let privileged = host.iter().filter(|(name, _)| *name != "setns");
        assert!(privileged.clone().all(|(_, outcome)| outcome == "ok"), "{host:?}");
    }
}

#[tokio::test]
async fn s_13_the_counter_forbids_user_namespaces_too() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.run("cat /proc/sys/user/max_user_namespaces").await.stdout, "0\n");
    let host = std::fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap();
    assert_ne!(host, "0\n");
}

#[tokio::test]
async fn s_14_no_cgroup_can_be_mounted_or_reached() {
    const TEST: &str = "s_14_no_cgroup_can_be_mounted_or_reached";
    if !has_python(TEST) {
        return;
    }
    let probe = format!(
        "os.makedirs('/tmp/ringfence-mount-probe', exist_ok=True)\nfor kind in [b'cgroup', b'cgroup2', b'tmpfs', b'proc', b'sysfs', \
         b'overlay', b'debugfs', b'tracefs']:\n  print(kind.decode(), call({mount}, b'none', b'/tmp/ringfence-mount-probe', kind, 0, 0))",
        mount = libc::SYS_mount
    );
    let sandbox = Box::new().await;
    let found = lines(&inside(&sandbox, &probe).await);
    assert_eq!(found.len(), 8);
    assert!(found.values().all(|errno| errno == "EPERM"), "{found:?}");
    // Control: with namespaces of its own the same call mounts on the host.
    let host = outside(&format!(
        "assert call({unshare}, 0x10020000) == 'ok'\nos.makedirs('/tmp/ringfence-mount-probe', exist_ok=True)\nprint(call({mount}, \
         b'none', b'/tmp/ringfence-mount-probe', b'tmpfs', 0, 0))",
        unshare = libc::SYS_unshare,
        mount = libc::SYS_mount
    ));
    assert_eq!(host, "ok\n");
    let view = sandbox.run("grep -c cgroup /proc/self/mountinfo; ls /sys/fs/cgroup").await;
    assert_eq!(view.stdout, "0\n");
    assert_eq!(view.stderr, "ls: cannot access '/sys/fs/cgroup': No such file or directory\n");
}

#[tokio::test]
async fn s_15_io_uring_cannot_be_set_up() {
    const TEST: &str = "s_15_io_uring_cannot_be_set_up";
    if !has_python(TEST) {
        return;
    }
    let probe = format!("print(call({}, 1, ctypes.create_string_buffer(120)))", libc::SYS_io_uring_setup);
    let sandbox = Box::new().await;
    assert_eq!(inside(&sandbox, &probe).await, "EPERM\n");
    let host = outside(&probe);
    if host != "ok\n" {
        skipped(TEST, "io_uring for this user on the host, as a control");
    }
}

#[tokio::test]
async fn s_18_a_program_in_memory_has_the_same_limits() {
    const TEST: &str = "s_18_a_program_in_memory_has_the_same_limits";
    if !has_python(TEST) {
        return;
    }
    let probe = format!(
        r"
program = os.memfd_create('program')
os.write(program, open('/usr/bin/python3', 'rb').read())
code = '''
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
print('exe', os.readlink('/proc/self/exe'))
libc.syscall({bpf}, 9999, 0, 0); print('bpf', errno.errorcode[ctypes.get_errno()])
libc.syscall({setup}, 1, 0); print('io_uring', errno.errorcode[ctypes.get_errno()])
try: os.open('/usr/planted', os.O_CREAT | os.O_WRONLY)
except OSError as error: print('write', errno.errorcode[error.errno])
for line in open('/proc/self/status'):
    if line.startswith(('CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp:')): print(*line.split())
'''
sys.stdout.flush()
os.set_inheritable(program, True)
os.execve(program, ['python3', '-ISc', code], {{}})
",
        bpf = libc::SYS_bpf,
        setup = libc::SYS_io_uring_setup
    );
    let sandbox = Box::new().await;
    let expected = "exe /memfd:program (deleted)\nbpf EPERM\nio_uring EPERM\nwrite EROFS\nCapBnd: \
                    0000000000000000\nCapEff: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n";
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&inside(&sandbox, &probe).await), sorted(expected));
}

#[tokio::test]
async fn s_48_a_crash_leaves_no_core_and_reaches_no_handler() {
    const TEST: &str = "s_48_a_crash_leaves_no_core_and_reaches_no_handler";
    if !has_python(TEST) {
        return;
    }
    // 1 is the one value with which the kernel neither writes a file nor starts the handler of a `|` pattern.
    let probe = r"
import resource
print('limit', resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print('lowered', resource.getrlimit(resource.RLIMIT_CORE))
print('by_old_call', call(160 if os.uname().machine == 'x86_64' else 164, 4, struct.pack('QQ', 0, 0)))
print('still', resource.getrlimit(resource.RLIMIT_CORE))
print('other', attempt(resource.setrlimit, resource.RLIMIT_NOFILE, (64, 64)), resource.getrlimit(resource.RLIMIT_NOFILE))
";
    let sandbox = Box::new().await;
    let found = inside(&sandbox, probe).await;
    let expected = "limit (1, 1)\nlowered (1, 1)\nby_old_call ok\nstill (1, 1)\nother ok (64, 64)\n";
    assert_eq!(found, expected);
    let crashed = sandbox.run("cd /tmp && sh -c 'kill -SEGV $$'; echo $?; ls").await;
    assert_eq!(crashed.stdout, "139\n");
    // Control: elsewhere the limit can be lowered.
    let host = outside("import resource\nresource.setrlimit(4, (0, 0))\nprint(resource.getrlimit(4))");
    assert_eq!(host, "(0, 0)\n");
}

#[tokio::test]
async fn s_49_no_key_of_the_host_is_in_reach() {
    const TEST: &str = "s_49_no_key_of_the_host_is_in_reach";
    if !has_python(TEST) {
        return;
    }
    let probe = format!(
        r"
print('add', call({add}, b'user', b'ringfence-probe', b'x', 1, -4))
# Into the keyring of the process: not every session has one, nor one that the user's is linked to.
print('add_own', call({add}, b'user', b'ringfence-probe', b'x', 1, -2))
print('request', call({request}, b'user', b'ringfence-probe', 0, 0))
print('show', call({keyctl}, 0, -4, 0))
print('join', call({keyctl}, 1, 0))
",
        add = libc::SYS_add_key,
        request = libc::SYS_request_key,
        keyctl = libc::SYS_keyctl
    );
    let sandbox = Box::new().await;
    assert_eq!(
        inside(&sandbox, &probe).await,
        "add EPERM\nadd_own EPERM\nrequest EPERM\nshow EPERM\njoin EPERM\n"
    );
    assert_eq!(sandbox.run("wc -c < /proc/keys").await.stdout, "0\n");
    let host = lines(&outside(&probe));
    if host["add"] == "ENOSYS" {
        return skipped(TEST, "keys in this kernel, as a control");
    }
    for name in ["add", "add_own", "request"] {
        assert_eq!(host[name], "ok", "{name}");
    }
}

#[tokio::test]
async fn time_and_ids_cannot_be_changed() {
    const TEST: &str = "time_and_ids_cannot_be_changed";
    if !has_python(TEST) {
        return;
    }
    let probe = r"
def put(path, value):
    with open(path, 'w', buffering=1) as file:
        file.write(value)
for name, value in [('timens_offsets', 'monotonic 86400 0'), ('uid_map', '0 0 1'), ('gid_map', '0 0 1'), ('setgroups', 'allow')]:
    print(name, attempt(put, '/proc/self/' + name, value))
print('setuid', attempt(os.setuid, 0))
print('setgid', attempt(os.setgid, 0))
print('setgroups_call', attempt(os.setgroups, [0]))
print('ids', os.getresuid(), os.getresgid(), os.getgroups() in ([], [65534]))
";
    let sandbox = Box::new().await;
    let found = lines(&inside(&sandbox, probe).await);
    for name in ["timens_offsets", "uid_map", "gid_map", "setgroups", "setgroups_call"] {
        assert!(["EPERM", "EACCES"].contains(&found[name].as_str()), "{name}: {}", found[name]);
    }
    // No other id exists inside.
    assert_eq!((found["setuid"].as_str(), found["setgid"].as_str()), ("EINVAL", "EINVAL"));
    assert!(found["ids"].starts_with("(1000, 1000, 1000) (1000, 1000, 1000)"), "{}", found["ids"]);
    if is_root() {
        assert_eq!(outside("print(attempt(os.setgid, 0), attempt(os.setuid, 0))"), "ok ok\n");
    }
}
