//! A directory of this machine that nothing leads out of: whatever lies in it, what is done to a path in it is done in it (S37, S40).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence::TreePath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

/// An open directory.
#[derive(Debug)]
pub(super) struct Beneath(OwnedFd);

/// Directories are made with this mode, less what the umask takes.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

impl Beneath {
    /// Opens a directory that the person named: links on the path are followed.
    pub(super) fn named(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Opens a directory in this one. A link anywhere on the way is an error, ELOOP.
    pub(super) fn directory(&self, path: &TreePath) -> io::Result<Self> {
        if path.is_root() {
            return Ok(Self(self.0.try_clone()?));
        }
        open(self.0.as_fd(), path, OFlags::RDONLY | OFlags::DIRECTORY).map(Self)
    }

    /// Opens a file in this one for reading, without waiting for the other end of a FIFO. A link anywhere on the way is an error.
    pub(super) fn file(&self, name: &[u8]) -> io::Result<OwnedFd> {
        let path = TreePath::root().join(name).map_err(io::Error::other)?;
        open(self.0.as_fd(), &path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// Makes a directory in this one if there is none, and opens it. What is there and is no directory is an error, ENOTDIR or ELOOP.
    pub(super) fn make_directory(&self, name: &[u8]) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, OsStr::from_bytes(name), DIRECTORY_MODE) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        self.directory(&TreePath::root().join(name).map_err(io::Error::other)?)
    }

    /// Makes a file under a name of its own, for the time until it gets its place.
    pub(super) fn temporary(&self, executable: bool) -> io::Result<Temporary<'_>> {
        let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = Temporary::name();
        let file = rustix::fs::openat(&self.0, name.as_str(), flags, mode)?;
        Ok(Temporary { directory: self, name, file: Some(file) })
    }

    /// Makes a link under a name of its own, for the time until it gets its place.
    pub(super) fn temporary_link(&self, target: &[u8]) -> io::Result<Temporary<'_>> {
        let name = Temporary::name();
        rustix::fs::symlinkat(OsStr::from_bytes(target), &self.0, name.as_str())?;
        Ok(Temporary { directory: self, name, file: None })
    }

    /// Says what a name is, without following it.
    pub(super) fn kind(&self, name: &[u8]) -> io::Result<FileType> {
        let stat = rustix::fs::statat(&self.0, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(stat.st_mode))
    }

    /// Reads where a link leads.
    pub(super) fn link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.0, OsStr::from_bytes(name), Vec::new())?.into_bytes())
    }

    /// Returns all names in byte order; an error if there are more than `most`.
    pub(super) fn names(&self, most: u64) -> io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                _ if names.len() as u64 >= most => return Err(io::ErrorKind::QuotaExceeded.into()),
                name => names.push(name.to_vec()),
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

#[cfg(target_os = "linux")]
fn open(directory: BorrowedFd<'_>, path: &TreePath, flags: OFlags) -> io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(directory, OsStr::from_bytes(path.as_bytes()), flags, Mode::empty(), resolve)?)
}

/// One name after the other, none of which can be a link or lead back.
#[cfg(not(target_os = "linux"))]
fn open(directory: BorrowedFd<'_>, path: &TreePath, flags: OFlags) -> io::Result<OwnedFd> {
    let mut at = directory.try_clone_to_owned()?;
    let mut names = path.names().peekable();
    while let Some(name) = names.next() {
        let flags = if names.peek().is_some() { OFlags::RDONLY | OFlags::DIRECTORY } else { flags };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = rustix::fs::openat(&at, OsStr::from_bytes(name), flags, Mode::empty())?;
    }
    Ok(at)
}

const STAYS: &str = "a device, a FIFO or a socket is in its place, and stays";

/// Whether what is in the place is nothing that a copy may take away.
pub(super) fn stays(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists && error.raw_os_error().is_none()
}

/// Something that has no place yet; dropped, it is removed.
#[derive(Debug)]
pub(super) struct Temporary<'a> {
    directory: &'a Beneath,
    name: String,
    file: Option<OwnedFd>,
}

impl Temporary<'_> {
    fn name() -> String {
        // As random as a name that no other can have, and as the place beside which it lies (EX-05).
        format!(".{}.partial", ringfence::backend::unique_name())
    }

    /// Writes all of it.
    pub(super) fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &self.file else { return Err(io::ErrorKind::InvalidInput.into()) };
        while !bytes.is_empty() {
            match rustix::io::write(file, bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Gives it its name. A file or a link that is there is replaced and not followed; what others read or write through, such as
    /// `/dev/null`, stays: [`stays`] tells that error.
    pub(super) fn place(mut self, name: &[u8]) -> io::Result<()> {
        match self.directory.kind(name) {
            Ok(FileType::RegularFile | FileType::Symlink | FileType::Directory) | Err(_) => {}
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, STAYS)),
        }
        let directory = &self.directory.0;
        rustix::fs::renameat(directory, self.name.as_str(), directory, OsStr::from_bytes(name))?;
        self.name.clear();
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            // Whoever removed it before did the same.
            rustix::fs::unlinkat(&self.directory.0, self.name.as_str(), AtFlags::empty()).ok();
        }
    }
}
