//! A tree of a sandbox is written to standard output as a tar archive. It holds each path once, below its directory, so an archive
//! that leads its reader elsewhere through a link cannot come of it, whatever the sandbox does.

use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use ringfence::{Error, ErrorKind, Result, SkipReason, TreePath, TreeSink};
use tar::{EntryType, Header};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::onto_host::nothing_copied;
use super::skips::Skips;
use crate::console::Unwritten;

/// Everything in an archive begins at a multiple of this.
const BLOCK_BYTES: usize = 512;

/// What is copied at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes bytes to where the archive goes.
type Write<'a> = dyn FnMut(&[u8]) -> std::result::Result<(), Unwritten> + Send + 'a;

/// Writes an archive.
pub(super) struct OntoStdout<'a> {
    /// The name of the tree in the archive; empty for its content alone.
    prefix: Vec<u8>,
    write: Box<Write<'a>>,
    /// Why nothing can be written any more.
    pub(super) unwritten: Option<Unwritten>,
    modified: u64,
    /// The last file, of which the archive has all bytes whether they are its own or not.
    begun: Option<TreePath>,
    skips: &'a mut Skips,
}

impl<'a> OntoStdout<'a> {
    /// Returns a sink that has written nothing yet.
    pub(super) fn new(
        prefix: Vec<u8>,
        write: impl FnMut(&[u8]) -> std::result::Result<(), Unwritten> + Send + 'a,
        skips: &'a mut Skips,
    ) -> Self {
        // When files were changed is not known here.
        let modified = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { prefix, write: Box::new(write), unwritten: None, modified, begun: None, skips }
    }

    /// Ends the archive.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.put(&[0; 2 * BLOCK_BYTES])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        (self.write)(bytes).map_err(|why| {
            self.unwritten = Some(why);
            Error::new(ErrorKind::Unexpected, "", "write the archive", "standard output does not take it")
        })
    }

    fn pad(&mut self, size: u64) -> Result<()> {
        let missing = usize::try_from(size.next_multiple_of(BLOCK_BYTES as u64) - size).unwrap_or_default();
        self.put(&[0; BLOCK_BYTES][..missing])
    }

    fn name(&self, path: &TreePath, kind: EntryType) -> Vec<u8> {
        let parts = [self.prefix.as_slice(), path.as_bytes()];
        let parts: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let mut name = if parts.is_empty() { b".".to_vec() } else { parts.join(&b'/') };
        if kind == EntryType::Directory {
            name.push(b'/');
        }
        name
    }

    fn entry(&mut self, path: &TreePath, kind: EntryType, mode: u32, size: u64, link: &[u8]) -> Result<()> {
        let name = self.name(path, kind);
        let mut header = self.header(kind, mode, size);
        for (text, long) in [(link, EntryType::GNULongLink), (name.as_slice(), EntryType::GNULongName)] {
            let field = match long {
                EntryType::GNULongLink => &mut header.as_old_mut().linkname,
                _ => &mut header.as_old_mut().name,
            };
            // What does not fit stands in an entry of its own before, and its beginning here.
            let fits = text.len().min(field.len());
            field[..fits].copy_from_slice(&text[..fits]);
            if fits < text.len() {
                self.long(long, text)?;
            }
        }
        header.set_cksum();
        self.put(header.as_bytes())
    }

    fn long(&mut self, kind: EntryType, text: &[u8]) -> Result<()> {
        let size = text.len() as u64 + 1;
        let mut header = self.header(kind, 0o644, size);
        let name = b"././@LongLink";
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_cksum();
        self.put(header.as_bytes())?;
        self.put(text)?;
        self.put(&[0])?;
        self.pad(size)
    }

    fn header(&self, kind: EntryType, mode: u32, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.modified);
        header
    }
}

#[async_trait]
impl TreeSink for OntoStdout<'_> {
    async fn directory(&mut self, path: &TreePath) -> Result<()> {
        self.entry(path, EntryType::Directory, 0o755, 0, b"")
    }

    async fn file(
        &mut self,
        path: &TreePath,
        executable: bool,
        size: u64,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        self.entry(path, EntryType::Regular, if executable { 0o755 } else { 0o644 }, size, b"")?;
        self.begun = Some(path.clone());
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut left = size;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let count = match content.read(&mut chunk[..most]).await {
                Ok(count @ 1..) => count,
                // The header has promised it. That the file is not whole is told next.
                Ok(0) | Err(_) => {
                    chunk.fill(0);
                    most
                }
            };
            self.put(&chunk[..count])?;
            left -= count as u64;
        }
        self.pad(size)
    }

    async fn symlink(&mut self, path: &TreePath, target: &[u8]) -> Result<()> {
        self.entry(path, EntryType::Symlink, 0o777, 0, target)
    }

    async fn skipped(&mut self, path: &TreePath, reason: SkipReason) -> Result<()> {
        if path.is_root() {
            return Err(nothing_copied(reason));
        }
        if self.begun.as_ref() == Some(path) {
            self.skips.note(path, format!("{reason}; what the archive has in its place is not the file"));
        } else {
            self.skips.note(path, reason);
        }
        Ok(())
    }
}
