//! Whole trees of files on their way out of a sandbox.
//!
//! Whoever ran code in the sandbox chose every name, size and order, and may go on changing them meanwhile. So a backend does not
//! speak to the receiver itself: it tells a [`TreeGate`] what it finds, name by name, and only what passed that reaches the
//! [`TreeSink`] (S40). What a gate lets through is always a tree: each path once, below a directory that was announced before.

mod gate;
mod walk;

use std::fmt;

use async_trait::async_trait;
use tokio::io::AsyncRead;

use crate::backend::{Backend, SandboxId};
use crate::error::Result;
use crate::file::{GuestPath, MAX_PATH_BYTES};

pub use gate::TreeGate;
pub(crate) use walk::export_tree;

/// The longest name of a file, in bytes: what Linux takes.
pub const MAX_NAME_BYTES: usize = 255;

/// What at most is taken of a tree. More is an error: a part of a tree is never taken for all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLimits {
    /// Bytes of all files together, as their sizes say: holes count.
    pub max_bytes: u64,
    /// Entries of all kinds, the tree itself and what is skipped included.
    pub max_entries: u64,
    /// Directories inside of each other.
    pub max_depth: usize,
}

impl Default for TreeLimits {
    /// 4 GiB in 250,000 entries, 128 directories deep.
    fn default() -> Self {
        Self { max_bytes: 4 << 30, max_entries: 250_000, max_depth: 128 }
    }
}

/// A path in a tree: names joined by `/`, none of them empty, `.` or `..`, relative to the root, which is the empty path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TreePath(Vec<u8>);

impl TreePath {
    /// Returns the path of the tree itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Returns the path of `name` in the directory.
    ///
    /// # Errors
    /// Says what is wrong with the name, or that the path has more than [`MAX_PATH_BYTES`].
    pub fn join(&self, name: &[u8]) -> Result<Self, BadName> {
        check_name(name)?;
        let mut path = self.0.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        if path.len() > MAX_PATH_BYTES { Err(BadName::LongPath) } else { Ok(Self(path)) }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether this is the tree itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names on the path.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// Returns the directory and the name in it; `None` for the root.
    #[must_use]
    pub fn split(&self) -> Option<(Self, &[u8])> {
        let name = self.names().next_back()?;
        let parent = self.0[..self.0.len() - name.len()].strip_suffix(b"/").unwrap_or_default();
        Some((Self(parent.to_vec()), name))
    }

    /// Returns whether the path is `directory` or lies in it.
    #[must_use]
    pub fn is_within(&self, directory: &Self) -> bool {
        match self.0.strip_prefix(directory.as_bytes()) {
            Some(rest) => directory.is_root() || rest.is_empty() || rest.starts_with(b"/"),
            None => false,
        }
    }

    /// Goes back to the directory that holds this.
    fn pop(&mut self) {
        if let Some((parent, _)) = self.split() {
            *self = parent;
        }
    }
}

impl fmt::Display for TreePath {
    /// Shows the path as valid text on one line: what is not printable is escaped. The root is a dot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if self.is_root() { b".".to_vec() } else { self.0.clone() };
        match GuestPath::new(shown) {
            Ok(path) => path.fmt(f),
            Err(_) => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

/// Why a name cannot be one of an entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadName {
    /// It is empty, `.` or `..`.
    Special,
    /// It holds a slash or a NUL.
    Separator,
    /// It has more than [`MAX_NAME_BYTES`].
    Long,
    /// The path to it has more than [`MAX_PATH_BYTES`].
    LongPath,
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Special => "no file can be called so",
            Self::Separator => "a name holds neither a slash nor a NUL",
            Self::Long => "the name is longer than 255 bytes",
            Self::LongPath => "the path is longer than 4095 bytes",
        })
    }
}

impl std::error::Error for BadName {}

/// Checks that a directory can have an entry of this name.
///
/// # Errors
/// Says why not.
pub fn check_name(name: &[u8]) -> Result<(), BadName> {
    match name {
        b"" | b"." | b".." => Err(BadName::Special),
        _ if name.contains(&b'/') || name.contains(&0) => Err(BadName::Separator),
        _ if name.len() > MAX_NAME_BYTES => Err(BadName::Long),
        _ => Ok(()),
    }
}

/// Why an entry was not copied. As the cause of a reader's error it says why a file turned out not to be whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// It is a device, FIFO or socket.
    Special,
    /// Something else is mounted there.
    Mount,
    /// The sandbox's own permissions forbid to read it, or reading it failed.
    Unreadable,
    /// It changed while it was read.
    Changed,
    /// It is a symbolic link, and the backend cannot tell where it leads.
    Link,
}

impl SkipReason {
    /// Returns the outside name, which stays the same from version to version.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Special => "special",
            Self::Mount => "mount",
            Self::Unreadable => "unreadable",
            Self::Changed => "changed",
            Self::Link => "link",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Special => "it is a device, FIFO or socket",
            Self::Mount => "something else is mounted there; copy it by its own path",
            Self::Unreadable => "it cannot be read",
            Self::Changed => "it changed while it was copied",
            Self::Link => "it is a symbolic link, and this backend cannot tell where it leads",
        })
    }
}

impl std::error::Error for SkipReason {}

/// Takes a tree, entry by entry, depth first: everything in a directory comes between its announcement and the next entry that is
/// not in it. A tree that is one file is a file at the root.
///
/// An error of the sink ends the export and is its error.
#[async_trait]
pub trait TreeSink: Send {
    /// A directory; what is in it follows.
    ///
    /// # Errors
    /// It cannot be taken, and nothing further.
    async fn directory(&mut self, path: &TreePath) -> Result<()>;

    /// A regular file. Of its mode only whether it can be executed is known: set-user-id and the like are dropped (S40).
    /// `content` yields exactly `size` bytes and then its end; or an error, after which [`Self::skipped`] is called for the
    /// same path and the result of this call does not count. So a sink that can puts a file in place only once it has seen the end.
    /// What it leaves unread is passed over.
    ///
    /// # Errors
    /// It cannot be taken, and nothing further.
    async fn file(
        &mut self,
        path: &TreePath,
        executable: bool,
        size: u64,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()>;

    /// A symbolic link. The target is whatever bytes the sandbox chose, but for NUL, at most [`MAX_PATH_BYTES`] and not empty.
    ///
    /// # Errors
    /// It cannot be taken, and nothing further.
    async fn symlink(&mut self, path: &TreePath, target: &[u8]) -> Result<()>;

    /// Something that is not copied.
    ///
    /// # Errors
    /// It cannot be done without.
    async fn skipped(&mut self, path: &TreePath, reason: SkipReason) -> Result<()>;
}

/// What a tree came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeSummary {
    /// Directories, the tree itself included.
    pub directories: u64,
    /// Files that were whole.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Entries that were not copied.
    pub skipped: u64,
}

/// Copies the directory or file at `path` into `sink`, within `limits`. Links are followed on the path, and in the tree none is.
///
/// # Errors
/// As [`Backend::export_tree`]. What the sink has got until then it keeps.
pub async fn export<B: Backend + ?Sized>(
    backend: &B,
    sandbox: &SandboxId,
    path: &GuestPath,
    limits: TreeLimits,
    sink: &mut dyn TreeSink,
) -> Result<TreeSummary> {
    let mut gate = TreeGate::new(backend.name(), limits, sink);
    backend.export_tree(sandbox, path, &mut gate).await?;
    gate.finish()
}
