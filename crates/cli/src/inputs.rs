//! Files that go into the sandbox before the command.
//!
//! They are found and checked before there is a sandbox, and staged by the toolset. A symbolic link inside a directory is
//! copied as the file it points to, but only when that lies in the same directory tree: a link in a project must not be able to
//! pick up a key from the person's home, also not when it takes a file's place after it was found.

use std::error::Error as StdError;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringfence::toolset::{self, Input, InputSource, MAX_INPUT_BYTES};
use ringfence::{Backend, Error, ErrorKind, GuestPath, SandboxId, Timeout};

use crate::exit;
use crate::failure::{Failure, Result};
use crate::parse;

/// The most files and empty directories; more than a sizeable repository has.
const MAX_FILES: usize = 50_000;
/// The most bytes of all files together (P63).
const MAX_TOTAL_BYTES: u64 = 4 << 30;

/// Finds everything that is to be copied.
pub(crate) fn collect(inputs: &[parse::Input]) -> Result<Vec<Input>> {
    let mut walk = Walk { inputs: Vec::new(), total_bytes: 0 };
    for input in inputs {
        let meta = fs::metadata(&input.source).map_err(|error| unreadable(&input.source, &error))?;
        if meta.is_dir() {
            let root = fs::canonicalize(&input.source).map_err(|error| unreadable(&input.source, &error))?;
            walk.directory(&root, &root, &input.target)?;
        } else {
            walk.file(InputSource::LocalFile, input.source.clone(), &meta, input.target.clone())?;
        }
    }
    Ok(walk.inputs)
}

/// Copies the inputs in. A source that never ends or answers is bounded by `timeout`.
pub(crate) async fn stage(
    inputs: &[Input],
    backend: &dyn Backend,
    sandbox: &SandboxId,
    timeout: Timeout,
) -> Result<()> {
    match tokio::time::timeout(timeout.get(), toolset::stage(inputs, backend, sandbox)).await {
        Ok(staged) => staged.map_err(|error| not_staged(&error)),
        Err(_) => {
            let timeout = humantime::format_duration(timeout.get());
            Err(Failure::new(format!("the inputs were not copied within {timeout}"))
                .with_kind("deadline_exceeded")
                .with_status(exit::TIMED_OUT))
        }
    }
}

struct Walk {
    inputs: Vec<Input>,
    total_bytes: u64,
}

impl Walk {
    fn file(
        &mut self,
        kind: fn(PathBuf) -> InputSource,
        source: PathBuf,
        meta: &fs::Metadata,
        target: GuestPath,
    ) -> Result<()> {
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
        let too_much = if meta.len() > MAX_INPUT_BYTES {
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
        self.inputs.push(Input { source: kind(source), destination: target, executable });
        Ok(())
    }

    fn count(&self, source: &Path) -> Result<()> {
        if self.inputs.len() < MAX_FILES {
            return Ok(());
        }
        Err(Failure::new(format!("--input {}: there are more than {MAX_FILES} files", source.display())))
    }

    fn directory(&mut self, root: &Path, directory: &Path, target: &GuestPath) -> Result<()> {
        let read = fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
        let mut entries =
            read.collect::<io::Result<Vec<_>>>().map_err(|error| unreadable(directory, &error))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        if entries.is_empty() {
            self.count(directory)?;
            self.inputs.push(Input {
                source: InputSource::EmptyDirectory,
                destination: target.clone(),
                executable: false,
            });
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
                self.file(InputSource::FoundFile, path, &meta, target)?;
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
        self.file(InputSource::FoundFile, file, &meta, target)
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

/// Says in words of the command line why inputs were not staged: which `--input`, and the cause. What an agent can do about it
/// helps nobody here.
fn not_staged(error: &Error) -> Failure {
    let source = error.fact("source");
    let what = source.map_or_else(|| error.operation().to_owned(), |source| format!("--input {source}"));
    if *error.kind() == ErrorKind::IsADirectory
        && let (Some(source), Some(target)) = (source, error.fact("destination"))
    {
        let name = Path::new(source).file_name().unwrap_or_default().display();
        return Failure::new(format!("{what}: the target {target} is a directory in the sandbox"))
            .with_kind(error.kind().name())
            .hint(format!("give the name that the file gets, such as {target}/{name}"));
    }
    let cause = StdError::source(error);
    let failure = match cause.and_then(|cause| cause.downcast_ref::<Error>()) {
        Some(refused) => Failure::from(refused),
        None => Failure::new(cause.map_or_else(|| error.message().to_owned(), ToString::to_string)),
    };
    let lost = *error.kind() == ErrorKind::SandboxLost;
    let failure = if lost { failure.with_kind(error.kind().name()) } else { failure };
    failure.during(&what)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("--input {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ringfence::memory::{Operation, RecordingBackend};
    use ringfence::{CommandResult, Ending, SandboxSpec};

    use super::*;

    /// Stages a program and an empty directory, and returns the failure: its text, its kind, and its hint.
    fn staged(
        source: &str,
        prepare: impl FnOnce(&RecordingBackend),
    ) -> (String, &'static str, Option<String>) {
        let backend = Arc::new(RecordingBackend::new());
        prepare(&backend);
        let input =
            |source, target| Input { source, destination: GuestPath::new(target).unwrap(), executable: true };
        let inputs =
            [input(InputSource::LocalFile(source.into()), "t"), input(InputSource::EmptyDirectory, "e")];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let failed = runtime.block_on(async {
            let sandbox = backend.create(&SandboxSpec::new()).await.unwrap().id;
            ringfence::toolset::stage(&inputs, &*backend, &sandbox).await.unwrap_err()
        });
        let failure = not_staged(&failed);
        (failure.to_string(), failure.kind(), failure.hint_text().map(str::to_owned))
    }

    #[test]
    fn s_37_only_what_the_person_named_may_become_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/plain"), "x").unwrap();
        std::os::unix::fs::symlink("plain", root.join("d/link")).unwrap();
        let input =
            |name: &str| parse::Input { source: root.join(name), target: GuestPath::new("t").unwrap() };
        let found = collect(&[input("d"), input("d/link")]).unwrap();
        let staged = |source, destination| Input {
            source,
            destination: GuestPath::new(destination).unwrap(),
            executable: false,
        };
        assert_eq!(
            found,
            [
                staged(InputSource::FoundFile(root.join("d/plain")), "t/link"),
                staged(InputSource::FoundFile(root.join("d/plain")), "t/plain"),
                staged(InputSource::LocalFile(root.join("d/link")), "t"),
            ]
        );
    }

    fn answer(ending: Ending, stderr: &'static str, sandbox_lost: bool) -> CommandResult {
        CommandResult { ending, sandbox_lost, ..CommandResult::exited(0, "", stderr) }
    }

    #[test]
    fn what_cannot_be_staged_is_told_in_words_of_the_command_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        fs::write(&file, "x").unwrap();
        let file = file.to_str().unwrap();
        let missing = staged("absent", |_| ());
        let told = "--input absent: No such file or directory (os error 2)";
        assert_eq!(missing, (told.to_owned(), "failed", None));
        let taken = staged(file, |backend| backend.seed_directory("t").unwrap());
        let told = format!("--input {file}: the target t is a directory in the sandbox");
        let hint = "give the name that the file gets, such as t/a".to_owned();
        assert_eq!(taken, (told, "is_a_directory", Some(hint)));
        let full = staged(file, |backend| {
            let error = Error::new(ErrorKind::StorageFull, "rec", "write the file", "no space left");
            backend.fail_once(Operation::Write, error.hint("raise the limit"));
        });
        let told = format!("--input {file}: rec: write the file: no space left");
        assert_eq!(full, (told, "storage_full", Some("raise the limit".to_owned())));
        let refused = staged(file, |backend| {
            backend.set_command_result(answer(Ending::Exited(1), "mkdir: no\n", false));
        });
        let told = "make the empty directories of the inputs: mkdir: no";
        assert_eq!(refused, (told.to_owned(), "failed", None));
        let lost = staged(file, |backend| {
            backend.set_command_result(answer(Ending::Unknown, "", true));
        });
        let told = "make the empty directories of the inputs: the sandbox was lost";
        assert_eq!(lost, (told.to_owned(), "sandbox_lost", None));
    }
}
