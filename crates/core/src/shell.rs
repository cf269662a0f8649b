//! File operations expressed as shell commands: what a backend inherits when it can only run commands.

use tokio::io::AsyncWrite;

use crate::backend::{Backend, SandboxId};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{GuestPath, ListRequest, Listing};

fn unwritten(backend: &(impl Backend + ?Sized)) -> Error {
    Error::new(ErrorKind::Unsupported, backend.name(), "use files over a shell", "not offered")
}

/// See [`Backend::read_file`].
///
/// # Errors
/// As [`Backend::read_file`].
pub async fn read_file<B: Backend + ?Sized>(
    backend: &B,
    _sandbox: &SandboxId,
    _path: &GuestPath,
    _limit_bytes: u64,
) -> Result<Vec<u8>> {
    Err(unwritten(backend))
}

/// See [`Backend::write_file`].
///
/// # Errors
/// As [`Backend::write_file`].
pub async fn write_file<B: Backend + ?Sized>(
    backend: &B,
    _sandbox: &SandboxId,
    _path: &GuestPath,
    _content: &[u8],
) -> Result<()> {
    Err(unwritten(backend))
}

/// See [`Backend::list_directory`].
///
/// # Errors
/// As [`Backend::list_directory`].
pub async fn list_directory<B: Backend + ?Sized>(
    backend: &B,
    _sandbox: &SandboxId,
    _path: &GuestPath,
    _request: ListRequest,
) -> Result<Listing> {
    Err(unwritten(backend))
}

/// See [`Backend::export_file`].
///
/// # Errors
/// As [`Backend::export_file`].
pub async fn export_file<B: Backend + ?Sized>(
    backend: &B,
    _sandbox: &SandboxId,
    _path: &GuestPath,
    _limit_bytes: u64,
    _sink: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<u64> {
    Err(unwritten(backend))
}
