//! Sequenced-packet sockets with descriptors, polling, and the loopback interface.

use alloc::vec::Vec;
use core::ptr;

use super::fd::{BorrowedFd, OwnedFd, RawFd};
use super::{Errno, Result};

/// The most descriptors one message carries.
pub(crate) const MAX_FDS: usize = 8;

/// A pair of connected sequenced-packet sockets.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `fds` has room for two descriptors.
    unsafe { call!(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }?;
    // SAFETY: fresh descriptors.
    let [first, second] = fds.map(|fd| unsafe { OwnedFd::new(fd as usize) });
    Ok((first, second))
}

/// Room for the control data of one message, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Sends one message with descriptors, waiting for room. Never raises SIGPIPE.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    send_with(socket, bytes, fds, 0)
}

/// Sends one message with descriptors; EAGAIN where there is no room for it. For sockets that came from outside.
pub(crate) fn send_now(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    send_with(socket, bytes, fds, libc::MSG_DONTWAIT)
}

fn send_with(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: libc::c_int) -> Result<()> {
    if fds.len() > MAX_FDS {
        return Err(Errno(libc::EINVAL));
    }
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero is a valid empty header.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let payload = (fds.len() * size_of::<RawFd>()) as u32;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: computes a size.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(payload) } as _;
        // SAFETY: the message has a control buffer.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: the buffer holds at least one header: MAX_FDS descriptors need 48 of its 128 bytes.
        let Some(header) = (unsafe { header.as_mut() }) else { return Err(Errno(libc::EINVAL)) };
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        // SAFETY: computes a size.
        header.cmsg_len = unsafe { libc::CMSG_LEN(payload) } as _;
        // SAFETY: points behind the header, into the buffer.
        let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
        for (index, fd) in fds.iter().enumerate() {
            // SAFETY: the buffer has room for MAX_FDS descriptors behind the header.
            let slot = unsafe { data.add(index) };
            // SAFETY: as above; no alignment is assumed.
            unsafe { slot.write_unaligned(fd.as_raw_fd()) };
        }
    }
    loop {
        // SAFETY: the header and what it points to outlive the call.
        let sent = unsafe {
            call!(libc::SYS_sendmsg, socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | flags)
        };
        match sent {
            Ok(_) => return Ok(()),
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives one message of at most `most` bytes; returns it (empty: the other side is gone) and its descriptors. One that is
/// longer is EMSGSIZE: a torn message is never interpreted.
pub(crate) fn receive(socket: BorrowedFd<'_>, most: usize) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut buffer: Vec<u8> = Vec::with_capacity(most);
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: most };
    // SAFETY: all-zero is a valid empty header.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let length = loop {
        // SAFETY: the header and what it points to outlive the call.
        let got =
            unsafe { call!(libc::SYS_recvmsg, socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match got {
            Ok(length) => break length,
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    };
    // SAFETY: the kernel wrote this many bytes, no more than there is room for.
    unsafe { buffer.set_len(length) };
    let mut fds = Vec::new();
    // SAFETY: the kernel filled in the control data.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: null, or a header inside the buffer.
    while let Some(current) = unsafe { header.as_ref() } {
        if current.cmsg_level == libc::SOL_SOCKET && current.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: computes a size.
            let prefix = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = (current.cmsg_len - prefix) / size_of::<RawFd>();
            // SAFETY: points behind the header, into the buffer.
            let data = unsafe { libc::CMSG_DATA(current) }.cast::<RawFd>();
            for index in 0..count {
                // SAFETY: the header's length says that this many descriptors follow.
                let slot = unsafe { data.add(index) };
                // SAFETY: as above; no alignment is assumed.
                let fd = unsafe { slot.read_unaligned() };
                // SAFETY: the kernel installed it for us; owned by nobody else.
                fds.push(unsafe { OwnedFd::new(fd as usize) });
            }
        }
        // SAFETY: both belong to this message.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(Errno(libc::EMSGSIZE));
    }
    Ok((buffer, fds))
}

/// Whether a message waits, rather than the end of the other side.
pub(crate) fn has_message(socket: BorrowedFd<'_>) -> bool {
    let mut byte = 0u8;
    let (fd, flags) = (socket.as_raw_fd(), libc::MSG_PEEK | libc::MSG_DONTWAIT);
    let (nobody, nothing) = (ptr::null_mut::<libc::sockaddr>(), ptr::null_mut::<libc::socklen_t>());
    // SAFETY: the byte outlives the call.
    let got = unsafe { call!(libc::SYS_recvfrom, fd, &raw mut byte, 1, flags, nobody, nothing) };
    matches!(got, Ok(1..))
}

/// Something to wait for.
#[derive(Debug)]
pub(crate) struct Poll<'a> {
    /// The descriptor; `None` is skipped.
    pub(crate) fd: Option<BorrowedFd<'a>>,
    /// Set when it has data, or room where that is waited for, or the other side is gone.
    pub(crate) ready: bool,
    events: libc::c_short,
}

impl<'a> Poll<'a> {
    /// Waits for data on `fd`.
    pub(crate) fn new(fd: Option<BorrowedFd<'a>>) -> Self {
        Self { fd, ready: false, events: libc::POLLIN }
    }

    /// Waits for room in `fd`.
    pub(crate) fn for_room(fd: Option<BorrowedFd<'a>>) -> Self {
        Self { fd, ready: false, events: libc::POLLOUT }
    }
}

/// Waits until one is ready or `timeout_millis` pass; `None` waits for ever.
pub(crate) fn poll(entries: &mut [Poll<'_>], timeout_millis: Option<u64>) -> Result<()> {
    let mut fds: Vec<libc::pollfd> = entries
        .iter()
        .map(|entry| libc::pollfd {
            fd: entry.fd.map_or(-1, BorrowedFd::as_raw_fd),
            events: entry.events,
            revents: 0,
        })
        .collect();
    let mut timeout = timeout_millis.map(|millis| libc::timespec {
        tv_sec: (millis / 1000) as libc::time_t,
        tv_nsec: (millis % 1000 * 1_000_000) as libc::c_long,
    });
    let timeout = timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let no_mask: *const u64 = ptr::null();
    // SAFETY: pointer and length describe `fds`; the timeout, into which what is left of it is written, outlives the call.
    match unsafe { call!(libc::SYS_ppoll, fds.as_mut_ptr(), fds.len(), timeout, no_mask, 0) } {
        Ok(_) => {}
        Err(Errno(libc::EINTR)) => return Ok(()),
        Err(error) => return Err(error),
    }
    for (entry, fd) in entries.iter_mut().zip(&fds) {
        entry.ready = fd.revents != 0;
    }
    Ok(())
}

/// An epoll instance: the launcher waits for any number of sandboxes at the cost of those that end.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    /// Creates one.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: takes integers only.
        let fd = unsafe { call!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) }?;
        // SAFETY: a fresh descriptor.
        Ok(Self(unsafe { OwnedFd::new(fd) }))
    }

    /// Watches `fd` for input under `key`. Closing the descriptor ends the watch.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: u64) -> Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: key };
        let (epoll, fd) = (self.0.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: `event` outlives the call.
        unsafe { call!(libc::SYS_epoll_ctl, epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }.map(drop)
    }

    /// Watches `fd` no more.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        let none: *mut libc::epoll_event = ptr::null_mut();
        // It may not have been watched: that is as good.
        // SAFETY: takes integers only.
        drop(unsafe {
            call!(libc::SYS_epoll_ctl, self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), none)
        });
    }

    /// Waits and returns the keys that are ready.
    pub(crate) fn wait(&self, timeout_millis: Option<u64>) -> Result<Vec<u64>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // Longer waits than 24 days come back early and are computed again by the caller.
        let timeout = timeout_millis.map_or(-1, |millis| millis.min(i32::MAX as u64) as i32);
        let (fd, room, size, no_mask) =
            (self.0.as_raw_fd(), events.as_mut_ptr(), events.len(), ptr::null::<u64>());
        // SAFETY: pointer and length describe `events`; no signal mask is given.
        match unsafe { call!(libc::SYS_epoll_pwait, fd, room, size, timeout, no_mask, 0) } {
            Ok(count) => Ok(events[..count].iter().map(|event| event.u64).collect()),
            Err(Errno(libc::EINTR)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// Connections that wait to be accepted; more wait in their own call.
const BACKLOG: i32 = 1024;

/// A listening socket at a path that does not exist yet, for its user alone. Not blocking.
pub(crate) fn listen(path: &[u8]) -> Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers only.
    let fd = unsafe { call!(libc::SYS_socket, libc::AF_UNIX, kind, 0) }?;
    // SAFETY: a fresh descriptor.
    let socket = unsafe { OwnedFd::new(fd) };
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // One byte stays for the NUL.
    if path.len() >= address.sun_path.len() {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(path) {
        *place = *byte as libc::c_char;
    }
    let mask = super::process::set_umask(0o177);
    let (fd, size) = (socket.as_raw_fd(), size_of::<libc::sockaddr_un>());
    // SAFETY: the address outlives the call and has the size given.
    let bound = unsafe { call!(libc::SYS_bind, fd, &raw const address, size) };
    super::process::set_umask(mask);
    bound?;
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_listen, fd, BACKLOG) }?;
    Ok(socket)
}

/// The next connection; EAGAIN when there is none (any more).
pub(crate) fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    let (nobody, nothing) = (ptr::null_mut::<libc::sockaddr>(), ptr::null_mut::<libc::socklen_t>());
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no address is asked for.
    let fd = unsafe { call!(libc::SYS_accept4, listener.as_raw_fd(), nobody, nothing, flags) }?;
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::new(fd) })
}

/// The user at the other end of a connection, as the kernel noted it when that was made.
pub(crate) fn peer_user(socket: BorrowedFd<'_>) -> Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let (fd, level, name) = (socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: both outlive the call, and the size given is the structure's.
    unsafe { call!(libc::SYS_getsockopt, fd, level, name, &raw mut peer, &raw mut size) }?;
    Ok(peer.uid)
}

/// Brings the loopback interface of this network namespace up; returns a socket in it.
pub(crate) fn loopback_up() -> Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes integers only.
    let fd = unsafe { call!(libc::SYS_socket, libc::AF_INET, kind, 0) }?;
    // SAFETY: a fresh descriptor.
    let socket = unsafe { OwnedFd::new(fd) };
    // SAFETY: all-zero is a valid request.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which outlives the call.
    unsafe { call!(libc::SYS_ioctl, socket.as_raw_fd(), libc::SIOCSIFFLAGS, ptr::from_mut(&mut request)) }?;
    Ok(socket)
}

/// The ioctl that opens the network namespace of a socket; libc has no name for it.
const SIOCGSKNS: u32 = 0x894c;

/// The network namespace of a socket.
pub(crate) fn network_of(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    // SAFETY: takes no argument, and returns a fresh descriptor.
    let fd = unsafe { call!(libc::SYS_ioctl, socket.as_raw_fd(), SIOCGSKNS, 0) }?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::new(fd) })
}
