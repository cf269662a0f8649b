//! The one unsafe promise of the owner's side.

#![expect(unsafe_code, reason = "the kernel-call module")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the current runtime.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open descriptor from here until it is dropped, which `AsyncFd` does after it
    // deregistered it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
