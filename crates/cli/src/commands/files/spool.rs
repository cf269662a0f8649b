//! Standard input with its size, which has to be known before the first byte goes into a sandbox.

use std::io::{self, Read, Seek, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::exit;
use crate::failure::{Failure, Result};
use crate::shown;
use crate::stdin::StdinReader;

/// Up to this size a pipe is held in memory.
const IN_MEMORY_BYTES: usize = 8 << 20;
/// What is read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// An input and its size.
pub(super) struct Measured {
    pub(super) bytes: u64,
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
}

/// Takes standard input: a regular file as it is now, from where it stands; anything else to its end.
pub(super) async fn stdin(limit_bytes: u64) -> Result<Measured> {
    if let Some(bytes) = rest_of_regular_file() {
        if bytes > limit_bytes {
            return Err(too_large(limit_bytes));
        }
        // One that grows meanwhile is not waited for, and one that shrinks is no longer what it was: that fails.
        return Ok(Measured { bytes, reader: Box::new(StdinReader::default().take(bytes)) });
    }
    spool(StdinReader::default(), limit_bytes).await
}

fn rest_of_regular_file() -> Option<u64> {
    let stdin = rustix::stdio::stdin();
    let stat = rustix::fs::fstat(stdin).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let size = u64::try_from(stat.st_size).ok()?;
    Some(size.saturating_sub(rustix::fs::tell(stdin).ok()?))
}

/// Reads to the end, into memory and then onto the disk.
async fn spool(mut input: impl AsyncRead + Unpin, limit_bytes: u64) -> Result<Measured> {
    let fault = |what: &'static str| move |error: io::Error| Failure::io(what, &error);
    let mut file = tempfile::spooled_tempfile(IN_MEMORY_BYTES);
    let mut bytes = 0;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = input.read(&mut chunk).await.map_err(fault("read standard input"))?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
        if bytes > limit_bytes {
            return Err(too_large(limit_bytes));
        }
        file.write_all(&chunk[..count])
            .map_err(fault("hold standard input in the folder for temporary files"))?;
    }
    file.rewind().map_err(fault("read again what was on standard input"))?;
    Ok(Measured { bytes, reader: Box::new(Blocking(file)) })
}

fn too_large(limit_bytes: u64) -> Failure {
    Failure::new(format!("standard input is larger than {}", shown::bytes(limit_bytes)))
        .with_kind("file_too_large")
        .with_status(exit::NOT_ALLOWED)
        .hint("--limit, with a larger SIZE")
}

/// Memory, or a file of our own: neither makes anybody wait for long.
struct Blocking<R>(R);

impl<R: Read + Unpin> AsyncRead for Blocking<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.0.read(buffer.initialize_unfilled())?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_spooled_comes_back_whole_in_memory_and_from_the_disk() {
        for length in [0, 1, IN_MEMORY_BYTES, IN_MEMORY_BYTES + 1, 3 * IN_MEMORY_BYTES] {
            let content: Vec<u8> = (0..length).map(|index| index.to_le_bytes()[1]).collect();
            let mut spooled = spool(&content[..], length as u64).await.ok().unwrap();
            let mut back = Vec::new();
            spooled.reader.read_to_end(&mut back).await.unwrap();
            assert!(spooled.bytes == length as u64 && back == content, "{length}");
        }
    }

    #[tokio::test]
    async fn p_63_an_input_that_never_ends_is_given_up_at_the_limit() {
        let failure = spool(tokio::io::repeat(b'x'), 1 << 20).await.err().unwrap();
        let told = ("standard input is larger than 1MiB".to_owned(), "file_too_large", exit::NOT_ALLOWED);
        assert_eq!((failure.to_string(), failure.kind(), failure.status()), told);
        assert!(spool(&[0; 5][..], 5).await.is_ok() && spool(&[0; 6][..], 5).await.is_err());
    }
}
