//! Every kernel call of the helper, as safe functions over owned descriptors. All `unsafe` of the helper is here.
//!
//! The helper is single-threaded from its first instruction to its last; nothing here is made for threads. The calls are made
//! without a C library: what such a one does at the start of a program takes longer than the launcher takes to be ready.

#![expect(unsafe_code, reason = "the kernel-call module")]

#[macro_use]
mod call;
pub(crate) mod activity;
pub(crate) mod fd;
pub(crate) mod file;
mod heap;
pub(crate) mod mount;
pub(crate) mod process;
pub(crate) mod security;
pub(crate) mod socket;
#[cfg(ringfence_embedded)]
mod start;
pub(crate) mod walk;

use alloc::ffi::CString;

/// A kernel error number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// The result of a kernel call.
pub(crate) type Result<T> = core::result::Result<T, Errno>;

/// A path or name for the kernel; a NUL inside is EINVAL, as no such name exists.
pub(crate) fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Errno(libc::EINVAL))
}
