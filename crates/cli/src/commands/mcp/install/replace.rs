//! A file replaced as a whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Replaces a file, or makes it and its folders. A link stays a link: what it points to is replaced. Permissions stay.
///
/// # Errors
/// Whatever keeps it from being written, or the file says something else than `before` by now. It is as it was then.
pub(super) fn replace(path: &Path, before: Option<&str>, after: &str) -> io::Result<()> {
    let target = match path.canonicalize() {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound && before.is_none() => path.to_owned(),
        Err(error) => return Err(error),
    };
    let folder = target.parent().ok_or_else(|| io::Error::other("it has no folder"))?;
    fs::create_dir_all(folder)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let temporary = folder.join(format!(".{name}.ringfence-{}", std::process::id()));
    let written = fill(&temporary, &target, before, after);
    if written.is_err() {
        // Of the two failures the first is the one to tell; the file may not even have been made.
        drop(fs::remove_file(&temporary));
    }
    written
}

fn fill(temporary: &Path, target: &Path, before: Option<&str>, after: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(temporary)?;
    if let Ok(meta) = fs::metadata(target) {
        file.set_permissions(meta.permissions())?;
    }
    file.write_all(after.as_bytes())?;
    file.sync_all()?;
    // A client that runs may have written it meanwhile.
    let now = match fs::read(target) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if now.as_deref() != before.map(str::as_bytes) {
        return Err(io::Error::other("it was changed by somebody else in this moment; try again"));
    }
    fs::rename(temporary, target)
}
