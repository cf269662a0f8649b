//! A file replaced as a whole.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    Access, CWD, RenameFlags, XattrFlags, access, fsetxattr, getxattr, listxattr, renameat_with,
};
use rustix::io::Errno;

/// How long another `mcp install` is waited for; each takes a few hundredths of a second.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How often the lock is asked for meanwhile.
const LOCK_STEP: Duration = Duration::from_millis(20);
/// The most links that are followed, as many as the kernel follows.
const MAX_LINKS: usize = 40;
/// The most bytes of the names, and of the value of each, that Linux lets a file have as extended attributes.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

/// A file that is to be replaced, locked against everybody who replaces one of the same folder by this.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    folder: PathBuf,
    /// The folder, locked until this is closed: no lock file is left behind.
    _lock: File,
}

impl Target {
    /// Makes the file's folders and locks the last of them. A link stays a link: what it points to is replaced, or made.
    ///
    /// # Errors
    /// Whatever keeps the folder from being made, or the lock was held by another for all of `patience`.
    pub(super) fn hold(path: &Path, patience: Duration) -> io::Result<Self> {
        let path = resolved(path)?;
        let folder = path.parent().ok_or_else(|| io::Error::other("it has no folder"))?.to_owned();
        fs::create_dir_all(&folder)?;
        let lock = File::open(&folder)?;
        wait_for(&lock, patience)?;
        Ok(Self { path, folder, _lock: lock })
    }

    /// Returns where the file is, or will be, with all links followed.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file, or makes it. Owner, group, permissions and extended attributes stay.
    ///
    /// # Errors
    /// Whatever keeps it from being written, something of it would not stay, or it says something else than `before` by
    /// now. It is as it was then.
    pub(super) fn replace(&self, before: Option<&str>, after: &str) -> io::Result<()> {
        let old = match before {
            Some(_) => Some(self.replaceable()?),
            None => None,
        };
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let temporary = self.folder.join(format!(".{name}.ringfence-{}", std::process::id()));
        let written = self
            .fill(&temporary, old.as_ref(), after)
            .and_then(|()| swap(&temporary, &self.path, before.map(str::as_bytes)));
        if written.is_err() {
            // Of the two failures the first is the one to tell; the file may not even have been made.
            drop(fs::remove_file(&temporary));
        }
        written
    }

    /// Refuses what an editor would refuse to write, and what would not be the same file afterwards.
    fn replaceable(&self) -> io::Result<Metadata> {
        let meta = fs::metadata(&self.path)?;
        // Root may write it all the same, but somebody meant it.
        if meta.mode() & 0o222 == 0 {
            return Err(io::Error::other("it is write-protected"));
        }
        access(&self.path, Access::WRITE_OK)?;
        if meta.nlink() > 1 {
            return Err(io::Error::other("it has another name too, a hard link, which would be cut off"));
        }
        Ok(meta)
    }

    fn fill(&self, temporary: &Path, old: Option<&Metadata>, after: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(temporary)?;
        if let Some(old) = old {
            let new = file.metadata()?;
            if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid())).map_err(|error| {
                    let owner = format!("user {} and group {}", old.uid(), old.gid());
                    io::Error::other(format!("it belongs to {owner} and would not any more: {error}"))
                })?;
            }
            // A change of the owner takes bits away, so this comes after it; an access list is an attribute.
            file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
            copy_attributes(&self.path, &file)?;
        }
        file.write_all(after.as_bytes())?;
        if let Some(old) = old {
            // Writing takes the bits away that give rights of the owner, except from root.
            file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        }
        file.sync_all()
    }
}

/// Follows the links of an absolute path, also those that point to what is not there yet.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    fn names(path: &Path) -> impl Iterator<Item = OsString> {
        path.components().rev().map(|name| name.as_os_str().to_owned())
    }
    let mut left: Vec<OsString> = names(path).collect();
    let mut done = PathBuf::new();
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&name);
        match fs::read_link(&next) {
            Ok(to) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                left.extend(names(&to));
            }
            // Not a link, or not there; whatever else it may be is met again by whoever opens it.
            Err(_) => done = next,
        }
    }
    Ok(done)
}

fn wait_for(lock: &File, patience: Duration) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if started.elapsed() < patience => thread::sleep(LOCK_STEP),
            Err(TryLockError::WouldBlock) => {
                let seconds = patience.as_secs();
                return Err(io::Error::other(format!(
                    "another program has its folder locked for {seconds} s"
                )));
            }
            Err(TryLockError::Error(error)) => {
                return match Errno::from_io_error(&error) {
                    // Some file systems of a network have no such locks; there the comparison alone has to do.
                    Some(Errno::BADF | Errno::NOLCK | Errno::NOSYS | Errno::INVAL | Errno::NOTSUP) => Ok(()),
                    _ => Err(error),
                };
            }
        }
    }
}

/// Copies the extended attributes, access lists among them, except those that the system gives.
fn copy_attributes(from: &Path, to: &File) -> io::Result<()> {
    let mut names = vec![0; MAX_ATTRIBUTE_BYTES];
    let length = match listxattr(from, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut value = vec![0; MAX_ATTRIBUTE_BYTES];
    for name in names[..length].split(|byte| *byte == 0) {
        let systems = name.starts_with(b"security.") || name.starts_with(b"trusted.");
        if name.is_empty() || systems {
            continue;
        }
        let length = getxattr(from, name, &mut value[..])?;
        fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

/// Puts one file in the place of another that says `before`. A client that runs takes no lock, so that is looked at last.
pub(super) fn swap(temporary: &Path, target: &Path, before: Option<&[u8]>) -> io::Result<()> {
    if content(target)?.as_deref() != before {
        return Err(changed());
    }
    let exchange = || renameat_with(CWD, temporary, CWD, target, RenameFlags::EXCHANGE);
    let swapped = match before {
        Some(_) => exchange(),
        None => renameat_with(CWD, temporary, CWD, target, RenameFlags::NOREPLACE),
    };
    match swapped {
        Ok(()) if before.is_none() => Ok(()),
        // What came out is what was there in the very moment.
        Ok(()) if matches!(content(temporary), Ok(old) if old.as_deref() == before) => {
            fs::remove_file(temporary)
        }
        Ok(()) => {
            exchange()?;
            Err(changed())
        }
        Err(Errno::EXIST | Errno::NOENT) => Err(changed()),
        // A file system that knows only the plain kind.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::rename(temporary, target),
        Err(error) => Err(error.into()),
    }
}

fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn changed() -> io::Error {
    io::Error::other("it was changed by somebody else in this moment; try again")
}
