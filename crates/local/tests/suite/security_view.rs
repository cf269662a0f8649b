//! The view: what of the host can be seen, by which way ever, and where anything can be written.

use std::os::fd::AsRawFd;
use std::process::Command;

use ringfence_core::{Backend, Ending, ErrorKind, GuestPath, SandboxSpec};
use ringfence_local::{LocalBackend, LocalConfig};
use ringfence_testkit::{can_mount, own_mounts};

use super::security_support::{
    Machinery, SHOWN, directory_to_show, has_python, inside, is_root, lines, outside, showing, skipped,
};
use super::support::{Box, Said, has_program, is_alone_below, program, shell};

#[tokio::test]
async fn s_01_no_running_program_can_be_overwritten() {
    const TEST: &str = "s_01_no_running_program_can_be_overwritten";
    if !has_python(TEST) {
        return;
    }
    let sandbox = Box::new().await;
    let launcher = format!("/proc/{}/exe", Machinery::of(&sandbox).await.launcher);
    // As an ordinary user the launcher is nobody's to read either way; as root its content is compared.
    let before = std::fs::read(&launcher).ok();
    assert!(before.is_some() || !is_root());
    let probe = r"
for flags in [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC]:
    print('own', attempt(os.open, '/proc/self/exe', flags))
    print('first', attempt(os.open, '/proc/1/exe', flags))
    print('shim', attempt(os.open, f'/proc/{os.getppid()}/exe', flags))
";
    let refused = "own EACCES\nfirst EACCES\nshim EACCES\n".repeat(2);
    // Truncating asks the mount first.
    let truncated = "own EROFS\nfirst EACCES\nshim EACCES\n";
    assert_eq!(inside(&sandbox, probe).await, format!("{refused}{truncated}"));
    // The helper as interpreter of a script, started by itself: it refuses to serve, and is a sealed file.
    for line in ["#!/proc/self/exe", "#!/proc/self/exe 1", "#!/proc/1/exe"] {
        let script = GuestPath::new("/tmp/script").unwrap();
        sandbox.backend.write_file(&sandbox.id, &script, format!("{line}\n").as_bytes()).await.unwrap();
        assert_eq!(sandbox.run("chmod 755 /tmp/script").await, Said::ok(""));
        let result = sandbox.request(program(&["/tmp/script"])).await;
        assert!(matches!(result.ending, Ending::Exited(0..=2 | 126)), "{line}: {:?}", result.ending);
        assert!(result.stdout.bytes.is_empty(), "{line}");
    }
    let result = sandbox.request(program(&["/proc/self/exe", "1"])).await;
    assert!(matches!(result.ending, Ending::Exited(0..=2)), "{:?}", result.ending);
    assert_eq!(std::fs::read(&launcher).ok(), before);
    // Control: what is writable is refused only while it runs.
    let control = "import shutil\nshutil.copy('/bin/true', '/tmp/ringfence-own-true')\nprint(attempt(os.open, \
                   '/tmp/ringfence-own-true', os.O_WRONLY))\nos.unlink('/tmp/ringfence-own-true')";
    assert_eq!(inside(&sandbox, control).await, "ok\n");
}

/// As a toolchain in root's home: naming a folder opens the way to it, and nothing on the way or in it.
#[tokio::test]
async fn s_05_a_folder_shown_from_below_a_closed_one_opens_nothing_else() {
    use std::os::unix::fs::PermissionsExt;

    // Not where temporary files go: a sandbox has directories of its own there.
    let closed = tempfile::TempDir::new_in(std::env::home_dir().unwrap()).unwrap();
    let allow = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(closed.path(), 0o700);
    let shown = closed.path().join("shown");
    std::fs::create_dir(&shown).unwrap();
    for (path, mode) in
        [(shown.join("open"), 0o644), (shown.join("private"), 0o600), (closed.path().join("beside"), 0o644)]
    {
        std::fs::write(&path, "content\n").unwrap();
        allow(&path, mode);
    }
    allow(&shown, 0o755);
    let sandbox = showing(&[&shown]).await;
    let (closed, shown) = (closed.path().display(), shown.display());
    assert_eq!(sandbox.run(&format!("cat {shown}/open; ls -A {closed}")).await, Said::ok("content\nshown\n"));
    let private = sandbox.run(&format!("cat {shown}/private")).await;
    if is_root() {
        let refused = format!("cat: {shown}/private: Permission denied\n");
        assert_eq!(private, Said::ended(Ending::Exited(1), "", &refused));
    } else {
        // A user's sandbox is that user.
        assert_eq!(private, Said::ok("content\n"));
    }
    let outside = sandbox.run(&format!("cat {shown}/../beside")).await;
    let missing = format!("cat: {shown}/../beside: No such file or directory\n");
    assert_eq!(outside, Said::ended(Ending::Exited(1), "", &missing));
    let written = sandbox.run(&format!("echo >{shown}/open")).await;
    assert!(
        written.ending != Ending::Exited(0) && written.stderr.contains("Read-only file system"),
        "{written:?}"
    );
}

#[tokio::test]
async fn s_02_no_descriptor_of_the_host_arrives() {
    let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/").unwrap()).collect();
    for file in &files {
        // As a careless library leaves them: kept across exec.
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap();
    }
    let sandbox = Box::new().await;
    assert_eq!(sandbox.run("ls /proc/$$/fd; true").await, Said::ok("0\n1\n2\n"));
    let without_shell = sandbox.request(program(&["ls", "/proc/self/fd"])).await;
    // 3 is the directory being listed.
    assert_eq!(&without_shell.stdout.bytes[..], b"0\n1\n2\n3\n");
    let host = Command::new("ls").arg("/proc/self/fd").output().unwrap();
    assert!(host.stdout.iter().filter(|byte| **byte == b'\n').count() >= 50);
    assert!(files.iter().all(|file| file.as_raw_fd() > 2));
}

#[tokio::test]
async fn s_02_no_descriptor_can_be_the_working_directory() {
    let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/").unwrap()).collect();
    for file in &files {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap();
    }
    let sandbox = Box::new().await;
    let mut loops = 0;
    for number in (0..40).chain((40..=1024).step_by(41)) {
        for path in [format!("/proc/self/fd/{number}"), format!("/dev/fd/{number}")] {
            if number >= 40 && path.starts_with("/dev") {
                continue;
            }
            let mut request = shell("pwd", 5.0);
            request.workdir = Some(GuestPath::new(path.as_str()).unwrap());
            let error = sandbox.backend.run_command(&sandbox.id, request).await.unwrap_err();
            loops += u32::from(errno_of(&error) == Some(libc::ELOOP));
            assert!([Some(libc::ELOOP), Some(libc::ENOENT)].contains(&errno_of(&error)), "{path}: {error:?}");
        }
    }
    // The standard streams and the shim's own descriptors are there and refused all the same.
    assert!(loops >= 8, "{loops}");
    for path in ["/proc/self/cwd", "/proc/self/root", "/proc/1/root", "/proc/1/cwd", "/proc/self/exe"] {
        let mut request = shell("pwd", 5.0);
        request.workdir = Some(GuestPath::new(path).unwrap());
        let error = sandbox.backend.run_command(&sandbox.id, request).await.unwrap_err();
        assert!([Some(libc::ELOOP), Some(libc::EACCES)].contains(&errno_of(&error)), "{path}: {error:?}");
    }
    let mut request = shell("pwd", 5.0);
    request.workdir = Some(GuestPath::new("/proc/self").unwrap());
    assert!(sandbox.backend.run_command(&sandbox.id, request).await.is_ok());
}

fn errno_of(error: &ringfence_core::Error) -> Option<i32> {
    let mut source: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(current) = source {
        if let Some(error) = current.downcast_ref::<std::io::Error>() {
            return error.raw_os_error();
        }
        source = current.source();
    }
    None
}

#[tokio::test]
async fn s_04_settings_and_triggers_of_the_kernel_are_out_of_reach() {
    const TEST: &str = "s_04_settings_and_triggers_of_the_kernel_are_out_of_reach";
    if !has_python(TEST) {
        return;
    }
    let probe = r"
for path in ['/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sys/vm/drop_caches', '/proc/sys/kernel/pid_max',
             '/proc/sys/net/ipv4/ip_forward', '/proc/sys/user/max_user_namespaces', '/proc/sysrq-trigger', '/proc/1/oom_score_adj']:
    print(path, attempt(os.open, path, os.O_WRONLY))
for path in ['/proc/sysrq-trigger', '/proc/kcore', '/proc/keys', '/proc/timer_list']:
    if os.path.exists(path):
        print('masked:' + path, attempt(os.chmod, path, 0o777), attempt(os.unlink, path), os.path.getsize(path))
print('kmsg', attempt(os.open, '/proc/kmsg', 0))
writable = []
for folder, folders, files in os.walk('/proc/sys'):
    writable += [f for f in files if os.access(os.path.join(folder, f), os.W_OK)]
print('writable', writable)
";
    let sandbox = Box::new().await;
    let found = lines(&inside(&sandbox, probe).await);
    for (name, outcome) in &found {
        let expected: &[&str] = match name.as_str() {
            "writable" => &["[]"],
            "kmsg" => &["EPERM", "EACCES"],
            name if name.starts_with("masked:") => {
                &["EROFS EBUSY 0", "EROFS EPERM 0", "EROFS EACCES 0", "EROFS EROFS 0"]
            }
            // A kernel without it.
            path if !std::path::Path::new(path).exists() => &["ENOENT"],
            // Which of the two walls is met first is the kernel's choice.
            _ => &["EROFS", "EACCES"],
        };
        assert!(expected.contains(&outcome.as_str()), "{name}: {outcome}");
    }
    assert!(found.len() >= 11, "{found:?}");
    if is_root() {
        // Opened, not written.
        assert_eq!(outside("print(attempt(os.open, '/proc/sys/kernel/core_pattern', os.O_WRONLY))"), "ok\n");
    }
}

#[tokio::test]
async fn s_05_a_host_file_has_no_alias_inside() {
    const TEST: &str = "s_05_a_host_file_has_no_alias_inside";
    if !has_python(TEST) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let readable = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    readable(directory.path());
    let hidden = directory.path().join("hidden");
    std::fs::copy("/usr/bin/true", &hidden).unwrap();
    readable(&hidden);
    let probe = format!(
        r"
import glob, subprocess
path = {hidden:?}
for name, prefix in [('direct', ''), ('self_root', '/proc/self/root'), ('own_root', f'/proc/{{os.getpid()}}/root'),
                     ('task_root', f'/proc/self/task/{{os.getpid()}}/root'), ('dev_fd', '/dev/fd/../../..'), ('usr', '/usr/..'),
                     ('cwd', '/proc/self/cwd' + '/..' * 20), ('thread', '/proc/thread-self/root'), ('many', '/..' * 40)]:
    print(name, attempt(os.open, prefix + path, 0))
here = os.open('/', os.O_PATH)
print('by_descriptor', attempt(lambda: os.open('..' + path, 0, dir_fd=here)))
print('by_alias_of_descriptor', attempt(os.open, f'/proc/self/fd/{{here}}{{path}}', 0))
print('link', attempt(lambda: (os.symlink(path, '/tmp/ringfence-alias'), os.open('/tmp/ringfence-alias', 0))))
loader = (glob.glob('/lib64/ld-linux-*.so.*') + glob.glob('/lib/ld-linux-*.so.*') + glob.glob('/lib/ld-musl-*'))[0]
ran = subprocess.run([loader, path], capture_output=True, text=True)
print('loader', ran.returncode, 'No such file' in ran.stderr)
if os.path.islink('/tmp/ringfence-alias'): os.unlink('/tmp/ringfence-alias')
"
    );
    let sandbox = Box::new().await;
    let found = lines(&inside(&sandbox, &probe).await);
    let host = lines(&outside(&probe));
    assert_eq!(found.len(), 13);
    for (name, outcome) in &found {
        assert_eq!(outcome, if name == "loader" { "127 True" } else { "ENOENT" }, "{name}");
        // Control: every alias leads there on the host.
        assert_eq!(host[name], if name == "loader" { "0 False" } else { "ok" }, "{name}");
    }
    let path = GuestPath::new(hidden.to_str().unwrap()).unwrap();
    let error = sandbox.backend.read_file(&sandbox.id, &path, 1 << 20).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
    for path in ["/etc/shadow", "/root", "/run", "/boot", "/var/lib", "/etc/ssh", "/home/sandbox/.ssh"] {
        assert_eq!(
            sandbox.run(&format!("ls {path} >/dev/null 2>&1")).await.ending,
            Ending::Exited(2),
            "{path}"
        );
    }
}

#[tokio::test]
async fn s_50_devices_and_kernel_files_are_as_listed() {
    let sandbox = Box::new().await;
    let listing = |directory: &str| format!("ls -A {directory} | tr '\\n' ' '");
    assert_eq!(
        sandbox.run(&listing("/dev")).await,
        Said::ok("fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ")
    );
    assert_eq!(sandbox.run(&listing("/dev/pts")).await, Said::ok("ptmx "));
    let root = sandbox.run(&listing("/")).await.stdout;
    let known = [
        "bin",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "proc",
        "sbin",
        "tmp",
        "usr",
        "var",
        "workspace",
    ];
    assert!(root.split_whitespace().all(|name| known.contains(&name)), "{root}");
    for gone in [
        "/sys",
        "/dev/kvm",
        "/dev/fuse",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/mqueue",
        "/dev/net",
        "/dev/dri",
        "/dev/console",
    ] {
        let said = sandbox.run(&format!("ls -d {gone}")).await;
        assert!(said.stderr.ends_with("No such file or directory\n"), "{said:?}");
    }
    let empty = "for f in kcore keys sysrq-trigger timer_list; do [ -e /proc/$f ] && wc -c < /proc/$f; done | sort -u; \
                 for d in acpi asound bus fs irq scsi; do [ -e /proc/$d ] && ls -A /proc/$d; done; true";
    assert_eq!(sandbox.run(empty).await, Said::ok("0\n"));
    // Control: the host shows some of that.
    assert!(std::fs::read_dir("/proc/irq").unwrap().count() > 0);
    assert!(std::path::Path::new("/sys/kernel").exists());
}

#[tokio::test]
async fn s_50_nodes_show_only_what_they_are() {
    const TEST: &str = "s_50_nodes_show_only_what_they_are";
    if !has_python(TEST) {
        return;
    }
    let probe = r"
import stat
for kind, device in [('character', stat.S_IFCHR), ('block', stat.S_IFBLK)]:
    print(kind, attempt(os.mknod, '/tmp/node', 0o600 | device, os.makedev(1, 1)))
for name in ['null', 'zero', 'tty']:
    print('mode_' + name, attempt(os.chmod, '/dev/' + name, 0o600), attempt(os.utime, '/dev/' + name))
print('use', attempt(lambda: os.write(os.open('/dev/null', os.O_WRONLY | os.O_CREAT | os.O_TRUNC), b'x')))
print('create', attempt(os.open, '/dev/new', os.O_CREAT | os.O_WRONLY))
terminals = []
def all_terminals():
    while len(terminals) < 4000: terminals.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
print('terminals', attempt(all_terminals), len(terminals) <= 1024)
";
    let sandbox = Box::new().await;
    let found = inside(&sandbox, probe).await;
    let landlock = super::security_support::has_landlock(&sandbox).await;
    let node = if landlock { "EACCES" } else { "EPERM" };
    let expected = "mode_null EROFS EROFS\nmode_zero EROFS EROFS\nmode_tty EROFS \
                    EROFS\nuse ok\ncreate EROFS\nterminals ENOSPC True\n";
    assert_eq!(found, format!("character {node}\nblock {node}\n{expected}"));
    if is_root() {
        let control = outside(
            "print(attempt(os.mknod, '/tmp/ringfence-node', 0o20600, os.makedev(1, 3)))\nos.unlink('/tmp/ringfence-node')",
        );
        assert_eq!(control, "ok\n");
    }
}

#[tokio::test]
async fn s_55_no_mount_honours_set_user_id() {
    const TEST: &str = "s_55_no_mount_honours_set_user_id";
    let sandbox = Box::new().await;
    let mounts = sandbox.run("cat /proc/self/mountinfo").await.stdout;
    assert!(mounts.lines().count() > 10);
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (point, options) = (fields[4], fields[5]);
        let has = |option: &str| options.split(',').any(|known| known == option);
        assert!(has("nosuid"), "{line}");
        let is_node = point.starts_with("/dev/") && point != "/dev/shm";
        assert!(has("nodev") || is_node, "{line}");
        let writable = ["/tmp", "/workspace", "/home/sandbox", "/dev/shm", "/proc", "/dev/pts", "/var/tmp"];
        assert!(has("ro") || writable.contains(&point), "{line}");
        // Nothing mounted inside appears outside or the other way round.
        assert!(!line.contains("shared:") && !line.contains("master:"), "{line}");
        assert!(!line.contains(" cgroup") && !line.contains(" sysfs "), "{line}");
    }
    let copy = "cp /usr/bin/id /tmp/id && chmod 6755 /tmp/id && [ -u /tmp/id ] && /tmp/id -u && /tmp/id -ru";
    assert_eq!(sandbox.run(copy).await, Said::ok("1000\n1000\n"));
    for name in ["su", "mount", "passwd"] {
        let said = sandbox.run(&format!("[ -u /usr/bin/{name} ] || exit 9; grep -h ^CapPrm /proc/self/status; exec /usr/bin/{name} --version; true")).await;
        assert!(said.stdout.contains("0000000000000000") || said.ending == Ending::Exited(9), "{said:?}");
    }
    // Control: a mount namespace of the host can share, and its root honours the bit.
    let host = Command::new("unshare")
        .args(["-Urm", "--propagation", "shared", "cat", "/proc/self/mountinfo"])
        .output();
    match host {
        Ok(output) => assert!(String::from_utf8_lossy(&output.stdout).contains("shared:")),
        Err(_) => skipped(TEST, "unshare, as a control"),
    }
}

#[tokio::test]
async fn nothing_leaves_the_writable_directories() {
    const TEST: &str = "nothing_leaves_the_writable_directories";
    if !has_python(TEST) {
        return;
    }
    let probe = r"
import shutil
open('/tmp/own', 'w').write('x')
for place in ['/usr', '/etc', '/', '/dev', '/usr/lib', '/var', '/home', '/etc/ssl/certs']:
    if os.path.isdir(place):
        print('create:' + place, attempt(os.open, place + '/planted', os.O_CREAT | os.O_WRONLY))
        print('directory:' + place, attempt(os.mkdir, place + '/planted'))
        print('rename:' + place, attempt(os.rename, '/tmp/own', place + '/own'))
        print('link:' + place, attempt(os.link, '/tmp/own', place + '/own'))
        print('symlink:' + place, attempt(os.symlink, '/tmp/own', place + '/own'))
for path in ['/usr/bin/env', '/etc/passwd', '/etc/hosts', '/bin/sh']:
    print('write:' + path, attempt(os.open, path, os.O_WRONLY))
    print('remove:' + path, attempt(os.unlink, path))
    print('mode:' + path, attempt(os.chmod, path, 0o777))
    print('owner:' + path, attempt(os.chown, path, 1000, 1000))
    print('times:' + path, attempt(os.utime, path))
    print('attribute:' + path, attempt(os.setxattr, path, 'user.x', b'x'))
    print('truncate:' + path, attempt(os.truncate, path, 0))
    print('hard:' + path, attempt(os.link, path, '/tmp/hard'))
    print('move:' + path, attempt(os.rename, path, '/tmp/moved'))
print('own', attempt(os.link, '/tmp/own', '/tmp/own2'), attempt(os.rename, '/tmp/own', '/tmp/own3'))
";
    let sandbox = Box::new().await;
    let found = lines(&inside(&sandbox, probe).await);
    for (name, outcome) in &found {
        let expected: &[&str] = match name.split(':').next().unwrap_or_default() {
            "own" => &["ok ok"],
            "rename" | "link" | "move" | "hard" => &["EXDEV", "EROFS"],
            // The wall that is met first: permissions, Landlock or the read-only mount.
            "write" | "truncate" => &["EROFS", "EACCES"],
            "mode" | "owner" | "times" => &["EROFS", "EPERM"],
            "attribute" => &["ENOTSUP", "EOPNOTSUPP"],
            _ => &["EROFS", "EACCES", "EPERM", "EEXIST"],
        };
        assert!(expected.contains(&outcome.as_str()), "{name}: {outcome}");
    }
    assert!(found.len() > 60, "{}", found.len());
}

#[tokio::test]
async fn landlock_is_the_second_wall_where_the_kernel_has_it() {
    const TEST: &str = "landlock_is_the_second_wall_where_the_kernel_has_it";
    if !has_python(TEST) {
        return;
    }
    let abi = format!("print(libc.syscall({}, 0, 0, 1))", libc::SYS_landlock_create_ruleset);
    let kernel: i64 = outside(&abi).trim().parse().unwrap();
    if kernel < 1 {
        return skipped(TEST, "Landlock");
    }
    let backend = ringfence_local::LocalBackend::new(ringfence_local::LocalConfig::default());
    let created = backend.create(&ringfence_core::SandboxSpec::new()).await.unwrap();
    let row = created.statement.row(ringfence_core::SpecField::Isolation).unwrap();
    assert!(row.mechanism.contains(&format!("Landlock ABI {kernel}")), "{}", row.mechanism);
    // It is asked before capabilities are, so its error shows that it is there. Where nothing else refuses: see s_09.
    let sandbox = Box::new().await;
    let node = "print(attempt(os.mknod, '/tmp/node', 0o20600, os.makedev(1, 1)))";
    assert_eq!(inside(&sandbox, node).await, "EACCES\n");
    if !is_root() {
        assert_eq!(outside(&node.replace("/tmp/node", "/tmp/ringfence-node")), "EPERM\n");
    }
}

/// What a command sees of its root: kinds, modes and targets of what lies in it, and every mount without what is a sandbox's own.
const ROOT: &str = "cd /; ls -A / /etc /dev /var /home | grep -v '^pts$'; stat -c '%n %F %a' /* /etc/* /dev/* | sort; \
                    stat -c '%n %u %g' / /* /etc/* /dev/* | sort; \
                    stat -c '%n %u %g' /tmp /workspace /dev/shm ~; cat /proc/self/uid_map | wc -l; \
                    stat -f -c '%n %b %f %a %c %d %S %l %T' / /etc /dev /tmp | sort; df -a / | tail -1; readlink bin sbin lib /var/tmp /dev/fd /dev/stdin; cat /etc/passwd /etc/hosts; \
                    sed -E 's/^[0-9]+ [0-9]+ [0-9:]+ [^ ]+ //; s/size=[^ ]*//' /proc/self/mountinfo | cut -d' ' -f1,2 | sort -u";

#[tokio::test]
async fn s_05_a_root_from_the_template_is_the_same_and_leads_nowhere_else() {
    let backend = LocalBackend::new(LocalConfig::default());
    let mut seen = Vec::new();
    for _ in 0..3 {
        let id = backend.create(&SandboxSpec::new()).await.unwrap().id;
        let said = backend.run_command(&id, shell(ROOT, 20.0)).await.unwrap();
        seen.push(String::from_utf8(said.stdout.bytes.to_vec()).unwrap());
        // Above the root there is nothing, and nothing of the host is mounted but what is shown.
        let above = backend
            .run_command(
                &id,
                shell("cd /..; pwd -P; ls -di / /.. | sort -u | cut -d/ -f1 | sort -u | wc -l", 20.0),
            )
            .await
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&above.stdout.bytes), "/\n1\n");
        // What one writes is not in the next one.
        let wrote = backend
            .run_command(&id, shell("touch /tmp/left /workspace/left ~/left /dev/shm/left && ls /tmp", 20.0))
            .await
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&wrote.stdout.bytes), "left\n");
        for closed in ["touch /left", "touch /etc/left", "rm /etc/passwd", "mv /var /tmp"] {
            let said = backend.run_command(&id, shell(closed, 20.0)).await.unwrap();
            assert_ne!(said.ending, Ending::Exited(0), "{closed}");
        }
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[1], seen[2]);
    // All of it is somebody's: the root nobody's where sandboxes have ids of their own, else its only user's.
    let owners = ["\n/ 1000 1000\n", "\n/ 65534 65534\n"].map(|owner| seen[0].contains(owner));
    assert!(owners[0] != owners[1] && (is_root() || owners[0]), "{}", seen[0]);
}

#[tokio::test]
async fn a_host_path_that_is_given_to_something_else_is_shown_as_it_is_now() {
    const TEST: &str = "a_host_path_that_is_given_to_something_else_is_shown_as_it_is_now";
    let Some(shown) = directory_to_show() else { return skipped(TEST, SHOWN) };
    std::fs::set_permissions(shown.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let directory = shown.path().join("data");
    let mut config = LocalConfig::default();
    config.read_only_paths = vec![directory.clone()];
    let backend = LocalBackend::new(config);
    for round in 0..6 {
        // Every second time it is replaced, as an update of the system does it.
        if round % 2 == 0 {
            let next = shown.path().join(format!("next{round}"));
            std::fs::create_dir(&next).unwrap();
            std::fs::write(next.join("round"), round.to_string()).unwrap();
            if directory.exists() {
                std::fs::rename(&directory, shown.path().join(format!("old{round}"))).unwrap();
            }
            std::fs::rename(&next, &directory).unwrap();
        }
        let id = backend.create(&SandboxSpec::new()).await.unwrap().id;
        let command = format!("cat {}/round", directory.display());
        let said = backend.run_command(&id, shell(&command, 20.0)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout.bytes), (round / 2 * 2).to_string(), "{round}");
    }
}

#[test]
fn a_template_that_could_not_be_made_is_made_once_there_is_room() {
    const TEST: &str = "a_template_that_could_not_be_made_is_made_once_there_is_room";
    // Also root's: the limit that is lowered is the one of a user namespace of its own.
    let apart = ["unshare", "--user", "--map-root-user", "--mount"];
    if has_program(TEST, "unshare") && is_alone_below(&apart, &format!("suite::security_view::{TEST}")) {
        tokio::runtime::Runtime::new().unwrap().block_on(run_out_of_namespaces());
    }
}

async fn run_out_of_namespaces() {
    let most = |number: u32| std::fs::write("/proc/sys/user/max_mnt_namespaces", number.to_string()).unwrap();
    let backend = LocalBackend::new(LocalConfig::default());
    let root_of = async || {
        let id = match backend.create(&SandboxSpec::new()).await {
            Ok(created) => created.id,
            Err(error) => return Err(error.kind().clone()),
        };
        let said = backend.run_command(&id, shell("stat -c %d /", 20.0)).await.unwrap();
        Ok(String::from_utf8_lossy(&said.stdout.bytes).into_owned())
    };
    let first = root_of().await.unwrap();
    // This process's, and the first sandbox's: none is left for the launcher's own, nor for the second sandbox.
    most(2);
    for _ in 0..4 {
        assert_eq!(root_of().await, Err(ErrorKind::Unavailable));
    }
    most(1000);
    // By then it is tried with every few sandboxes only.
    let mut roots = vec![first];
    for _ in 0..12 {
        roots.push(root_of().await.unwrap());
    }
    let distinct: std::collections::BTreeSet<&String> = roots.iter().collect();
    assert!((3..=10).contains(&distinct.len()), "the last ones have one root: {roots:?}");
    assert_eq!(roots[11], roots[12], "{roots:?}");
}

#[test]
fn what_is_copied_of_the_host_is_as_it_is_now() {
    const TEST: &str = "what_is_copied_of_the_host_is_as_it_is_now";
    let copied = std::path::Path::new("/etc/services");
    if !copied.exists() || !can_mount() {
        return skipped(TEST, "/etc/services, and a mount namespace to change it in");
    }
    if !is_alone_below(own_mounts(), &format!("suite::security_view::{TEST}")) {
        return;
    }
    let prepare =
        "mount -t tmpfs none /mnt && touch /mnt/services && mount --bind /mnt/services /etc/services";
    assert!(Command::new("sh").args(["-c", prepare]).status().unwrap().success());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let backend = LocalBackend::new(LocalConfig::default());
        for round in 0..6 {
            // In the same file, as an editor may do it: only its time tells.
            if round % 2 == 0 {
                std::fs::write(copied, format!("round {round}\n")).unwrap();
            }
            let id = backend.create(&SandboxSpec::new()).await.unwrap().id;
            let said = backend.run_command(&id, shell("cat /etc/services", 20.0)).await.unwrap();
            assert_eq!(
                String::from_utf8_lossy(&said.stdout.bytes),
                format!("round {}\n", round / 2 * 2),
                "{round}"
            );
        }
        // More than is copied, and what only its owner may read, is not there.
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        for (size, bits, is_there) in [(65536, 0o644, true), (65537, 0o644, false), (10, 0o640, false)] {
            std::fs::write(copied, vec![b'x'; size]).unwrap();
            std::fs::set_permissions(copied, mode(bits)).unwrap();
            let id = backend.create(&SandboxSpec::new()).await.unwrap().id;
            let command = "if [ -e /etc/services ]; then wc -c < /etc/services; else echo nothing; fi";
            let said = backend.run_command(&id, shell(command, 20.0)).await.unwrap();
            let expected = if is_there { format!("{size}\n") } else { "nothing\n".to_owned() };
            assert_eq!(String::from_utf8_lossy(&said.stdout.bytes), expected, "{size} {bits:o}");
        }
    });
}
