//! Storms (S52): a sandbox takes as much as it gets of what the kernel has only so much of. It meets a limit with an error of its own, and
//! neither the host nor a neighbour waits for it. What becomes of the sandbox itself is tested by kind:
//! P70, P113 to P115.

use std::time::Duration;

use ringfence_core::{
    Backend, ByteSize, CommandRequest, CommandResult, Ending, ErrorKind, Limits, Pids, SandboxId,
    SandboxSpec, SpecField,
};
use ringfence_local::{LocalBackend, LocalConfig};

use super::security_support::{has_python, script};
use super::support::{
    Box, assert_took, has_cgroups, has_process_limit, path, program, seconds, shell, timed,
};

/// Each takes until it is refused, holds what it has for a moment, and says how it was refused and at how many.
const STORMS: &str = r"
import resource, threading, time
# A million descriptors would show nothing that these do not.
most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], {open_files})
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = []
def fill(take, most=1000000):
    for number in range(most):
        try:
            held.append(take(number))
        except OSError as error:
            return errno.errorcode[error.errno], number
    return 'never', most
def check(result):
    if result < 0: raise OSError(ctypes.get_errno(), '')
    return result
def files(place):
    os.mkdir(place)
    return fill(lambda number: os.close(os.open(f'{place}/{number}', os.O_CREAT | os.O_WRONLY)))
def watches(number):
    os.mkdir(f'/tmp/w/{number}')
    return check(libc.inotify_add_watch(watcher, f'/tmp/w/{number}'.encode(), 2))
def mounts():
    'All of them, whatever becomes of each.'
    refused = 0
    for _ in range(1000000):
        ctypes.set_errno(0)
        libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)
        refused += ctypes.get_errno() == errno.EPERM
    return 'EPERM', refused
def thread(number):
    try:
        one = threading.Thread(target=end.wait, daemon=True)
        one.start()
        return one
    except RuntimeError:
        raise OSError(errno.EAGAIN, '')
def process(_):
    pid = os.fork()
    if pid == 0: signal.pause()
    return pid
def write(_):
    os.write(big, bytes(1 << 20))
    os.fsync(big)
name = sys.argv[1]
if name == 'inodes': found = files('/var/tmp/d')
if name == 'descriptors': found = fill(lambda _: os.open('/dev/null', 0))
if name == 'pipes': found = fill(lambda _: os.pipe())
if name == 'sockets': found = fill(lambda _: socket.socket())
if name == 'mounts': found = mounts()
if name == 'threads':
    threading.stack_size(65536)
    end = threading.Event()
    found = fill(thread, 100000)
if name == 'processes': found = fill(process, 100000)
if name == 'instances': found = fill(lambda _: check(libc.inotify_init1(0)))
if name == 'watches':
    os.mkdir('/tmp/w')
    watcher = libc.inotify_init1(0)
    found = fill(watches)
if name == 'disk':
    big = os.open('/tmp/big', os.O_CREAT | os.O_WRONLY)
    found = fill(write)
time.sleep(0.1)
if name == 'processes':
    for pid in held:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
print(*found, flush=True)
os._exit(0)
";

const PIDS: u32 = 512;
const MOST_OPEN_FILES: u64 = 10_000;
const DISK_MEBIBYTES: u64 = 384;
/// One for each 4 KiB of the disk.
const INODES: u64 = DISK_MEBIBYTES << 8;

/// What a sandbox may watch, of the host's count per user.
const WATCHES: u64 = 65_536;

/// A storm, the error it meets, and at least and at most how many it gets before.
fn expected(open_files: u64) -> [(&'static str, &'static str, u64, u64); 10] {
    let processes = u64::from(PIDS);
    // The host's own limit may be lower.
    let host = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap();
    let watches = host.trim().parse().map_or(WATCHES, |host: u64| host.min(WATCHES));
    [
        ("inodes", "ENOSPC", INODES - 200, INODES),
        ("descriptors", "EMFILE", open_files - 100, open_files),
        ("pipes", "EMFILE", open_files / 2 - 100, open_files / 2),
        ("sockets", "EMFILE", open_files - 100, open_files),
        ("mounts", "EPERM", 1_000_000, 1_000_000),
        ("processes", "EAGAIN", processes - 20, processes),
        ("threads", "EAGAIN", processes - 20, processes),
        ("instances", "EMFILE", 32, 32),
        ("watches", "ENOSPC", watches - 200, watches),
        ("disk", "ENOSPC", DISK_MEBIBYTES - 8, DISK_MEBIBYTES),
    ]
}

/// What somebody else does meanwhile; the longest of it counts.
async fn goes_on(backend: &LocalBackend, neighbour: &SandboxId) -> Duration {
    let host = std::process::Command::new("true").status();
    assert!(host.unwrap().success());
    let ((), took) = timed(async {
        let said = backend.run_command(neighbour, shell("echo on > f; (cat f)", 60.0)).await.unwrap();
        assert_eq!(said, CommandResult::exited(0, "on\n", ""));
        backend.write_file(neighbour, &path("g"), b"on").await.unwrap();
        assert_eq!(backend.read_file(neighbour, &path("g"), 10).await.unwrap(), b"on");
    })
    .await;
    took
}

/// Lets a command run and looks after the others until it ends; how often that was.
async fn while_others_go_on(
    sandbox: &Box,
    neighbour: &SandboxId,
    storm: CommandRequest,
) -> (CommandResult, u32) {
    let storm = sandbox.request(storm);
    tokio::pin!(storm);
    let mut looks = 0;
    loop {
        tokio::select! {
            result = &mut storm => return (result, looks),
            took = goes_on(&sandbox.backend, neighbour) => {
                assert_took(took, 0.0, 0.5);
                looks += 1;
            }
        }
    }
}

#[tokio::test]
async fn s_52_a_storm_meets_its_limit_and_neither_host_nor_neighbour_waits() {
    const TEST: &str = "s_52_a_storm_meets_its_limit_and_neither_host_nor_neighbour_waits";
    if !has_python(TEST) || !has_process_limit(TEST).await {
        return;
    }
    let mebibytes = |count: u64| ByteSize::from_bytes(count << 20).ok();
    let sandbox = Box::limited(Limits {
        pids: Pids::new(PIDS).ok(),
        disk: mebibytes(DISK_MEBIBYTES),
        memory: has_cgroups().then(|| mebibytes(512)).flatten(),
        ..Limits::default()
    })
    .await;
    let neighbour = sandbox.backend.create(&SandboxSpec::new()).await.unwrap().id;
    let script = script(&STORMS.replace("{open_files}", &MOST_OPEN_FILES.to_string()));
    sandbox.write("storms.py", script).await.unwrap();
    let open_files: u64 = sandbox.run("ulimit -n").await.stdout.trim().parse().unwrap();
    for (storm, errno, least, most) in expected(open_files.min(MOST_OPEN_FILES)) {
        let mut request = program(&["/usr/bin/python3", "-IS", "storms.py", storm]);
        request.timeout = seconds(60.0);
        let (result, looks) = while_others_go_on(&sandbox, &neighbour, request).await;
        assert!(looks >= 3, "{storm}: {looks}");
        let said = result.stdout.text();
        assert_eq!(result, CommandResult::exited(0, said.as_bytes().to_vec(), ""), "{storm}");
        let (met, number) = said.trim().split_once(' ').unwrap();
        let number: u64 = number.parse().unwrap();
        assert!(met == errno && (least..=most).contains(&number), "{storm}: {said}");
        // It is over with what took it.
        sandbox.prepare("rm -rf /tmp/* /var/tmp/*").await;
        assert_eq!(sandbox.run("(echo on > /tmp/f; cat /tmp/f)").await.stdout, "on\n", "{storm}");
    }
}

#[tokio::test]
async fn s_52_p_113_a_storm_that_eats_memory_keeps_no_neighbour_waiting() {
    let limits =
        Limits { memory: ByteSize::from_bytes(64 << 20).ok(), pids: Pids::new(64).ok(), ..Limits::default() };
    if !has_cgroups() {
        let backend = LocalBackend::new(LocalConfig::default());
        let error = backend.create(&SandboxSpec::new().with_limits(limits)).await.unwrap_err();
        return assert_eq!((error.kind(), error.field()), (&ErrorKind::Refused, Some(SpecField::Memory)));
    }
    let sandbox = Box::limited(limits).await;
    let neighbour = sandbox.backend.create(&SandboxSpec::new()).await.unwrap().id;
    let eat = "for i in $(seq 20); do (x=x; while :; do x=$x$x; done) & done; wait $!";
    let (result, looks) = while_others_go_on(&sandbox, &neighbour, shell(eat, 60.0)).await;
    assert_eq!(result.ending, Ending::MemoryExceeded);
    assert!(looks >= 1, "{looks}");
}
