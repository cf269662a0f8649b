//! Between owner and launcher: a sandbox to make.

use alloc::string::String;
use alloc::vec::Vec;

use super::codec::{Malformed, Message, Read, Reader, Writer};

/// A sandbox to create, every decision made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CreateRequest {
    /// Names the sandbox; unlike any other.
    pub(crate) name: Vec<u8>,
    /// The one user and group id that exists inside.
    pub(crate) uid: u32,
    /// Host name inside.
    pub(crate) host_name: Vec<u8>,
    /// What the root contains, in order; parents come first.
    pub(crate) view: Vec<ViewEntry>,
    /// Bytes of all writable places together.
    pub(crate) disk_bytes: u64,
    /// Files and directories of all writable places together.
    pub(crate) inodes: u64,
    /// Where commands start; created and writable.
    pub(crate) workdir: Vec<u8>,
    /// Cgroup work, in order.
    pub(crate) cgroup: Vec<CgroupStep>,
    /// Highest process number of the pid namespace; 0 leaves it.
    pub(crate) pid_max: u32,
    /// Processes of the sandbox's user; 0 leaves it.
    pub(crate) user_processes: u32,
    /// Processors it may be scheduled on; 0 leaves all.
    pub(crate) cpus: u32,
    /// Seccomp filter.
    pub(crate) filter: Vec<u8>,
    /// Milliseconds until the launcher ends it; 0 is never.
    pub(crate) lifetime_millis: u64,
    /// Milliseconds without a request until the launcher ends it; 0 is never.
    pub(crate) idle_millis: u64,
    /// Whether both wait for the first renewal before they begin.
    pub(crate) parked: bool,
    /// How others find it, if they shall. Second descriptor of the request: what they get to read.
    pub(crate) listing: Option<Listing>,
}

/// How others find a sandbox: a record and a socket with its name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Listing {
    /// The directory: this user's, and closed to everybody else.
    pub(crate) directory: Vec<u8>,
    /// Content of the record, which is locked as long as the launcher lives.
    pub(crate) record: Vec<u8>,
    /// Whether the sandbox outlives its owner.
    pub(crate) kept: bool,
    /// The first tags; version 1.
    pub(crate) tags: Vec<u8>,
}

/// One thing in the root. Paths are relative to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ViewEntry {
    /// A directory of the root itself, read-only once the root is.
    Directory(Vec<u8>),
    /// A file of the root itself with this content.
    File(Vec<u8>, Vec<u8>),
    /// The content of a host file, as it is when the root is made: path, source.
    Copy(Vec<u8>, Vec<u8>),
    /// A symbolic link: path, target.
    Symlink(Vec<u8>, Vec<u8>),
    /// A host file or directory, read-only: path, source.
    Bind(Vec<u8>, Vec<u8>),
    /// A host device node: path, source.
    Device(Vec<u8>, Vec<u8>),
    /// A writable directory with these permission bits.
    Writable(Vec<u8>, u32),
}

/// Which field of the spec a failure is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// None in particular: no sandbox at all is possible like this.
    Sandbox,
    /// Memory limit.
    Memory,
    /// CPU limit.
    Cpus,
    /// Process limit.
    Pids,
    /// Disk limit.
    Disk,
    /// Network.
    Network,
    /// Working directory.
    Workdir,
    /// Namespaces, user namespaces first.
    Namespaces,
    /// The ids inside.
    Ids,
    /// The process file system.
    Proc,
    /// A host path that is shown.
    Shown,
    /// What every sandbox has in its own file system.
    OwnFiles,
    /// The record and the socket by which others find it.
    Listing,
}

impl Subject {
    pub(super) const ALL: [Self; 13] = [
        Self::Sandbox,
        Self::Memory,
        Self::Cpus,
        Self::Pids,
        Self::Disk,
        Self::Network,
        Self::Workdir,
        Self::Namespaces,
        Self::Ids,
        Self::Proc,
        Self::Shown,
        Self::OwnFiles,
        Self::Listing,
    ];

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Self::ALL.get(usize::from(reader.u8()?)).copied().ok_or(Malformed)
    }
}

/// One step of cgroup work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupStep {
    /// The limit it is for.
    pub(crate) subject: Subject,
    /// What to do.
    pub(crate) action: CgroupAction,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CgroupAction {
    /// Create a directory that may exist and stays.
    Ensure(Vec<u8>),
    /// Create a directory of this sandbox alone, removed with it.
    Own(Vec<u8>),
    /// Write a value into a file.
    Write(Vec<u8>, Vec<u8>),
    /// Write a value into a file that only some kernels have.
    WriteIfPresent(Vec<u8>, Vec<u8>),
    /// Put the sandbox into the directory by its pid before it goes on (v1).
    Attach(Vec<u8>),
    /// Clone the sandbox straight into the directory (v2).
    CloneInto(Vec<u8>),
}

impl CgroupStep {
    fn put(&self, writer: &mut Writer) {
        writer.u8(self.subject as u8);
        let (code, path, value) = match &self.action {
            CgroupAction::Ensure(path) => (0, path, None),
            CgroupAction::Own(path) => (1, path, None),
            CgroupAction::Write(path, value) => (2, path, Some(value)),
            CgroupAction::Attach(path) => (3, path, None),
            CgroupAction::CloneInto(path) => (4, path, None),
            CgroupAction::WriteIfPresent(path, value) => (5, path, Some(value)),
        };
        writer.u8(code);
        writer.bytes(path);
        if let Some(value) = value {
            writer.bytes(value);
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        let subject = Subject::get(reader)?;
        let code = reader.u8()?;
        let path = reader.bytes()?;
        let action = match code {
            0 => CgroupAction::Ensure(path),
            1 => CgroupAction::Own(path),
            2 => CgroupAction::Write(path, reader.bytes()?),
            3 => CgroupAction::Attach(path),
            4 => CgroupAction::CloneInto(path),
            5 => CgroupAction::WriteIfPresent(path, reader.bytes()?),
            _ => return Err(Malformed),
        };
        Ok(Self { subject, action })
    }
}

impl ViewEntry {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Directory(path) => {
                writer.u8(0);
                writer.bytes(path);
            }
            Self::File(path, content) => put_two(writer, 1, path, content),
            Self::Symlink(path, target) => put_two(writer, 2, path, target),
            Self::Bind(path, source) => put_two(writer, 3, path, source),
            Self::Device(path, source) => put_two(writer, 4, path, source),
            Self::Copy(path, source) => put_two(writer, 6, path, source),
            Self::Writable(path, mode) => {
                writer.u8(5);
                writer.bytes(path);
                writer.u32(*mode);
            }
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        let code = reader.u8()?;
        let path = reader.bytes()?;
        Ok(match code {
            0 => Self::Directory(path),
            1 => Self::File(path, reader.bytes()?),
            2 => Self::Symlink(path, reader.bytes()?),
            3 => Self::Bind(path, reader.bytes()?),
            4 => Self::Device(path, reader.bytes()?),
            5 => Self::Writable(path, reader.u32()?),
            6 => Self::Copy(path, reader.bytes()?),
            _ => return Err(Malformed),
        })
    }
}

fn put_two(writer: &mut Writer, code: u8, first: &[u8], second: &[u8]) {
    writer.u8(code);
    writer.bytes(first);
    writer.bytes(second);
}

impl Listing {
    fn put(&self, writer: &mut Writer) {
        writer.bytes(&self.directory);
        writer.bytes(&self.record);
        writer.u8(u8::from(self.kept));
        writer.bytes(&self.tags);
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Self {
            directory: reader.bytes()?,
            record: reader.bytes()?,
            kept: reader.u8()? != 0,
            tags: reader.bytes()?,
        })
    }
}

impl Message for CreateRequest {
    fn put(&self, writer: &mut Writer) {
        writer.bytes(&self.name);
        writer.u32(self.uid);
        writer.bytes(&self.host_name);
        writer.list(&self.view, |writer, entry| entry.put(writer));
        writer.u64(self.disk_bytes);
        writer.u64(self.inodes);
        writer.bytes(&self.workdir);
        writer.list(&self.cgroup, |writer, step| step.put(writer));
        writer.u32(self.pid_max);
        writer.u32(self.user_processes);
        writer.u32(self.cpus);
        writer.bytes(&self.filter);
        writer.u64(self.lifetime_millis);
        writer.u64(self.idle_millis);
        writer.u8(u8::from(self.parked));
        writer.list(self.listing.as_slice(), |writer, listing| listing.put(writer));
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Self {
            name: reader.bytes()?,
            uid: reader.u32()?,
            host_name: reader.bytes()?,
            view: reader.list(ViewEntry::get)?,
            disk_bytes: reader.u64()?,
            inodes: reader.u64()?,
            workdir: reader.bytes()?,
            cgroup: reader.list(CgroupStep::get)?,
            pid_max: reader.u32()?,
            user_processes: reader.u32()?,
            cpus: reader.u32()?,
            filter: reader.bytes()?,
            lifetime_millis: reader.u64()?,
            idle_millis: reader.u64()?,
            parked: reader.u8()? != 0,
            listing: reader.list(Listing::get)?.pop(),
        })
    }
}

/// What comes back on the agent's socket after a create, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CreateReply {
    /// The sandbox takes requests. Descriptor: its first process.
    Ready {
        /// Landlock ABI enforced; 0 where the kernel has none.
        landlock_abi: u32,
    },
    /// A step failed and nothing is left.
    Failed {
        /// The field of the spec it is about.
        subject: Subject,
        /// What was being done.
        step: String,
        /// Why it failed.
        errno: i32,
    },
}

impl Message for CreateReply {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Ready { landlock_abi } => {
                writer.u8(0);
                writer.u32(*landlock_abi);
            }
            Self::Failed { subject, step, errno } => {
                writer.u8(1);
                writer.u8(*subject as u8);
                writer.bytes(step.as_bytes());
                writer.u32(errno.cast_unsigned());
            }
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        match reader.u8()? {
            0 => Ok(Self::Ready { landlock_abi: reader.u32()? }),
            1 => Ok(Self::Failed {
                subject: Subject::get(reader)?,
                step: String::from_utf8_lossy(&reader.bytes()?).into_owned(),
                errno: reader.u32()?.cast_signed(),
            }),
            _ => Err(Malformed),
        }
    }
}
