//! Every kernel call of the helper, as safe functions over owned descriptors. All `unsafe` of the helper is here.
//!
//! The helper is single-threaded from its first instruction to its last; nothing here is made for threads.

#![expect(unsafe_code, reason = "the kernel-call module")]

pub(crate) mod file;
pub(crate) mod mount;
pub(crate) mod process;
pub(crate) mod security;
pub(crate) mod socket;

use std::ffi::CString;

/// A kernel error number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// The result of a kernel call.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    /// The error of the call that failed last.
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Turns the -1 of a library call into the error.
pub(crate) fn check(result: libc::c_int) -> Result<libc::c_int> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

/// Turns the -1 of `syscall(2)` into the error.
pub(crate) fn check_long(result: libc::c_long) -> Result<libc::c_long> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

/// A path or name for the kernel; a NUL inside is EINVAL, as no such name exists.
pub(crate) fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Errno(libc::EINVAL))
}
