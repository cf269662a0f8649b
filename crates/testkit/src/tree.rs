//! A tree sink that remembers what it was given.

use std::io;

use async_trait::async_trait;
use ringfence_core::{Error, ErrorKind, Result, SkipReason, TreePath, TreeSink};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Something that a [`TreeRecorder`] was given, with its path as text where it is UTF-8, and escaped where not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeEntry {
    /// A directory.
    Directory(String),
    /// A file that was whole: whether it can be executed, and its content.
    File(String, bool, Vec<u8>),
    /// A file whose content broke off or changed, and how much of it came.
    Broken(String, usize),
    /// A link and where it leads.
    Symlink(String, Vec<u8>),
    /// Something that was not copied.
    Skipped(String, SkipReason),
}

/// Remembers a tree in memory.
#[derive(Debug, Default)]
pub struct TreeRecorder {
    /// What came, in its order.
    pub entries: Vec<TreeEntry>,
    /// Fails at the path instead of taking it.
    pub fail_at: Option<String>,
    /// Leaves content unread.
    pub ignore_content: bool,
}

impl TreeRecorder {
    fn take(&mut self, path: &TreePath) -> Result<String> {
        let path = path.to_string();
        if self.fail_at.as_ref() == Some(&path) {
            return Err(Error::new(ErrorKind::StorageFull, "", "take the entry", "the sink is full"));
        }
        Ok(path)
    }
}

#[async_trait]
impl TreeSink for TreeRecorder {
    async fn directory(&mut self, path: &TreePath) -> Result<()> {
        let path = self.take(path)?;
        self.entries.push(TreeEntry::Directory(path));
        Ok(())
    }

    async fn file(
        &mut self,
        path: &TreePath,
        executable: bool,
        size: u64,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        let path = self.take(path)?;
        let mut bytes = Vec::new();
        let read = if self.ignore_content { Ok(0) } else { content.read_to_end(&mut bytes).await };
        let whole = self.ignore_content || bytes.len() as u64 == size;
        self.entries.push(match read {
            Ok(_) if whole => TreeEntry::File(path, executable, bytes),
            Ok(_) => return Err(broken(io::ErrorKind::UnexpectedEof.into())),
            Err(_) => TreeEntry::Broken(path, bytes.len()),
        });
        read.map(|_| ()).map_err(broken)
    }

    async fn symlink(&mut self, path: &TreePath, target: &[u8]) -> Result<()> {
        let path = self.take(path)?;
        self.entries.push(TreeEntry::Symlink(path, target.to_vec()));
        Ok(())
    }

    async fn skipped(&mut self, path: &TreePath, reason: SkipReason) -> Result<()> {
        self.entries.push(TreeEntry::Skipped(path.to_string(), reason));
        Ok(())
    }
}

fn broken(error: io::Error) -> Error {
    Error::new(ErrorKind::Unexpected, "", "take the entry", "its content broke off").source(error)
}
