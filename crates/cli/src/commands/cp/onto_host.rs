//! A tree of a sandbox is put onto this machine, below one directory and nowhere else (S40).
//!
//! Files get their names when all of them has come, and links are made last, so that no entry can come to lie behind one. What lies
//! there already is replaced if it is a file or a link, entered if it is a directory, and never followed.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use ringfence::{Error, ErrorKind, Result, SkipReason, TreePath, TreeSink};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::beneath::{Beneath, stays};
use super::links::leads_out;
use super::skips::Skips;

const OPERATION: &str = "write the copy";

/// What is written at once.
const CHUNK_BYTES: usize = 256 << 10;

/// The most bytes of paths and targets of links, which are remembered to the end.
const MAX_LINK_BYTES: usize = 64 << 20;

/// Where a tree goes.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory that it lies in.
    pub(super) parent: Beneath,
    /// Its name there; `None` where a directory takes the place of the parent itself.
    pub(super) name: Option<Vec<u8>>,
    /// Only a directory can be put there.
    pub(super) only_directory: bool,
    /// What the person calls the place.
    pub(super) shown: PathBuf,
}

/// Puts a tree onto this machine.
#[derive(Debug)]
pub(super) struct OntoHost<'a> {
    place: Place,
    /// The directory of the tree, once it has come.
    root: Option<Beneath>,
    /// The directory of the last entry, which most often is that of the next.
    last: Option<(TreePath, Beneath)>,
    /// A directory that could not be made, so that nothing in it can.
    blocked: Option<TreePath>,
    links: Vec<(TreePath, Vec<u8>)>,
    link_bytes: usize,
    skips: &'a mut Skips,
}

impl<'a> OntoHost<'a> {
    /// Returns a sink that has written nothing yet.
    pub(super) fn new(place: Place, skips: &'a mut Skips) -> Self {
        Self { place, root: None, last: None, blocked: None, links: Vec::new(), link_bytes: 0, skips }
    }

    /// Makes the links, which may lie where nothing else goes any more.
    pub(super) fn finish(mut self) -> Result<()> {
        for (path, target) in std::mem::take(&mut self.links) {
            let Some((parent, name)) = path.split() else { continue };
            let made = self
                .directory_of(&parent)
                .and_then(|directory| directory.temporary_link(&target)?.place(name));
            self.settle(&path, made)?;
        }
        Ok(())
    }

    fn shown(&self, path: &TreePath) -> impl Display + use<> {
        let mut shown = self.place.shown.clone();
        for name in path.names() {
            shown.push(bytes_as_path(name));
        }
        shown.display().to_string()
    }

    fn directory_of(&mut self, parent: &TreePath) -> io::Result<&Beneath> {
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            let root = self.root.as_ref().ok_or(io::ErrorKind::NotADirectory)?;
            self.last = Some((parent.clone(), root.directory(parent)?));
        }
        self.last.as_ref().map(|(_, directory)| directory).ok_or(io::ErrorKind::NotFound.into())
    }

    fn is_blocked(&self, path: &TreePath) -> bool {
        self.blocked.as_ref().is_some_and(|blocked| path.is_within(blocked))
    }

    /// Goes on after what one entry met, and ends after what every further one would meet too.
    fn settle(&mut self, path: &TreePath, done: io::Result<()>) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        if path.is_root() {
            // Then there is nothing that was copied.
            let errno = Errno::from_io_error(&error);
            let stays = stays(&error);
            let failed = self.failed(path, error);
            return Err(match errno {
                _ if stays => failed.hint("give another name; `-` copies to standard output, which may be redirected there"),
                Some(Errno::ISDIR | Errno::NOTDIR | Errno::LOOP | Errno::NOTEMPTY | Errno::EXIST) => failed.hint(
                    "give another name, or remove what is there: a directory does not take the place of a file, nor a file that of a directory",
                ),
                _ => failed,
            });
        }
        let why = match Errno::from_io_error(&error) {
            Some(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => "a directory is in its place".to_owned(),
            Some(Errno::NOTDIR | Errno::LOOP) => {
                "in the place of a directory is something else, and no link is followed".to_owned()
            }
            Some(Errno::ACCESS | Errno::PERM | Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ) => {
                error.to_string()
            }
            _ if stays(&error) => error.to_string(),
            _ => return Err(self.failed(path, error)),
        };
        let shown = self.shown(path);
        self.skips.note(shown, why);
        Ok(())
    }

    fn failed(&self, path: &TreePath, error: io::Error) -> Error {
        let message = format!("{}", self.shown(path));
        Error::new(ErrorKind::Unexpected, "", OPERATION, message).source(error)
    }

    fn make_directory(&mut self, path: &TreePath) -> io::Result<()> {
        let made = match path.split() {
            None => {
                let root = match &self.place.name {
                    None => self.place.parent.directory(&TreePath::root())?,
                    Some(name) => self.place.parent.make_directory(name)?,
                };
                self.root = Some(root);
                return Ok(());
            }
            Some((parent, name)) => self.directory_of(&parent)?.make_directory(name)?,
        };
        self.last = Some((path.clone(), made));
        Ok(())
    }
}

/// The error of a file that was to be copied alone.
pub(super) fn nothing_copied(reason: SkipReason) -> Error {
    Error::new(ErrorKind::Unexpected, "", "copy the file", reason.to_string())
}

fn bytes_as_path(name: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(name))
}

#[async_trait]
impl TreeSink for OntoHost<'_> {
    async fn directory(&mut self, path: &TreePath) -> Result<()> {
        if self.is_blocked(path) {
            return Ok(());
        }
        let made = self.make_directory(path);
        if made.is_err() {
            self.blocked = Some(path.clone());
        }
        self.settle(path, made)
    }

    async fn file(
        &mut self,
        path: &TreePath,
        executable: bool,
        _: u64,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        if self.is_blocked(path) {
            return Ok(());
        }
        let split = path.split();
        let (directory, name) = match (&split, &self.place.name) {
            (None, Some(name)) if !self.place.only_directory => (Ok(&self.place.parent), name.clone()),
            (None, _) => {
                let message =
                    format!("{} is to be a directory, and a file is copied", self.place.shown.display());
                return Err(Error::new(ErrorKind::InvalidArgument, "", OPERATION, message)
                    .hint("give the name that the file gets"));
            }
            (Some((parent, name)), _) => (self.directory_of(parent), name.to_vec()),
        };
        // Two steps, because a failure to read is told by whoever reads, and a failure to write by us.
        let written = async {
            let file = directory?.temporary(executable)?;
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                match content.read(&mut chunk).await {
                    Ok(0) => return file.place(&name).map(Some),
                    Ok(count) => file.write(&chunk[..count])?,
                    // Not whole: why is told next, and the file is gone again.
                    Err(_) => return Ok(None),
                }
            }
        };
        let written = written.await;
        self.settle(path, written.map(|_| ()))
    }

    async fn symlink(&mut self, path: &TreePath, target: &[u8]) -> Result<()> {
        if self.is_blocked(path) {
            return Ok(());
        }
        if let Some(why) = leads_out(path, target) {
            let shown = self.shown(path);
            self.skips.note(shown, format!("{why}: {}", target.escape_ascii()));
            return Ok(());
        }
        self.link_bytes = self.link_bytes.saturating_add(path.as_bytes().len() + target.len());
        if self.link_bytes > MAX_LINK_BYTES {
            let message = format!("its links have more than {MAX_LINK_BYTES} bytes");
            return Err(Error::new(ErrorKind::Unexpected, "", OPERATION, message));
        }
        self.links.push((path.clone(), target.to_vec()));
        Ok(())
    }

    async fn skipped(&mut self, path: &TreePath, reason: SkipReason) -> Result<()> {
        if path.is_root() {
            return Err(nothing_copied(reason));
        }
        if !self.is_blocked(path) {
            let shown = self.shown(path);
            self.skips.note(shown, reason);
        }
        Ok(())
    }
}
