//! Trees on their way onto this machine: wherever an entry wants to go, what lies beside the place stays as it is (S40).

#![expect(clippy::expect_used, reason = "what does not hold is said by panicking")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use ringfence::{Result, SkipReason, TreeGate, TreeLimits};

use super::super::onto_host::OntoHost;
use super::super::place;
use super::super::skips::Skips;
use super::stays;

const LIMITS: TreeLimits = TreeLimits { max_bytes: 1 << 12, max_entries: 32, max_depth: 6 };

/// What lies beside the place.
const KEPT: &[u8] = b"kept";

/// Where the person's own links lead: one in the place, one in a folder there.
const BESIDE: &[u8] = b"../beside";
const FILE_BESIDE: &[u8] = b"../../beside/file";

/// Each line is an entry: `d NAME` a directory and `u` its end, `f NAME CONTENT` and `x NAME CONTENT` a file and a program, `l NAME TARGET`
/// a link, `s NAME` what was left out.
pub(crate) fn target(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, beside) = (folder.path().join("here"), folder.path().join("beside"));
    fs::create_dir(&beside).expect("a folder beside");
    fs::write(beside.join("file"), KEPT).expect("a file beside");
    fs::create_dir(&here).expect("the place");
    fs::create_dir(here.join("d")).expect("a folder there");
    // The person's own, which lead out; and a file that may be written over.
    symlink(OsStr::from_bytes(BESIDE), here.join("out")).expect("a link to a folder");
    symlink(OsStr::from_bytes(FILE_BESIDE), here.join("d/out")).expect("a link to a file");
    fs::write(here.join("f"), "old").expect("a file there");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let copied = runtime.block_on(async {
        let mut skips = Skips::new(|_| {});
        let mut sink = OntoHost::new(place(&here, None).expect("a place"), &mut skips);
        let mut gate = TreeGate::new("fuzz", LIMITS, &mut sink);
        tell(bytes, &mut gate).await?;
        gate.finish()?;
        sink.finish()
    });
    drop(copied);
    assert_eq!(names(folder.path()), [b"beside", &b"here"[..]]);
    assert_eq!(names(&beside), [b"file"]);
    assert_eq!(fs::read(beside.join("file")).expect("it is there"), KEPT);
    check(&here, 0);
}

async fn tell(bytes: &[u8], gate: &mut TreeGate<'_>) -> Result<()> {
    gate.enter(b"").await?;
    for line in bytes.split(|byte| *byte == b'\n') {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let mut word = || words.next().unwrap_or_default();
        match (word(), word(), word()) {
            (b"d", name, _) => gate.enter(name).await?,
            (b"u", ..) => gate.leave()?,
            (b"l", name, target) => gate.symlink(name, target).await?,
            (b"s", name, _) => gate.skip(name, SkipReason::Changed).await?,
            (kind @ (b"f" | b"x"), name, mut content) => {
                let size = content.len() as u64;
                gate.file(name, kind == b"x", size, &mut content).await?;
            }
            _ => {}
        }
    }
    while gate.leave().is_ok() {}
    Ok(())
}

/// What was put there: no link out but the person's own, nothing half made, and no rights that nobody gave.
fn check(directory: &Path, depth: usize) {
    for entry in fs::read_dir(directory).expect("it can be listed") {
        let entry = entry.expect("it can be listed");
        let (name, meta) = (entry.file_name(), entry.metadata().expect("it is there"));
        assert!(!name.as_bytes().ends_with(b".partial") || name.len() < 20, "{name:?} was left");
        if meta.is_symlink() {
            let target = fs::read_link(entry.path()).expect("a link");
            let own = [(0, BESIDE), (1, FILE_BESIDE)].contains(&(depth, target.as_os_str().as_bytes()));
            if name != "out" || !own {
                stays(depth, target.as_os_str().as_bytes());
            }
        } else {
            assert_eq!(meta.permissions().mode() & 0o7022, 0, "{name:?}");
            if meta.is_dir() {
                check(&entry.path(), depth + 1);
            }
        }
    }
}

fn names(directory: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(directory).expect("it can be listed");
    let mut names: Vec<Vec<u8>> =
        entries.map(|entry| entry.expect("it can be listed").file_name().as_bytes().to_vec()).collect();
    names.sort_unstable();
    names
}
