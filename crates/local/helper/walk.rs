//! A walk through a tree inside the sandbox, told to the owner through a pipe. Others may change the tree meanwhile in any way:
//! every step goes from an open directory to a name in it, never over a link and never onto another mount, so there is no way out of
//! the tree (S37, S40).
//!
//! Runs in a process of its own. An owner that has heard enough closes its end, and the next write ends this process.

use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;

use crate::files::{self, Done, Fault};
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::walk::{Stamp, is_kept, open_entry, stamp};
use crate::sys::{Errno, Result, file};
use crate::wire::{FileFault, Message, TreeEvent, TreeSkip};

/// Read from directories at once. Each directory on the way keeps the names of one such part.
const NAMES_BYTES: usize = 8 << 10;

/// Read from files at once, and told at once.
const TOLD_BYTES: usize = 128 << 10;

/// Tells a tree. Only a failure before anything is told is answered on the channel.
pub(crate) fn tell(
    channel: BorrowedFd<'_>,
    pipe: BorrowedFd<'_>,
    workdir: BorrowedFd<'_>,
    path: &[u8],
    max_depth: u32,
) {
    match open_root(workdir, path) {
        // An owner that does not listen any more needs no answer.
        Ok(root) => drop(Teller::new(pipe).tree(root, max_depth as usize)),
        Err(fault) => files::answer(channel, Err(fault)),
    }
}

/// Opens a directory or a regular file. Links are followed here and nowhere else.
fn open_root(workdir: BorrowedFd<'_>, path: &[u8]) -> Done<OwnedFd> {
    let root = match files::open_regular(workdir, path) {
        Err(Fault(FileFault::IsADirectory, _)) => {
            file::open(Some(workdir), path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?
        }
        other => other?,
    };
    // The owner knows this number as that of the kernel's own files.
    if is_kept(root.as_fd())? { Ok(root) } else { Err(Errno(libc::EXDEV).into()) }
}

/// A directory on the way, with names of it that are still to be looked at.
struct Directory {
    fd: OwnedFd,
    names: Vec<(CString, u8)>,
}

/// What a name turned out to be.
enum Found {
    Open(OwnedFd, Stamp),
    Link(Vec<u8>),
    Not(TreeSkip),
    Gone,
}

struct Teller<'a> {
    pipe: BorrowedFd<'a>,
    /// What is to be told next, then room for what is read from files.
    buffer: Vec<u8>,
    names: Vec<u8>,
}

impl<'a> Teller<'a> {
    fn new(pipe: BorrowedFd<'a>) -> Self {
        Self { pipe, buffer: Vec::with_capacity(TOLD_BYTES), names: vec![0; NAMES_BYTES] }
    }

    fn tree(&mut self, root: OwnedFd, max_depth: usize) -> Result<()> {
        let mut way = Vec::new();
        let stamp = stamp(root.as_fd())?;
        self.found(&mut way, Vec::new(), Found::Open(root, stamp))?;
        // The owner refuses what is deeper; nothing after that is wanted.
        while way.len() <= max_depth
            && let Some(directory) = way.last_mut()
        {
            match directory.names.pop() {
                Some((name, kind)) => {
                    let found = look(directory.fd.as_fd(), &name, kind);
                    self.found(&mut way, name.into_bytes(), found)?;
                }
                None if self.read_names(directory)? => {}
                None => {
                    way.pop();
                    self.say(&TreeEvent::Leave)?;
                }
            }
        }
        self.say(&TreeEvent::End)?;
        self.flush()
    }

    /// Reads more names; false at the end. A directory that breaks off otherwise ends the walk, and its end is not told.
    fn read_names(&mut self, directory: &mut Directory) -> Result<bool> {
        let names = &mut directory.names;
        match file::read_directory(directory.fd.as_fd(), &mut self.names, |name, kind| {
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push((CString::from(name), kind));
            }
        }) {
            Ok(more) => Ok(more),
            // Removed while it was read.
            Err(Errno(libc::ENOENT)) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn found(&mut self, way: &mut Vec<Directory>, name: Vec<u8>, found: Found) -> Result<()> {
        match found {
            Found::Open(fd, stamp) if stamp.is(libc::S_IFDIR) => {
                way.push(Directory { fd, names: Vec::new() });
                self.say(&TreeEvent::Enter(name))
            }
            Found::Open(fd, stamp) if stamp.is(libc::S_IFREG) => self.file(&fd, name, stamp),
            Found::Open(..) => self.say(&TreeEvent::Skipped { name, why: TreeSkip::Special }),
            Found::Link(target) => self.say(&TreeEvent::Symlink { name, target }),
            Found::Not(why) => self.say(&TreeEvent::Skipped { name, why }),
            Found::Gone => Ok(()),
        }
    }

    /// Tells a file, and exactly as many bytes as were said, whatever happens to it meanwhile. The content is copied and not spliced:
    /// pages of the file itself could change after this looked at it for the last time and before the owner has read them.
    fn file(&mut self, fd: &OwnedFd, name: Vec<u8>, before: Stamp) -> Result<()> {
        // Set-user-id and the like are not told at all.
        let executable = before.mode & 0o111 != 0;
        self.say(&TreeEvent::File { name, executable, size: before.size })?;
        let mut left = before.size;
        let mut broken = None;
        while left > 0 {
            if self.buffer.len() >= TOLD_BYTES / 2 {
                self.flush()?;
            }
            let start = self.buffer.len();
            let room = left.min((TOLD_BYTES - start) as u64) as usize;
            self.buffer.resize(start + room, 0);
            let read =
                if broken.is_some() { Ok(0) } else { file::read(fd.as_fd(), &mut self.buffer[start..]) };
            let length = match read {
                // What is missing is made up, so that the owner finds what comes after it.
                Ok(0) => {
                    broken = broken.or(Some(TreeSkip::Changed));
                    room
                }
                Ok(length) => length,
                Err(_) => {
                    broken = Some(TreeSkip::Unreadable);
                    room
                }
            };
            self.buffer.truncate(start + length);
            left -= length as u64;
        }
        let broken = broken.or(match stamp(fd.as_fd()) {
            Ok(after) if after == before => None,
            _ => Some(TreeSkip::Changed),
        });
        self.say(&broken.map_or(TreeEvent::Whole, TreeEvent::Broken))
    }

    fn say(&mut self, event: &TreeEvent) -> Result<()> {
        let event = event.encode();
        if self.buffer.len() + event.len() + 2 > TOLD_BYTES {
            self.flush()?;
        }
        // A name and a target have less than 5 KiB together.
        self.buffer.extend_from_slice(&(event.len() as u16).to_le_bytes());
        self.buffer.extend_from_slice(&event);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let written = file::write_all(self.pipe, &self.buffer);
        self.buffer.clear();
        written
    }
}

/// Looks at a name that had a type when the directory was read.
fn look(directory: BorrowedFd<'_>, name: &CString, kind: u8) -> Found {
    // Opening can have an effect on what is neither file nor directory, and most of it cannot be opened.
    match kind {
        libc::DT_REG | libc::DT_DIR | libc::DT_UNKNOWN => {}
        libc::DT_LNK => return read_link(directory, name),
        _ => return Found::Not(TreeSkip::Special),
    }
    if kind == libc::DT_UNKNOWN {
        match file::metadata_of_name(directory, name) {
            Ok(metadata) if metadata.is(libc::S_IFLNK) => return read_link(directory, name),
            Ok(metadata) if metadata.is(libc::S_IFREG) || metadata.is(libc::S_IFDIR) => {}
            Ok(_) => return Found::Not(TreeSkip::Special),
            Err(errno) => return not(errno),
        }
    }
    match open_entry(directory, name.to_bytes()) {
        Ok(fd) => match stamp(fd.as_fd()) {
            Ok(stamp) => Found::Open(fd, stamp),
            Err(errno) => not(errno),
        },
        Err(Errno(libc::ELOOP)) => read_link(directory, name),
        Err(errno) => not(errno),
    }
}

fn read_link(directory: BorrowedFd<'_>, name: &CString) -> Found {
    match file::read_link(Some(directory), name.to_bytes()) {
        Ok(target) => Found::Link(target),
        // Another thing than a moment before; what it is now may be another thing in a moment.
        Err(Errno(libc::EINVAL)) => Found::Not(TreeSkip::Changed),
        Err(errno) => not(errno),
    }
}

fn not(errno: Errno) -> Found {
    match errno {
        Errno(libc::ENOENT) => Found::Gone,
        Errno(libc::EXDEV) => Found::Not(TreeSkip::Mount),
        // A socket that took a file's place.
        Errno(libc::ENXIO) => Found::Not(TreeSkip::Special),
        _ => Found::Not(TreeSkip::Unreadable),
    }
}
