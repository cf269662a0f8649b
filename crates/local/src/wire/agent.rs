//! Between owner and agent: commands and files.

use alloc::vec::Vec;

use super::background::{CommandAsk, Piece, Standing, StartRequest};
use super::codec::{Malformed, Message, Read, Reader, Writer};

/// A request and the fence of the claim under which it is made; 0 where it is made under none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fenced<T> {
    /// The fence.
    pub(crate) fence: u64,
    /// The request.
    pub(crate) request: T,
}

impl<T: Message> Message for Fenced<T> {
    fn put(&self, writer: &mut Writer) {
        writer.u64(self.fence);
        self.request.put(writer);
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Self { fence: reader.u64()?, request: T::get(reader)? })
    }
}

/// What the owner asks of an agent. First descriptor: a socket for this request alone; its closing cancels what has not been
/// answered, except where it is said to mean something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentRequest {
    /// From its creator, once it has left everything for others: the sandbox no longer ends with that. Not answered.
    Outlive,
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
    /// Replace a file as [`Self::Write`] does, and let it be executable.
    Import {
        /// Relative to the working directory.
        path: Vec<u8>,
        /// Exact size.
        size: u64,
        /// Whether it can be executed afterwards; if not, an existing file keeps its mode.
        executable: bool,
        /// The content; if `None` it comes through a pipe, the second descriptor.
        content: Option<Vec<u8>>,
    },
    /// Tell a tree, as events of [`TreeEvent`](super::TreeEvent) through a pipe, the second descriptor. Answered only if nothing
    /// can be told.
    Walk {
        /// Relative to the working directory.
        path: Vec<u8>,
        /// What lies deeper than this many directories is not wanted.
        max_depth: u32,
    },
    /// See what runs and what is stored.
    Look,
    /// Start a command that nobody waits for. Answered once; that the socket closes then means nothing.
    Start(StartRequest),
    /// Ask about a command that was started so. Answered by its shim, and by the agent once that is gone.
    About(u64, CommandAsk),
    /// Name all such commands that are known.
    Commands,
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
    /// Where it finds no room for its processes, everything else of the sandbox is ended first. Its start is answered then.
    pub(crate) make_room: bool,
}

impl Message for AgentRequest {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Run(run) => {
                writer.u8(0);
                run.put(writer);
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
            Self::Import { path, size, executable, content } => {
                writer.u8(4);
                writer.bytes(path);
                writer.u64(*size);
                writer.u8(u8::from(*executable));
                writer.u8(u8::from(content.is_some()));
                writer.bytes(content.as_deref().unwrap_or_default());
            }
            Self::Walk { path, max_depth } => {
                writer.u8(5);
                writer.bytes(path);
                writer.u32(*max_depth);
            }
            Self::Look => writer.u8(6),
            Self::Start(start) => {
                writer.u8(7);
                start.put(writer);
            }
            Self::About(command, ask) => {
                writer.u8(8);
                writer.u64(*command);
                ask.put(writer);
            }
            Self::Commands => writer.u8(9),
            Self::Outlive => writer.u8(10),
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.u8()? {
            0 => Self::Run(RunRequest::get(reader)?),
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
            4 => Self::Import {
                path: reader.bytes()?,
                size: reader.u64()?,
                executable: reader.u8()? != 0,
                content: {
                    let present = reader.u8()? != 0;
                    let content = reader.bytes()?;
                    present.then_some(content)
                },
            },
            5 => Self::Walk { path: reader.bytes()?, max_depth: reader.u32()? },
            6 => Self::Look,
            7 => Self::Start(StartRequest::get(reader)?),
            8 => Self::About(reader.u64()?, CommandAsk::get(reader)?),
            9 => Self::Commands,
            10 => Self::Outlive,
            _ => return Err(Malformed),
        })
    }
}

impl Message for RunRequest {
    fn put(&self, writer: &mut Writer) {
        writer.list(&self.arguments, |writer, argument| writer.bytes(argument));
        writer.list(&self.search, |writer, directory| writer.bytes(directory));
        writer.list(&self.environment, |writer, variable| writer.bytes(variable));
        writer.bytes(&self.workdir);
        writer.u64(self.timeout_millis);
        writer.u8(u8::from(self.terminal.is_some()));
        let (rows, columns) = self.terminal.unwrap_or_default();
        writer.u32(rows);
        writer.u32(columns);
        writer.u8(u8::from(self.make_room));
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Self {
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
            make_room: reader.u8()? != 0,
        })
    }
}

/// What comes back on the socket of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The command that may make room for itself has been started; whether everything else was ended for it.
    Started(bool),
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
    Opened,
    /// The file is written.
    Written,
    /// Some entries of the directory, in no order.
    Entries(Vec<Entry>),
    /// No more entries.
    EndOfEntries,
    /// The file operation failed.
    FileFailed(FileFault, i32),
    /// The claim under which it was asked is over.
    Fenced,
    /// Bytes stored. Processes follow, in no order, and the end.
    Stored(u64),
    /// Some processes.
    Processes(Vec<Seen>),
    /// No more processes.
    EndOfProcesses,
    /// The background command runs, under this number.
    Begun(u64),
    /// How a background command stands.
    Stands(Standing),
    /// What a background command wrote.
    Wrote(Piece),
    /// So many bytes went into its standard input.
    Took(u64),
    /// Its standard input is not open.
    NotOpen,
    /// It was signalled, or is gone with all its descendants.
    Done,
    /// No background command has this number, or it is not known any more.
    UnknownCommand,
    /// Too many wait for the same command already; nothing was done.
    Busy,
    /// The numbers of the background commands that are known.
    Commands(Vec<u64>),
}

/// A process of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its number.
    pub(crate) pid: u32,
    /// Its parent's number.
    pub(crate) parent: u32,
    /// Program and arguments, as far as they fit, each with its NUL.
    pub(crate) command: Vec<u8>,
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
    /// As many background commands run as are kept track of.
    TooMany,
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
    /// Size in bytes, where it may be known.
    pub(crate) size: Option<u64>,
}

pub(super) const NOT_STARTED: [NotStarted; 6] = [
    NotStarted::Fork,
    NotStarted::Workdir,
    NotStarted::NotFound,
    NotStarted::Exec,
    NotStarted::Terminal,
    NotStarted::TooMany,
];
pub(super) const FILE_FAULTS: [FileFault; 4] =
    [FileFault::Errno, FileFault::IsADirectory, FileFault::NotRegular, FileFault::Incomplete];

impl Message for Reply {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Started(made_room) => {
                writer.u8(11);
                writer.u8(u8::from(*made_room));
            }
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
            Self::Opened => writer.u8(6),
            Self::Written => writer.u8(7),
            Self::Entries(entries) => {
                writer.u8(8);
                writer.list(entries, |writer, entry| {
                    writer.bytes(&entry.name);
                    writer.u8(entry.kind);
                    writer.u8(u8::from(entry.size.is_some()));
                    writer.u64(entry.size.unwrap_or_default());
                });
            }
            Self::EndOfEntries => writer.u8(9),
            Self::FileFailed(fault, errno) => {
                writer.u8(10);
                writer.u8(*fault as u8);
                writer.u32(errno.cast_unsigned());
            }
            Self::Fenced => writer.u8(12),
            Self::Stored(bytes) => {
                writer.u8(13);
                writer.u64(*bytes);
            }
            Self::Processes(processes) => {
                writer.u8(14);
                writer.list(processes, |writer, process| {
                    writer.u32(process.pid);
                    writer.u32(process.parent);
                    writer.bytes(&process.command);
                });
            }
            Self::EndOfProcesses => writer.u8(15),
            Self::Begun(number) => {
                writer.u8(16);
                writer.u64(*number);
            }
            Self::Stands(standing) => {
                writer.u8(17);
                standing.put(writer);
            }
            Self::Wrote(piece) => {
                writer.u8(18);
                piece.put(writer);
            }
            Self::Took(bytes) => {
                writer.u8(19);
                writer.u64(*bytes);
            }
            Self::NotOpen => writer.u8(20),
            Self::Done => writer.u8(21),
            Self::UnknownCommand => writer.u8(22),
            Self::Busy => writer.u8(23),
            Self::Commands(numbers) => {
                writer.u8(24);
                writer.list(numbers, |writer, number| writer.u64(*number));
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
            6 => Self::Opened,
            7 => Self::Written,
            8 => Self::Entries(reader.list(|reader| {
                let (name, kind) = (reader.bytes()?, reader.u8()?);
                let known = reader.u8()? != 0;
                let size = reader.u64()?;
                Ok(Entry { name, kind, size: known.then_some(size) })
            })?),
            9 => Self::EndOfEntries,
            10 => Self::FileFailed(
                FILE_FAULTS.get(usize::from(reader.u8()?)).copied().ok_or(Malformed)?,
                reader.u32()?.cast_signed(),
            ),
            11 => Self::Started(reader.u8()? != 0),
            12 => Self::Fenced,
            13 => Self::Stored(reader.u64()?),
            14 => Self::Processes(reader.list(|reader| {
                Ok(Seen { pid: reader.u32()?, parent: reader.u32()?, command: reader.bytes()? })
            })?),
            15 => Self::EndOfProcesses,
            16 => Self::Begun(reader.u64()?),
            17 => Self::Stands(Standing::get(reader)?),
            18 => Self::Wrote(Piece::get(reader)?),
            19 => Self::Took(reader.u64()?),
            20 => Self::NotOpen,
            21 => Self::Done,
            22 => Self::UnknownCommand,
            23 => Self::Busy,
            24 => Self::Commands(reader.list(Reader::u64)?),
            _ => return Err(Malformed),
        })
    }
}

fn put_code(writer: &mut Writer, code: u8, value: i32) {
    writer.u8(code);
    writer.u32(value.cast_unsigned());
}
