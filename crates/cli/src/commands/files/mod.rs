//! `ringfence read`, `write` and `ls`: single files and directories of a sandbox that stays.

pub(crate) mod ls;
pub(crate) mod read;
mod spool;
pub(crate) mod write;

use ringfence::{Error, ErrorKind, GuestPath, Handle};

use crate::commands::runtime;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::reached;
use crate::signals::Signals;

/// The largest file that is read or written where nobody says otherwise (P63).
const DEFAULT_LIMIT_BYTES: u64 = 1 << 30;

/// Drives an operation to its end, or to a signal. Dropped, it leaves nothing half done in the sandbox.
fn drive(operation: impl Future<Output = Result<u8>>) -> Result<u8> {
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let signals = Signals::new()?;
        tokio::select! {
            biased;
            signal = signals.next() => Ok(signal.status()),
            status = operation => status,
        }
    });
    // A thread blocked in a read of standard input is not waited for.
    runtime.shutdown_background();
    result
}

/// Says what went wrong. What the sandbox's files do not allow is told from a failure of ours by the status.
fn failed(handle: &Handle, path: &GuestPath, error: &Error) -> Failure {
    // An error that names no path is not about a file of the sandbox.
    if error.fact("path").is_none() {
        return reached::failed(handle, error);
    }
    let failure = Failure::from(error);
    let (status, hint) = match error.kind() {
        ErrorKind::IsADirectory => {
            (exit::NOT_ALLOWED, Some(format!("`ringfence ls`, or `ringfence cp {handle}:{path} .`")))
        }
        ErrorKind::FileTooLarge { size_bytes, .. } => (
            exit::NOT_ALLOWED,
            Some(format!("--limit {size_bytes}, or a part of it: `ringfence exec {handle} -- head`")),
        ),
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::NotARegularFile
        | ErrorKind::PermissionDenied
        | ErrorKind::StorageFull
        | ErrorKind::InvalidArgument => (exit::NOT_ALLOWED, None),
        _ => (exit::OURS, None),
    };
    let failure = failure.with_status(status);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
