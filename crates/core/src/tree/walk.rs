//! The tree export that a backend inherits: directory by directory, file by file, over its other operations.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadBuf};

use super::{SkipReason, TreeGate};
use crate::backend::{Backend, SandboxId};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{DirectoryEntry, EntryKind, GuestPath, ListRequest};

/// Between the backend that reads a file and the sink that takes it.
const ROOM_BYTES: usize = 256 << 10;

/// See [`Backend::export_tree`].
pub(crate) async fn export_tree<B: Backend + ?Sized>(
    backend: &B,
    sandbox: &SandboxId,
    path: &GuestPath,
    gate: &mut TreeGate<'_>,
) -> Result<()> {
    let walk = Walk { backend, sandbox };
    let page = match walk.page(path, None).await {
        Ok(page) => page,
        Err(error) if *error.kind() == ErrorKind::NotADirectory => {
            return walk.whole_file(path, b"", gate).await;
        }
        Err(error) => return Err(error),
    };
    gate.enter(b"").await?;
    let mut open = vec![Directory { path: path.clone(), page }];
    while let Some(directory) = open.last_mut() {
        let entry = match directory.page.entries.next() {
            Some(entry) => entry,
            None => match directory.page.after.take() {
                Some(after) => {
                    directory.page = walk.page(&directory.path, Some(after)).await?;
                    continue;
                }
                None => {
                    gate.leave()?;
                    open.pop();
                    continue;
                }
            },
        };
        let path = join(&directory.path, &entry.name)?;
        match entry.kind {
            EntryKind::Symlink => gate.skip(&entry.name, SkipReason::Link).await?,
            EntryKind::Other => gate.skip(&entry.name, SkipReason::Special).await?,
            EntryKind::File => match entry.size_bytes {
                Some(size) => walk.file(&path, &entry.name, size, gate).await?,
                None => walk.whole_file(&path, &entry.name, gate).await?,
            },
            EntryKind::Directory => match walk.page(&path, None).await {
                Ok(page) => {
                    gate.enter(&entry.name).await?;
                    open.push(Directory { path, page });
                }
                Err(error) => match passed_over(&error) {
                    Some(Passed::Skipped(reason)) => gate.skip(&entry.name, reason).await?,
                    Some(Passed::Gone) => {}
                    None => return Err(error),
                },
            },
        }
    }
    Ok(())
}

fn join(directory: &GuestPath, name: &[u8]) -> Result<GuestPath> {
    let separator: &[u8] = if directory.as_bytes().ends_with(b"/") { b"" } else { b"/" };
    GuestPath::new([directory.as_bytes(), separator, name].concat())
}

/// A directory of which entries are left.
struct Directory {
    path: GuestPath,
    page: Page,
}

struct Page {
    entries: std::vec::IntoIter<DirectoryEntry>,
    /// The last name of it, where more follow.
    after: Option<Vec<u8>>,
}

/// What an error means for one entry of a tree that others go on changing.
enum Passed {
    Skipped(SkipReason),
    /// As if it had never been there.
    Gone,
}

fn passed_over(error: &Error) -> Option<Passed> {
    match error.kind() {
        ErrorKind::NotFound => Some(Passed::Gone),
        ErrorKind::PermissionDenied => Some(Passed::Skipped(SkipReason::Unreadable)),
        ErrorKind::NotARegularFile => Some(Passed::Skipped(SkipReason::Special)),
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => Some(Passed::Skipped(SkipReason::Changed)),
        _ => None,
    }
}

struct Walk<'a, B: ?Sized> {
    backend: &'a B,
    sandbox: &'a SandboxId,
}

impl<B: Backend + ?Sized> Walk<'_, B> {
    async fn page(&self, path: &GuestPath, after: Option<Vec<u8>>) -> Result<Page> {
        let request = ListRequest { after, ..ListRequest::default() };
        let listing = self.backend.list_directory(self.sandbox, path, request).await?;
        let last = listing.entries.last().filter(|_| listing.remaining > 0);
        Ok(Page { after: last.map(|entry| entry.name.clone()), entries: listing.entries.into_iter() })
    }

    /// Passes a file of unknown size through memory.
    async fn whole_file(&self, path: &GuestPath, name: &[u8], gate: &mut TreeGate<'_>) -> Result<()> {
        match self.backend.read_file(self.sandbox, path, gate.bytes_left()).await {
            Ok(content) => gate.file(name, false, content.len() as u64, &mut content.as_slice()).await,
            Err(error) if name.is_empty() => Err(error),
            Err(error) => match passed_over(&error) {
                Some(Passed::Skipped(reason)) => gate.skip(name, reason).await,
                Some(Passed::Gone) => Ok(()),
                None => Err(error),
            },
        }
    }

    async fn file(&self, path: &GuestPath, name: &[u8], size: u64, gate: &mut TreeGate<'_>) -> Result<()> {
        let (mut writer, reader) = tokio::io::duplex(ROOM_BYTES);
        let failure = Arc::new(Mutex::new(None));
        let mut content = Content { reader, failure: Arc::clone(&failure) };
        let mut export = pin!(async {
            // A byte more than promised is enough to see that the file grew.
            let limit = size.saturating_add(1);
            let exported = self.backend.export_file(self.sandbox, path, limit, &mut writer).await;
            if let Err(error) = exported {
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why_broken(error));
            }
            // A reader that is gone wants nothing further.
            drop(writer.shutdown().await);
        });
        let mut take = pin!(gate.file(name, false, size, &mut content));
        let mut exporting = true;
        std::future::poll_fn(|cx| {
            if exporting && export.as_mut().poll(cx).is_ready() {
                exporting = false;
            }
            take.as_mut().poll(cx)
        })
        .await
    }
}

/// Says why content broke off, in a form that the gate understands.
fn why_broken(error: Error) -> io::Error {
    match passed_over(&error) {
        Some(Passed::Skipped(reason)) => io::Error::other(reason),
        Some(Passed::Gone) => io::Error::other(SkipReason::Changed),
        // A size that is not the promised one (EX-18).
        None if matches!(error.kind(), ErrorKind::FileTooLarge { .. } | ErrorKind::Unexpected) => {
            io::Error::other(SkipReason::Changed)
        }
        None => io::Error::other(error),
    }
}

/// What a backend exports, and at the end why it did not export all of it.
struct Content {
    reader: DuplexStream,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl AsyncRead for Content {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            return Poll::Ready(Ok(()));
        }
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(failure) => Poll::Ready(Err(failure)),
            None => Poll::Ready(Ok(())),
        }
    }
}
