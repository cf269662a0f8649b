//! The network: nothing but a loopback interface of its own.

use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use ringfence_core::{Allowlist, Backend, ErrorKind, NetworkPolicy, NetworkStrength, SandboxSpec, SpecField};
use ringfence_local::{LocalBackend, LocalConfig};

use super::security_support::{
    SHOWN, directory_to_show, has_landlock, has_python, inside, lines, outside, showing, skipped,
};
use super::support::{Box, children_of, is_alone};

/// Nothing may weaken with the network. While there is no network but the closed one, that is so because every other one is refused by
/// its field, before there is as much as a launcher. Whoever lets one in runs S11 to S18 with it here.
#[tokio::test]
async fn s_20_every_network_but_the_closed_one_is_refused_before_anything_is_made() {
    const TEST: &str = "s_20_every_network_but_the_closed_one_is_refused_before_anything_is_made";
    if !is_alone(&format!("suite::security_network::{TEST}")) {
        return;
    }
    let list = |hosts: &[&str], cidrs: &[&str], strength| {
        NetworkPolicy::allow(Allowlist::parse(hosts, cidrs, strength).unwrap())
    };
    let ranges =
        |cidrs: &[&str]| (list(&[], cidrs, NetworkStrength::default()), SpecField::AllowEgressToCidrs);
    let mut refused = vec![
        (NetworkPolicy::Open, SpecField::Network),
        ranges(&["10.0.0.0/8"]),
        ranges(&["0.0.0.0/1", "192.0.2.1/32"]),
        ranges(&["127.0.0.0/8"]),
    ];
    for strength in [
        NetworkStrength::Dns,
        NetworkStrength::Sni,
        NetworkStrength::Address,
        NetworkStrength::Name,
        NetworkStrength::Request,
    ] {
        for (hosts, cidrs) in [(&["pypi.org"][..], &[][..]), (&["*.example.org", "a.org"], &["10.0.0.0/8"])] {
            refused.push((list(hosts, cidrs, strength), SpecField::AllowEgressTo));
        }
    }
    let backend = LocalBackend::new(LocalConfig::default());
    for (network, field) in refused {
        let spec = SandboxSpec::new().with_network(network);
        for error in [backend.judge(&spec).unwrap_err(), backend.create(&spec).await.unwrap_err()] {
            assert_eq!(
                (error.kind(), error.is_terminal(), error.field()),
                (&ErrorKind::Refused, true, Some(field)),
                "{spec:?}: {error:?}"
            );
        }
    }
    let claims = backend.capabilities();
    assert_eq!(
        (claims.block_network, claims.open_network, claims.host_allowlist, claims.cidr_allowlist),
        (true, false, None, false)
    );
    assert_eq!(children_of(std::process::id()), Vec::<u32>::new());
    // Control: the closed one is made, and by an empty list too; then there is a launcher.
    for network in [NetworkPolicy::Blocked, list(&[], &[], NetworkStrength::Request)] {
        backend.create(&SandboxSpec::new().with_network(network)).await.unwrap();
    }
    assert_eq!(children_of(std::process::id()).len(), 1);
}

#[tokio::test]
async fn s_08_an_abstract_socket_of_the_host_is_not_there() {
    const TEST: &str = "s_08_an_abstract_socket_of_the_host_is_not_there";
    if !has_python(TEST) {
        return;
    }
    let name = format!("ringfence-probe-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let sandbox = Box::new().await;
    let probe = format!("print(attempt(socket.socket(socket.AF_UNIX).connect, '\\0{name}'))");
    assert_eq!(inside(&sandbox, &probe).await, "ECONNREFUSED\n");
    UnixStream::connect_addr(&address).unwrap();
    assert_eq!(outside(&probe), "ok\n");
}

#[tokio::test]
async fn s_33_listeners_of_the_host_are_not_there() {
    const TEST: &str = "s_33_listeners_of_the_host_are_not_there";
    if !has_python(TEST) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sandbox = Box::new().await;
    let probe = format!(
        r"
print('loopback', attempt(socket.socket().connect, ('127.0.0.1', {port})))
print('v6', attempt(socket.socket(socket.AF_INET6).connect, ('::1', {port})))
print('mapped', attempt(socket.socket(socket.AF_INET6).connect, ('::ffff:127.0.0.1', {port})))
for name, address in [('elsewhere', '192.0.2.1'), ('metadata', '169.254.169.254'), ('gateway', '10.0.0.1')]:
    print(name, attempt(socket.socket().connect, (address, 80)))
    print(name + '_udp', attempt(socket.socket(type=socket.SOCK_DGRAM).sendto, b'x', (address, 53)))
",
        port = address.port()
    );
    let found = lines(&inside(&sandbox, &probe).await);
    assert_eq!(found.len(), 9);
    for (name, errno) in &found {
        let expected: &[&str] = match name.as_str() {
            "loopback" | "mapped" => &["ECONNREFUSED"],
            // Where the kernel has no IPv6 at all.
            "v6" => &["ECONNREFUSED", "EADDRNOTAVAIL"],
            _ => &["ENETUNREACH"],
        };
        assert!(expected.contains(&errno.as_str()), "{name}: {errno}");
    }
    TcpStream::connect(address).unwrap();
}

#[tokio::test]
async fn s_19_sockets_that_reach_past_the_namespace_are_refused() {
    const TEST: &str = "s_19_sockets_that_reach_past_the_namespace_are_refused";
    if !has_python(TEST) {
        return;
    }
    let families = [
        ("packet", 17),
        ("vsock", 40),
        ("alg", 38),
        ("can", 29),
        ("bluetooth", 31),
        ("rds", 21),
        ("tipc", 30),
        ("key", 15),
        ("xdp", 44),
        ("smc", 43),
        ("nfc", 39),
        ("ax25", 3),
        ("x25", 9),
        ("pppox", 24),
        ("qipcrtr", 42),
        ("kcm", 41),
        ("phonet", 35),
        ("caif", 37),
        ("llc", 26),
        ("ieee802154", 36),
        ("mctp", 45),
    ];
    let mut probe = String::new();
    for (name, family) in families {
        for kind in [1, 2, 3, 5] {
            probe += &format!("print('{name}_{kind}', attempt(socket.socket, {family}, {kind}, 0))\n");
        }
        probe += &format!("print('{name}_pair', attempt(socket.socketpair, {family}, 1, 0))\n");
    }
    let sandbox = Box::new().await;
    let found = lines(&inside(&sandbox, &probe).await);
    assert_eq!(found.len(), families.len() * 5);
    assert!(found.values().all(|errno| errno == "EAFNOSUPPORT"), "{found:?}");

    let raw = r"
print('raw', attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1))
print('raw6', attempt(socket.socket, socket.AF_INET6, socket.SOCK_RAW, 58))
print('sctp', attempt(socket.socket, socket.AF_INET, socket.SOCK_STREAM, 132))
print('dccp', attempt(socket.socket, socket.AF_INET, 6, 33))
print('dccp_as_stream', attempt(socket.socket, socket.AF_INET, socket.SOCK_STREAM, 33))
print('smc', attempt(socket.socket, socket.AF_INET, socket.SOCK_STREAM, 256))
print('l2tp', attempt(socket.socket, socket.AF_INET, socket.SOCK_DGRAM, 115))
print('netfilter', attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 12))
print('audit', attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 9))
print('uevent', attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 15))
print('generic', attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 16))
print('xfrm', attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 6))
print('tcp', attempt(socket.socket, socket.AF_INET, socket.SOCK_STREAM, 6))
print('udp', attempt(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM, 17))
print('route', attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 0))
print('interfaces', *(name for _, name in socket.if_nameindex()))
";
    let found = inside(&sandbox, raw).await;
    let expected = "raw EPERM\nraw6 EPERM\nsctp EPROTONOSUPPORT\ndccp ESOCKTNOSUPPORT\ndccp_as_stream EPROTONOSUPPORT\nsmc EPROTONOSUPPORT\nl2tp \
                    EPROTONOSUPPORT\nnetfilter EPROTONOSUPPORT\naudit EPROTONOSUPPORT\nuevent \
                    EPROTONOSUPPORT\ngeneric EPROTONOSUPPORT\nxfrm EPROTONOSUPPORT\ntcp ok\nudp ok\nroute \
                    ok\ninterfaces lo\n";
    assert_eq!(found, expected);
    // Control: in a user and network namespace of the host packet, raw and other netlink sockets are to be had.
    let control = format!(
        "assert call({}, 0x50000000) == 'ok'\nprint(attempt(socket.socket, 17, 3, 0), attempt(socket.socket, 2, 3, 1), \
         attempt(socket.socket, 16, 3, 15))",
        libc::SYS_unshare
    );
    assert_eq!(outside(&control), "ok ok ok\n");
}

#[tokio::test]
async fn the_network_cannot_be_reconfigured() {
    const TEST: &str = "the_network_cannot_be_reconfigured";
    if !has_python(TEST) {
        return;
    }
    let probe = r"
import fcntl
probe = socket.socket(type=socket.SOCK_DGRAM)
request = bytearray(struct.pack('16sH22x', b'lo', 0x41))
print('flags', attempt(fcntl.ioctl, probe, 0x8914, request))
print('address', attempt(fcntl.ioctl, probe, 0x8916, struct.pack('16sHH4s16x', b'lo', 2, 0, bytes([10, 0, 0, 1]))))
print('netfilter', attempt(probe.setsockopt, 0, 64, bytes(84)))
route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
route.send(struct.pack('IHHII', 32, 16, 5, 1, 0) + struct.pack('BBHiII', 0, 0, 0, 0, 0, 0))
answer = route.recv(4096)
print('link', errno.errorcode[-struct.unpack('i', answer[16:20])[0]])
";
    let sandbox = Box::new().await;
    let expected = "flags EPERM\naddress EPERM\nnetfilter EPERM\nlink EPERM\n";
    assert_eq!(inside(&sandbox, probe).await, expected);
    let control = format!("assert call({}, 0x50000000) == 'ok'\n{probe}", libc::SYS_unshare);
    assert_eq!(lines(&outside(&control))["flags"], "ok");
}

/// A sandbox that shows a directory with somebody's socket and FIFO in it.
#[tokio::test]
async fn s_09_what_lies_in_a_shown_directory_is_not_written_to() {
    const TEST: &str = "s_09_what_lies_in_a_shown_directory_is_not_written_to";
    if !has_python(TEST) {
        return;
    }
    let Some(directory) = directory_to_show() else { return skipped(TEST, SHOWN) };
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(directory.path(), 0o777);
    let [fifo, file] = ["fifo", "file"].map(|name| directory.path().join(name));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
    std::fs::write(&file, "x").unwrap();
    mode(&fifo, 0o666);
    mode(&file, 0o666);
    let probe = format!(
        r"
base = {base:?}
print('file', attempt(os.open, base + '/file', os.O_WRONLY))
print('new', attempt(os.open, base + '/new', os.O_WRONLY | os.O_CREAT))
print('remove', attempt(os.unlink, base + '/file'))
print('link', attempt(os.link, base + '/file', '/tmp/linked'))
print('times', attempt(os.utime, base + '/file'))
print('read', attempt(os.open, base + '/file', os.O_RDONLY))
print('fifo', attempt(os.open, base + '/fifo', os.O_RDWR | os.O_NONBLOCK))
",
        base = directory.path()
    );
    let sandbox = showing(&[directory.path()]).await;
    let found = lines(&inside(&sandbox, &probe).await);
    let landlock = has_landlock(&sandbox).await;
    let expected = [
        ("file", "EROFS"),
        ("new", "EROFS"),
        ("remove", "EROFS"),
        ("link", "EXDEV"),
        ("times", "EROFS"),
        ("read", "ok"),
        // A read-only mount does not keep anybody from writing into a FIFO. Landlock does.
        ("fifo", if landlock { "EACCES" } else { "ok" }),
    ];
    assert_eq!(found, expected.map(|(name, errno)| (name.to_owned(), errno.to_owned())).into());
    let host = lines(&outside(
        &probe.replace("/tmp/linked", &directory.path().join("linked").display().to_string()),
    ));
    assert_eq!((host["fifo"].as_str(), host["new"].as_str()), ("ok", "ok"));
    if !landlock {
        skipped(TEST, "Landlock");
    }
}
