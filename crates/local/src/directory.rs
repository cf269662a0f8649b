//! Where sandboxes are found: a record and a socket for each, in a directory of this user's alone.
//!
//! Nothing in it is believed further than this user could lie to itself: a record only says which control groups a sandbox had and
//! which version of the protocol its launcher speaks. Whether that lives is told by the lock on the record, not by a number.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_core::{Error, ErrorKind, Leftover, Result, SandboxId, object_only};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::SCHEME;
use crate::audit::{Audit, Ends};
use crate::error::{DIRECTORY_REMEDY, lost, unexpected};
use crate::link::Connection;
use crate::processes::{self, Standing};
use crate::tidy::Left;
use crate::wire::{RECORD_SUFFIX, SOCKET_SUFFIX, VERSION};

/// More than this no record has.
const RECORD_BYTES: u64 = 64 << 10;

/// How long a connection is tried for that a busy launcher does not take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
const CONNECT_PAUSE: Duration = Duration::from_millis(5);

/// The form of records.
const RECORD_VERSION: u32 = 1;

/// What stands on a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct Record {
    /// Of this form.
    version: u32,
    /// The version of the protocol.
    wire: u8,
    /// The process, for whoever asks whether it was just killed. That it lives is told by the lock.
    launcher: u32,
    /// Directories to remove when the launcher could not.
    cgroups: Vec<PathBuf>,
}

object_only!(Record);

impl Record {
    /// The record of a sandbox of this build.
    pub(crate) fn new(launcher: u32, cgroups: Vec<PathBuf>) -> Self {
        Self { version: RECORD_VERSION, wire: VERSION, launcher, cgroups }
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Paths that are not text cannot be: those of control groups are made of text here.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a record; `None` for what is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|record: &Self| record.version == RECORD_VERSION)
    }
}

/// Whose a record is.
enum Claimed {
    /// Nobody's, and what belonged to it.
    Left(Vec<Leftover>),
    /// Somebody has its lock.
    Held(OwnedFd),
    /// It is none any more.
    Gone,
}

/// The directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
}

impl Directory {
    /// Opens it; `None` where it is missing: then there is no sandbox to be found.
    pub(crate) fn open(operation: &'static str, path: &Path) -> Result<Option<Self>> {
        absolute(operation, path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(unusable(operation, path, "open it", error.into())),
        };
        let stat =
            rustix::fs::fstat(&fd).map_err(|error| unusable(operation, path, "look at it", error.into()))?;
        let not_ours = |message: &str| {
            Error::new(ErrorKind::PermissionDenied, SCHEME, operation, message)
                .context("directory", path.display().to_string())
                .terminal()
        };
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            let message = "the directory of sandboxes is not this user's alone, so nothing in it is believed: it is another's";
            return Err(not_ours(message).context("user", stat.st_uid.to_string()).hint(OTHERS_REMEDY));
        }
        if stat.st_mode & 0o077 != 0 {
            let message = "the directory of sandboxes is not this user's alone, so nothing in it is believed: others may enter it";
            return Err(not_ours(message).context("mode", format!("{:o}", stat.st_mode & 0o7777)).hint(
                "remove it, or `chmod 700` it if nobody else can have put anything there; or choose another runtime_dir",
            ));
        }
        Ok(Some(Self { path: path.to_owned(), fd }))
    }

    /// Opens it, made where it is missing.
    pub(crate) fn make(operation: &'static str, path: &Path) -> Result<Self> {
        absolute(operation, path)?;
        in_our_own(operation, path)?;
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(unusable(operation, path, "create it", error));
            }
            _ => {}
        }
        Self::open(operation, path)?
            .ok_or_else(|| unusable(operation, path, "open it", io::ErrorKind::NotFound.into()))
    }

    /// Tries whether records can be put there, and leaves nothing. Returns whether it is there already; else it can be made.
    pub(crate) fn probe(operation: &'static str, path: &Path) -> Result<bool> {
        let found = Self::open(operation, path)?;
        let place = match &found {
            Some(_) => path,
            None => {
                in_our_own(operation, path)?;
                path.parent().unwrap_or(path)
            }
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(place, flags, Mode::RUSR | Mode::WUSR) {
            // A file system that has no files without names says nothing about others.
            Ok(_) | Err(Errno::OPNOTSUPP) => Ok(found.is_some()),
            Err(error) => {
                let what = if found.is_some() { "write to it" } else { "create it" };
                Err(unusable(operation, path, what, error.into()))
            }
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The sandboxes that have a record, in the order of their names.
    pub(crate) fn sandboxes(&self) -> io::Result<Vec<SandboxId>> {
        let mut names: Vec<SandboxId> = self
            .names()?
            .iter()
            .filter_map(|name| name.strip_suffix(RECORD_SUFFIX))
            .filter(|name| is_name(name))
            .filter_map(SandboxId::new)
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }

    /// Connects to the launcher of a sandbox.
    pub(crate) async fn connect(&self, operation: &'static str, sandbox: &SandboxId) -> Result<Connection> {
        let name = sandbox.as_str();
        if !is_name(name) {
            return Err(lost(operation, sandbox));
        }
        if let Some(record) = self.record(name)
            && record.wire != VERSION
        {
            return Err(Error::new(
                ErrorKind::Unsupported,
                SCHEME,
                operation,
                format!(
                    "the sandbox was made by another version of ringfence, which speaks protocol {} and not {VERSION}",
                    record.wire
                ),
            )
            .context("sandbox", name)
            .hint("use that version, or let the sandbox end with its lifetime")
            .terminal());
        }
        let connecting = async {
            loop {
                match self.try_connect(name) {
                    Err(Errno::AGAIN) => tokio::time::sleep(CONNECT_PAUSE).await,
                    other => return other,
                }
            }
        };
        match tokio::time::timeout(CONNECT_PATIENCE, connecting).await {
            Ok(Ok(socket)) => {
                let record = self.open_record(&format!("{name}{RECORD_SUFFIX}")).ok();
                Ok(Connection { socket, record })
            }
            Ok(Err(Errno::NOENT | Errno::CONNREFUSED)) => Err(lost(operation, sandbox)),
            Ok(Err(error)) => Err(unexpected(operation, "connect to the sandbox's launcher", error.into())),
            Err(_) => Err(unexpected(
                operation,
                "connect to the sandbox's launcher",
                io::ErrorKind::TimedOut.into(),
            )),
        }
    }

    fn try_connect(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // By descriptor, because a path can be longer than an address.
        let path = format!("/proc/self/fd/{}/{name}{SOCKET_SUFFIX}", self.fd.as_raw_fd());
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    }

    /// Whether somebody has the lock of its record: then the sandbox is there.
    pub(crate) fn is_held(&self, sandbox: &SandboxId) -> bool {
        let record = self.open_record(&format!("{}{RECORD_SUFFIX}", sandbox.as_str()));
        record.is_ok_and(|file| rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err())
    }

    /// The number of its launcher, where that says anything here: 0 is one of another pid namespace.
    pub(crate) fn launcher_of(&self, sandbox: &SandboxId) -> Option<u32> {
        self.record(sandbox.as_str()).map(|record| record.launcher).filter(|pid| *pid != 0)
    }

    fn record(&self, name: &str) -> Option<Record> {
        self.open_record(&format!("{name}{RECORD_SUFFIX}")).ok().and_then(|file| read_record(&file))
    }

    fn open_record(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name, flags, Mode::empty())
    }

    /// Finds what launchers that are gone left behind, and removes it unless `dry_run`. Of those that seem to live, at most so many
    /// are asked for whether they were just killed.
    ///
    /// Proved to be nobody's: a living launcher has the lock of its record from before that has its name. A socket without a record
    /// belongs to one that is just being made or going, unless nobody listens to it.
    pub(crate) fn leftovers(&self, dry_run: bool, mut ask: usize) -> io::Result<Left> {
        let mut found = Vec::new();
        let mut more_to_come = false;
        let names = self.names()?;
        let audit = Audit::of(&self.path);
        let mut ends = Ends::of(&audit);
        for name in &names {
            let begun = name.strip_prefix('.').filter(|name| is_name(name));
            let whole = name.strip_suffix(RECORD_SUFFIX).filter(|name| is_name(name));
            if let Some(id) = begun.or(whole).and_then(SandboxId::new) {
                match self.leftover_record(name, &id, (!dry_run).then_some(&mut ends)) {
                    Claimed::Left(left) => found.extend(left),
                    Claimed::Held(file) if ask > 0 && !more_to_come => {
                        ask -= 1;
                        let standing = read_record(&file).map(|record| processes::standing(record.launcher));
                        more_to_come = match standing {
                            Some(Standing::Ends) => true,
                            // Just now, or it is one of another pid namespace and still has the lock.
                            Some(Standing::Gone) => lock(&file).is_ok(),
                            Some(Standing::Lives) | None => false,
                        };
                    }
                    Claimed::Held(_) | Claimed::Gone => {}
                }
            }
        }
        for name in &names {
            let Some(sandbox) = name.strip_suffix(SOCKET_SUFFIX).filter(|name| is_name(name)) else {
                continue;
            };
            let has_record =
                [format!(".{sandbox}"), format!("{sandbox}{RECORD_SUFFIX}")].iter().any(|record| {
                    rustix::fs::statat(&self.fd, record.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
                });
            if let Some(id) = SandboxId::new(sandbox)
                && !has_record
                // Only then: each connection is one more that its launcher has to take.
                && matches!(self.try_connect(sandbox), Err(Errno::CONNREFUSED))
            {
                found.push(self.remove(name, &id, dry_run));
            }
        }
        Ok(Left { found, more_to_come })
    }

    /// Without the record of ends it is only looked for.
    fn leftover_record(&self, name: &str, id: &SandboxId, ends: Option<&mut Ends<'_>>) -> Claimed {
        let dry_run = ends.is_none();
        // Gone meanwhile, or no record at all: nothing of ours.
        let Ok(file) = self.open_record(name) else { return Claimed::Gone };
        if lock(&file).is_err() {
            return Claimed::Held(file);
        }
        // Locked, so nobody else tidies up the same; and it may have been renamed or removed before.
        let is_same = |stat: rustix::fs::Stat| {
            rustix::fs::fstat(&file).is_ok_and(|own| (own.st_dev, own.st_ino) == (stat.st_dev, stat.st_ino))
        };
        if !rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_same) {
            return Claimed::Gone;
        }
        let mut found = Vec::new();
        for cgroup in read_record(&file).map(|record| record.cgroups).unwrap_or_default() {
            if is_cgroup_of(&cgroup, id) && cgroup.exists() {
                let removed = (!dry_run).then(|| match fs::remove_dir(&cgroup) {
                    // Somebody else who tidies up was faster.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    done => done,
                });
                found.push(leftover(id, cgroup.display().to_string(), removed));
            }
        }
        // The record last: what could not be removed is found again by it.
        if found.iter().any(|left| left.fault.is_some()) {
            return Claimed::Left(found);
        }
        // Of a record that was only begun the launcher may live and, as it could not lock it, have begun another one, whose socket this
        // would be by now. If it does not live, nobody listens.
        let socket = format!("{}{SOCKET_SUFFIX}", id.as_str());
        if !name.starts_with('.')
            && rustix::fs::statat(&self.fd, socket.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
        {
            found.push(self.remove(&socket, id, dry_run));
        }
        // Its launcher cannot say it any more. A record that was only begun is of a sandbox that never was. Before the sandbox's own record
        // goes: whoever is killed in between leaves that to the next one, who sees that it has been said.
        if let Some(ends) = ends
            && !name.starts_with('.')
            && let Err(error) = ends.add(id, "launcher_gone")
        {
            tracing::warn!(sandbox = id.as_str(), "the audit record misses the end: {error}");
        }
        found.push(self.remove(name, id, dry_run));
        Claimed::Left(found)
    }

    fn remove(&self, name: &str, id: &SandboxId, dry_run: bool) -> Leftover {
        let removed = (!dry_run).then(|| match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other.map_err(io::Error::from),
        });
        leftover(id, self.path.join(name).display().to_string(), removed)
    }
}

fn lock(file: &OwnedFd) -> rustix::io::Result<()> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
}

fn leftover(id: &SandboxId, what: String, removed: Option<io::Result<()>>) -> Leftover {
    let fault = removed.as_ref().and_then(|result| result.as_ref().err()).map(ToString::to_string);
    Leftover { id: id.clone(), what, removed: matches!(removed, Some(Ok(()))), fault }
}

/// Whether the launcher of a record was killed and is there for a moment still.
pub(crate) fn was_killed(record: &OwnedFd) -> bool {
    read_record(record).is_some_and(|record| processes::standing(record.launcher) == Standing::Ends)
}

fn read_record(file: &OwnedFd) -> Option<Record> {
    let stat = rustix::fs::fstat(file).ok()?;
    let size = u64::try_from(stat.st_size).ok().filter(|size| *size <= RECORD_BYTES)?;
    let mut content = vec![0; usize::try_from(size).ok()?];
    let length = rustix::io::pread(file, content.as_mut_slice(), 0).ok()?;
    Record::decode(&content[..length])
}

/// Whether a control group is one that a sandbox of this name had: records are only ours, and still nothing else is removed by one.
fn is_cgroup_of(path: &Path, id: &SandboxId) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ours = name.starts_with(crate::cgroup::PREFIX) && name.ends_with(&format!("-{}", id.as_str()));
    ours && path.is_absolute()
        && fs::symlink_metadata(path)
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
}

/// Whether a sandbox of ours can have this name: it becomes part of paths.
fn is_name(name: &str) -> bool {
    name.strip_prefix("sb-").is_some_and(|rest| {
        !rest.is_empty() && rest.len() <= 64 && rest.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// The error of a directory in which something that has to be done cannot be done.
pub(crate) fn unusable(operation: &'static str, path: &Path, what: &'static str, error: io::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        SCHEME,
        operation,
        format!("the directory of sandboxes cannot be used: {what}"),
    )
    .context("directory", path.display().to_string())
    .hint(remedy(path, &error))
    .source(error)
    .terminal()
}

/// What to try. What a login makes is missing where nobody has logged in: in a service, a container, or after `su`.
fn remedy(path: &Path, error: &io::Error) -> String {
    let login = path.parent().filter(|parent| parent.starts_with("/run/user") && !parent.exists());
    match login {
        Some(login) if error.kind() == io::ErrorKind::NotFound => format!(
            "{DIRECTORY_REMEDY}; {} is made by a login of this user, and stays after `loginctl enable-linger`",
            login.display()
        ),
        _ => DIRECTORY_REMEDY.to_owned(),
    }
}

/// What to try where it is another user's: changing the owner would take it away from that one.
const OTHERS_REMEDY: &str = "XDG_RUNTIME_DIR may be left over from another user, as `sudo -E` and `su` without `-` keep it: unset it, or be the user \
     whose sandboxes these are, or choose another runtime_dir";

/// Two programs with other current directories would look in two places.
fn absolute(operation: &'static str, path: &Path) -> Result<()> {
    if path.is_absolute() {
        return Ok(());
    }
    let message = "the directory of sandboxes is not an absolute path";
    Err(Error::new(ErrorKind::InvalidArgument, SCHEME, operation, message)
        .context("directory", path.display().to_string())
        .hint("set XDG_RUNTIME_DIR, or runtime_dir of the local backend, to an absolute path, or unset it")
        .terminal())
}

/// What the kernel shows as the owner of what has none in this user namespace.
const NO_USER: u32 = 65534;

/// Root may write anywhere; what it made in the directory of another user would be in that one's way.
fn in_our_own(operation: &'static str, path: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let parent = path.parent().and_then(|parent| fs::metadata(parent).ok()).map(|meta| meta.uid());
    match parent.filter(|owner| ![0, NO_USER].contains(owner)) {
        None => Ok(()),
        Some(owner) => {
            let message = "the directory of sandboxes would lie in another user's";
            Err(Error::new(ErrorKind::PermissionDenied, SCHEME, operation, message)
                .context("directory", path.display().to_string())
                .context("user", owner.to_string())
                .hint(OTHERS_REMEDY)
                .terminal())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_become_paths() {
        assert!(is_name("sb-0123456789ab"));
        for other in ["", "sb-", "sb-../x", "sb-a/b", "x", "sb-g", "..", "sb-0 "] {
            assert!(!is_name(other), "{other}");
        }
    }

    #[test]
    fn p_117_a_begun_record_takes_no_socket_along_on_which_somebody_listens() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::make("test", &place.path().join("r")).unwrap();
        let make = |name: &str| {
            std::fs::write(directory.path().join(format!(".{name}")), "").unwrap();
            let flags = SocketFlags::CLOEXEC;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
            let address =
                SocketAddrUnix::new(directory.path().join(format!("{name}{SOCKET_SUFFIX}"))).unwrap();
            rustix::net::bind(&socket, &address).unwrap();
            rustix::net::listen(&socket, 1).unwrap();
            socket
        };
        // One begun anew in between, and one whose launcher is gone.
        let living = make("sb-01");
        drop(make("sb-02"));
        let left = directory.leftovers(false, 0).unwrap();
        assert!(left.found.iter().all(|left| left.removed), "{left:?}");
        let names: Vec<String> =
            directory.names().unwrap().into_iter().filter(|name| name.len() > 2).collect();
        assert_eq!(names, ["sb-01.sock"]);
        drop(living);
    }

    #[test]
    fn a_record_is_read_back_and_nothing_else_is_one() {
        let record = Record::new(7, vec!["/sys/fs/cgroup/pids/ringfence-1-2-4-sb-03".into()]);
        assert_eq!(Record::decode(&record.encode()), Some(record));
        for other in [&b""[..], b"{}", br#"{"version":2,"wire":1,"launcher":7,"cgroups":[]}"#, b"[1,1,7,[]]"]
        {
            assert_eq!(Record::decode(other), None, "{}", other.escape_ascii());
        }
    }
}
