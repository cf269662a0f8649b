//! File operations expressed as shell commands: what a backend inherits when it can only run commands.
//!
//! Needs of the sandbox no more than `sh` and POSIX tools; BusyBox will do. One operation is one command, but for exports
//! and for writes where [`Capabilities::stdin`](crate::Capabilities::stdin) is not claimed and the content exceeds one chunk.
//!
//! Rules that hold for all four, and that backends with operations of their own keep as well:
//! - Symbolic links are followed, also in the last part of a path, and never replaced (P65). A dangling one does not exist
//!   for reading and is created through for writing.
//! - A file that its own mode forbids to read or write is [`ErrorKind::PermissionDenied`].
//! - Writing creates missing parents, fills a temporary file beside the target and renames it (BD-11). A reader sees the
//!   old content or the new one. If the caller goes away in the middle of a write in several commands, a file named
//!   `.ringfence.` and 32 hexadecimal digits can be left.
//! - A sandbox that ends meanwhile is [`ErrorKind::SandboxLost`] (ER-08), a helper that takes longer than
//!   [`HELPER_TIMEOUT`] is [`ErrorKind::DeadlineExceeded`] (BD-08).
//!
//! What the sandbox answers is data of whoever runs code in it: it can lie about its own files, but not make an answer
//! unbounded or malformed without being noticed.

mod frame;
mod script;

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use crate::backend::{Backend, SandboxId};
use crate::command::{CommandRequest, CommandResult, Ending, Invocation, Stdin};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{DirectoryEntry, EntryKind, GuestPath, ListRequest, Listing, file_error};
use crate::output::{OutputLimit, Timeout};
use crate::shell::frame::{Frame, decode, find, kind_of, status};
use crate::shell::script::{CHUNK_TEXT_BYTES, Script, Staged, printf_format};
use crate::tree::{BadName, check_name};

/// How long one helper command may take (BD-08).
pub const HELPER_TIMEOUT: Duration = Duration::from_secs(120);

/// Bytes kept of each stream of a helper that answers with a status only (BD-08).
pub const HELPER_OUTPUT_BYTES: usize = 1 << 20;

/// Bytes kept of a listing: some 200,000 names of usual length, or 120,000 of the longest. More is an error, not a part
/// (BD-09, P62).
pub const LIST_OUTPUT_BYTES: usize = 32 << 20;

/// The most entries of a directory that are taken. More would be names of a few bytes, of which many fit into
/// [`LIST_OUTPUT_BYTES`] and each takes some 100 bytes here.
pub const LIST_MAX_ENTRIES: usize = 1 << 20;

/// The largest file read by one command; larger ones are read in slices.
pub const SINGLE_READ_BYTES: u64 = 8 << 20;

/// How much of a file one command of an export copies.
pub const SLICE_BYTES: u64 = 4 << 20;

/// The largest file imported: it is held in memory.
pub const MAX_IMPORT_BYTES: u64 = 1 << 30;

/// The slowest copy in several commands that is not given up, in bytes per second (EX-19).
pub const SLOWEST_COPY: u64 = 1 << 20;

/// Returns how long a copy of up to `bytes` in several commands may take altogether.
fn allowance(bytes: u64) -> Duration {
    HELPER_TIMEOUT.max(Duration::from_secs(bytes / SLOWEST_COPY)).min(Timeout::MAX)
}

/// One operation: who, on what.
struct Operation<'a, B: ?Sized> {
    backend: &'a B,
    sandbox: &'a SandboxId,
    path: &'a GuestPath,
    name: &'static str,
}

impl<B: Backend + ?Sized> Operation<'_, B> {
    fn error(&self, kind: ErrorKind) -> Error {
        file_error(kind, self.backend.name(), self.name, self.sandbox, self.path)
    }

    fn failure(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unexpected, self.backend.name(), self.name, message)
            .context("path", self.path.to_string())
            .context("sandbox", self.sandbox.as_str())
    }

    async fn run(&self, script: &Script, output_bytes: usize, stdin: Stdin) -> Result<CommandResult> {
        let request = CommandRequest::shell(
            script.command(),
            Timeout::new(HELPER_TIMEOUT)?,
            OutputLimit::new(output_bytes.min(OutputLimit::MAX_BYTES))?,
        );
        let result = self.backend.run_command(self.sandbox, request.with_stdin(stdin)).await?;
        if result.sandbox_lost { Err(self.error(ErrorKind::SandboxLost)) } else { Ok(result) }
    }

    /// Returns the frame of a script that succeeded, or the error that its status stands for. `TOO_LARGE` is passed on.
    fn answer<'r>(&self, script: &Script, result: &'r CommandResult) -> Result<Frame<'r>> {
        let Some(frame) = Frame::find(&result.stdout.bytes, &script.nonce) else {
            return Err(match result.ending {
                Ending::TimedOut => self.error(ErrorKind::DeadlineExceeded),
                Ending::MemoryExceeded => self.error(ErrorKind::StorageFull),
                _ if result.stdout.truncated => self.too_long(),
                _ => self
                    .failure("the shell inside the sandbox gave no answer")
                    .context("stderr", last(result)),
            });
        };
        match frame.status {
            status::OK | status::TOO_LARGE => {}
            status::INCOMPLETE => {
                return Err(self.failure("not all of the content arrived inside the sandbox"));
            }
            status::FAILED => {
                return Err(self
                    .failure("the shell inside the sandbox failed")
                    .context("stderr", last(result)));
            }
            other => return Err(self.error(kind_of(other))),
        }
        let broken = format!("{} broken", script.nonce.as_str());
        if find(&result.stderr.bytes, broken.as_bytes()).is_some() {
            return Err(self.failure("the file could not be read to its end"));
        }
        Ok(frame)
    }

    /// Returns the words before the payload.
    fn header<'r>(&self, frame: &Frame<'r>) -> Result<&'r str> {
        frame.header.ok_or_else(|| self.too_long())
    }

    fn too_long(&self) -> Error {
        self.failure("the answer is larger than was allowed for").hint("use a shell command for a part of it")
    }

    fn late(&self, allowance: Duration) -> Error {
        self.error(ErrorKind::DeadlineExceeded).context("allowance", format!("{} s", allowance.as_secs()))
    }

    fn corrupted(&self) -> Error {
        self.failure("something else wrote into the answer, so it cannot be trusted")
    }
}

/// The end of what a failed helper wrote to standard error, for a message.
fn last(result: &CommandResult) -> String {
    const SHOWN: usize = 400;
    let text = result.stderr.text();
    let text = text.trim();
    let from = text.char_indices().rev().take(SHOWN).last().map_or(0, |(at, _)| at);
    text[from..].to_owned()
}

/// The state of a file: inode, size, time of change. Two equal ones mean the same content as far as can be told.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    text: String,
    size: u64,
}

impl Stamp {
    fn parse(text: &str) -> Option<Self> {
        let size = text.split(' ').nth(1)?.parse().ok()?;
        Some(Self { text: text.to_owned(), size })
    }
}

/// See [`Backend::read_file`]. The bound is kept by reading one byte more than it inside the sandbox, so that files whose
/// reported size is not true are measured by their content (BD-04).
///
/// # Errors
/// As [`Backend::read_file`].
pub async fn read_file<B: Backend + ?Sized>(
    backend: &B,
    sandbox: &SandboxId,
    path: &GuestPath,
    limit_bytes: u64,
) -> Result<Vec<u8>> {
    let operation = Operation { backend, sandbox, path, name: "read the file" };
    let cap = limit_bytes.min(SINGLE_READ_BYTES);
    let script = Script::read(path, cap);
    let output = usize::try_from(2 * cap + 4096).unwrap_or(usize::MAX);
    let result = operation.run(&script, output, Stdin::Closed).await?;
    let frame = operation.answer(&script, &result)?;
    let after = Stamp::parse(frame.trailer).ok_or_else(|| operation.corrupted())?;

    let too_large = |size_bytes| operation.error(ErrorKind::FileTooLarge { size_bytes, limit_bytes });
    if frame.status == status::TOO_LARGE {
        if after.size > limit_bytes {
            return Err(too_large(after.size));
        }
        let mut content = Vec::new();
        copy_in_slices(&operation, limit_bytes, SLICE_BYTES, &mut content).await?;
        return Ok(content);
    }
    let (encoding, before) =
        operation.header(&frame)?.split_once(' ').ok_or_else(|| operation.corrupted())?;
    let before = Stamp::parse(before).ok_or_else(|| operation.corrupted())?;
    let content = decode(encoding, frame.payload).ok_or_else(|| operation.corrupted())?;
    let length = content.len() as u64;
    // More bytes than a file has that did not change came from elsewhere. (Fewer are usual in /sys, and 0 is what /proc
    // says of everything.)
    if before == after && before.size > 0 && length > before.size {
        return Err(operation.corrupted());
    }
    if length > cap {
        return Err(too_large(length.max(after.size)));
    }
    Ok(content)
}

/// See [`Backend::write_file`]. Content goes through standard input where the backend has it, else as chunks of shell
/// text, never as one argument (BD-07). Chunks must all be written within 120 s, or the time that the content takes at 1 MiB
/// per second if that is longer.
///
/// # Errors
/// As [`Backend::write_file`].
pub async fn write_file<B: Backend + ?Sized>(
    backend: &B,
    sandbox: &SandboxId,
    path: &GuestPath,
    content: &[u8],
) -> Result<()> {
    let operation = Operation { backend, sandbox, path, name: "write the file" };
    let size = content.len() as u64;
    if backend.capabilities().stdin {
        let script = Script::write_from_stdin(path, size);
        let stdin = Stdin::Bytes(Bytes::copy_from_slice(content));
        let result = operation.run(&script, HELPER_OUTPUT_BYTES, stdin).await?;
        return operation.answer(&script, &result).map(drop);
    }
    let (chunk, rest) = printf_format(content, CHUNK_TEXT_BYTES);
    if rest.is_empty() {
        let script = Script::write_chunk(path, size, &chunk);
        let result = operation.run(&script, HELPER_OUTPUT_BYTES, Stdin::Closed).await?;
        return operation.answer(&script, &result).map(drop);
    }
    let staged = begin_write(&operation).await?;
    let allowance = allowance(size);
    let written = timeout_at(Instant::now() + allowance, write_staged(&operation, &staged, content)).await;
    let written = written.unwrap_or_else(|_| Err(operation.late(allowance)));
    if let Err(error) = &written
        && *error.kind() != ErrorKind::SandboxLost
    {
        // The first error is the one that counts, whether or not this works (BK-03).
        let script = Script::write_abandon(&staged);
        drop(operation.run(&script, HELPER_OUTPUT_BYTES, Stdin::Closed).await);
    }
    written
}

/// See [`Backend::import_file`]. The executable bit is set by the sandbox's own `/bin/chmod`.
///
/// # Errors
/// As [`Backend::import_file`].
pub async fn import_file<B: Backend + ?Sized>(
    backend: &B,
    sandbox: &SandboxId,
    path: &GuestPath,
    size: u64,
    executable: bool,
    source: &mut (dyn AsyncRead + Send + Unpin),
) -> Result<()> {
    let operation = Operation { backend, sandbox, path, name: "write the file" };
    if size > MAX_IMPORT_BYTES {
        let kind = ErrorKind::FileTooLarge { size_bytes: size, limit_bytes: MAX_IMPORT_BYTES };
        return Err(operation.error(kind));
    }
    let mut content = Vec::new();
    // A byte more than promised is enough to see that it is not what was promised.
    let read = source.take(size + 1).read_to_end(&mut content).await;
    read.map_err(|error| operation.failure("the source could not be read").source(error))?;
    if content.len() as u64 != size {
        return Err(source_changed(backend.name(), path, size));
    }
    backend.write_file(sandbox, path, &content).await?;
    if !executable {
        return Ok(());
    }
    let words = [b"/bin/chmod".as_slice(), b"+x", b"--", path.as_bytes()];
    let request = CommandRequest::new(
        Invocation::Program(words.map(<[u8]>::to_vec).into()),
        Timeout::new(HELPER_TIMEOUT)?,
        OutputLimit::new(HELPER_OUTPUT_BYTES)?,
    );
    let result = backend.run_command(sandbox, request).await?;
    match result.ending {
        _ if result.sandbox_lost => Err(operation.error(ErrorKind::SandboxLost)),
        Ending::Exited(0) => Ok(()),
        Ending::TimedOut => Err(operation.error(ErrorKind::DeadlineExceeded)),
        _ => Err(operation.failure("it could not be made executable").context("stderr", last(&result))),
    }
}

/// Builds the error of an import whose source does not have the size that was promised.
#[must_use]
pub fn source_changed(backend: &str, path: &GuestPath, size: u64) -> Error {
    let message =
        format!("the source does not have the {size} bytes that it had at first; the file is unchanged");
    Error::new(ErrorKind::Unexpected, backend, "write the file", message).context("path", path.to_string())
}

async fn begin_write<B: Backend + ?Sized>(operation: &Operation<'_, B>) -> Result<Staged> {
    let script = Script::write_begin(operation.path);
    let result = operation.run(&script, HELPER_OUTPUT_BYTES, Stdin::Closed).await?;
    let frame = operation.answer(&script, &result)?;
    let place = decode(operation.header(&frame)?, frame.payload).ok_or_else(|| operation.corrupted())?;
    let at = find(&place, b"\0").ok_or_else(|| operation.corrupted())?;
    Ok(Staged { directory: place[..at].to_vec(), file: place[at + 1..].to_vec(), nonce: script.nonce })
}

async fn write_staged<B: Backend + ?Sized>(
    operation: &Operation<'_, B>,
    staged: &Staged,
    content: &[u8],
) -> Result<()> {
    let mut rest = content;
    while !rest.is_empty() {
        let (chunk, following) = printf_format(rest, CHUNK_TEXT_BYTES);
        let script = Script::write_append(staged, &chunk);
        let result = operation.run(&script, HELPER_OUTPUT_BYTES, Stdin::Closed).await?;
        operation.answer(&script, &result)?;
        rest = following;
    }
    let script = Script::write_end(staged, content.len() as u64);
    let result = operation.run(&script, HELPER_OUTPUT_BYTES, Stdin::Closed).await?;
    operation.answer(&script, &result).map(drop)
}

/// See [`Backend::list_directory`]. The whole directory is transferred, within [`LIST_OUTPUT_BYTES`], and cut to the page
/// asked for here: no POSIX tool sorts names that may hold newlines. Sizes are missing where the sandbox has no `stat -c`,
/// and where an entry vanished meanwhile.
///
/// # Errors
/// As [`Backend::list_directory`]; [`ErrorKind::Unexpected`] if the names do not fit or are more than
/// [`LIST_MAX_ENTRIES`], never a part of them (BD-09).
pub async fn list_directory<B: Backend + ?Sized>(
    backend: &B,
    sandbox: &SandboxId,
    path: &GuestPath,
    request: ListRequest,
) -> Result<Listing> {
    let operation = Operation { backend, sandbox, path, name: "list the directory" };
    let script = Script::list(path);
    let result = operation.run(&script, LIST_OUTPUT_BYTES, Stdin::Closed).await?;
    let frame = operation.answer(&script, &result)?;
    operation.header(&frame)?;
    // Entries that vanish while they are listed are no failure; /proc is full of them.
    let vanished = |line: &str| line.ends_with(": No such file or directory");
    if frame.trailer != "0" && !result.stderr.text().trim().lines().all(vanished) {
        return Err(operation.failure("the directory could not be listed").context("stderr", last(&result)));
    }
    if count(frame.payload, 0) > LIST_MAX_ENTRIES {
        return Err(operation.too_long());
    }
    let entries = parse_listing(frame.payload).ok_or_else(|| operation.corrupted())?;
    Ok(Listing::page(entries, &request))
}

fn count(bytes: &[u8], byte: u8) -> usize {
    bytes.iter().filter(|other| **other == byte).count()
}

/// Parses batches of NUL-terminated names, an empty name, a line for each of them, and a NUL.
fn parse_listing(mut payload: &[u8]) -> Option<Vec<DirectoryEntry>> {
    let mut entries = Vec::new();
    while !payload.is_empty() {
        let mut names = Vec::new();
        loop {
            let at = find(payload, b"\0")?;
            let (name, rest) = (&payload[..at], &payload[at + 1..]);
            payload = rest;
            if name.is_empty() {
                break;
            }
            let bare = name.strip_prefix(b"./")?;
            // How long names are is the file system's business.
            if let Err(BadName::Special | BadName::Separator) = check_name(bare) {
                return None;
            }
            names.push(bare.to_vec());
        }
        let at = find(payload, b"\0")?;
        let lines = std::str::from_utf8(&payload[..at]).ok()?;
        payload = &payload[at + 1..];
        let mut lines = lines.lines();
        for name in names {
            if let Some((kind, size_bytes)) = parse_entry(lines.next()?)? {
                entries.push(DirectoryEntry { name, kind, size_bytes });
            }
        }
        if lines.next().is_some() {
            return None;
        }
    }
    Some(entries)
}

/// Parses the hexadecimal mode and the size of an entry, or its letter. The inner `None` is one that vanished.
fn parse_entry(line: &str) -> Option<Option<(EntryKind, Option<u64>)>> {
    const TYPE: u32 = 0o170_000;
    let kind = match line {
        "f" => EntryKind::File,
        "d" => EntryKind::Directory,
        "l" => EntryKind::Symlink,
        "o" => EntryKind::Other,
        "-" => return Some(None),
        _ => {
            let (mode, size) = line.split_once(' ')?;
            let size: u64 = size.parse().ok()?;
            let kind = match u32::from_str_radix(mode, 16).ok()? & TYPE {
                0o100_000 => return Some(Some((EntryKind::File, Some(size)))),
                0o040_000 => EntryKind::Directory,
                0o120_000 => EntryKind::Symlink,
                _ => EntryKind::Other,
            };
            return Some(Some((kind, None)));
        }
    };
    Some(Some((kind, None)))
}

/// See [`Backend::export_file`].
///
/// # Errors
/// As [`Backend::export_file`].
pub async fn export_file<B: Backend + ?Sized>(
    backend: &B,
    sandbox: &SandboxId,
    path: &GuestPath,
    limit_bytes: u64,
    sink: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<u64> {
    export_file_in_slices(backend, sandbox, path, limit_bytes, SLICE_BYTES, sink).await
}

/// [`export_file`] with slices of a size that suits the backend, at least 1 byte and at most [`SINGLE_READ_BYTES`].
///
/// The size is asked for first; nothing is written when it is over the limit. Each slice must be complete and the file
/// unchanged (EX-18). All of it must end within 120 s, or the time that the limit takes at 1 MiB per second if
/// that is longer (EX-19), a slow sink included.
///
/// # Errors
/// As [`Backend::export_file`].
pub async fn export_file_in_slices<B: Backend + ?Sized>(
    backend: &B,
    sandbox: &SandboxId,
    path: &GuestPath,
    limit_bytes: u64,
    slice_bytes: u64,
    sink: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<u64> {
    let operation = Operation { backend, sandbox, path, name: "export the file" };
    let slice_bytes = slice_bytes.clamp(1, SINGLE_READ_BYTES);
    copy_in_slices(&operation, limit_bytes, slice_bytes, sink).await
}

async fn copy_in_slices<B: Backend + ?Sized>(
    operation: &Operation<'_, B>,
    limit_bytes: u64,
    slice_bytes: u64,
    sink: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<u64> {
    let allowance = allowance(limit_bytes);
    let copied =
        timeout_at(Instant::now() + allowance, copy(operation, limit_bytes, slice_bytes, sink)).await;
    copied.unwrap_or_else(|_| Err(operation.late(allowance)))
}

async fn copy<B: Backend + ?Sized>(
    operation: &Operation<'_, B>,
    limit_bytes: u64,
    slice_bytes: u64,
    sink: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<u64> {
    let script = Script::size(operation.path);
    let result = operation.run(&script, HELPER_OUTPUT_BYTES, Stdin::Closed).await?;
    let frame = operation.answer(&script, &result)?;
    let promised = Stamp::parse(frame.trailer).ok_or_else(|| operation.corrupted())?;
    if promised.size > limit_bytes {
        return Err(operation.error(ErrorKind::FileTooLarge { size_bytes: promised.size, limit_bytes }));
    }
    let sink_failed =
        |error: std::io::Error| operation.failure("the destination could not be written").source(error);

    let mut copied = 0;
    // The last slice is the first one that is not full, so that a file that grew is noticed; it may be empty.
    for index in 0.. {
        let slice = read_slice(operation, &promised, slice_bytes, index).await?;
        let expected = slice_bytes.min(promised.size - copied);
        if slice.len() as u64 != expected {
            return Err(changed(operation, &promised));
        }
        sink.write_all(&slice).await.map_err(sink_failed)?;
        copied += expected;
        if expected < slice_bytes {
            break;
        }
    }
    sink.flush().await.map_err(sink_failed)?;
    Ok(copied)
}

async fn read_slice<B: Backend + ?Sized>(
    operation: &Operation<'_, B>,
    promised: &Stamp,
    slice_bytes: u64,
    index: u64,
) -> Result<Vec<u8>> {
    let script = Script::slice(operation.path, slice_bytes, index);
    let output = usize::try_from(2 * slice_bytes + 4096).unwrap_or(usize::MAX);
    let result = operation.run(&script, output, Stdin::Closed).await?;
    let frame = operation.answer(&script, &result)?;
    let (encoding, before) =
        operation.header(&frame)?.split_once(' ').ok_or_else(|| operation.corrupted())?;
    if before != promised.text || frame.trailer != promised.text {
        return Err(changed(operation, promised));
    }
    decode(encoding, frame.payload).ok_or_else(|| operation.corrupted())
}

fn changed<B: Backend + ?Sized>(operation: &Operation<'_, B>, promised: &Stamp) -> Error {
    operation
        .failure("the file is not what was promised: it changed while it was copied, or a part got lost")
        .context("promised_bytes", promised.size.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse_listing;
    use super::script::printf_format;

    proptest! {
        #[test]
        fn bd_09_no_payload_makes_the_parser_panic(
            parts in proptest::collection::vec(
                prop_oneof![Just("./a"), Just("\0"), Just("81a4 5"), Just("\n"), Just("-"), Just("\u{ff}"), Just("d")],
                0..24,
            )
        ) {
            let payload = parts.concat();
            if let Some(entries) = parse_listing(payload.as_bytes()) {
                prop_assert!(entries.iter().all(|entry| !entry.name.is_empty() && !entry.name.contains(&b'/')));
            }
        }

        /// Chunks of shell text are bounded, harmless between single quotes, and together all of the content.
        #[test]
        fn bd_07_chunks_are_bounded_and_complete(
            content in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\''), Just(b'-'), b'0'..=b'9'], 0..200),
            max_text in 4usize..40,
        ) {
            let mut decoded = Vec::new();
            let mut rest = &content[..];
            while !rest.is_empty() {
                let (format, following) = printf_format(rest, max_text);
                prop_assert!(!format.is_empty() && format.len() <= max_text && !format.starts_with('-'));
                prop_assert!(!format.contains(['\'', '%']));
                let mut text = format.bytes();
                while let Some(byte) = text.next() {
                    if byte == b'\\' {
                        let octal: String = text.by_ref().take(3).map(char::from).collect();
                        decoded.push(u8::from_str_radix(&octal, 8).expect("three octal digits"));
                    } else {
                        decoded.push(byte);
                    }
                }
                rest = following;
            }
            prop_assert_eq!(decoded, content);
        }
    }
}
