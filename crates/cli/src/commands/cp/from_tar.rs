//! A tar archive on its way into a sandbox. Whoever made it chose every name, size and order in it.
//!
//! Only headers are parsed here, and nothing is unpacked: an entry becomes a path that cannot lead out of the tree, or it is not
//! copied (S40).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ringfence::TreePath;
use tar::{EntryType, Header};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::into_sandbox::IntoSandbox;
use crate::failure::{Failure, Result};

/// Everything in an archive begins at a multiple of this.
const BLOCK_BYTES: usize = 512;

/// The longest entry that says something about the next one.
const MAX_ABOUT_BYTES: u64 = 1 << 20;

/// So many of those may come before an entry.
const MAX_ABOUT: usize = 16;

/// What is read behind the end, so that whoever writes the archive can finish.
const MAX_BEHIND_BYTES: u64 = 1 << 20;

/// Copies the entries of an archive.
pub(super) async fn copy(archive: impl AsyncRead + Send + Unpin, into: &mut IntoSandbox<'_>) -> Result<()> {
    let mut archive = Archive { source: archive, began: false };
    into.directory(&TreePath::root()).await?;
    while let Some(entry) = archive.next().await? {
        let mut content = Content { source: &mut archive.source, left: entry.size, ended: false };
        let placed = place(&entry, &mut content, into).await;
        if content.ended {
            return Err(ended_early());
        }
        placed?;
        let left = content.left + padding(entry.size);
        archive.pass(left).await?;
    }
    archive.finish().await
}

async fn place<R: AsyncRead + Send + Unpin>(
    entry: &Entry,
    content: &mut Content<'_, R>,
    into: &mut IntoSandbox<'_>,
) -> Result<()> {
    let shown = entry.name.escape_ascii().to_string();
    let path = match path_of(&entry.name) {
        Ok(path) => path,
        Err(why) => return into.skip(shown, why),
    };
    if entry.sparse {
        return into.skip(shown, "it is a sparse file, which is not understood");
    }
    match entry.kind {
        // Old programs know no directories but by a slash at the end of the name.
        EntryType::Regular | EntryType::Continuous if entry.name.ends_with(b"/") && entry.size == 0 => {
            into.directory(&path).await
        }
        EntryType::Regular | EntryType::Continuous if path.is_root() => {
            into.skip(shown, "a file has no name")
        }
        EntryType::Regular | EntryType::Continuous => {
            into.file(&path, entry.size, entry.mode & 0o111 != 0, content).await
        }
        EntryType::Directory => into.directory(&path).await,
        EntryType::Symlink => match super::links::leads_out(&path, &entry.link) {
            _ if entry.link.is_empty() || entry.link.contains(&0) => {
                into.skip(shown, "its link leads nowhere")
            }
            None => into.symlink(&path, entry.link.clone()),
            Some(why) => into.skip(shown, format!("{why}: {}", entry.link.escape_ascii())),
        },
        EntryType::Link => match path_of(&entry.link) {
            Ok(of) if !of.is_root() && !path.is_root() => into.hard_link(&path, &of),
            _ => into.skip(shown, "it is another name of what is not in the archive"),
        },
        EntryType::Char | EntryType::Block | EntryType::Fifo => {
            into.skip(shown, "it is a device, FIFO or socket")
        }
        _ => into.skip(shown, "what it is, is not understood"),
    }
}

/// The path of an entry: relative, and nowhere back.
fn path_of(name: &[u8]) -> std::result::Result<TreePath, &'static str> {
    if name.starts_with(b"/") {
        return Err("its name is an absolute path");
    }
    let mut path = TreePath::root();
    for name in name.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err("its name leads back through `..`"),
            name => path = path.join(name).map_err(|_| "no file can be called so")?,
        }
    }
    Ok(path)
}

fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK_BYTES as u64) - size
}

fn ended_early() -> Failure {
    Failure::new("the archive ends in the middle; what came before is copied")
}

fn broken(what: &str) -> Failure {
    Failure::new(format!("this is not a tar archive, or a broken one: {what}"))
        .hint("a compressed one is unpacked first: gzip -dc archive.tar.gz | ringfence cp - HANDLE:PATH")
}

/// How files begin that were packed with a program of this name.
const PACKED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];

/// How a zip file begins.
const ZIP: &[u8] = b"PK\x03\x04";

/// What an archive says of one entry; its content follows.
#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    link: Vec<u8>,
    kind: EntryType,
    mode: u32,
    size: u64,
    /// The content is not the file's but has to be spread.
    sparse: bool,
}

/// What earlier entries say of the next one.
#[derive(Debug, Default)]
struct About {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

struct Archive<R> {
    source: R,
    /// Whether a header was read.
    began: bool,
}

impl<R: AsyncRead + Send + Unpin> Archive<R> {
    /// The next entry; `None` at the end of the archive.
    async fn next(&mut self) -> Result<Option<Entry>> {
        let mut about = About::default();
        for _ in 0..MAX_ABOUT {
            let Some(block) = self.block().await? else { return Ok(None) };
            let header = Header::from_byte_slice(&block);
            check(header)?;
            let unreadable = |_| broken("a header with a number that is none");
            let size = header.entry_size().map_err(unreadable)?;
            match header.entry_type() {
                EntryType::GNULongName => about.name = Some(self.text(size).await?),
                EntryType::GNULongLink => about.link = Some(self.text(size).await?),
                EntryType::XHeader => about.extend(&self.about(size).await?)?,
                // Of all entries: nothing that is copied.
                EntryType::XGlobalHeader => drop(self.about(size).await?),
                kind => {
                    let link = header.link_name_bytes().map(|link| link.into_owned());
                    return Ok(Some(Entry {
                        name: about.name.unwrap_or_else(|| header.path_bytes().into_owned()),
                        link: about.link.or(link).unwrap_or_default(),
                        mode: header.mode().map_err(unreadable)?,
                        size: size_of(kind, about.size.unwrap_or(size))?,
                        kind,
                        sparse: about.sparse,
                    }));
                }
            }
        }
        Err(broken("too much is said about one entry"))
    }

    /// The next header; `None` for one of zeros.
    async fn block(&mut self) -> Result<Option<[u8; BLOCK_BYTES]>> {
        let mut block = [0; BLOCK_BYTES];
        if std::mem::replace(&mut self.began, true) {
            self.exactly(&mut block).await?;
        } else {
            self.first(&mut block).await?;
        }
        Ok(if block == [0; BLOCK_BYTES] { None } else { Some(block) })
    }

    /// The first header, or why this is no archive: a compressed one can be shorter than any header.
    async fn first(&mut self, block: &mut [u8; BLOCK_BYTES]) -> Result<()> {
        let mut length = 0;
        while length < block.len() {
            match self.source.read(&mut block[length..]).await {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) => return Err(Failure::io("read standard input", &error)),
            }
        }
        if let Some((_, program)) = PACKED.iter().find(|(magic, _)| block.starts_with(magic)) {
            return Err(Failure::new(format!("this is no tar archive but something packed with {program}"))
                .hint(format!("unpack it on the way: {program} -dc FILE | ringfence cp - HANDLE:PATH")));
        }
        if block.starts_with(ZIP) {
            return Err(Failure::new("this is no tar archive but a zip file")
                .hint("unpack it here and copy the directory, or copy the file and unpack it inside"));
        }
        match length {
            BLOCK_BYTES => Ok(()),
            0 => Err(Failure::new("no archive came: standard input is empty")),
            _ => Err(broken("it is shorter than any")),
        }
    }

    async fn exactly(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.source.read_exact(bytes).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ended_early()),
            Err(error) => Err(Failure::io("read standard input", &error)),
        }
    }

    /// The content of an entry that says something about the next one.
    async fn about(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > MAX_ABOUT_BYTES {
            return Err(broken("what is said about an entry is longer than 1 MiB"));
        }
        // Room is made for what comes, not for what is said to come.
        let mut content = Vec::new();
        match (&mut self.source).take(size).read_to_end(&mut content).await {
            Ok(length) if length as u64 == size => {}
            Ok(_) => return Err(ended_early()),
            Err(error) => return Err(Failure::io("read standard input", &error)),
        }
        self.pass(padding(size)).await?;
        Ok(content)
    }

    /// A name or target that did not fit.
    async fn text(&mut self, size: u64) -> Result<Vec<u8>> {
        let mut text = self.about(size).await?;
        text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
        Ok(text)
    }

    /// Passes over so many bytes.
    async fn pass(&mut self, bytes: u64) -> Result<()> {
        let passed = tokio::io::copy(&mut (&mut self.source).take(bytes), &mut tokio::io::sink()).await;
        match passed {
            Ok(passed) if passed == bytes => Ok(()),
            Ok(_) => Err(ended_early()),
            Err(error) => Err(Failure::io("read standard input", &error)),
        }
    }

    /// Takes what fills up the end of an archive.
    async fn finish(&mut self) -> Result<()> {
        let mut behind = (&mut self.source).take(MAX_BEHIND_BYTES);
        // All entries have come: what is behind does not matter any more.
        drop(tokio::io::copy(&mut behind, &mut tokio::io::sink()).await);
        Ok(())
    }
}

/// Returns how much content follows. Programs do not agree on whether what is no file can have some, and what one of them takes
/// for content is a header for another: such an archive shows each of its readers something else.
fn size_of(kind: EntryType, size: u64) -> Result<u64> {
    match kind {
        EntryType::GNUSparse => Err(broken("sparse files are not understood; make it without --sparse")),
        EntryType::Link
        | EntryType::Symlink
        | EntryType::Directory
        | EntryType::Char
        | EntryType::Block
        | EntryType::Fifo
            if size > 0 =>
        {
            Err(broken("what is no file has content"))
        }
        // Added up with what fills its last block, it would be a small number.
        _ if size.checked_next_multiple_of(BLOCK_BYTES as u64).is_none() => {
            Err(broken("a size that nothing can have"))
        }
        _ => Ok(size),
    }
}

/// A header whose sum is not right is none, and everything behind it would be taken for something else.
fn check(header: &Header) -> Result<()> {
    let bytes = header.as_bytes();
    let sum: u32 = bytes[..148].iter().chain(&bytes[156..]).map(|byte| u32::from(*byte)).sum();
    match header.cksum() {
        Ok(expected) if expected == sum + 8 * u32::from(b' ') => Ok(()),
        _ => Err(broken("a header without the right sum")),
    }
}

impl About {
    /// Reads records of the form `LENGTH KEY=VALUE\n`. The length counts, whatever the value holds.
    fn extend(&mut self, mut records: &[u8]) -> Result<()> {
        let bad = || broken("an extended header that cannot be read");
        while !records.is_empty() {
            let space = records.iter().position(|byte| *byte == b' ').ok_or_else(bad)?;
            let number = |bytes: &[u8]| -> Option<u64> {
                let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
                std::str::from_utf8(bytes).ok().filter(|_| digits)?.parse().ok()
            };
            let length =
                number(&records[..space]).and_then(|length| usize::try_from(length).ok()).ok_or_else(bad)?;
            let record = records
                .get(space + 1..length)
                .and_then(|record| record.strip_suffix(b"\n"))
                .ok_or_else(bad)?;
            records = &records[length..];
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(number(value).ok_or_else(bad)?),
                _ if key.starts_with(b"GNU.sparse.") => self.sparse = true,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The content of one entry.
struct Content<'a, R> {
    source: &'a mut R,
    left: u64,
    /// The archive has ended before the content.
    ended: bool,
}

impl<R: AsyncRead + Send + Unpin> AsyncRead for Content<'_, R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let most = usize::try_from(this.left).unwrap_or(usize::MAX).min(buf.remaining());
        if most == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        ready!(Pin::new(&mut *this.source).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        buf.advance(count);
        this.left -= count as u64;
        this.ended |= count == 0;
        Poll::Ready(Ok(()))
    }
}
