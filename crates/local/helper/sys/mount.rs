//! Mounts by descriptor: the API of Linux 5.2 and 5.12. No path of the host is looked up twice.

use core::ffi::CStr;
use core::ptr;

use super::fd::{BorrowedFd, OwnedFd};
use super::{Result, c_string};

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

fn owned(fd: usize) -> OwnedFd {
    // SAFETY: only called with the fresh descriptor that a call just returned.
    unsafe { OwnedFd::new(fd) }
}

/// A new file system, mounted nowhere yet.
pub(crate) fn new_filesystem(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u64) -> Result<OwnedFd> {
    // SAFETY: the string outlives the call.
    let context = owned(unsafe { call!(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) }?);
    let fd = context.as_raw_fd();
    for (name, value) in options {
        // SAFETY: the strings outlive the call.
        unsafe { call!(libc::SYS_fsconfig, fd, FSCONFIG_SET_STRING, name.as_ptr(), value.as_ptr(), 0) }?;
    }
    let none: *const u8 = ptr::null();
    // SAFETY: this command takes neither key nor value.
    unsafe { call!(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, none, none, 0) }?;
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, attributes) }.map(owned)
}

/// A detached copy of the mount tree at `path` below `directory`, or with an empty path at that itself.
pub(crate) fn clone_tree(directory: Option<BorrowedFd<'_>>, path: &[u8], recursive: bool) -> Result<OwnedFd> {
    let empty = if path.is_empty() { libc::AT_EMPTY_PATH as libc::c_uint } else { 0 };
    let path = c_string(path)?;
    let recursive = if recursive { libc::AT_RECURSIVE as libc::c_uint } else { 0 };
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint | recursive | empty;
    let directory = directory.map_or(libc::AT_FDCWD, BorrowedFd::as_raw_fd);
    // SAFETY: the string outlives the call.
    unsafe { call!(libc::SYS_open_tree, directory, path.as_ptr(), flags) }.map(owned)
}

/// Sets attributes of a mount, and with `recursive` of all below it.
pub(crate) fn set_attributes(mount: BorrowedFd<'_>, attributes: u64, recursive: bool) -> Result<()> {
    let change = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let (fd, size) = (mount.as_raw_fd(), size_of::<libc::mount_attr>());
    // SAFETY: `change` outlives the call and has the size given.
    unsafe { call!(libc::SYS_mount_setattr, fd, c"".as_ptr(), flags, ptr::from_ref(&change), size) }.map(drop)
}

/// Cuts the propagation of a mount and of all below it in both directions.
pub(crate) fn isolate(mount: BorrowedFd<'_>) -> Result<()> {
    let change = libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    let (fd, size) = (mount.as_raw_fd(), size_of::<libc::mount_attr>());
    // SAFETY: `change` outlives the call and has the size given.
    unsafe { call!(libc::SYS_mount_setattr, fd, c"".as_ptr(), flags, ptr::from_ref(&change), size) }.map(drop)
}

/// Attaches a detached mount at `path` below `directory`.
pub(crate) fn attach(mount: BorrowedFd<'_>, directory: Option<BorrowedFd<'_>>, path: &[u8]) -> Result<()> {
    let path = c_string(path)?;
    let (from, to) = (mount.as_raw_fd(), directory.map_or(libc::AT_FDCWD, BorrowedFd::as_raw_fd));
    let flags = MOVE_MOUNT_F_EMPTY_PATH;
    // SAFETY: the strings outlive the call.
    unsafe { call!(libc::SYS_move_mount, from, c"".as_ptr(), to, path.as_ptr(), flags) }.map(drop)
}

/// Gives this process a mount namespace of its own, in which what the host mounts later appears, and from which nothing goes out.
pub(crate) fn own_namespace() -> Result<()> {
    // SAFETY: takes an integer.
    unsafe { call!(libc::SYS_unshare, libc::CLONE_NEWNS) }?;
    set_propagation(libc::MS_SLAVE)
}

/// Cuts this mount namespace's propagation in both directions.
pub(crate) fn make_private() -> Result<()> {
    set_propagation(libc::MS_PRIVATE)
}

fn set_propagation(kind: libc::c_ulong) -> Result<()> {
    let none: *const u8 = ptr::null();
    let flags = libc::MS_REC | kind;
    // SAFETY: a propagation change takes neither source, type nor data.
    unsafe { call!(libc::SYS_mount, none, c"/".as_ptr(), none, flags, none) }.map(drop)
}

/// Lets go of the mount at a path.
pub(crate) fn detach(path: &[u8]) -> Result<()> {
    let path = c_string(path)?;
    // SAFETY: the string outlives the call.
    unsafe { call!(libc::SYS_umount2, path.as_ptr(), libc::MNT_DETACH) }.map(drop)
}

/// Makes the current directory the root; the old root lies on top of it then.
pub(crate) fn enter_root() -> Result<()> {
    let here = c".".as_ptr();
    // SAFETY: the string is static.
    unsafe { call!(libc::SYS_pivot_root, here, here) }.map(drop)
}

/// Lets go of the old root, by a process whose current directory is the new one.
pub(crate) fn let_go_of_old_root() -> Result<()> {
    detach(b".")
}
