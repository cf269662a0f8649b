//! How others find a sandbox: a locked record and a socket, both with its name, in a directory of this user's alone.
//!
//! The lock is the proof of life: nobody else can have it, and the kernel takes it from a launcher that is gone. So nobody has to
//! believe a process number.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::setup::Failure;
use crate::sys::fd::OwnedFd;
use crate::sys::{Errno, file, process, socket};
use crate::wire::{self, Subject};

/// Permission bits of others than the owner.
const OTHERS: u32 = 0o077;

/// A sandbox's place in the directory.
#[derive(Debug)]
pub(crate) struct Listing {
    directory: OwnedFd,
    name: String,
    /// Open, because that holds the lock.
    _record: OwnedFd,
    /// Where clients come.
    pub(crate) listener: OwnedFd,
    /// What the creator left for them.
    pub(crate) note: OwnedFd,
    /// Whether it outlives the owner.
    pub(crate) kept: bool,
    /// Version of the tags.
    pub(crate) version: u64,
    /// The tags.
    pub(crate) tags: Vec<u8>,
    /// The fence of the claim that stands; 0 is nobody's.
    pub(crate) fence: u64,
}

impl Listing {
    /// Makes record and socket.
    pub(crate) fn publish(request: &wire::Listing, name: &[u8], note: OwnedFd) -> Result<Self, Failure> {
        let mut note = Some(note);
        for _ in 1..ATTEMPTS {
            match Self::try_publish(request, name, &mut note) {
                Err(failure) if is_tidied(&failure.errno) => {}
                done => return done,
            }
        }
        Self::try_publish(request, name, &mut note)
    }

    fn try_publish(
        request: &wire::Listing,
        name: &[u8],
        note: &mut Option<OwnedFd>,
    ) -> Result<Self, Failure> {
        let at = |step: &'static str| {
            move |errno| Failure { subject: Subject::Listing, step: step.to_owned(), errno }
        };
        let name = String::from_utf8_lossy(name).into_owned();
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let directory = file::open(None, &request.directory, flags, 0).map_err(at("open the directory"))?;
        let found = file::metadata(directory.as_fd()).map_err(at("look at the directory"))?;
        if found.uid != process::effective_ids().0 || found.mode & OTHERS != 0 {
            return Err(at("trust the directory: it is not this user's alone")(Errno(libc::EPERM)));
        }
        // Under a name of its own until it is locked and whole: whoever sees the record can take it for what it is.
        let begun = format!(".{name}");
        let record = file::open(
            Some(directory.as_fd()),
            begun.as_bytes(),
            libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL,
            0o600,
        )
        .map_err(at("create the record"))?;
        let made = Self::fill(request, &directory, &begun, &name, &record);
        let made = made.and_then(|listener| {
            let missing = || ("take the creator's note", Errno(libc::EBADMSG));
            note.take().map(|note| (listener, note)).ok_or_else(missing)
        });
        match made {
            Ok((listener, note)) => Ok(Self {
                directory,
                name,
                _record: record,
                listener,
                note,
                kept: request.kept,
                version: 1,
                tags: request.tags.clone(),
                fence: 0,
            }),
            Err((step, errno)) => {
                for left in [begun, socket_name(&name), record_name(&name)] {
                    // What was not made yet is not there.
                    drop(file::unlink(directory.as_fd(), left.as_bytes()));
                }
                Err(at(step)(errno))
            }
        }
    }

    fn fill(
        request: &wire::Listing,
        directory: &OwnedFd,
        begun: &str,
        name: &str,
        record: &OwnedFd,
    ) -> Result<OwnedFd, (&'static str, Errno)> {
        file::lock(record.as_fd()).map_err(|errno| ("lock the record", errno))?;
        file::write_all(record.as_fd(), &request.record).map_err(|errno| ("write the record", errno))?;
        // By descriptor, because a path can be longer than an address.
        let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), socket_name(name));
        let listener = socket::listen(path.as_bytes()).map_err(|errno| ("create the socket", errno))?;
        file::rename(directory.as_fd(), begun.as_bytes(), record_name(name).as_bytes())
            .map_err(|errno| ("name the record", errno))?;
        Ok(listener)
    }

    /// Removes record and socket.
    pub(crate) fn withdraw(self) {
        for name in [socket_name(&self.name), record_name(&self.name)] {
            // Somebody may have tidied up already.
            drop(file::unlink(self.directory.as_fd(), name.as_bytes()));
        }
    }

    /// Adds the sandbox's end to the audit record, which is there if its creator began one.
    pub(crate) fn note_end(&self, reason: &str) {
        // Not blocking, should it be something else than a file.
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let Ok(audit) = file::open(Some(self.directory.as_fd()), wire::AUDIT_FILE, flags, 0) else { return };
        let line = format!(
            "{{\"at_millis\":{},\"sandbox\":\"{}\",\"event\":\"ended\",\"reason\":\"{reason}\"}}\n",
            process::unix_millis(),
            self.name
        );
        // One write, so that lines of several processes do not mix. There is nobody to tell of a disk that is full.
        drop(file::write_all(audit.as_fd(), line.as_bytes()));
    }
}

/// Whether somebody who tidied up took a record that was not locked yet for one of a launcher that is gone.
fn is_tidied(errno: &Errno) -> bool {
    matches!(errno, Errno(libc::ENOENT | libc::EAGAIN))
}

/// How often that is put up with: it needs another process between two calls of this one.
const ATTEMPTS: u32 = 5;

fn record_name(name: &str) -> String {
    format!("{name}{}", wire::RECORD_SUFFIX)
}

fn socket_name(name: &str) -> String {
    format!("{name}{}", wire::SOCKET_SUFFIX)
}
