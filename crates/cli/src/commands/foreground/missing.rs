//! What to say where a program of the host was not found in the sandbox.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence::{CommandResult, DEFAULT_SCHEME, Ending};

use super::Job;
use crate::commands::place::Place;
use crate::environment::Environment;
use crate::exit;

/// How much of the output has to be kept to see that the program was not found: a path and some words.
pub(super) const SEEN_BYTES: usize = 8 << 10;

/// What the local backend shows of the host.
const SHOWN: &str = "/usr";

/// Returns the advice if the program was not found inside and may well be there outside.
pub(super) fn advice(job: &Job, result: &CommandResult) -> Option<&'static str> {
    if job.backend.name() != DEFAULT_SCHEME
        || result.ending != Ending::Exited(exit::NOT_FOUND.into())
        || result.stdout.total_bytes != 0
        || result.stderr.truncated
    {
        return None;
    }
    // A program that ran and ended with this status, as a shell does, has said something else.
    let said = String::from_utf8_lossy(&result.stderr.bytes);
    let line = said.strip_prefix("ringfence: ")?.strip_suffix('\n')?;
    if line.contains('\n') || !line.contains(": not found in the sandbox") {
        return None;
    }
    let program = Path::new(OsStr::from_bytes(job.program.first()?));
    (program.as_os_str().as_bytes().contains(&b'/') || program.is_file() || is_elsewhere_in_path(program))
        .then_some(match &job.place {
            Place::Fresh(_) => {
                "only the host's /usr is visible inside; bring files in with --input, or show a directory with \
                 backends.local.read_only_paths"
            }
            Place::Standing(_) => {
                "only the host's /usr is visible inside; bring files in with `ringfence cp`, or create the sandbox with \
                 backends.local.read_only_paths"
            }
        })
}

/// Whether the caller would start it, from a place that the sandbox does not have.
fn is_elsewhere_in_path(program: &Path) -> bool {
    let Some(path) = Environment::foreign("PATH") else { return false };
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .filter_map(|folder| folder.join(program).canonicalize().ok())
        .any(|file| file.is_file() && !file.starts_with(SHOWN))
}
