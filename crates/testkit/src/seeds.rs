//! Parsers of what a sandbox, a socket or a file says, and the bytes they are tried with: few and kept here by `cargo test`, many and
//! made up by `cargo xtask fuzz`. Both go through [`try_bytes`].

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A parser together with all that is asserted about it; it panics where something does not hold.
pub type Target = fn(&[u8]);

/// What a parser may hold at once for each byte it was given. The costliest element of ours, an empty text in a list of a message, takes
/// four bytes there and 24 here, and a vector that grows is there twice.
const PEAK_PER_BYTE: u64 = 64;

/// What it may hold at once in any case: buffers, of which the largest has 256 KiB, and messages of errors.
const PEAK_BYTES: u64 = 384 << 10;

/// The longest seed. They are read by people, too.
const MAX_SEED_BYTES: usize = 4 << 10;

/// Gives bytes to a parser.
///
/// # Panics
/// If the parser does, or if it holds more memory at once than a small multiple of what it was given: then it believed a length.
pub fn try_bytes(target: Target, bytes: &[u8]) {
    let info = allocation_counter::measure(|| target(bytes));
    let most = PEAK_BYTES + PEAK_PER_BYTE * bytes.len() as u64;
    assert!(info.bytes_max <= most, "{} bytes held for {} bytes", info.bytes_max, bytes.len());
}

/// Tries each target with the files of the folder `root/NAME`: valid input of each kind, and whatever was once found to go wrong.
///
/// # Panics
/// As [`try_bytes`], naming the file; if folders and targets are not the same; and if a folder is empty or a file too long.
pub fn replay(root: &Path, targets: &[(&str, Target)]) {
    let folders: BTreeSet<String> = names(root).into_iter().collect();
    let known: BTreeSet<String> = targets.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(folders, known, "folders in {} are not the targets", root.display());
    for (name, target) in targets {
        let files = names(&root.join(name));
        assert!(!files.is_empty(), "{name} has no seeds");
        for file in files {
            let path = root.join(name).join(file);
            let bytes = read(&path);
            assert!(bytes.len() <= MAX_SEED_BYTES, "{} is too long", path.display());
            let _shown = Shown(&path);
            try_bytes(*target, &bytes);
        }
    }
}

/// Says which file it was when a target panics.
struct Shown<'a>(&'a PathBuf);

impl Drop for Shown<'_> {
    #[expect(clippy::print_stderr, reason = "of a test that fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while reading the seed {}", self.0.display());
        }
    }
}

#[expect(clippy::panic, reason = "the test that asked fails")]
fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
}

#[expect(clippy::panic, reason = "the test that asked fails")]
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("list {}: {error}", folder.display()));
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "bytes held for 4 bytes")]
    fn a_parser_that_believes_a_length_is_found() {
        try_bytes(|bytes| drop(std::hint::black_box(vec![0u8; bytes.len() << 20])), b"\xff\xff\xff\xff");
    }

    #[test]
    fn a_parser_that_copies_what_it_was_given_is_fine() {
        try_bytes(|bytes| drop(std::hint::black_box(bytes.to_vec())), &[0; 1 << 20]);
    }

    #[test]
    fn seeds_without_a_target_and_targets_without_seeds_are_found() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        fs::write(root.path().join("a/seed"), "x").unwrap();
        replay(root.path(), &[("a", |bytes| assert_eq!(bytes, b"x"))]);
        for targets in [&[][..], &[("b", (|_| {}) as Target)][..]] {
            assert!(std::panic::catch_unwind(|| replay(root.path(), targets)).is_err());
        }
        fs::remove_file(root.path().join("a/seed")).unwrap();
        let empty = std::panic::catch_unwind(|| replay(root.path(), &[("a", (|_| {}) as Target)]));
        assert!(empty.is_err());
    }
}
