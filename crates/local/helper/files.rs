//! File operations inside the sandbox's view, by descriptor. The kernel resolves every name in the sandbox's own mount
//! namespace with the sandbox's own user, so there is nothing a symbolic link could reach that a command could not.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::{Errno, file, process};
use crate::transport;
use crate::wire::{Entry, FileFault, Reply};

/// Why an operation failed, for the owner.
pub(crate) struct Fault(pub(crate) FileFault, pub(crate) Errno);

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self(FileFault::Errno, errno)
    }
}

pub(crate) type Done<T> = Result<T, Fault>;

/// Where the content of a file comes from.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// It is here.
    Bytes(&'a [u8]),
    /// It comes through a pipe.
    Pipe(BorrowedFd<'a>),
}

/// How many links are followed before giving up, as the kernel does.
const MAX_LINKS: usize = 40;

/// Bytes of entries in one reply.
const BATCH_BYTES: usize = 24 << 10;

pub(crate) fn answer(channel: BorrowedFd<'_>, result: Done<Reply>) {
    let reply = result.unwrap_or_else(|Fault(fault, errno)| Reply::FileFailed(fault, errno.0));
    // An owner that no longer listens needs no answer.
    drop(transport::reply(channel, &reply, &[]));
}

/// Opens a regular file and hands the descriptor over. The owner reads only what is the same for every reader: what the kernel
/// writes for whoever reads would say of the owner, or of this process, what no command may know (S12, S38).
pub(crate) fn open_for_reading(channel: BorrowedFd<'_>, workdir: BorrowedFd<'_>, path: &[u8]) {
    match open_regular(workdir, path) {
        Ok(fd) => drop(transport::reply(channel, &Reply::Opened, &[fd.as_fd()])),
        Err(fault) => answer(channel, Err(fault)),
    }
}

pub(crate) fn open_regular(workdir: BorrowedFd<'_>, path: &[u8]) -> Done<OwnedFd> {
    // Looked at before it is opened: opening a FIFO or a device can block or have an effect.
    let found = file::open(Some(workdir), path, libc::O_PATH, 0)?;
    check_regular(file::metadata(found.as_fd())?)?;
    // Looked at again after: the name may have been given to something else meanwhile.
    let fd = file::open(Some(workdir), path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, 0)?;
    check_regular(file::metadata(fd.as_fd())?)?;
    Ok(fd)
}

fn check_regular(metadata: file::Metadata) -> Done<()> {
    if metadata.is(libc::S_IFREG) {
        Ok(())
    } else if metadata.is(libc::S_IFDIR) {
        Err(Fault(FileFault::IsADirectory, Errno(libc::EISDIR)))
    } else {
        Err(Fault(FileFault::NotRegular, Errno(libc::EINVAL)))
    }
}

/// Replaces or creates a file: all of it or nothing, by a temporary one beside it and a rename.
pub(crate) fn write(
    channel: BorrowedFd<'_>,
    workdir: BorrowedFd<'_>,
    path: &[u8],
    size: u64,
    source: Source<'_>,
) {
    answer(channel, replace(workdir, path, size, false, source).map(|()| Reply::Written));
}

/// Replaces or creates a file in the same way, and sees to it that it can be executed by whoever can read it.
pub(crate) fn import(
    channel: BorrowedFd<'_>,
    workdir: BorrowedFd<'_>,
    path: &[u8],
    size: u64,
    executable: bool,
    source: Source<'_>,
) {
    answer(channel, replace(workdir, path, size, executable, source).map(|()| Reply::Written));
}

fn replace(
    workdir: BorrowedFd<'_>,
    path: &[u8],
    size: u64,
    executable: bool,
    source: Source<'_>,
) -> Done<()> {
    if path.ends_with(b"/") {
        return Err(Fault(FileFault::IsADirectory, Errno(libc::EISDIR)));
    }
    let target = follow_links(workdir, path)?;
    let (parent, name) = split(&target);
    if matches!(name, b"" | b"." | b"..") {
        return Err(Fault(FileFault::IsADirectory, Errno(libc::EISDIR)));
    }
    make_parents(workdir, parent)?;
    let directory = file::open(Some(workdir), parent, libc::O_PATH | libc::O_DIRECTORY, 0)?;
    let mode = match file::open(Some(directory.as_fd()), name, libc::O_PATH | libc::O_NOFOLLOW, 0) {
        Ok(existing) => {
            let metadata = file::metadata(existing.as_fd())?;
            check_regular(metadata)?;
            // The rename needs only the directory's permission; the file's own is respected too.
            if !file::is_writable(directory.as_fd(), name)? {
                return Err(Errno(libc::EACCES).into());
            }
            metadata.mode & 0o7777
        }
        Err(Errno(libc::ENOENT)) => 0o644,
        Err(errno) => return Err(errno.into()),
    };
    let mode = if executable { mode | (mode & 0o444) >> 2 } else { mode };
    let temporary = format!(".ringfence-{}-{}", process::getpid(), process::now_millis()).into_bytes();
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    let fd = file::open(Some(directory.as_fd()), &temporary, flags, 0o600)?;
    let written = fill(fd.as_fd(), size, source)
        .and_then(|()| Ok(file::set_mode(fd.as_fd(), mode)?))
        .and_then(|()| Ok(file::rename(directory.as_fd(), &temporary, name)?));
    if written.is_err() {
        // It may have been removed by the sandbox already.
        drop(file::unlink(directory.as_fd(), &temporary));
    }
    written
}

fn fill(fd: BorrowedFd<'_>, size: u64, source: Source<'_>) -> Done<()> {
    match source {
        Source::Bytes(content) if content.len() as u64 == size => Ok(file::write_all(fd, content)?),
        Source::Bytes(_) => Err(Fault(FileFault::Incomplete, Errno(libc::EBADMSG))),
        Source::Pipe(pipe) => {
            let mut left = size;
            while left > 0 {
                match file::splice(pipe, fd, left.min(1 << 20) as usize)? {
                    // The owner went away or its own source failed: nothing is replaced.
                    0 => return Err(Fault(FileFault::Incomplete, Errno(libc::EPIPE))),
                    moved => left -= moved as u64,
                }
            }
            Ok(())
        }
    }
}

/// Where a path leads when its last component is a symbolic link, also one that leads nowhere yet.
fn follow_links(workdir: BorrowedFd<'_>, path: &[u8]) -> Done<Vec<u8>> {
    let mut path = path.to_vec();
    for _ in 0..MAX_LINKS {
        match file::read_link(Some(workdir), &path) {
            Ok(target) if target.first() == Some(&b'/') => path = target,
            Ok(target) => path = [split(&path).0, b"/", &target].concat(),
            // Not a link, or nothing there: this is the place.
            Err(Errno(libc::EINVAL | libc::ENOENT)) => return Ok(path),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno(libc::ELOOP).into())
}

/// Splits into the directory (`.` if none is named) and the last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b".", path),
    }
}

fn make_parents(workdir: BorrowedFd<'_>, directory: &[u8]) -> Done<()> {
    match file::open(Some(workdir), directory, libc::O_PATH | libc::O_DIRECTORY, 0) {
        Ok(_) => return Ok(()),
        Err(Errno(libc::ENOENT)) => {}
        Err(errno) => return Err(errno.into()),
    }
    let ends = directory.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(index, _)| index);
    for end in ends.chain([directory.len()]).filter(|end| *end > 0) {
        match file::make_directory(Some(workdir), &directory[..end], 0o755) {
            // EROFS and EACCES come before EEXIST for a directory of the read-only view; the final open decides.
            Ok(()) | Err(Errno(libc::EEXIST | libc::EROFS | libc::EACCES)) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // A missing parent that could not be made is seen here; say why rather than that it is missing. One that is there and
    // leads nowhere is a link, and stays what it is.
    match file::open(Some(workdir), directory, libc::O_PATH | libc::O_DIRECTORY, 0) {
        Err(Errno(libc::ENOENT)) => Err(file::make_directory(Some(workdir), directory, 0o755)
            .err()
            .filter(|errno| *errno != Errno(libc::EEXIST))
            .unwrap_or(Errno(libc::ENOENT))
            .into()),
        other => Ok(other.map(|_| ())?),
    }
}

/// Sends all entries of a directory in batches, in no order: the owner sorts, so that this process stays small.
pub(crate) fn list(channel: BorrowedFd<'_>, workdir: BorrowedFd<'_>, path: &[u8]) {
    answer(channel, send_entries(channel, workdir, path).map(|()| Reply::EndOfEntries));
}

fn send_entries(channel: BorrowedFd<'_>, workdir: BorrowedFd<'_>, path: &[u8]) -> Done<()> {
    let directory = file::open(Some(workdir), path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let mut buffer = vec![0u8; 32 << 10];
    let mut batch = Vec::new();
    let mut batch_bytes = 0;
    loop {
        let mut names = Vec::new();
        let more = file::read_directory(directory.as_fd(), &mut buffer, |name, kind| {
            names.push((name.to_owned(), kind));
        })?;
        for (name, kind) in names {
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let (kind, size) = match file::metadata_of_name(directory.as_fd(), &name) {
                Ok(metadata) => ((metadata.mode >> 12) as u8, Some(metadata.size)),
                // Gone since it was listed.
                Err(Errno(libc::ENOENT)) => continue,
                // A directory that may be listed and not searched: names and types are all there is to see (P69).
                Err(Errno(libc::EACCES)) => (kind, None),
                Err(errno) => return Err(errno.into()),
            };
            batch_bytes += name.as_bytes().len() + 14;
            batch.push(Entry { name: name.into_bytes(), kind, size });
            if batch_bytes >= BATCH_BYTES {
                transport::reply(channel, &Reply::Entries(core::mem::take(&mut batch)), &[])?;
                batch_bytes = 0;
            }
        }
        if !more {
            break;
        }
    }
    if !batch.is_empty() {
        transport::reply(channel, &Reply::Entries(batch), &[])?;
    }
    Ok(())
}
