//! Files that go into the sandbox before the command.
//!
//! They are found and checked before there is a sandbox, and copied one at a time. A symbolic link inside a directory is copied
//! as the file it points to, but only when that lies in the same directory tree: a link in a project must not be able to
//! pick up a key from the person's home.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence::{
    Backend, CommandRequest, Ending, ErrorKind, GuestPath, Invocation, OutputLimit, SandboxId, Timeout,
};
use rustix::fs::{FileType, Mode, OFlags};

use crate::failure::{Failure, Result};
use crate::parse::Input;

/// The most files and empty directories; more than a sizeable repository has.
const MAX_FILES: usize = 50_000;
/// The most bytes of all files together (P63).
const MAX_TOTAL_BYTES: u64 = 4 << 30;
/// The most bytes of one file, which is held in memory while it is copied.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// How many paths a helper program gets at once; far below what an argument list takes.
const BATCH: usize = 200;
/// What the helper programs do takes no time; a sandbox that needs longer is broken.
const HELPER_TIMEOUT: Duration = Duration::from_secs(30);

/// Everything that goes into the sandbox.
#[derive(Debug)]
pub(super) struct Inputs {
    files: Vec<StagedFile>,
    /// Nothing is in them, so no file makes them.
    empty_directories: Vec<GuestPath>,
}

impl Inputs {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.empty_directories.is_empty()
    }
}

/// A regular file on its way into the sandbox.
#[derive(Debug)]
struct StagedFile {
    source: PathBuf,
    target: GuestPath,
    executable: bool,
}

/// Finds everything that is to be copied.
pub(super) fn collect(inputs: &[Input]) -> Result<Inputs> {
    let inputs_so_far = Inputs { files: Vec::new(), empty_directories: Vec::new() };
    let mut walk = Walk { inputs: inputs_so_far, total_bytes: 0 };
    for input in inputs {
        let meta = fs::metadata(&input.source).map_err(|error| unreadable(&input.source, &error))?;
        if meta.is_dir() {
            let root = fs::canonicalize(&input.source).map_err(|error| unreadable(&input.source, &error))?;
            walk.directory(&root, &root, &input.target)?;
        } else {
            walk.file(input.source.clone(), &meta, input.target.clone())?;
        }
    }
    Ok(walk.inputs)
}

struct Walk {
    inputs: Inputs,
    total_bytes: u64,
}

impl Walk {
    fn file(&mut self, source: PathBuf, meta: &fs::Metadata, target: GuestPath) -> Result<()> {
        if !meta.is_file() {
            return Err(Failure::new(format!(
                "--input {}: neither a regular file nor a directory",
                source.display()
            )));
        }
        if target.as_bytes().last() == Some(&b'/') {
            return Err(Failure::new(format!(
                "--input {}: the target {target} names a directory",
                source.display()
            ))
            .hint("give the name that the file gets"));
        }
        self.total_bytes = self.total_bytes.saturating_add(meta.len());
        let too_much = if meta.len() > MAX_FILE_BYTES {
            Some("the file is larger than 1 GiB")
        } else if self.total_bytes > MAX_TOTAL_BYTES {
            Some("the inputs are larger than 4 GiB together")
        } else {
            None
        };
        if let Some(why) = too_much {
            return Err(Failure::new(format!("--input {}: {why}", source.display())));
        }
        self.count(&source)?;
        let executable = meta.permissions().mode() & 0o111 != 0;
        self.inputs.files.push(StagedFile { source, target, executable });
        Ok(())
    }

    fn count(&self, source: &Path) -> Result<()> {
        if self.inputs.files.len() + self.inputs.empty_directories.len() < MAX_FILES {
            return Ok(());
        }
        Err(Failure::new(format!("--input {}: there are more than {MAX_FILES} files", source.display())))
    }

    fn directory(&mut self, root: &Path, directory: &Path, target: &GuestPath) -> Result<()> {
        let read = fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
        let mut entries =
            read.collect::<std::io::Result<Vec<_>>>().map_err(|error| unreadable(directory, &error))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        if entries.is_empty() {
            self.count(directory)?;
            self.inputs.empty_directories.push(target.clone());
        }
        for entry in entries {
            let path = entry.path();
            let target = join(target, entry.file_name().as_bytes())?;
            let kind = entry.file_type().map_err(|error| unreadable(&path, &error))?;
            if kind.is_dir() {
                self.directory(root, &path, &target)?;
            } else if kind.is_symlink() {
                self.link(root, &path, target)?;
            } else {
                let meta = entry.metadata().map_err(|error| unreadable(&path, &error))?;
                self.file(path, &meta, target)?;
            }
        }
        Ok(())
    }

    fn link(&mut self, root: &Path, path: &Path, target: GuestPath) -> Result<()> {
        let file = fs::canonicalize(path).map_err(|error| unreadable(path, &error))?;
        let meta = fs::metadata(&file).map_err(|error| unreadable(path, &error))?;
        if !file.starts_with(root) || !meta.is_file() {
            return Err(Failure::new(format!(
                "--input {}: the link leads to {}, which is not a file of the same directory",
                path.display(),
                file.display()
            ))
            .hint("copy what it points to by an --input of its own, or pipe an archive in"));
        }
        self.file(file, &meta, target)
    }
}

fn join(directory: &GuestPath, name: &[u8]) -> Result<GuestPath> {
    let mut path = directory.as_bytes().to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    GuestPath::new(path).map_err(Failure::from)
}

/// Copies everything into the sandbox.
pub(super) async fn stage(inputs: &Inputs, backend: &dyn Backend, sandbox: &SandboxId) -> Result<()> {
    for file in &inputs.files {
        let source = file.source.clone();
        // A file of the host can keep its reader waiting for ever, which this thread must not be.
        let content = tokio::task::spawn_blocking(move || read(&source))
            .await
            .map_err(|error| Failure::new(format!("--input {}: {error}", file.source.display())))??;
        backend
            .write_file(sandbox, &file.target, &content)
            .await
            .map_err(|error| not_written(file, error))?;
    }
    let directories: Vec<&GuestPath> = inputs.empty_directories.iter().collect();
    for batch in directories.chunks(BATCH) {
        help(&["/bin/mkdir", "-p"], batch, backend, sandbox)
            .await
            .map_err(|failure| failure.during("make the empty directories of the inputs"))?;
    }
    let executable: Vec<&GuestPath> =
        inputs.files.iter().filter(|file| file.executable).map(|file| &file.target).collect();
    for batch in executable.chunks(BATCH) {
        help(&["/bin/chmod", "+x"], batch, backend, sandbox)
            .await
            .map_err(|failure| failure.during("make the inputs executable"))?;
    }
    Ok(())
}

/// Says which input it was. What an agent can do about it helps nobody here.
fn not_written(file: &StagedFile, error: ringfence::Error) -> Failure {
    let what = format!("--input {}", file.source.display());
    if *error.kind() == ErrorKind::IsADirectory {
        let name = file.source.file_name().unwrap_or_default().display();
        return Failure::new(format!("{what}: the target {} is a directory in the sandbox", file.target))
            .with_kind(error.kind().name())
            .hint(format!("give the name that the file gets, such as {}/{name}", file.target));
    }
    Failure::from(error).during(&what)
}

/// Reads a regular file. What only looks like one, as some files of the kernel do, is not waited for.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    open_regular(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content))
        .map_err(|error| unreadable(path, &error))?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(Failure::new(format!("--input {}: the file is larger than 1 GiB", path.display())));
    }
    Ok(content)
}

fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    // It may have been replaced since it was found.
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file any more"));
    }
    Ok(File::from(file))
}

/// Runs a program of the sandbox on some paths. It is named by its own path, because the sandbox's `PATH` can be anything.
async fn help(
    program: &[&str],
    targets: &[&GuestPath],
    backend: &dyn Backend,
    sandbox: &SandboxId,
) -> Result<()> {
    let words = program.iter().chain(&["--"]).map(|word| word.as_bytes().to_vec());
    let arguments = words.chain(targets.iter().map(|target| target.as_bytes().to_vec())).collect();
    let request = CommandRequest::new(
        Invocation::Program(arguments),
        Timeout::new(HELPER_TIMEOUT)?,
        OutputLimit::new(4096)?,
    );
    let result = backend.run_command(sandbox, request).await?;
    if result.sandbox_lost {
        return Err(Failure::new("the sandbox was lost").with_kind(ErrorKind::SandboxLost.name()));
    }
    if result.ending != Ending::Exited(0) {
        return Err(Failure::new(String::from_utf8_lossy(&result.stderr.bytes).trim().to_owned()));
    }
    Ok(())
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("--input {}: {error}", path.display()))
}
