//! What a sandbox says of a tree, on its way through the gate.

use std::collections::BTreeSet;

use async_trait::async_trait;
use ringfence_core::file::MAX_PATH_BYTES;
use ringfence_core::{Error, Result, SkipReason, TreeGate, TreeLimits, TreePath, TreeSink, TreeSummary};
use tokio::io::{AsyncRead, AsyncReadExt};

const LIMITS: TreeLimits = TreeLimits { max_bytes: 1 << 16, max_entries: 1 << 10, max_depth: 8 };

/// Each byte says what comes, the next one how long its name is.
pub(super) fn target(bytes: &[u8]) {
    let mut sink = Checked::default();
    let mut gate = TreeGate::new("fuzz", LIMITS, &mut sink);
    if super::wait(tell(bytes, &mut gate)).is_ok()
        && let Ok(summary) = gate.finish()
    {
        sink.check(summary, LIMITS);
    }
}

async fn tell(mut bytes: &[u8], gate: &mut TreeGate<'_>) -> Result<()> {
    while let Some((what, rest)) = bytes.split_first() {
        let mut rest = rest;
        let name = part(&mut rest);
        match what % 6 {
            0 => gate.enter(name).await?,
            1 => gate.leave()?,
            2 => gate.symlink(name, part(&mut rest)).await?,
            3 => gate.skip(name, SkipReason::Changed).await?,
            how => {
                let mut content = part(&mut rest);
                // A size that is the content's, and one that need not be.
                let size = if how == 4 { content.len() as u64 } else { u64::from(*what) << (what >> 2) };
                gate.file(name, what & 1 != 0, size, &mut content).await?;
            }
        }
        bytes = rest;
    }
    Ok(())
}

/// Takes a part that begins with its length.
fn part<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let Some((length, rest)) = bytes.split_first() else { return b"" };
    let (part, rest) = rest.split_at(usize::from(*length).min(rest.len()));
    *bytes = rest;
    part
}

/// Asserts of what comes that it is a tree: each path once, in a directory that was announced before (S40).
#[derive(Debug, Default)]
pub(super) struct Checked {
    directories: BTreeSet<TreePath>,
    seen: BTreeSet<TreePath>,
    files: u64,
    bytes: u64,
    symlinks: u64,
    skipped: u64,
    /// A file that may still turn out not to be whole.
    begun: Option<TreePath>,
}

impl Checked {
    /// Compares with what the gate counted.
    pub(super) fn check(&self, summary: TreeSummary, limits: TreeLimits) {
        let ours = TreeSummary {
            directories: self.directories.len() as u64,
            files: self.files,
            bytes: self.bytes,
            symlinks: self.symlinks,
            skipped: self.skipped,
        };
        assert_eq!(summary, ours);
        assert!(summary.bytes <= limits.max_bytes && self.seen.len() as u64 <= limits.max_entries);
    }

    fn admit(&mut self, path: &TreePath) {
        self.begun = None;
        let bytes = path.as_bytes();
        assert!(bytes.len() <= MAX_PATH_BYTES && !bytes.contains(&0) && !bytes.starts_with(b"/"));
        match path.split() {
            None => assert!(self.seen.is_empty(), "a second root"),
            Some((parent, name)) => {
                assert!(self.directories.contains(&parent), "{path} without its directory");
                assert!(!matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && name.len() <= 255);
            }
        }
        assert!(self.seen.insert(path.clone()), "{path} came twice");
    }
}

#[async_trait]
impl TreeSink for Checked {
    async fn directory(&mut self, path: &TreePath) -> Result<()> {
        self.admit(path);
        assert!(path.names().count() < LIMITS.max_depth);
        self.directories.insert(path.clone());
        Ok(())
    }

    async fn file(
        &mut self,
        path: &TreePath,
        _executable: bool,
        size: u64,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        self.admit(path);
        let mut taken = Vec::new();
        if let Err(error) = content.read_to_end(&mut taken).await {
            self.begun = Some(path.clone());
            return Err(Error::invalid("take the file", error.to_string()));
        }
        assert_eq!(taken.len() as u64, size);
        self.files += 1;
        self.bytes += size;
        Ok(())
    }

    async fn symlink(&mut self, path: &TreePath, target: &[u8]) -> Result<()> {
        self.admit(path);
        assert!(!target.is_empty() && target.len() <= MAX_PATH_BYTES && !target.contains(&0));
        self.symlinks += 1;
        Ok(())
    }

    async fn skipped(&mut self, path: &TreePath, _reason: SkipReason) -> Result<()> {
        // A file that was begun is told a second time.
        if self.begun.take().is_none_or(|file| file != *path) {
            self.admit(path);
        }
        self.skipped += 1;
        Ok(())
    }
}
