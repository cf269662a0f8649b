//! Mounts by descriptor: the API of Linux 5.2 and 5.12. No path of the host is looked up twice.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::{Result, c_string, check, check_long};

/// Not writable.
pub(crate) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// Set-user-id bits have no effect.
pub(crate) const NO_SUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// Device nodes cannot be opened.
pub(crate) const NO_DEV: u64 = libc::MOUNT_ATTR_NODEV;
/// Nothing can be executed.
pub(crate) const NO_EXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const OPEN_TREE_CLONE: libc::c_uint = 1;

fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: only called with the fresh descriptor that a call just returned.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// A new file system, mounted nowhere yet.
pub(crate) fn new_filesystem(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u64) -> Result<OwnedFd> {
    // SAFETY: the string outlives the call.
    let context =
        owned(check_long(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?);
    for (name, value) in options {
        // SAFETY: the strings outlive the call.
        check_long(unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                context.as_raw_fd(),
                FSCONFIG_SET_STRING,
                name.as_ptr(),
                value.as_ptr(),
                0,
            )
        })?;
    }
    let none: *const libc::c_char = ptr::null();
    // SAFETY: this command takes neither key nor value.
    check_long(unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0)
    })?;
    // SAFETY: takes integers only.
    check_long(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes as libc::c_uint)
    })
    .map(owned)
}

/// A detached copy of the mount tree at `path` below `directory`.
pub(crate) fn clone_tree(directory: Option<BorrowedFd<'_>>, path: &[u8], recursive: bool) -> Result<OwnedFd> {
    let path = c_string(path)?;
    let recursive = if recursive { libc::AT_RECURSIVE as libc::c_uint } else { 0 };
    // SAFETY: the string outlives the call.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            directory.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd()),
            path.as_ptr(),
            OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint | recursive,
        )
    })
    .map(owned)
}

/// Sets attributes of a mount, and with `recursive` of all below it.
pub(crate) fn set_attributes(mount: BorrowedFd<'_>, attributes: u64, recursive: bool) -> Result<()> {
    let change = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let recursive = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `change` outlives the call and has the size given.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            ptr::from_ref(&change),
            size_of::<libc::mount_attr>(),
        )
    })
    .map(|_| ())
}

/// Attaches a detached mount at `path` below `directory`.
pub(crate) fn attach(mount: BorrowedFd<'_>, directory: Option<BorrowedFd<'_>>, path: &[u8]) -> Result<()> {
    let path = c_string(path)?;
    // SAFETY: the strings outlive the call.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            directory.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd()),
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
    .map(|_| ())
}

/// Cuts this mount namespace's propagation in both directions.
pub(crate) fn make_private() -> Result<()> {
    let none: *const libc::c_char = ptr::null();
    // SAFETY: a propagation change takes neither source, type nor data.
    check(unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, ptr::null()) })
        .map(|_| ())
}

/// Makes the current directory the root and forgets the old root: both lie stacked on `/`, the old one on top.
pub(crate) fn enter_root() -> Result<()> {
    let here = c".".as_ptr();
    // SAFETY: the string is static.
    check_long(unsafe { libc::syscall(libc::SYS_pivot_root, here, here) })?;
    // SAFETY: the string is static.
    check(unsafe { libc::umount2(here, libc::MNT_DETACH) }).map(|_| ())
}
