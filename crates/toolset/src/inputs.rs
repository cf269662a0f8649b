//! Files and directories of this machine, or of the caller's memory, that go into a sandbox before anything runs in it.
//!
//! Content is read and written one file at a time, so that memory holds one of them. What a file operation cannot do, the sandbox's
//! own programs do to many paths at once. Nothing here walks a directory: what goes in is the caller's decision.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{
    Backend, CommandRequest, Ending, Error, ErrorKind, GuestPath, Invocation, OutputLimit, Result, SandboxId,
    Timeout,
};

/// The largest local file staged as an input, in bytes: it is held in memory while it is written.
pub const MAX_INPUT_BYTES: u64 = 1 << 30;

/// How many paths a helper program gets at once; far below what an argument list takes.
const BATCH: usize = 200;
/// What the helper programs do takes no time; a sandbox that needs longer is broken.
const HELPER_TIMEOUT: Duration = Duration::from_secs(30);
/// More than a helper program has to say about a full batch that matters.
const HELPER_OUTPUT_BYTES: usize = 4096;

/// Where an [`Input`] comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum InputSource {
    /// These bytes.
    Bytes(Bytes),
    /// A regular file of this machine of at most [`MAX_INPUT_BYTES`], read when the sandbox is provisioned.
    LocalFile(PathBuf),
    /// The same, but found in a directory and not named by anybody. Its path is canonical, and it is refused if a symbolic link is on
    /// it when it is read: a link put there since could lead to a key.
    FoundFile(PathBuf),
    /// Nothing: the destination is a directory with nothing in it.
    EmptyDirectory,
}

/// Shows sizes, not contents.
impl fmt::Debug for InputSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::LocalFile(path) => f.debug_tuple("LocalFile").field(path).finish(),
            Self::FoundFile(path) => f.debug_tuple("FoundFile").field(path).finish(),
            Self::EmptyDirectory => f.write_str("EmptyDirectory"),
        }
    }
}

/// A file, or an empty directory, put into a sandbox before the first call reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Where it comes from.
    pub source: InputSource,
    /// Where it goes; parent directories are created. Relative paths start at the working directory.
    pub destination: GuestPath,
    /// Whether the file is a program. A directory can be entered anyway.
    pub executable: bool,
}

/// Finds inputs at the time they are wanted. May block.
type Finder = Arc<dyn Fn() -> Result<Vec<Input>> + Send + Sync>;

/// What goes into every sandbox of a toolset.
#[derive(Clone, Default)]
pub(crate) struct InputList {
    pub(crate) fixed: Vec<Input>,
    pub(crate) finders: Vec<Finder>,
}

impl InputList {
    pub(crate) fn is_empty(&self) -> bool {
        self.fixed.is_empty() && self.finders.is_empty()
    }

    /// Returns what goes into a sandbox that is created now.
    pub(crate) async fn list(&self) -> Result<Vec<Input>> {
        let mut inputs = self.fixed.clone();
        for find in &self.finders {
            let find = Arc::clone(find);
            let found = tokio::task::spawn_blocking(move || find()).await;
            let ended = |_| {
                Error::new(
                    ErrorKind::Unexpected,
                    "",
                    "find the inputs",
                    "the search panicked, or the runtime ended",
                )
            };
            inputs.extend(found.map_err(ended)??);
        }
        Ok(inputs)
    }
}

impl fmt::Debug for InputList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputList").field("fixed", &self.fixed).field("finders", &self.finders.len()).finish()
    }
}

/// Puts inputs into a sandbox: the files in their order, then the empty directories, then the executable bits. The latter two are
/// made by the sandbox's own `/bin/mkdir` and `/bin/chmod`, which are run only where something needs them.
///
/// There is no limit on how long a file of this machine, which can lie on a network, takes to be read. Dropping the future leaves what
/// was staged until then.
///
/// # Errors
/// All are terminal, and what was staged before stays. A file that cannot be read, or is not a regular file of at most
/// [`MAX_INPUT_BYTES`], is [`ErrorKind::InvalidArgument`]; one that cannot be written is an error of the backend's kind, and has that
/// error as its cause. Both have the facts `source`, if it is a local file, and `destination`. Directories and executable bits are
/// staged many at a time: their error says which in the words of the program, and is [`ErrorKind::SandboxLost`] where the sandbox
/// went under it.
pub async fn stage(inputs: &[Input], backend: &dyn Backend, sandbox: &SandboxId) -> Result<()> {
    let mut directories = Vec::new();
    let mut executables = Vec::new();
    for input in inputs {
        let unreadable = |error: io::Error| {
            failed(input, ErrorKind::InvalidArgument, backend, "could not read it").source(error)
        };
        let content = match &input.source {
            InputSource::Bytes(bytes) => bytes.clone(),
            InputSource::LocalFile(path) => read(path, Links::Followed).await.map_err(unreadable)?,
            InputSource::FoundFile(path) => read(path, Links::Refused).await.map_err(unreadable)?,
            InputSource::EmptyDirectory => {
                directories.push(&input.destination);
                continue;
            }
        };
        backend.write_file(sandbox, &input.destination, &content).await.map_err(|error| {
            failed(input, error.kind().clone(), backend, "could not write it into the sandbox").source(error)
        })?;
        if input.executable {
            executables.push(&input.destination);
        }
    }
    for (helper, targets) in [(Helper::MakeDirectories, directories), (Helper::MakeExecutable, executables)] {
        for batch in targets.chunks(BATCH) {
            helper.run(batch, backend, sandbox).await?;
        }
    }
    Ok(())
}

fn failed(input: &Input, kind: ErrorKind, backend: &dyn Backend, message: &str) -> Error {
    let mut error = Error::new(kind, backend.name(), "stage an input", message);
    if let InputSource::LocalFile(path) | InputSource::FoundFile(path) = &input.source {
        error = error.context("source", path.display().to_string());
    }
    error.context("destination", input.destination.to_string()).terminal()
}

/// Reads a regular file of this machine. It can keep its reader waiting for ever, which no thread of the runtime must be.
async fn read(path: &Path, links: Links) -> io::Result<Bytes> {
    let path = path.to_owned();
    match tokio::task::spawn_blocking(move || read_regular(&path, links)).await {
        Ok(content) => content.map(Bytes::from),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Whether a path may lead through symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    Followed,
    Refused,
}

fn read_regular(path: &Path, links: Links) -> io::Result<Vec<u8>> {
    if links == Links::Refused && std::fs::canonicalize(path)? != path {
        return Err(io::Error::other("a symbolic link is on the path"));
    }
    // Opening can do something to what is no file, such as to a tape.
    check(&std::fs::metadata(path)?)?;
    let file = open(path)?;
    // It may have been replaced since.
    check(&file.metadata()?)?;
    let mut content = Vec::new();
    // What only looks like a file, as some of the kernel's do, can be endless.
    file.take(MAX_INPUT_BYTES + 1).read_to_end(&mut content)?;
    check_size(content.len() as u64)?;
    Ok(content)
}

fn check(metadata: &Metadata) -> io::Result<()> {
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    check_size(metadata.len())
}

fn check_size(bytes: u64) -> io::Result<()> {
    if bytes > MAX_INPUT_BYTES {
        return Err(io::Error::other("the file is larger than 1 GiB"));
    }
    Ok(())
}

/// Opens a file without waiting for the other end of what has become a FIFO.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;

        use rustix::fs::OFlags;
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    }
    options.open(path)
}

/// A program of the sandbox. It is named by its own path, because the sandbox's `PATH` can be anything.
#[derive(Debug, Clone, Copy)]
enum Helper {
    MakeDirectories,
    MakeExecutable,
}

impl Helper {
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::MakeDirectories => ["/bin/mkdir", "-p", "--"],
            Self::MakeExecutable => ["/bin/chmod", "+x", "--"],
        }
    }

    fn operation(self) -> &'static str {
        match self {
            Self::MakeDirectories => "make the empty directories of the inputs",
            Self::MakeExecutable => "make the inputs executable",
        }
    }

    async fn run(self, targets: &[&GuestPath], backend: &dyn Backend, sandbox: &SandboxId) -> Result<()> {
        let failed = |kind, message| Error::new(kind, backend.name(), self.operation(), message).terminal();
        let [program, ..] = self.words();
        let words = self.words().into_iter().map(str::as_bytes);
        let paths = targets.iter().map(|target| target.as_bytes());
        let request = CommandRequest::new(
            Invocation::Program(words.chain(paths).map(<[u8]>::to_vec).collect()),
            Timeout::new(HELPER_TIMEOUT)?,
            OutputLimit::new(HELPER_OUTPUT_BYTES)?,
        );
        let result = backend.run_command(sandbox, request).await.map_err(|error| {
            failed(error.kind().clone(), format!("could not run {program} in the sandbox")).source(error)
        })?;
        if result.sandbox_lost {
            return Err(failed(ErrorKind::SandboxLost, "the sandbox was lost".to_owned()));
        }
        if result.ending == Ending::Exited(0) {
            return Ok(());
        }
        let told = String::from_utf8_lossy(&result.stderr.bytes).trim().to_owned();
        let told = if told.is_empty() { format!("{program} {}", result.ending.name()) } else { told };
        Err(failed(ErrorKind::Unexpected, told))
    }
}
