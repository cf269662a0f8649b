//! Files by descriptor, terminals, and the closing of what must not be inherited.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::{Errno, Result, c_string, check, check_long};

fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: only called with the fresh descriptor that a call just returned.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

fn raw(directory: Option<BorrowedFd<'_>>) -> RawFd {
    directory.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd())
}

/// Opens a path as `openat2` does, never through a magic link such as `/proc/self/fd/3` (S38).
pub(crate) fn open(
    directory: Option<BorrowedFd<'_>>,
    path: &[u8],
    flags: libc::c_int,
    mode: u32,
) -> Result<OwnedFd> {
    let path = c_string(path)?;
    // SAFETY: all-zero is a valid request.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.mode = u64::from(mode);
    how.resolve = libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: path and request outlive the call, and the size given is the request's.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            raw(directory),
            path.as_ptr(),
            ptr::from_ref(&how),
            size_of::<libc::open_how>(),
        )
    })
    .map(owned)
}

/// What is known of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metadata {
    /// Type and permission bits.
    pub(crate) mode: u32,
    /// Size in bytes.
    pub(crate) size: u64,
}

impl Metadata {
    /// Whether the type bits are `kind`, such as `libc::S_IFREG`.
    pub(crate) fn is(&self, kind: libc::mode_t) -> bool {
        self.mode & libc::S_IFMT == kind
    }
}

/// Asks about an open file.
pub(crate) fn metadata(fd: BorrowedFd<'_>) -> Result<Metadata> {
    metadata_at(Some(fd), c"", libc::AT_EMPTY_PATH)
}

/// Asks about a name in a directory without following a link.
pub(crate) fn metadata_of_name(directory: BorrowedFd<'_>, name: &CStr) -> Result<Metadata> {
    metadata_at(Some(directory), name, libc::AT_SYMLINK_NOFOLLOW)
}

fn metadata_at(directory: Option<BorrowedFd<'_>>, name: &CStr, flags: libc::c_int) -> Result<Metadata> {
    // SAFETY: all-zero is a valid buffer.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: name and buffer outlive the call.
    check(unsafe { libc::fstatat(raw(directory), name.as_ptr(), &raw mut stat, flags) })?;
    Ok(Metadata { mode: stat.st_mode, size: stat.st_size as u64 })
}

/// Creates a directory.
pub(crate) fn make_directory(directory: Option<BorrowedFd<'_>>, path: &[u8], mode: u32) -> Result<()> {
    let path = c_string(path)?;
    // SAFETY: the string outlives the call.
    check(unsafe { libc::mkdirat(raw(directory), path.as_ptr(), mode) }).map(|_| ())
}

/// Creates a symbolic link.
pub(crate) fn make_symlink(target: &[u8], directory: BorrowedFd<'_>, path: &[u8]) -> Result<()> {
    let (target, path) = (c_string(target)?, c_string(path)?);
    // SAFETY: the strings outlive the call.
    check(unsafe { libc::symlinkat(target.as_ptr(), directory.as_raw_fd(), path.as_ptr()) }).map(|_| ())
}

/// Reads where a symbolic link points; EINVAL when it is not one.
pub(crate) fn read_link(directory: Option<BorrowedFd<'_>>, path: &[u8]) -> Result<Vec<u8>> {
    let path = c_string(path)?;
    let mut target = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: pointer and length describe `target`.
    let length =
        unsafe { libc::readlinkat(raw(directory), path.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    target.truncate(check_long(length as libc::c_long)? as usize);
    Ok(target)
}

/// Renames within one directory, replacing what is there.
pub(crate) fn rename(directory: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> Result<()> {
    let (from, to) = (c_string(from)?, c_string(to)?);
    let fd = directory.as_raw_fd();
    // SAFETY: the strings outlive the call.
    check(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) }).map(|_| ())
}

/// Removes a file.
pub(crate) fn unlink(directory: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let name = c_string(name)?;
    // SAFETY: the string outlives the call.
    check(unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) }).map(|_| ())
}

/// Removes an empty directory.
pub(crate) fn remove_directory(directory: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let name = c_string(name)?;
    // SAFETY: the string outlives the call.
    check(unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) }).map(|_| ())
}

/// Sets permission bits of an open file, whatever the mask for new files says.
pub(crate) fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::fchmod(fd.as_raw_fd(), mode) }).map(|_| ())
}

/// Whether this process may write to a name in a directory, following links.
pub(crate) fn is_writable(directory: BorrowedFd<'_>, name: &[u8]) -> Result<bool> {
    let name = c_string(name)?;
    // SAFETY: the string outlives the call.
    Ok(check(unsafe { libc::faccessat(directory.as_raw_fd(), name.as_ptr(), libc::W_OK, 0) }).is_ok())
}

/// Reads at most a buffer full; 0 at the end.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    loop {
        // SAFETY: pointer and length describe `buffer`.
        let got = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        match check_long(got as libc::c_long) {
            Ok(length) => return Ok(length as usize),
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes all of `bytes`.
pub(crate) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: pointer and length describe `bytes`.
        let wrote = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        match check_long(wrote as libc::c_long) {
            Ok(length) => bytes = &bytes[length as usize..],
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Moves up to `length` bytes from a pipe into a file without passing through this process; 0 at the end.
pub(crate) fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> Result<usize> {
    loop {
        // SAFETY: null offsets mean the descriptors' own positions.
        let moved = unsafe {
            libc::splice(
                from.as_raw_fd(),
                ptr::null_mut(),
                to.as_raw_fd(),
                ptr::null_mut(),
                length,
                libc::SPLICE_F_MOVE,
            )
        };
        match check_long(moved as libc::c_long) {
            Ok(length) => return Ok(length as usize),
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A pipe that is closed on exec: reading end, writing end.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    // SAFETY: `fds` has room for two descriptors.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((owned(libc::c_long::from(fds[0])), owned(libc::c_long::from(fds[1]))))
}

/// Makes `fd` available under a fixed number, kept across exec.
pub(crate) fn duplicate_to(fd: BorrowedFd<'_>, number: RawFd) -> Result<()> {
    if fd.as_raw_fd() == number {
        // SAFETY: takes integers only.
        return check(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }).map(|_| ());
    }
    // SAFETY: takes integers only; whatever `number` was is replaced on purpose.
    check(unsafe { libc::dup2(fd.as_raw_fd(), number) }).map(|_| ())
}

/// Moves a descriptor to a number of at least `least`, closed on exec.
pub(crate) fn move_up(fd: OwnedFd, least: RawFd) -> Result<OwnedFd> {
    if fd.as_raw_fd() >= least {
        return Ok(fd);
    }
    // SAFETY: takes integers only.
    let new = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) })?;
    Ok(owned(libc::c_long::from(new)))
}

/// Closes every descriptor but those in `keep`, also ones that a library forgot (S2).
pub(crate) fn close_all_but(keep: &[RawFd]) -> Result<()> {
    let mut keep: Vec<u32> = keep.iter().map(|fd| *fd as u32).collect();
    keep.sort_unstable();
    let mut next = 0u32;
    for fd in keep {
        if fd > next {
            close_range(next, fd - 1)?;
        }
        next = next.max(fd + 1);
    }
    close_range(next, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: nothing uses the descriptors closed afterwards: callers have just been executed, or are a fork that never returns
    // to the code that owns them (`-> !`).
    check_long(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(|_| ())
}

/// The owner's socket, which it makes our standard input. To be called once.
pub(crate) fn take_control_socket() -> OwnedFd {
    // SAFETY: descriptor 0 is open since the program started (`Launcher::start` passes it, and the runtime opens a null device
    // otherwise), and nothing else in the helper takes it: its only caller runs once.
    unsafe { OwnedFd::from_raw_fd(0) }
}

/// Reads a batch of directory entries as `(name, type)`; empty at the end.
pub(crate) fn read_directory(
    directory: BorrowedFd<'_>,
    buffer: &mut [u8],
    mut entry: impl FnMut(&CStr, u8),
) -> Result<bool> {
    // SAFETY: pointer and length describe `buffer`.
    let got = check_long(unsafe {
        libc::syscall(libc::SYS_getdents64, directory.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
    })? as usize;
    let mut rest = &buffer[..got];
    // linux_dirent64: inode 8, offset 8, record length 2, type 1, name with NUL.
    while let (Some(length), Some(kind)) = (rest.get(16..18), rest.get(18)) {
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        let Some(name) = rest.get(19..length).and_then(|name| CStr::from_bytes_until_nul(name).ok()) else {
            return Err(Errno(libc::EIO));
        };
        entry(name, *kind);
        rest = &rest[length..];
    }
    Ok(got > 0)
}

/// Opens a new pseudo-terminal: the master, and the slave as the command's own.
pub(crate) fn open_terminal(rows: u16, columns: u16) -> Result<(OwnedFd, OwnedFd)> {
    let master = open(None, b"/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY, 0)?;
    let unlock: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads an int, which outlives the call.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock) })?;
    // SAFETY: TIOCGPTPEER takes open flags and returns a fresh descriptor.
    let slave = check(unsafe {
        libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC)
    })?;
    let slave = owned(libc::c_long::from(slave));
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads a winsize, which outlives the call.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) })?;
    Ok((master, slave))
}

/// Makes a terminal the controlling one of this session.
pub(crate) fn take_terminal(slave: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: TIOCSCTTY takes an integer.
    check(unsafe { libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0) }).map(|_| ())
}

/// Changes the current directory.
pub(crate) fn change_directory(path: &[u8]) -> Result<()> {
    let path = c_string(path)?;
    // SAFETY: the string outlives the call.
    check(unsafe { libc::chdir(path.as_ptr()) }).map(|_| ())
}

/// Makes an open directory the current one.
pub(crate) fn change_directory_to(directory: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::fchdir(directory.as_raw_fd()) }).map(|_| ())
}
