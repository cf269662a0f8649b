//! The files of one sandbox of the recording backend.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::ErrorKind;
use crate::file::{DirectoryEntry, EntryKind, GuestPath};
use crate::memory::DEFAULT_WORKDIR;

/// Files and directories by absolute path without `.`, `..` and doubled slashes; the root is the empty path.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    workdir: Vec<u8>,
    files: BTreeMap<Vec<u8>, Vec<u8>>,
    directories: BTreeSet<Vec<u8>>,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            workdir: DEFAULT_WORKDIR.into(),
            files: BTreeMap::new(),
            directories: [Vec::new(), DEFAULT_WORKDIR.into()].into(),
        }
    }
}

impl Tree {
    /// Makes relative paths start at `path`, which is created.
    pub(super) fn set_workdir(&mut self, path: &GuestPath) -> Result<(), ErrorKind> {
        self.create_directory(path)?;
        self.workdir = self.resolve(path);
        Ok(())
    }

    /// Returns where relative paths start.
    pub(super) fn workdir(&self) -> String {
        String::from_utf8_lossy(&self.workdir).into_owned()
    }

    fn resolve(&self, path: &GuestPath) -> Vec<u8> {
        let start: &[u8] = if path.is_absolute() { b"" } else { &self.workdir };
        let mut resolved: Vec<&[u8]> = Vec::new();
        for part in start.split(|byte| *byte == b'/').chain(path.as_bytes().split(|byte| *byte == b'/')) {
            match part {
                b"" | b"." => {}
                b".." => {
                    resolved.pop();
                }
                name => resolved.push(name),
            }
        }
        resolved.iter().flat_map(|part| b"/".iter().chain(*part)).copied().collect()
    }

    /// Fails if something on the way to `path` is a file.
    fn check_parents(&self, path: &[u8]) -> Result<(), ErrorKind> {
        let blocked = prefixes(path).any(|prefix| self.files.contains_key(prefix));
        if blocked { Err(ErrorKind::NotADirectory) } else { Ok(()) }
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        self.directories.contains(path)
    }

    pub(super) fn read(&self, path: &GuestPath, limit_bytes: u64) -> Result<&[u8], ErrorKind> {
        let path = self.resolve(path);
        self.check_parents(&path)?;
        if self.is_directory(&path) {
            return Err(ErrorKind::IsADirectory);
        }
        let content = self.files.get(&path).ok_or(ErrorKind::NotFound)?;
        let size_bytes = content.len() as u64;
        if size_bytes > limit_bytes {
            return Err(ErrorKind::FileTooLarge { size_bytes, limit_bytes });
        }
        Ok(content)
    }

    pub(super) fn write(&mut self, path: &GuestPath, content: Vec<u8>) -> Result<(), ErrorKind> {
        let names_directory = path.as_bytes().ends_with(b"/");
        let path = self.resolve(path);
        self.check_parents(&path)?;
        if self.is_directory(&path) || names_directory {
            return Err(ErrorKind::IsADirectory);
        }
        self.directories.extend(prefixes(&path).map(<[u8]>::to_vec));
        self.files.insert(path, content);
        Ok(())
    }

    pub(super) fn create_directory(&mut self, path: &GuestPath) -> Result<(), ErrorKind> {
        let path = self.resolve(path);
        self.check_parents(&path)?;
        if self.files.contains_key(&path) {
            return Err(ErrorKind::NotADirectory);
        }
        self.directories.extend(prefixes(&path).map(<[u8]>::to_vec));
        self.directories.insert(path);
        Ok(())
    }

    pub(super) fn list(&self, path: &GuestPath) -> Result<Vec<DirectoryEntry>, ErrorKind> {
        let path = self.resolve(path);
        self.check_parents(&path)?;
        if self.files.contains_key(&path) {
            return Err(ErrorKind::NotADirectory);
        }
        if !self.is_directory(&path) {
            return Err(ErrorKind::NotFound);
        }
        let name_of = |entry: &[u8]| -> Option<Vec<u8>> {
            let name = entry.strip_prefix(&path[..])?.strip_prefix(b"/")?;
            (!name.contains(&b'/')).then(|| name.to_vec())
        };
        let files = self.files.iter().filter_map(|(file, content)| {
            let size_bytes = Some(content.len() as u64);
            Some(DirectoryEntry { name: name_of(file)?, kind: EntryKind::File, size_bytes })
        });
        let directories = self.directories.iter().filter_map(|directory| {
            Some(DirectoryEntry { name: name_of(directory)?, kind: EntryKind::Directory, size_bytes: None })
        });
        Ok(files.chain(directories).collect())
    }
}

/// Iterates over the directories above an absolute path, the root first.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at])
}
