//! Descriptors: owned and borrowed, as in the standard library.

use core::marker::PhantomData;

use super::Result;

/// The number of a descriptor.
pub(crate) type RawFd = i32;

/// A descriptor that is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct OwnedFd(RawFd);

/// A descriptor that stays open meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BorrowedFd<'a>(RawFd, PhantomData<&'a OwnedFd>);

impl OwnedFd {
    /// Takes a descriptor over.
    ///
    /// # Safety
    ///
    /// It is open, and nobody else closes it.
    pub(super) unsafe fn new(fd: usize) -> Self {
        Self(fd as RawFd)
    }

    /// Lends it.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd(self.0, PhantomData)
    }

    /// Its number.
    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        // A descriptor is gone after this whatever the kernel says of it.
        // SAFETY: owned, so nothing uses it any more.
        drop(unsafe { call!(libc::SYS_close, self.0) });
    }
}

impl BorrowedFd<'_> {
    /// Its number.
    pub(crate) fn as_raw_fd(self) -> RawFd {
        self.0
    }

    /// Another descriptor of the same, with a number of at least `least`, closed on exec.
    pub(crate) fn duplicate(self, least: RawFd) -> Result<OwnedFd> {
        // SAFETY: takes integers only.
        let fd = unsafe { call!(libc::SYS_fcntl, self.0, libc::F_DUPFD_CLOEXEC, least) }?;
        // SAFETY: a fresh descriptor.
        Ok(unsafe { OwnedFd::new(fd) })
    }
}
