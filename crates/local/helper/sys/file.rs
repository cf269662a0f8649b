//! Files by descriptor, terminals, and the closing of what must not be inherited.

use alloc::vec;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::ptr;

use super::fd::{BorrowedFd, OwnedFd, RawFd};
use super::{Errno, Result, c_string};

fn owned(fd: usize) -> OwnedFd {
    // SAFETY: only called with the fresh descriptor that a call just returned.
    unsafe { OwnedFd::new(fd) }
}

fn raw(directory: Option<BorrowedFd<'_>>) -> RawFd {
    directory.map_or(libc::AT_FDCWD, BorrowedFd::as_raw_fd)
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
    let mut how: libc::open_how = unsafe { core::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.mode = u64::from(mode);
    how.resolve = libc::RESOLVE_NO_MAGICLINKS;
    let (how, size) = (ptr::from_ref(&how), size_of::<libc::open_how>());
    // SAFETY: path and request outlive the call, and the size given is the request's.
    unsafe { call!(libc::SYS_openat2, raw(directory), path.as_ptr(), how, size) }.map(owned)
}

/// What is known of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metadata {
    /// Type and permission bits.
    pub(crate) mode: u32,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Its owner.
    pub(crate) uid: u32,
    /// The device it lies on, and its number there.
    pub(crate) identity: (u64, u64),
    /// When it was last changed, in seconds and nanoseconds.
    pub(crate) changed: (i64, i64),
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
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: name and buffer outlive the call; on 64-bit machines the C library's structure is the kernel's.
    unsafe { call!(libc::SYS_newfstatat, raw(directory), name.as_ptr(), &raw mut stat, flags) }?;
    Ok(Metadata {
        mode: stat.st_mode,
        size: stat.st_size as u64,
        uid: stat.st_uid,
        identity: (stat.st_dev, stat.st_ino),
        changed: (stat.st_ctime, stat.st_ctime_nsec),
    })
}

/// Creates a directory.
pub(crate) fn make_directory(directory: Option<BorrowedFd<'_>>, path: &[u8], mode: u32) -> Result<()> {
    let path = c_string(path)?;
    // SAFETY: the string outlives the call.
    unsafe { call!(libc::SYS_mkdirat, raw(directory), path.as_ptr(), mode) }.map(drop)
}

/// Creates a symbolic link.
pub(crate) fn make_symlink(target: &[u8], directory: BorrowedFd<'_>, path: &[u8]) -> Result<()> {
    let (target, path) = (c_string(target)?, c_string(path)?);
    // SAFETY: the strings outlive the call.
    unsafe { call!(libc::SYS_symlinkat, target.as_ptr(), directory.as_raw_fd(), path.as_ptr()) }.map(drop)
}

/// Reads where a symbolic link points; EINVAL when it is not one.
pub(crate) fn read_link(directory: Option<BorrowedFd<'_>>, path: &[u8]) -> Result<Vec<u8>> {
    let path = c_string(path)?;
    let mut target = vec![0u8; libc::PATH_MAX as usize];
    let (room, size) = (target.as_mut_ptr(), target.len());
    // SAFETY: pointer and length describe `target`.
    let length = unsafe { call!(libc::SYS_readlinkat, raw(directory), path.as_ptr(), room, size) }?;
    target.truncate(length);
    Ok(target)
}

/// Renames within one directory, replacing what is there.
pub(crate) fn rename(directory: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> Result<()> {
    let (from, to) = (c_string(from)?, c_string(to)?);
    let fd = directory.as_raw_fd();
    // SAFETY: the strings outlive the call.
    unsafe { call!(libc::SYS_renameat2, fd, from.as_ptr(), fd, to.as_ptr(), 0) }.map(drop)
}

/// Removes a file.
pub(crate) fn unlink(directory: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let name = c_string(name)?;
    // SAFETY: the string outlives the call.
    unsafe { call!(libc::SYS_unlinkat, directory.as_raw_fd(), name.as_ptr(), 0) }.map(drop)
}

/// Takes the lock of an open file; EAGAIN when another has it. It is released when the last descriptor of this opening is closed,
/// at the end of the process at the latest.
pub(crate) fn lock(fd: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_flock, fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }.map(drop)
}

/// Bytes stored in the file system of an open file.
pub(crate) fn stored_bytes(fd: BorrowedFd<'_>) -> Result<u64> {
    // SAFETY: all-zero is a valid buffer.
    let mut system: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: the buffer outlives the call.
    unsafe { call!(libc::SYS_fstatfs, fd.as_raw_fd(), &raw mut system) }?;
    Ok((system.f_blocks.saturating_sub(system.f_bfree)).saturating_mul(system.f_bsize as u64))
}

/// Removes an empty directory.
pub(crate) fn remove_directory(directory: Option<BorrowedFd<'_>>, name: &[u8]) -> Result<()> {
    let name = c_string(name)?;
    // SAFETY: the string outlives the call.
    unsafe { call!(libc::SYS_unlinkat, raw(directory), name.as_ptr(), libc::AT_REMOVEDIR) }.map(drop)
}

/// Sets permission bits of an open file, whatever the mask for new files says.
pub(crate) fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<()> {
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_fchmod, fd.as_raw_fd(), mode) }.map(drop)
}

/// Whether this process may write to a name in a directory, following links. What is gone meanwhile keeps nobody from it.
pub(crate) fn is_writable(directory: BorrowedFd<'_>, name: &[u8]) -> Result<bool> {
    let name = c_string(name)?;
    // SAFETY: the string outlives the call.
    match unsafe { call!(libc::SYS_faccessat, directory.as_raw_fd(), name.as_ptr(), libc::W_OK) } {
        Ok(_) | Err(Errno(libc::ENOENT)) => Ok(true),
        Err(_) => Ok(false),
    }
}

/// Reads at most a buffer full from an offset on; 0 at the end.
pub(crate) fn read_some_at(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<usize> {
    again(|| {
        // SAFETY: pointer and length describe `buffer`.
        unsafe { call!(libc::SYS_pread64, fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len(), offset) }
    })
}

/// Reads at most a buffer full; 0 at the end.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    again(|| {
        // SAFETY: pointer and length describe `buffer`.
        unsafe { call!(libc::SYS_read, fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) }
    })
}

/// Reads a file of the host that is no longer than `most`.
pub(crate) fn read_whole(fd: BorrowedFd<'_>, most: usize) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut buffer = vec![0u8; 4 << 10];
    loop {
        match read(fd, &mut buffer)? {
            0 => return Ok(content),
            length if content.len() + length > most => return Err(Errno(libc::EMSGSIZE)),
            length => content.extend_from_slice(&buffer[..length]),
        }
    }
}

/// Writes all of `bytes`.
pub(crate) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: pointer and length describe `bytes`.
        let wrote = again(|| unsafe { call!(libc::SYS_write, fd.as_raw_fd(), bytes.as_ptr(), bytes.len()) })?;
        bytes = &bytes[wrote..];
    }
    Ok(())
}

/// Writes what there is room for; EAGAIN where that is nothing and the descriptor does not block.
pub(crate) fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
    // SAFETY: pointer and length describe `bytes`.
    again(|| unsafe { call!(libc::SYS_write, fd.as_raw_fd(), bytes.as_ptr(), bytes.len()) })
}

/// Writes all of it at a place of a file.
pub(crate) fn write_at(fd: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<()> {
    while !bytes.is_empty() {
        let (raw, from, size) = (fd.as_raw_fd(), bytes.as_ptr(), bytes.len());
        // SAFETY: pointer and length describe `bytes`.
        let wrote = again(|| unsafe { call!(libc::SYS_pwrite64, raw, from, size, offset) })?;
        bytes = &bytes[wrote..];
        offset += wrote as u64;
    }
    Ok(())
}

/// Fills a buffer from a place of a file; where that ends before, the rest of the buffer stays as it is.
pub(crate) fn read_at(fd: BorrowedFd<'_>, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
    while !buffer.is_empty() {
        let (raw, room, size) = (fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len());
        // SAFETY: pointer and length describe `buffer`.
        let got = again(|| unsafe { call!(libc::SYS_pread64, raw, room, size, offset) })?;
        if got == 0 {
            break;
        }
        buffer = &mut buffer[got..];
        offset += got as u64;
    }
    Ok(())
}

/// A file of zeros that lies in memory, where it takes room only where it is written.
pub(crate) fn memory_file(name: &CStr, size: u64) -> Result<OwnedFd> {
    // SAFETY: the name outlives the call.
    let file = owned(unsafe { call!(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) }?);
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_ftruncate, file.as_raw_fd(), size) }?;
    Ok(file)
}

/// Makes calls on this end of a pipe or socket return where they would wait.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }.map(drop)
}

/// The most that a pipe can hold.
pub(crate) fn pipe_room(fd: BorrowedFd<'_>) -> Result<usize> {
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_GETPIPE_SZ) }
}

/// Writes into a file that is there, such as a setting of the kernel's.
pub(crate) fn write_value(path: &[u8], value: &[u8]) -> Result<()> {
    write_all(open(None, path, libc::O_WRONLY, 0)?.as_fd(), value)
}

/// Moves up to `length` bytes from a pipe into a file without passing through this process; 0 at the end.
pub(crate) fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> Result<usize> {
    let (from, to, here) = (from.as_raw_fd(), to.as_raw_fd(), ptr::null::<u64>());
    // SAFETY: null offsets mean the descriptors' own positions.
    again(|| unsafe { call!(libc::SYS_splice, from, here, to, here, length, libc::SPLICE_F_MOVE) })
}

/// Copies what a file has, at most this many bytes, without passing through this process; returns how many.
pub(crate) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, most: u64) -> Result<u64> {
    let (from, to, here) = (from.as_raw_fd(), to.as_raw_fd(), ptr::null::<u64>());
    let mut copied = 0;
    while copied < most {
        let rest = most - copied;
        // SAFETY: a null offset means the descriptor's own position.
        match again(|| unsafe { call!(libc::SYS_sendfile, to, from, here, rest) })? {
            0 => break,
            length => copied += length as u64,
        }
    }
    Ok(copied)
}

/// Calls again as long as a signal interrupted the call.
fn again(mut call: impl FnMut() -> Result<usize>) -> Result<usize> {
    loop {
        match call() {
            Err(Errno(libc::EINTR)) => {}
            done => return done,
        }
    }
}

/// A pipe that is closed on exec: reading end, writing end.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    // SAFETY: `fds` has room for two descriptors.
    unsafe { call!(libc::SYS_pipe2, fds.as_mut_ptr(), libc::O_CLOEXEC) }?;
    Ok((owned(fds[0] as usize), owned(fds[1] as usize)))
}

/// Makes `fd` available under a fixed number, kept across exec.
pub(crate) fn duplicate_to(fd: BorrowedFd<'_>, number: RawFd) -> Result<()> {
    if fd.as_raw_fd() == number {
        // SAFETY: takes integers only.
        return unsafe { call!(libc::SYS_fcntl, number, libc::F_SETFD, 0) }.map(drop);
    }
    // SAFETY: takes integers only; whatever `number` was is replaced on purpose.
    unsafe { call!(libc::SYS_dup3, fd.as_raw_fd(), number, 0) }.map(drop)
}

/// Moves a descriptor to a number of at least `least`, closed on exec.
pub(crate) fn move_up(fd: OwnedFd, least: RawFd) -> Result<OwnedFd> {
    if fd.as_raw_fd() >= least { Ok(fd) } else { fd.as_fd().duplicate(least) }
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
    unsafe { call!(libc::SYS_close_range, first, last, 0) }.map(drop)
}

/// What the owner starts us with, as our standard input and output: its socket, and a descriptor of its process. To be called
/// once.
pub(crate) fn take_over() -> [OwnedFd; 2] {
    // SAFETY: the descriptors are open since the program started (`Launcher::start` passes them), and nothing else in the helper
    // takes them: its only caller runs once. Where they are not, whatever is done with them fails.
    [0, 1].map(|fd| unsafe { OwnedFd::new(fd) })
}

/// Reads a batch of directory entries as `(name, type)`; empty at the end.
pub(crate) fn read_directory(
    directory: BorrowedFd<'_>,
    buffer: &mut [u8],
    mut entry: impl FnMut(&CStr, u8),
) -> Result<bool> {
    let (fd, room, size) = (directory.as_raw_fd(), buffer.as_mut_ptr(), buffer.len());
    // SAFETY: pointer and length describe `buffer`.
    let got = unsafe { call!(libc::SYS_getdents64, fd, room, size) }?;
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
    let fd = master.as_raw_fd();
    // SAFETY: TIOCSPTLCK reads an int, which outlives the call.
    unsafe { call!(libc::SYS_ioctl, fd, libc::TIOCSPTLCK, &raw const unlock) }?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes open flags and returns a fresh descriptor.
    let slave = owned(unsafe { call!(libc::SYS_ioctl, fd, libc::TIOCGPTPEER, flags) }?);
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads a winsize, which outlives the call.
    unsafe { call!(libc::SYS_ioctl, fd, libc::TIOCSWINSZ, &raw const size) }?;
    Ok((master, slave))
}

/// Makes a terminal the controlling one of this session.
pub(crate) fn take_terminal(slave: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: TIOCSCTTY takes an integer.
    unsafe { call!(libc::SYS_ioctl, slave.as_raw_fd(), libc::TIOCSCTTY, 0) }.map(drop)
}

/// Changes the current directory.
pub(crate) fn change_directory(path: &[u8]) -> Result<()> {
    let path = c_string(path)?;
    // SAFETY: the string outlives the call.
    unsafe { call!(libc::SYS_chdir, path.as_ptr()) }.map(drop)
}

/// Makes an open directory the current one.
pub(crate) fn change_directory_to(directory: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_fchdir, directory.as_raw_fd()) }.map(drop)
}
