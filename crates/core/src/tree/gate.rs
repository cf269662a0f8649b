//! The check that everything said about a tree has to pass.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::{BadName, SkipReason, TreeLimits, TreePath, TreeSink, TreeSummary};
use crate::error::{Error, ErrorKind, Result};
use crate::file::MAX_PATH_BYTES;

const OPERATION: &str = "copy the tree";

/// Checks a tree as it comes and passes it on to a sink.
///
/// What may be said is shaped so that little can be said wrongly: an entry has a name and no path, and lies in the directory that was
/// entered last and not left yet. The first entry is the tree itself and has the empty name. After an error the gate is of
/// no further use. That of a limit names it in the fact `limit`, as the field of [`TreeLimits`] is called.
pub struct TreeGate<'a> {
    backend: String,
    limits: TreeLimits,
    sink: &'a mut dyn TreeSink,
    /// The directory that entries are in.
    place: TreePath,
    /// The names seen in each directory on the way there, as numbers: memory must not hold what a sandbox calls its files. Nobody who
    /// does not know the key finds two names with one number, and two by chance end a copy that could have gone on.
    open: Vec<HashSet<u64>>,
    key: RandomState,
    began: bool,
    entries: u64,
    announced_bytes: u64,
    summary: TreeSummary,
}

impl fmt::Debug for TreeGate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeGate").field("place", &self.place).finish_non_exhaustive()
    }
}

impl<'a> TreeGate<'a> {
    /// Returns a gate in front of `sink`. `backend` is the name in errors.
    pub fn new(backend: impl Into<String>, limits: TreeLimits, sink: &'a mut dyn TreeSink) -> Self {
        Self {
            backend: backend.into(),
            limits,
            sink,
            place: TreePath::root(),
            open: Vec::new(),
            key: RandomState::new(),
            began: false,
            entries: 0,
            announced_bytes: 0,
            summary: TreeSummary::default(),
        }
    }

    /// Returns the limits, for a backend that can end early.
    #[must_use]
    pub fn limits(&self) -> TreeLimits {
        self.limits
    }

    /// Returns how many more bytes are taken.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        self.limits.max_bytes.saturating_sub(self.announced_bytes)
    }

    /// Returns what was copied until now, for a record.
    #[must_use]
    pub fn so_far(&self) -> TreeSummary {
        self.summary
    }

    /// Announces a directory; until [`Self::leave`] all entries are in it.
    ///
    /// # Errors
    /// It is not possible or over a limit, or the sink fails.
    pub async fn enter(&mut self, name: &[u8]) -> Result<()> {
        let path = self.admit(name)?;
        if self.open.len() >= self.limits.max_depth {
            return Err(self
                .error(format!("directories lie more than {} deep in each other", self.limits.max_depth))
                .context("path", path.to_string())
                .context("limit", "max_depth"));
        }
        self.sink.directory(&path).await?;
        self.summary.directories += 1;
        self.open.push(HashSet::new());
        self.place = path;
        Ok(())
    }

    /// Ends the directory that was entered last.
    ///
    /// # Errors
    /// There is none.
    pub fn leave(&mut self) -> Result<()> {
        if self.open.pop().is_none() {
            return Err(self.error("a directory ended that was never begun"));
        }
        self.place.pop();
        Ok(())
    }

    /// Announces a file, whose content follows. Content that ends early, does not end in time, or fails with a [`SkipReason`] makes it
    /// one that is skipped; a failure with an [`Error`] of the contract is passed on.
    ///
    /// # Errors
    /// It is not possible or over a limit, the content cannot be had, or the sink fails.
    pub async fn file(
        &mut self,
        name: &[u8],
        executable: bool,
        size: u64,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        let path = self.admit(name)?;
        let total = self.announced_bytes.saturating_add(size);
        if total > self.limits.max_bytes {
            let limit_bytes = self.limits.max_bytes;
            let kind = ErrorKind::FileTooLarge { size_bytes: total, limit_bytes };
            let message =
                format!("its files have {total} bytes or more together, over the limit of {limit_bytes}");
            return Err(Error::new(kind, &self.backend, OPERATION, message)
                .context("path", path.to_string())
                .context("limit", "max_bytes"));
        }
        self.announced_bytes = total;
        let mut content = Exact { content, left: size, ended: false, failure: None };
        let taken = self.sink.file(&path, executable, size, &mut content).await;
        match content.failure {
            // The sink's own error.
            None if taken.is_err() => return taken,
            // What the sink left unread, the end above all. A failure is noted where it is met.
            None => drop(tokio::io::copy(&mut content, &mut tokio::io::sink()).await),
            Some(_) => {}
        }
        match content.failure {
            None => {
                self.summary.files += 1;
                self.summary.bytes += size;
                Ok(())
            }
            Some(Failure::Skip(reason)) => {
                self.summary.skipped += 1;
                self.sink.skipped(&path, reason).await
            }
            Some(Failure::Known(error)) => Err(error),
            Some(Failure::Unknown(error)) => Err(self
                .error("the content of a file broke off")
                .context("path", path.to_string())
                .source(error)),
        }
    }

    /// Announces a symbolic link.
    ///
    /// # Errors
    /// It is not possible or over a limit, or the sink fails.
    pub async fn symlink(&mut self, name: &[u8], target: &[u8]) -> Result<()> {
        let path = self.admit(name)?;
        if target.is_empty() || target.contains(&0) || target.len() > MAX_PATH_BYTES {
            return Err(self.error("a link leads where none can lead").context("path", path.to_string()));
        }
        self.summary.symlinks += 1;
        self.sink.symlink(&path, target).await
    }

    /// Announces something that is not copied.
    ///
    /// # Errors
    /// It is not possible or over a limit, or the sink fails.
    pub async fn skip(&mut self, name: &[u8], reason: SkipReason) -> Result<()> {
        let path = self.admit(name)?;
        self.summary.skipped += 1;
        self.sink.skipped(&path, reason).await
    }

    /// Ends the tree and says what it came to.
    ///
    /// # Errors
    /// Something is missing.
    pub fn finish(self) -> Result<TreeSummary> {
        if !self.began || !self.open.is_empty() {
            return Err(self.error("the tree ended before all of it had come"));
        }
        Ok(self.summary)
    }

    /// Counts an entry and returns its path.
    fn admit(&mut self, name: &[u8]) -> Result<TreePath> {
        if self.entries >= self.limits.max_entries {
            let message = format!("it has more than {} entries", self.limits.max_entries);
            return Err(self.error(message).context("limit", "max_entries"));
        }
        self.entries += 1;
        let bad = |gate: &Self, why: &dyn fmt::Display| {
            gate.error(why.to_string())
                .context("directory", gate.place.to_string())
                .context("name", name.escape_ascii().to_string())
        };
        let Some(seen) = self.open.last_mut() else {
            if self.began || !name.is_empty() {
                return Err(bad(self, &"more came than one tree"));
            }
            self.began = true;
            return Ok(TreePath::root());
        };
        let new = seen.insert(self.key.hash_one(name));
        let path = self.place.join(name).map_err(|why: BadName| bad(self, &why))?;
        if !new {
            return Err(bad(self, &"the same name came twice: the directory changed while it was copied")
                .hint("copy it when nothing writes to it"));
        }
        Ok(path)
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unexpected, &self.backend, OPERATION, message)
    }
}

/// Why content is not whole.
#[derive(Debug)]
enum Failure {
    Skip(SkipReason),
    Known(Error),
    Unknown(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.downcast::<SkipReason>() {
            Ok(reason) => Self::Skip(reason),
            Err(error) => match error.downcast::<Error>() {
                Ok(error) => Self::Known(error),
                Err(error) => Self::Unknown(error),
            },
        }
    }
}

/// Content of exactly the size that was announced.
struct Exact<'a> {
    content: &'a mut (dyn AsyncRead + Send + Unpin),
    left: u64,
    ended: bool,
    failure: Option<Failure>,
}

impl AsyncRead for Exact<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.failure.is_some() {
            return Poll::Ready(Err(io::Error::other("the content is not whole")));
        }
        if this.ended || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let outcome = if this.left > 0 {
            let most = usize::try_from(this.left).unwrap_or(usize::MAX).min(buf.remaining());
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
            let read = ready!(Pin::new(&mut *this.content).poll_read(cx, &mut part));
            let count = part.filled().len();
            buf.advance(count);
            this.left -= count as u64;
            read.map(|()| count > 0)
        } else {
            // The end has to be seen: it says whether the file was whole.
            let mut probe = [0u8; 1];
            let mut part = ReadBuf::new(&mut probe);
            let read = ready!(Pin::new(&mut *this.content).poll_read(cx, &mut part));
            this.ended = true;
            read.map(|()| part.filled().is_empty())
        };
        match outcome {
            Ok(true) => return Poll::Ready(Ok(())),
            Ok(false) => this.failure = Some(Failure::Skip(SkipReason::Changed)),
            Err(error) => this.failure = Some(Failure::from(error)),
        }
        Poll::Ready(Err(io::Error::other("the content is not whole")))
    }
}
