//! File operations: asked of the agent, which opens names inside the sandbox; content passes by descriptor.

use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ringfence_core::tree::{BadName, check_name};
use ringfence_core::{DirectoryEntry, EntryKind, Error, ErrorKind, GuestPath, ListRequest, Listing, Result};
use rustix::fs::{FileType, FsWord, OFlags};
use rustix::pipe::PipeFlags;
use tokio::io::{AsyncWrite, AsyncWriteExt, Interest};

use crate::SCHEME;
use crate::access::Access;
use crate::error::{file_failed, lost, unexpected};
use crate::sandbox::FILE_DEADLINE;
use crate::transport::{Channel, watch_nonblocking};
use crate::wire::{AgentRequest, Entry, Reply};

/// Content up to this size travels in the request.
pub(crate) const INLINE_CONTENT_BYTES: usize = 32 << 10;

/// Up to this size a read is shorter than handing it to another thread.
const READ_HERE_BYTES: u64 = 256 << 10;

/// What is copied at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Room in the pipe that content goes through: the default maximum for ordinary users.
pub(crate) const PIPE_BYTES: usize = 1 << 20;

struct Opened {
    file: OwnedFd,
    size: u64,
}

/// Reads a whole file.
pub(crate) async fn read(sandbox: &Access, path: &GuestPath, limit_bytes: u64) -> Result<Vec<u8>> {
    const OPERATION: &str = "read the file";
    let opened = open(OPERATION, sandbox, path, limit_bytes).await?;
    let expected = opened.size;
    let content = if expected <= READ_HERE_BYTES {
        read_bounded(&opened.file, expected, limit_bytes)
    } else {
        let read = move || read_bounded(&opened.file, expected, limit_bytes);
        tokio::task::spawn_blocking(read).await.map_err(io::Error::other).and_then(|content| content)
    };
    let content = content.map_err(|error| unexpected(OPERATION, "read its content", error))?;
    // A file that grows meanwhile shows its size only by being read (BD-04).
    if content.len() as u64 > limit_bytes {
        return Err(too_large(OPERATION, path, content.len() as u64, limit_bytes));
    }
    Ok(content)
}

fn read_bounded(file: &OwnedFd, expected: u64, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let bound = usize::try_from(limit_bytes.saturating_add(1)).unwrap_or(usize::MAX);
    // One more than expected, so that the end is seen without growing.
    let first = usize::try_from(expected.saturating_add(1)).unwrap_or(usize::MAX).max(512);
    let mut content = Vec::new();
    while content.len() < bound {
        if content.len() == content.capacity() {
            let more = first.max(content.len()).min(bound - content.len());
            // A sparse file can claim any size: refused, not the end of this process.
            content.try_reserve_exact(more).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        }
        match rustix::io::read(file, rustix::buffer::spare_capacity(&mut content)) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(content)
}

/// Copies a file into a sink in bounded memory; a size that changes meanwhile is an error (EX-18).
pub(crate) async fn export(
    sandbox: &Access,
    path: &GuestPath,
    limit_bytes: u64,
    sink: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<u64> {
    const OPERATION: &str = "export the file";
    let opened = open(OPERATION, sandbox, path, limit_bytes).await?;
    let mut chunk = vec![0u8; CHUNK_BYTES];
    let mut copied = 0u64;
    loop {
        let length = match rustix::io::read(&opened.file, chunk.as_mut_slice()) {
            Ok(0) => break,
            Ok(length) => length,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(unexpected(OPERATION, "read its content", error.into())),
        };
        copied += length as u64;
        if copied > opened.size {
            break;
        }
        sink.write_all(&chunk[..length])
            .await
            .map_err(|error| unexpected(OPERATION, "write to the destination", error))?;
        // Reading never waits, so this is where others get their turn.
        tokio::task::yield_now().await;
    }
    if copied != opened.size {
        return Err(Error::new(
            ErrorKind::Unexpected,
            SCHEME,
            OPERATION,
            format!("it changed while it was copied: {} bytes at first, then {copied}", opened.size),
        )
        .context("path", path.to_string())
        .hint("export it when nothing writes to it"));
    }
    sink.flush().await.map_err(|error| unexpected(OPERATION, "write to the destination", error))?;
    Ok(copied)
}

async fn open(
    operation: &'static str,
    sandbox: &Access,
    path: &GuestPath,
    limit_bytes: u64,
) -> Result<Opened> {
    let request = AgentRequest::Read { path: path.as_bytes().to_vec() };
    let channel = sandbox.ask(operation, request, &[]).await?;
    let (reply, fds) = answer(operation, sandbox, &channel).await?;
    match (reply, fds.into_iter().next()) {
        (Reply::Opened, Some(file)) => {
            let size = check_hostile(&file)
                .map_err(|error| unexpected(operation, "accept the sandbox's file", error))?;
            let kept = is_kept(&file)
                .map_err(|error| unexpected(operation, "look at the file's file system", error.into()))?;
            if !kept {
                return Err(written_for_its_reader(operation, path));
            }
            if size > limit_bytes {
                return Err(too_large(operation, path, size, limit_bytes));
            }
            Ok(Opened { file, size })
        }
        (Reply::FileFailed(fault, errno), _) => Err(file_failed(operation, path, fault, errno)),
        _ => Err(not_understood(operation)),
    }
}

/// A descriptor from inside is believed only when it is what a reader needs: anything else could block us or more. Returns
/// the size that the kernel says it has.
fn check_hostile(file: &OwnedFd) -> io::Result<u64> {
    let stat = rustix::fs::fstat(file)?;
    let flags = rustix::fs::fcntl_getfl(file)?;
    let readable = !flags.contains(OFlags::PATH) && (flags & OFlags::ACCMODE) == OFlags::RDONLY;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && readable {
        return Ok(u64::try_from(stat.st_size).unwrap_or_default());
    }
    Err(io::Error::from(io::ErrorKind::InvalidData))
}

/// File systems that keep content and need not count blocks: in memory without a bound, a layer above such a one, or the
/// word of a server (`tmpfs`, `ramfs`, `overlay`, FUSE with virtiofs, 9p, CIFS and SMB 2, NFS).
const KEEPERS: [FsWord; 8] = [
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0x6573_5546,
    0x0102_1997,
    0xff53_4d42,
    0xfe53_4d42,
    rustix::fs::NFS_SUPER_MAGIC,
];

/// Whether a file has content that lies somewhere, and not what the kernel writes anew for each reader: this process, whose
/// names, numbers and rights are the host's (S12, S38). File systems of the kernel's own, `/proc` first, have no blocks.
fn is_kept(file: &OwnedFd) -> rustix::io::Result<bool> {
    let system = rustix::fs::fstatfs(file)?;
    Ok(system.f_blocks > 0 || KEEPERS.contains(&system.f_type))
}

/// Replaces or creates a file.
pub(crate) async fn write(sandbox: &Access, path: &GuestPath, content: &[u8]) -> Result<()> {
    const OPERATION: &str = "write the file";
    let _request = sandbox.requests.read().await;
    let size = content.len() as u64;
    let path_bytes = path.as_bytes().to_vec();
    let channel = if content.len() <= INLINE_CONTENT_BYTES {
        let request = AgentRequest::Write { path: path_bytes, size, content: Some(content.to_vec()) };
        sandbox.ask(OPERATION, request, &[]).await?
    } else {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| unexpected(OPERATION, "create a pipe", error.into()))?;
        // Only speed: where the user's share of pipe memory is used up, the pipe stays as it is.
        rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES).ok();
        let request = AgentRequest::Write { path: path_bytes, size, content: None };
        let channel = sandbox.ask(OPERATION, request, &[read.as_fd()]).await?;
        drop(read);
        send_content(write, content)
            .await
            .map_err(|error| unexpected(OPERATION, "send the content", error))?;
        channel
    };
    match answer(OPERATION, sandbox, &channel).await?.0 {
        Reply::Written => Ok(()),
        Reply::FileFailed(fault, errno) => Err(file_failed(OPERATION, path, fault, errno)),
        Reply::NotStarted(_, errno) => Err(no_process(OPERATION, errno)),
        _ => Err(not_understood(OPERATION)),
    }
}

/// Writes until the end, or until nobody reads: the answer says why.
async fn send_content(pipe: OwnedFd, mut content: &[u8]) -> io::Result<()> {
    let pipe = watch_nonblocking(pipe, Interest::WRITABLE)?;
    let send = async {
        while !content.is_empty() {
            let wrote = pipe
                .async_io(Interest::WRITABLE, |fd| rustix::io::write(fd, content).map_err(io::Error::from))
                .await;
            match wrote {
                Ok(length) => content = &content[length..],
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    tokio::time::timeout(FILE_DEADLINE, send).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Lists a page of a directory in memory bounded by the page, however many entries there are (P62). The deadline is one for
/// the whole: a directory that grows while it is read must not be read for ever.
pub(crate) async fn list(sandbox: &Access, path: &GuestPath, page: ListRequest) -> Result<Listing> {
    tokio::time::timeout(FILE_DEADLINE, list_all(sandbox, path, page))
        .await
        .unwrap_or_else(|_| Err(deadline_passed("list the directory")))
}

async fn list_all(sandbox: &Access, path: &GuestPath, page: ListRequest) -> Result<Listing> {
    const OPERATION: &str = "list the directory";
    let _request = sandbox.requests.read().await;
    let request = AgentRequest::List { path: path.as_bytes().to_vec() };
    let channel = sandbox.ask(OPERATION, request, &[]).await?;
    let mut first: BinaryHeap<ByName> = BinaryHeap::new();
    let mut remaining = 0u64;
    loop {
        match answer(OPERATION, sandbox, &channel).await?.0 {
            Reply::Entries(entries) => {
                for entry in entries {
                    if let Err(BadName::Special | BadName::Separator) = check_name(&entry.name) {
                        return Err(not_understood(OPERATION));
                    }
                    if page.after.as_ref().is_some_and(|after| entry.name <= *after) {
                        continue;
                    }
                    first.push(ByName(entry));
                    if first.len() > page.max_entries.get() {
                        first.pop();
                        remaining += 1;
                    }
                }
            }
            Reply::EndOfEntries => break,
            Reply::FileFailed(fault, errno) => return Err(file_failed(OPERATION, path, fault, errno)),
            Reply::NotStarted(_, errno) => return Err(no_process(OPERATION, errno)),
            _ => return Err(not_understood(OPERATION)),
        }
    }
    let entries = first.into_sorted_vec().into_iter().map(|ByName(entry)| directory_entry(entry)).collect();
    Ok(Listing { entries, remaining })
}

/// Orders entries by name alone; names in one directory differ.
#[derive(Debug, PartialEq, Eq)]
struct ByName(Entry);

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.name.cmp(&other.0.name)
    }
}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn directory_entry(entry: Entry) -> DirectoryEntry {
    let kind = match FileType::from_raw_mode(u32::from(entry.kind) << 12) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    };
    let size_bytes = entry.size.filter(|_| kind == EntryKind::File);
    DirectoryEntry { name: entry.name, kind, size_bytes }
}

pub(crate) async fn answer(
    operation: &'static str,
    sandbox: &Access,
    channel: &Channel,
) -> Result<(Reply, Vec<OwnedFd>)> {
    match tokio::time::timeout(FILE_DEADLINE, channel.receive::<Reply>()).await {
        Ok(Ok(Some(answer))) => sandbox.check_fence(operation, &answer.0).map(|()| answer),
        Ok(Ok(None)) if sandbox.survives().await => Err(Error::new(
            ErrorKind::Unexpected,
            SCHEME,
            operation,
            "the process inside that worked on it was ended, by the sandbox's own memory limit or by its own code",
        )),
        Ok(Ok(None)) => Err(lost(operation, &sandbox.id)),
        Ok(Err(error)) => Err(unexpected(operation, "hear from the sandbox", error)),
        Err(_) => Err(deadline_passed(operation)),
    }
}

/// The sandbox could not make the process that an operation needs.
pub(crate) fn no_process(operation: &'static str, errno: i32) -> Error {
    let message = "the sandbox has no process left for it, at its process limit or its memory limit";
    Error::new(ErrorKind::Unavailable, SCHEME, operation, message)
        .source(io::Error::from_raw_os_error(errno))
        .hint("end some of what runs in the sandbox; a command that finds no room says how")
}

pub(crate) fn deadline_passed(operation: &'static str) -> Error {
    let message = format!("no answer within {} s", FILE_DEADLINE.as_secs());
    Error::new(ErrorKind::DeadlineExceeded, SCHEME, operation, message)
}

pub(crate) fn not_understood(operation: &'static str) -> Error {
    unexpected(operation, "understand the sandbox", io::Error::from(io::ErrorKind::InvalidData))
}

pub(crate) fn written_for_its_reader(operation: &'static str, path: &GuestPath) -> Error {
    let message = "it is not kept anywhere: the kernel writes it anew for each reader, as the files of /proc";
    Error::new(ErrorKind::NotARegularFile, SCHEME, operation, message)
        .context("path", path.to_string())
        .hint("read it with a command, such as cat")
}

fn too_large(operation: &'static str, path: &GuestPath, size_bytes: u64, limit_bytes: u64) -> Error {
    let kind = ErrorKind::FileTooLarge { size_bytes, limit_bytes };
    let message = format!("it has {size_bytes} bytes or more, over the limit of {limit_bytes}");
    Error::new(kind, SCHEME, operation, message)
        .context("path", path.to_string())
        .hint("take a part of it with a command such as head, tail or sed")
}
