//! What the library and its helper say to each other: one message per packet, little-endian, version first where a
//! conversation starts. Both sides are always the same build (the helper is embedded), so there is one version.
//!
//! Compiled into both. The library treats everything that comes back as hostile: lengths are checked, unknown values refused.

/// The most bytes of a message sent inline; a larger one travels in a sealed memory file.
pub(crate) const INLINE_BYTES: usize = 48 << 10;

/// The most bytes of any message.
pub(crate) const MESSAGE_BYTES: usize = 8 << 20;

/// A message that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Appends values to a message.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        // Nothing longer than MESSAGE_BYTES is ever sent.
        self.u32(value.len() as u32);
        self.0.extend_from_slice(value);
    }

    fn list<T>(&mut self, values: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.u32(values.len() as u32);
        for value in values {
            each(self, value);
        }
    }
}

/// Takes values from a message.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

type Read<T> = Result<T, Malformed>;

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Read<u32> {
        self.take(4)?.try_into().map(u32::from_le_bytes).map_err(|_| Malformed)
    }

    fn u64(&mut self) -> Read<u64> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| Malformed)
    }

    fn bytes(&mut self) -> Read<Vec<u8>> {
        let length = self.u32()? as usize;
        self.take(length).map(<[u8]>::to_vec)
    }

    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.u32()? as usize;
        // Every element takes at least a byte, so a lying count cannot reserve memory.
        if count > self.0.len() {
            return Err(Malformed);
        }
        (0..count).map(|_| each(self)).collect()
    }

    fn end<T>(&self, value: T) -> Read<T> {
        if self.0.is_empty() { Ok(value) } else { Err(Malformed) }
    }
}

/// A message: one packet, or the content of one memory file.
pub(crate) trait Message: Sized {
    /// Appends the message.
    fn put(&self, writer: &mut Writer);

    /// Takes the message.
    fn get(reader: &mut Reader<'_>) -> Read<Self>;

    /// The bytes of the message.
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        self.put(&mut writer);
        writer.0
    }

    /// The message of exactly these bytes.
    fn decode(bytes: &[u8]) -> Read<Self> {
        let mut reader = Reader(bytes);
        let message = Self::get(&mut reader)?;
        reader.end(message)
    }
}

/// What the owner asks of the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LauncherRequest {
    /// Create a sandbox. Descriptor: the agent's end of the owner's socket, on which everything is answered.
    Create(Box<CreateRequest>),
    /// Destroy a sandbox. Descriptor: a socket on which one byte comes when nothing of it is left.
    Destroy {
        /// Which one.
        token: u64,
    },
}

/// A sandbox to create, every decision made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CreateRequest {
    /// Names the sandbox between owner and launcher.
    pub(crate) token: u64,
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
}

/// One thing in the root. Paths are relative to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ViewEntry {
    /// A directory of the root itself, read-only once the root is.
    Directory(Vec<u8>),
    /// A file of the root itself with this content.
    File(Vec<u8>, Vec<u8>),
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
}

impl Subject {
    const ALL: [Self; 7] =
        [Self::Sandbox, Self::Memory, Self::Cpus, Self::Pids, Self::Disk, Self::Network, Self::Workdir];

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
            _ => return Err(Malformed),
        })
    }
}

fn put_two(writer: &mut Writer, code: u8, first: &[u8], second: &[u8]) {
    writer.u8(code);
    writer.bytes(first);
    writer.bytes(second);
}

impl Message for LauncherRequest {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Create(request) => {
                writer.u8(0);
                writer.u64(request.token);
                writer.u32(request.uid);
                writer.bytes(&request.host_name);
                writer.list(&request.view, |writer, entry| entry.put(writer));
                writer.u64(request.disk_bytes);
                writer.u64(request.inodes);
                writer.bytes(&request.workdir);
                writer.list(&request.cgroup, |writer, step| step.put(writer));
                writer.u32(request.pid_max);
                writer.u32(request.user_processes);
                writer.u32(request.cpus);
                writer.bytes(&request.filter);
                writer.u64(request.lifetime_millis);
            }
            Self::Destroy { token } => {
                writer.u8(1);
                writer.u64(*token);
            }
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        match reader.u8()? {
            0 => Ok(Self::Create(Box::new(CreateRequest {
                token: reader.u64()?,
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
            }))),
            1 => Ok(Self::Destroy { token: reader.u64()? }),
            _ => Err(Malformed),
        }
    }
}

/// What comes back on the agent's socket after a create, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CreateReply {
    /// The sandbox takes requests.
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

/// What the owner asks of an agent. First descriptor: a socket for this request alone; its closing cancels the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentRequest {
    /// Run a command. Descriptors: standard output and error to write, the same two to read (drained once the owner has
    /// gone), and standard input if any. With a terminal: none.
    Run(RunRequest),
    /// Open a regular file for reading.
    Read {
        /// Relative to the working directory.
        path: Vec<u8>,
    },
    /// Replace a file.
    Write {
        /// Relative to the working directory.
        path: Vec<u8>,
        /// Exact size.
        size: u64,
        /// The content; if `None` it comes through a pipe, the second descriptor.
        content: Option<Vec<u8>>,
    },
    /// List a directory.
    List {
        /// Relative to the working directory.
        path: Vec<u8>,
    },
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RunRequest {
    /// Program and arguments. A program without a slash is looked up in `search`.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// Directories for the look-up.
    pub(crate) search: Vec<Vec<u8>>,
    /// `NAME=value` each.
    pub(crate) environment: Vec<Vec<u8>>,
    /// Current directory; empty for the sandbox's.
    pub(crate) workdir: Vec<u8>,
    /// Until the tree is ended; 0 is never.
    pub(crate) timeout_millis: u64,
    /// A terminal of this size (rows, columns) instead of pipes.
    pub(crate) terminal: Option<(u32, u32)>,
}

impl Message for AgentRequest {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Run(run) => {
                writer.u8(0);
                writer.list(&run.arguments, |writer, argument| writer.bytes(argument));
                writer.list(&run.search, |writer, directory| writer.bytes(directory));
                writer.list(&run.environment, |writer, variable| writer.bytes(variable));
                writer.bytes(&run.workdir);
                writer.u64(run.timeout_millis);
                writer.u8(u8::from(run.terminal.is_some()));
                let (rows, columns) = run.terminal.unwrap_or_default();
                writer.u32(rows);
                writer.u32(columns);
            }
            Self::Read { path } => {
                writer.u8(1);
                writer.bytes(path);
            }
            Self::Write { path, size, content } => {
                writer.u8(2);
                writer.bytes(path);
                writer.u64(*size);
                writer.u8(u8::from(content.is_some()));
                writer.bytes(content.as_deref().unwrap_or_default());
            }
            Self::List { path } => {
                writer.u8(3);
                writer.bytes(path);
            }
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.u8()? {
            0 => Self::Run(RunRequest {
                arguments: reader.list(Reader::bytes)?,
                search: reader.list(Reader::bytes)?,
                environment: reader.list(Reader::bytes)?,
                workdir: reader.bytes()?,
                timeout_millis: reader.u64()?,
                terminal: {
                    let present = reader.u8()? != 0;
                    let size = (reader.u32()?, reader.u32()?);
                    present.then_some(size)
                },
            }),
            1 => Self::Read { path: reader.bytes()? },
            2 => Self::Write {
                path: reader.bytes()?,
                size: reader.u64()?,
                content: {
                    let present = reader.u8()? != 0;
                    let content = reader.bytes()?;
                    present.then_some(content)
                },
            },
            3 => Self::List { path: reader.bytes()? },
            _ => return Err(Malformed),
        })
    }
}

/// What comes back on the socket of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The command exited.
    Exited(i32),
    /// A signal ended the command.
    Signalled(i32),
    /// The timeout passed; every descendant is gone.
    TimedOut,
    /// The timeout passed and the tree could not be ended.
    Unstoppable,
    /// The command was not started: the step and why.
    NotStarted(NotStarted, i32),
    /// The terminal's master. Descriptor: it.
    Terminal,
    /// The file is open. Descriptor: it.
    Opened {
        /// Size in bytes when opened.
        size: u64,
    },
    /// The file is written.
    Written,
    /// Some entries of the directory, in no order.
    Entries(Vec<Entry>),
    /// No more entries.
    EndOfEntries,
    /// The file operation failed.
    FileFailed(FileFault, i32),
}

/// Which step before the command's own code failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotStarted {
    /// No process could be made for it.
    Fork,
    /// The working directory could not be entered.
    Workdir,
    /// The program was found nowhere.
    NotFound,
    /// The program was found and could not be executed.
    Exec,
    /// No terminal could be opened.
    Terminal,
}

/// What kind of failure a file operation met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileFault {
    /// As the error number says.
    Errno,
    /// It is a directory.
    IsADirectory,
    /// It is neither file nor directory.
    NotRegular,
    /// The content ended before its announced size.
    Incomplete,
}

/// One directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The bare name.
    pub(crate) name: Vec<u8>,
    /// The type bits of its mode, as `stat` has them, shifted right by 12.
    pub(crate) kind: u8,
    /// Size in bytes.
    pub(crate) size: u64,
}

const NOT_STARTED: [NotStarted; 5] =
    [NotStarted::Fork, NotStarted::Workdir, NotStarted::NotFound, NotStarted::Exec, NotStarted::Terminal];
const FILE_FAULTS: [FileFault; 4] =
    [FileFault::Errno, FileFault::IsADirectory, FileFault::NotRegular, FileFault::Incomplete];

impl Message for Reply {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Exited(status) => put_code(writer, 0, *status),
            Self::Signalled(signal) => put_code(writer, 1, *signal),
            Self::TimedOut => writer.u8(2),
            Self::Unstoppable => writer.u8(3),
            Self::NotStarted(step, errno) => {
                writer.u8(4);
                writer.u8(*step as u8);
                writer.u32(errno.cast_unsigned());
            }
            Self::Terminal => writer.u8(5),
            Self::Opened { size } => {
                writer.u8(6);
                writer.u64(*size);
            }
            Self::Written => writer.u8(7),
            Self::Entries(entries) => {
                writer.u8(8);
                writer.list(entries, |writer, entry| {
                    writer.bytes(&entry.name);
                    writer.u8(entry.kind);
                    writer.u64(entry.size);
                });
            }
            Self::EndOfEntries => writer.u8(9),
            Self::FileFailed(fault, errno) => {
                writer.u8(10);
                writer.u8(*fault as u8);
                writer.u32(errno.cast_unsigned());
            }
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.u8()? {
            0 => Self::Exited(reader.u32()?.cast_signed()),
            1 => Self::Signalled(reader.u32()?.cast_signed()),
            2 => Self::TimedOut,
            3 => Self::Unstoppable,
            4 => Self::NotStarted(
                NOT_STARTED.get(usize::from(reader.u8()?)).copied().ok_or(Malformed)?,
                reader.u32()?.cast_signed(),
            ),
            5 => Self::Terminal,
            6 => Self::Opened { size: reader.u64()? },
            7 => Self::Written,
            8 => Self::Entries(reader.list(|reader| {
                Ok(Entry { name: reader.bytes()?, kind: reader.u8()?, size: reader.u64()? })
            })?),
            9 => Self::EndOfEntries,
            10 => Self::FileFailed(
                FILE_FAULTS.get(usize::from(reader.u8()?)).copied().ok_or(Malformed)?,
                reader.u32()?.cast_signed(),
            ),
            _ => return Err(Malformed),
        })
    }
}

fn put_code(writer: &mut Writer, code: u8, value: i32) {
    writer.u8(code);
    writer.u32(value.cast_unsigned());
}

#[cfg(test)]
mod tests;
