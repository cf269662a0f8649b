//! What a walk through a tree that others change meanwhile needs of the kernel.

use core::ptr;

use super::fd::{BorrowedFd, OwnedFd};
use super::{Result, c_string};

/// Opens a name in a directory for reading: no link, nothing mounted over it, and without waiting for what has become a FIFO.
/// ELOOP is a link, EXDEV a mount.
pub(crate) fn open_entry(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let name = c_string(name)?;
    // SAFETY: all-zero is a valid request.
    let mut how: libc::open_how = unsafe { core::mem::zeroed() };
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    how.flags = flags as u64;
    how.resolve = libc::RESOLVE_BENEATH
        | libc::RESOLVE_NO_SYMLINKS
        | libc::RESOLVE_NO_MAGICLINKS
        | libc::RESOLVE_NO_XDEV;
    let (how, size) = (ptr::from_ref(&how), size_of::<libc::open_how>());
    // SAFETY: name and request outlive the call, and the size given is the request's.
    let fd = unsafe { call!(libc::SYS_openat2, directory.as_raw_fd(), name.as_ptr(), how, size) }?;
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::new(fd) })
}

/// A file at one moment. Two equal ones mean the same content, as far as the kernel's clock tells moments apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Type and permission bits.
    pub(crate) mode: u32,
    /// Size in bytes.
    pub(crate) size: u64,
    /// When the content changed last.
    written: (i64, i64),
}

impl Stamp {
    /// Whether the type bits are `kind`, such as `libc::S_IFREG`.
    pub(crate) fn is(&self, kind: libc::mode_t) -> bool {
        self.mode & libc::S_IFMT == kind
    }
}

/// Looks at an open file.
pub(crate) fn stamp(fd: BorrowedFd<'_>) -> Result<Stamp> {
    // SAFETY: all-zero is a valid buffer.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the buffer outlives the call; on 64-bit machines the C library's structure is the kernel's.
    unsafe { call!(libc::SYS_fstat, fd.as_raw_fd(), &raw mut stat) }?;
    let written = (stat.st_mtime, stat.st_mtime_nsec);
    Ok(Stamp { mode: stat.st_mode, size: stat.st_size as u64, written })
}

/// File systems that keep content and need not count blocks: in memory without a bound, a layer above such a one, or the
/// word of a server (`tmpfs`, `ramfs`, `overlay`, FUSE with virtiofs, 9p, CIFS and SMB 2, NFS).
const KEEPERS: [u32; 8] =
    [0x0102_1994, 0x8584_58f6, 0x794c_7630, 0x6573_5546, 0x0102_1997, 0xff53_4d42, 0xfe53_4d42, 0x0000_6969];

/// Whether what is there lies somewhere, and is not what the kernel writes anew for each reader, such as `/proc` (S12, S38).
pub(crate) fn is_kept(fd: BorrowedFd<'_>) -> Result<bool> {
    // SAFETY: all-zero is a valid buffer.
    let mut system: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: the buffer outlives the call; on 64-bit machines the C library's structure is the kernel's.
    unsafe { call!(libc::SYS_fstatfs, fd.as_raw_fd(), &raw mut system) }?;
    Ok(system.f_blocks > 0 || KEEPERS.contains(&(system.f_type as u32)))
}
