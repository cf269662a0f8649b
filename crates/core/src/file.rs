//! Paths and directory entries of a sandbox. Names are bytes.

use std::fmt;
use std::num::NonZeroUsize;

use crate::backend::SandboxId;
use crate::clip::format_size;
use crate::error::{Error, ErrorKind, Result, is_unprintable};

/// The longest path accepted, in bytes; what Linux takes, less its final NUL.
pub const MAX_PATH_BYTES: usize = 4095;

/// A path inside the sandbox: bytes, absolute or relative to the sandbox's working directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GuestPath(Vec<u8>);

impl GuestPath {
    /// Checks a path.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a NUL byte or more than [`MAX_PATH_BYTES`]; [`ErrorKind::NotFound`] for the
    /// empty path (BD-05).
    pub fn new(path: impl Into<Vec<u8>>) -> Result<Self> {
        let path = path.into();
        if path.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                "",
                "resolve the path",
                "the empty path does not exist",
            ));
        }
        if path.contains(&0) {
            return Err(Error::invalid("resolve the path", "a path cannot contain a NUL byte")
                .context("path", path.escape_ascii().to_string()));
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(Error::invalid(
                "resolve the path",
                format!("the path has {} bytes, at most {MAX_PATH_BYTES} are accepted", path.len()),
            ));
        }
        Ok(Self(path))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether the path starts at the root.
    #[must_use]
    pub fn is_absolute(&self) -> bool {
        self.0.first() == Some(&b'/')
    }
}

impl fmt::Display for GuestPath {
    /// Shows the path as valid text on one line: what is not printable is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(is_unprintable) => f.write_str(text),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

/// What a directory entry is. A symbolic link is one, whatever it points to (LD-09).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, not followed.
    Symlink,
    /// A device, FIFO or socket.
    Other,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The bare name: any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Size in bytes of a regular file, where the backend reports one.
    pub size_bytes: Option<u64>,
}

/// Which part of a directory to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// The most entries to return.
    pub max_entries: NonZeroUsize,
    /// Only names after this one in byte order; the last name of the previous page.
    pub after: Option<Vec<u8>>,
}

/// The size of a page where nobody says.
const DEFAULT_MAX_ENTRIES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

impl Default for ListRequest {
    fn default() -> Self {
        Self { max_entries: DEFAULT_MAX_ENTRIES, after: None }
    }
}

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The entries, in byte order of their names.
    pub entries: Vec<DirectoryEntry>,
    /// How many entries follow after the last one returned.
    pub remaining: u64,
}

impl Listing {
    /// Cuts the page that `request` asks for out of all entries of a directory, in whatever order they come. A name that comes twice, as
    /// when the directory changes meanwhile, is one entry.
    #[must_use]
    pub fn page(mut entries: Vec<DirectoryEntry>, request: &ListRequest) -> Self {
        if let Some(after) = &request.after {
            entries.retain(|entry| entry.name > *after);
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries.dedup_by(|one, other| one.name == other.name);
        let remaining = entries.len().saturating_sub(request.max_entries.get()) as u64;
        entries.truncate(request.max_entries.get());
        Self { entries, remaining }
    }
}

/// Builds the error of a file operation, with the facts `path` and `sandbox`. Every backend words it here, so that a
/// model meets the same sentence everywhere (ER-01, BD-03).
#[must_use]
pub fn file_error(
    kind: ErrorKind,
    backend: &str,
    operation: &'static str,
    sandbox: &SandboxId,
    path: &GuestPath,
) -> Error {
    let message = match &kind {
        ErrorKind::NotFound => "the path does not exist".to_owned(),
        ErrorKind::IsADirectory => "the path is a directory, not a file".to_owned(),
        ErrorKind::NotADirectory => "the path, or a part of it, is not a directory".to_owned(),
        ErrorKind::NotARegularFile => "the path is a device, FIFO or socket, not a regular file".to_owned(),
        ErrorKind::PermissionDenied => "permission denied inside the sandbox".to_owned(),
        ErrorKind::FileTooLarge { size_bytes, limit_bytes } => format!(
            "the file has at least {size_bytes} bytes ({}), over the limit of {limit_bytes} bytes ({})",
            format_size(*size_bytes),
            format_size(*limit_bytes)
        ),
        ErrorKind::StorageFull => "no space is left inside the sandbox".to_owned(),
        ErrorKind::SandboxLost => "the sandbox no longer exists".to_owned(),
        ErrorKind::DeadlineExceeded => "the operation did not end within its deadline".to_owned(),
        _ => "the operation failed".to_owned(),
    };
    let hint = match &kind {
        ErrorKind::IsADirectory => Some("list it with list_directory"),
        ErrorKind::FileTooLarge { .. } => Some("take a part of it with a shell command"),
        _ => None,
    };
    let error = Error::new(kind, backend, operation, message)
        .context("path", path.to_string())
        .context("sandbox", sandbox.as_str());
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}
