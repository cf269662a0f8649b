//! Bounded reading of files of the host.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ringfence::clip::format_size;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::failure::{Failure, Result};

/// The largest settings, spec or variables file that is read.
pub(crate) const TEXT_LIMIT_BYTES: u64 = 1 << 20;

/// Reads a text that the person named; a pipe such as the shell's `<(..)` is fine.
pub(crate) fn read_named_text(path: &Path) -> Result<String> {
    File::open(path)
        .and_then(|file| read_text(file, TEXT_LIMIT_BYTES))
        .map_err(|error| unreadable(path, &error))
}

/// Reads a text that is looked for at a fixed place; `None` if there is nothing. Only a regular file counts and opening
/// never blocks, because a project could have put a FIFO there.
pub(crate) fn read_text_if_present(path: &Path) -> Result<Option<String>> {
    read_text_up_to(path, TEXT_LIMIT_BYTES)
}

/// Reads a text as [`read_text_if_present`] does, with another limit.
pub(crate) fn read_text_up_to(path: &Path, limit_bytes: u64) -> Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        // A folder that cannot even be searched, as HOME after a change of user, holds nothing of this user's. A
        // file that is there and cannot be read is another matter: it may hold ceilings.
        Err(Errno::ACCESS) if matches!(rustix::fs::stat(path), Err(Errno::ACCESS)) => return Ok(None),
        Err(error) => return Err(unreadable(path, &error.into())),
    };
    let stat = rustix::fs::fstat(&fd).map_err(|error| unreadable(path, &error.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Failure::new(format!("{} is not a regular file", path.display())));
    }
    read_text(File::from(fd), limit_bytes).map(Some).map_err(|error| unreadable(path, &error))
}

fn read_text(file: File, limit_bytes: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(limit_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        let limit = format_size(limit_bytes);
        return Err(io::Error::other(format!("more than {limit}, which no such file needs")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8"))
}

/// Returns the failure to read a file.
fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("read {}: {error}", path.display()))
}
