//! The owner's side of the sockets: messages out, packets with descriptors in.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys::watch;
use crate::wire::{IN_FILE, INLINE, INLINE_BYTES, MESSAGE_BYTES, Message};

/// The most descriptors that one packet carries in either direction.
const MAX_FDS: usize = 8;

/// Our end, not blocking, and the helper's end, blocking.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

/// Sends a message, inline or in a sealed memory file. Waits while the other side's queue is full.
pub(crate) async fn send(
    socket: BorrowedFd<'_>,
    message: &impl Message,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = message.encode();
    if body.len() > MESSAGE_BYTES {
        return Err(io::Error::from(Errno::MSGSIZE));
    }
    let mut packet = vec![if body.len() > INLINE_BYTES { IN_FILE } else { INLINE }];
    if body.len() <= INLINE_BYTES {
        packet.extend_from_slice(&body);
        return send_packet(socket, &packet, fds).await;
    }
    let file = memory_file(c"ringfence-message", &body, MemfdFlags::empty())?;
    let fds: Vec<BorrowedFd<'_>> = fds.iter().copied().chain([file.as_fd()]).collect();
    send_packet(socket, &packet, &fds).await
}

/// A sealed memory file at its start.
pub(crate) fn memory_file(name: &std::ffi::CStr, content: &[u8], flags: MemfdFlags) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags)?;
    let mut rest = content;
    while !rest.is_empty() {
        let wrote = rustix::io::write(&file, rest)?;
        rest = &rest[wrote..];
    }
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(file)
}

async fn send_packet(socket: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let sent = match try_send(socket, packet, fds) {
        Err(error) if error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error()) => {
            with_all_descriptors(|| try_send(socket, packet, fds))
        }
        done => done,
    };
    match sent {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        done => return done,
    }
    // Rare: hundreds of requests are queued. Registered only now, so that a sandbox belongs to no runtime in particular.
    let waiting = watch(socket.try_clone_to_owned()?, Interest::WRITABLE)?;
    waiting.async_io(Interest::WRITABLE, |socket| try_send(socket.as_fd(), packet, fds)).await
}

/// Code inside can have so many descriptors of this user in flight that no more may be sent with our soft limit. It gets half
/// of the hard one (see the shim), so with that we can; for as long as one call takes, because the limit is the process's.
fn with_all_descriptors<T>(act: impl FnOnce() -> T) -> T {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, the call fails again and says so.
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
    let result = act();
    setrlimit(Resource::Nofile, limit).ok();
    result
}

fn try_send(socket: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::from(Errno::INVAL));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[io::IoSlice::new(packet)], &mut control, flags)?;
    Ok(())
}

/// Makes a descriptor non-blocking and registers it with the current runtime.
pub(crate) fn watch_nonblocking(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    watch(fd, interest)
}

/// The socket of one request, registered with the runtime that made it.
#[derive(Debug)]
pub(crate) struct Channel(AsyncFd<OwnedFd>);

impl Channel {
    /// Registers our end of a pair.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        watch(socket, Interest::READABLE).map(Self)
    }

    /// The next message and its descriptors; `None` when the other side is gone.
    pub(crate) async fn receive<M: Message>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let (packet, fds) =
            self.0.async_io(Interest::READABLE, |socket| receive_packet(socket.as_fd())).await?;
        if packet.is_empty() {
            return Ok(None);
        }
        // The helper is trusted by nobody: what does not parse is an error, not a guess.
        let message = M::decode(&packet).map_err(|_| io::Error::from(Errno::BADMSG))?;
        Ok(Some((message, fds)))
    }
}

fn receive_packet(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    // Its size first: a page of room that is not needed costs more than the question.
    let ask = RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT;
    let length = match rustix::net::recv(socket, &mut [0u8; 0], ask) {
        Err(Errno::CONNRESET) => return Ok((Vec::new(), Vec::new())),
        asked => asked?.1,
    };
    let mut packet = vec![0u8; length.min(INLINE_BYTES)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received =
        match rustix::net::recvmsg(socket, &mut [io::IoSliceMut::new(&mut packet)], &mut control, flags) {
            // The other side closed with something of ours unread: gone all the same.
            Err(Errno::CONNRESET) => return Ok((Vec::new(), Vec::new())),
            other => other?,
        };
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::from(Errno::MSGSIZE));
    }
    // Its descriptors are lost: there was none left here to take one over.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::from(Errno::MFILE));
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    packet.truncate(received.bytes);
    Ok((packet, fds))
}
