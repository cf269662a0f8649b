//! Files and directories of this machine on their way into a sandbox. Links inside of a directory are copied as links and not followed:
//! a link in a project must not be able to pick up a key from the person's home (S37).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use ringfence::{TreeLimits, TreePath};
use rustix::fs::{FileType, Mode, OFlags};
use tokio::io::{AsyncRead, ReadBuf};

use super::beneath::Beneath;
use super::into_sandbox::IntoSandbox;
use super::links::leads_out;
use crate::failure::{Failure, Result};

/// A source that is there.
#[derive(Debug)]
pub(super) enum Source {
    /// A directory.
    Directory(Beneath),
    /// A regular file.
    File(OwnedFd),
}

impl Source {
    /// Opens what the person named.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let unreadable = |error: io::Error| {
            let failure = Failure::io(&format!("read {}", path.display()), &error);
            match (error.kind(), super::meant(path)) {
                (io::ErrorKind::NotFound, Some(meant)) => failure.hint(meant),
                _ => failure,
            }
        };
        // Opening can do something to what is no file, such as to a tape.
        let meta = std::fs::metadata(path).map_err(unreadable)?;
        if meta.is_dir() {
            return Ok(Self::Directory(Beneath::named(path).map_err(unreadable)?));
        }
        let neither = || Failure::new(format!("{}: neither a regular file nor a directory", path.display()));
        if !meta.is_file() {
            return Err(neither());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| unreadable(error.into()))?;
        // It may have been replaced since.
        match kind_of(&file).map_err(unreadable)? {
            (FileType::RegularFile, ..) => Ok(Self::File(file)),
            _ => Err(neither()),
        }
    }
}

/// Type, size, and whether anybody can execute it.
fn kind_of(file: &OwnedFd) -> io::Result<(FileType, u64, bool)> {
    let stat = rustix::fs::fstat(file)?;
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    Ok((FileType::from_raw_mode(stat.st_mode), size, stat.st_mode & 0o111 != 0))
}

/// Copies what was opened. `shown` is what the person calls it.
pub(super) async fn copy(source: Source, shown: &Path, into: &mut IntoSandbox<'_>) -> Result<()> {
    match source {
        Source::File(file) => copy_file(file, &TreePath::root(), shown, into).await,
        Source::Directory(root) => copy_directory(root, shown, into).await,
    }
}

/// A directory on the way, and the names in it that are still to be copied, the next one last.
struct Directory {
    opened: Beneath,
    path: TreePath,
    names: Vec<Vec<u8>>,
}

async fn copy_directory(root: Beneath, shown: &Path, into: &mut IntoSandbox<'_>) -> Result<()> {
    let max_depth = TreeLimits::default().max_depth;
    into.directory(&TreePath::root()).await?;
    let names = names_of(&root, shown, into)?;
    let mut way = vec![Directory { opened: root, path: TreePath::root(), names }];
    while let Some(directory) = way.last_mut() {
        let Some(name) = directory.names.pop() else {
            way.pop();
            continue;
        };
        let place = shown_at(shown, &directory.path, &name);
        let path =
            directory.path.join(&name).map_err(|why| Failure::new(format!("{}: {why}", place.display())))?;
        let entry = match look(&directory.opened, &name) {
            Ok(entry) => entry,
            // As if it had never been there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                into.skip(place.display(), error)?;
                continue;
            }
        };
        match entry {
            Entry::Directory(opened) => {
                if way.len() >= max_depth {
                    let message = format!(
                        "{}: directories lie more than {max_depth} deep in each other",
                        place.display()
                    );
                    return Err(Failure::new(message));
                }
                into.directory(&path).await?;
                let names = names_of(&opened, &place, into)?;
                way.push(Directory { opened, path, names });
            }
            Entry::File(file) => copy_file(file, &path, &place, into).await?,
            Entry::Link(target) => match leads_out(&path, &target) {
                None => into.symlink(&path, target)?,
                Some(why) => into.skip(place.display(), format!("{why}: {}", target.escape_ascii()))?,
            },
            Entry::Other => into.skip(place.display(), "it is a device, FIFO or socket")?,
        }
    }
    Ok(())
}

fn shown_at(shown: &Path, directory: &TreePath, name: &[u8]) -> std::path::PathBuf {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    directory.names().chain([name]).fold(shown.to_owned(), |path, name| path.join(OsStr::from_bytes(name)))
}

/// Names in the order in which they are taken from the end.
fn names_of(directory: &Beneath, shown: &Path, into: &IntoSandbox<'_>) -> Result<Vec<Vec<u8>>> {
    let mut names = directory.names(into.entries_left()).map_err(|error| match error.kind() {
        io::ErrorKind::QuotaExceeded => {
            Failure::new(format!("{}: there are more entries than the limit", shown.display()))
                .hint("raise it with --max-entries")
        }
        _ => Failure::io(&shown.display().to_string(), &error),
    })?;
    names.reverse();
    Ok(names)
}

/// What a name turned out to be.
enum Entry {
    Directory(Beneath),
    File(OwnedFd),
    Link(Vec<u8>),
    Other,
}

fn look(directory: &Beneath, name: &[u8]) -> io::Result<Entry> {
    match directory.kind(name)? {
        FileType::Directory => {
            let path = TreePath::root().join(name).map_err(io::Error::other)?;
            directory.directory(&path).map(Entry::Directory)
        }
        FileType::RegularFile => {
            let file = directory.file(name)?;
            // It may have been replaced since.
            let is_file = kind_of(&file)?.0 == FileType::RegularFile;
            Ok(if is_file { Entry::File(file) } else { Entry::Other })
        }
        FileType::Symlink => directory.link(name).map(Entry::Link),
        _ => Ok(Entry::Other),
    }
}

async fn copy_file(file: OwnedFd, path: &TreePath, shown: &Path, into: &mut IntoSandbox<'_>) -> Result<()> {
    let unreadable = |error: io::Error| Failure::io(&shown.display().to_string(), &error);
    let (_, size, executable) = kind_of(&file).map_err(unreadable)?;
    let mut content = Content { file, came: 0, failed: false };
    let copied = into.file(path, size, executable, &mut content).await;
    match copied {
        // Others go on writing to it. The rest of the tree is no worse for that.
        Err(_) if !path.is_root() && content.is_not(size) => {
            into.note(shown.display(), "it could not be read, or changed while it was copied");
            Ok(())
        }
        other => other.map_err(|failure| failure.during(&shown.display().to_string())),
    }
}

/// The content of a file of this machine. Reading it never waits for long.
struct Content {
    file: OwnedFd,
    came: u64,
    failed: bool,
}

impl Content {
    /// Whether the file could not be read, or does not have the size that was promised any more.
    fn is_not(&self, size: u64) -> bool {
        self.failed || self.came > size || kind_of(&self.file).is_ok_and(|(_, now, _)| now < size)
    }
}

impl AsyncRead for Content {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match rustix::io::read(&self.file, buf.initialize_unfilled()) {
                Ok(count) => {
                    buf.advance(count);
                    self.came += count as u64;
                    return Poll::Ready(Ok(()));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    self.failed = true;
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
    }
}
