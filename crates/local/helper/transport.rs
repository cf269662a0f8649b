//! Messages over sockets, with large ones in memory files.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::{Errno, Result, file, socket};
use crate::wire::{IN_FILE, INLINE, INLINE_BYTES, MESSAGE_BYTES, Message};

/// Sends a reply. Replies always fit inline.
pub(crate) fn reply(to: BorrowedFd<'_>, message: &impl Message, fds: &[BorrowedFd<'_>]) -> Result<()> {
    socket::send(to, &message.encode(), fds)
}

/// Receives a request and its descriptors; `None` when the other side is gone.
pub(crate) fn receive<M: Message>(from: BorrowedFd<'_>) -> Result<Option<(M, Vec<OwnedFd>)>> {
    let mut buffer = [0u8; INLINE_BYTES + 1];
    let (length, mut fds) = socket::receive(from, &mut buffer)?;
    let Some((form, inline)) = buffer[..length].split_first() else {
        return Ok(None);
    };
    let message = match *form {
        INLINE => M::decode(inline),
        IN_FILE => {
            let content = fds.pop().ok_or(Errno(libc::EBADMSG))?;
            M::decode(&read_to_end(content.as_fd())?)
        }
        _ => return Err(Errno(libc::EBADMSG)),
    };
    Ok(Some((message.map_err(|_| Errno(libc::EBADMSG))?, fds)))
}

fn read_to_end(fd: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut buffer = [0u8; 64 << 10];
    loop {
        match file::read(fd, &mut buffer)? {
            0 => return Ok(content),
            length if content.len() + length > MESSAGE_BYTES => return Err(Errno(libc::EMSGSIZE)),
            length => content.extend_from_slice(&buffer[..length]),
        }
    }
}
