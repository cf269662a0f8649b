//! Messages over sockets, with large ones in memory files.

use alloc::vec::Vec;

use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::{Errno, Result, file, socket};
use crate::wire::{IN_FILE, INLINE, INLINE_BYTES, MESSAGE_BYTES, Message};

/// Sends a reply. Replies always fit inline.
pub(crate) fn reply(to: BorrowedFd<'_>, message: &impl Message, fds: &[BorrowedFd<'_>]) -> Result<()> {
    socket::send(to, &message.encode(), fds)
}

/// Sends a message over a socket that came from outside: one that has no room gets nothing.
pub(crate) fn reply_now(to: BorrowedFd<'_>, message: &impl Message, fds: &[BorrowedFd<'_>]) -> Result<()> {
    socket::send_now(to, &message.encode(), fds)
}

/// Sends a message that [`receive`] takes.
pub(crate) fn tell(to: BorrowedFd<'_>, message: &impl Message, fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut packet = Vec::from([INLINE]);
    packet.extend_from_slice(&message.encode());
    socket::send_now(to, &packet, fds)
}

/// Receives a request and its descriptors; `None` when the other side is gone.
pub(crate) fn receive<M: Message>(from: BorrowedFd<'_>) -> Result<Option<(M, Vec<OwnedFd>)>> {
    let (packet, mut fds) = socket::receive(from, INLINE_BYTES + 1)?;
    let Some((form, inline)) = packet.split_first() else {
        return Ok(None);
    };
    let message = match *form {
        INLINE => M::decode(inline),
        IN_FILE => {
            let content = fds.pop().ok_or(Errno(libc::EBADMSG))?;
            M::decode(&file::read_whole(content.as_fd(), MESSAGE_BYTES)?)
        }
        _ => return Err(Errno(libc::EBADMSG)),
    };
    Ok(Some((message.map_err(|_| Errno(libc::EBADMSG))?, fds)))
}
