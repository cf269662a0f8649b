//! What sandboxes share with each other and with their user: quotas of the kernel that one could use up for all.

use ringfence_core::{Backend, ListRequest, SandboxSpec};

use super::security_support::{has_python, inside, lines, outside};
use super::support::{Box, path, shell, until};

#[tokio::test]
async fn descriptors_in_flight_keep_nobody_else_from_sending() {
    const TEST: &str = "descriptors_in_flight_keep_nobody_else_from_sending";
    if !has_python(TEST) {
        return;
    }
    let sandbox = Box::new().await;
    let other = sandbox.backend.create(&SandboxSpec::new()).await.unwrap().id;
    // As many as the kernel lets one have that never receives; the limit is the lowest of this size that a test needs.
    let probe = r"
import array, resource
held = []
null = os.open('/dev/null', 0)
def fill():
    while len(held) < 2000:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        pair[0].setblocking(False)
        held.append(pair)
        try:
            while True:
                pair[0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [null] * 250))])
        except BlockingIOError:
            pass
print('filled', attempt(fill))
print('limits', len(set(resource.getrlimit(resource.RLIMIT_NOFILE))))
sys.stdout.flush()
if os.fork(): os._exit(0)
for fd in (0, 1, 2): os.close(fd)
signal.pause()
";
    let found = lines(&inside(&sandbox, probe).await);
    // Without a limit per user of the kernel there is nothing to use up.
    assert!(["ETOOMANYREFS", "ok", "EMFILE"].contains(&found["filled"].as_str()), "{found:?}");
    let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let result = sandbox.backend.run_command(&other, shell("echo ok", 5.0)).await.unwrap();
    assert_eq!(&result.stdout.bytes[..], b"ok\n");
    let content = sandbox.backend.read_file(&other, &path("/etc/hostname"), 100).await.unwrap();
    assert_eq!(content, b"sandbox\n");
    assert!(sandbox.backend.create(&SandboxSpec::new()).await.is_ok());
    // Raised for the moment of sending only; another test of this process may be at it right now.
    let now = || rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert!(until(2.0, || now() == before).await, "{before:?} {:?}", now());
}

#[tokio::test]
async fn contexts_of_asynchronous_io_are_not_to_be_had() {
    const TEST: &str = "contexts_of_asynchronous_io_are_not_to_be_had";
    if !has_python(TEST) {
        return;
    }
    let probe = format!("print(call({}, 1, ctypes.byref(ctypes.c_ulong(0))))", libc::SYS_io_setup);
    let sandbox = Box::new().await;
    assert_eq!(inside(&sandbox, &probe).await, "ENOSYS\n");
    let host = outside(&probe);
    // ENOSYS: a kernel built without it.
    assert!(["ok\n", "ENOSYS\n"].contains(&host.as_str()), "{host}");
}

#[tokio::test]
async fn a_directory_that_never_stops_changing_is_listed_to_an_end() {
    const TEST: &str = "a_directory_that_never_stops_changing_is_listed_to_an_end";
    if !has_python(TEST) {
        return;
    }
    let sandbox = Box::new().await;
    let probe = r"
os.mkdir('/tmp/d'); os.chdir('/tmp/d')
for i in range(3000): open(f'{i}', 'w').close()
if os.fork(): os._exit(0)
for fd in (0, 1, 2): os.close(fd)
while True:
    i += 1
    open(f'{i}', 'w').close()
    os.unlink(f'{i - 2999}')
";
    inside(&sandbox, probe).await;
    let directory = path("/tmp/d");
    let listing = sandbox.backend.list_directory(&sandbox.id, &directory, ListRequest::default());
    let listing = tokio::time::timeout(std::time::Duration::from_secs(10), listing).await.unwrap().unwrap();
    assert!(listing.entries.len() < 10_000 && !listing.entries.is_empty());
}
