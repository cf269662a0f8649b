//! Files that go into the sandbox before the command.
//!
//! They are found and checked before there is a sandbox, and copied one at a time. A symbolic link inside a directory is copied
//! as the file it points to, but only when that lies in the same directory tree: a link in a project must not be able to
//! pick up a key from the person's home.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence::{Backend, CommandRequest, Ending, GuestPath, Invocation, OutputLimit, SandboxId, Timeout};

use crate::failure::{Failure, Result};
use crate::host_file::unreadable;
use crate::parse::Input;

/// The most files; more than a sizeable repository has.
const MAX_FILES: usize = 50_000;
/// The most bytes of all files together (P63).
const MAX_TOTAL_BYTES: u64 = 4 << 30;
/// The most bytes of one file, which is held in memory while it is copied.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// How many files are made executable at once; far below what an argument list takes.
const CHMOD_BATCH: usize = 200;
/// Making files executable takes no time; a sandbox that needs longer is broken.
const CHMOD_TIMEOUT: Duration = Duration::from_secs(30);

/// A regular file on its way into the sandbox.
#[derive(Debug)]
pub(super) struct StagedFile {
    source: PathBuf,
    target: GuestPath,
    executable: bool,
}

/// Finds everything that is to be copied.
pub(super) fn collect(inputs: &[Input]) -> Result<Vec<StagedFile>> {
    let mut walk = Walk { files: Vec::new(), total_bytes: 0 };
    for input in inputs {
        let meta = fs::metadata(&input.source).map_err(|error| unreadable(&input.source, &error))?;
        if meta.is_dir() {
            let root = fs::canonicalize(&input.source).map_err(|error| unreadable(&input.source, &error))?;
            walk.directory(&root, &root, &input.target)?;
        } else {
            walk.file(input.source.clone(), &meta, input.target.clone())?;
        }
    }
    Ok(walk.files)
}

struct Walk {
    files: Vec<StagedFile>,
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
        } else if self.files.len() >= MAX_FILES {
            Some("there are more than 50000 files")
        } else {
            None
        };
        if let Some(why) = too_much {
            return Err(Failure::new(format!("--input {}: {why}", source.display())));
        }
        let executable = meta.permissions().mode() & 0o111 != 0;
        self.files.push(StagedFile { source, target, executable });
        Ok(())
    }

    fn directory(&mut self, root: &Path, directory: &Path, target: &GuestPath) -> Result<()> {
        let read = fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
        let mut entries =
            read.collect::<std::io::Result<Vec<_>>>().map_err(|error| unreadable(directory, &error))?;
        entries.sort_by_key(fs::DirEntry::file_name);
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

/// Copies the files into the sandbox.
pub(super) async fn stage(files: &[StagedFile], backend: &dyn Backend, sandbox: &SandboxId) -> Result<()> {
    for file in files {
        let content = read(&file.source)?;
        backend.write_file(sandbox, &file.target, &content).await?;
    }
    let executable: Vec<&StagedFile> = files.iter().filter(|file| file.executable).collect();
    for batch in executable.chunks(CHMOD_BATCH) {
        make_executable(batch, backend, sandbox).await?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content))
        .map_err(|error| unreadable(path, &error))?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(Failure::new(format!("--input {}: the file is larger than 1 GiB", path.display())));
    }
    Ok(content)
}

async fn make_executable(files: &[&StagedFile], backend: &dyn Backend, sandbox: &SandboxId) -> Result<()> {
    let mut program: Vec<Vec<u8>> = [&b"chmod"[..], b"+x", b"--"].map(<[u8]>::to_vec).to_vec();
    program.extend(files.iter().map(|file| file.target.as_bytes().to_vec()));
    let request = CommandRequest::new(
        Invocation::Program(program),
        Timeout::new(CHMOD_TIMEOUT)?,
        OutputLimit::new(4096)?,
    );
    let result = backend.run_command(sandbox, request).await?;
    if result.ending != Ending::Exited(0) {
        let why = String::from_utf8_lossy(&result.stderr.bytes).trim().to_owned();
        return Err(Failure::new(format!("make the inputs executable: {why}")));
    }
    Ok(())
}
