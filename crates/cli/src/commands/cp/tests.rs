//! Trees that do what they can to be put elsewhere (S37, S40), and the ways there and back over a real sandbox.

mod archives;
mod host;
mod sandbox;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence::memory::RecordingBackend;
use ringfence::{Backend, BackendSettings, Registry, SandboxSpec};
use tempfile::TempDir;

use super::*;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A folder of this machine, in which nothing is but what the test puts there.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Everything in it: the path, and what it is and holds. In byte order.
    fn all(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        walk(self.0.path(), Path::new(""), &mut all);
        all
    }
}

fn walk(root: &Path, at: &Path, all: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> = fs::read_dir(root.join(at)).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        use std::os::unix::fs::PermissionsExt;
        let path = at.join(entry.file_name());
        let shown = path.as_os_str().as_bytes().escape_ascii().to_string();
        let meta = entry.metadata().unwrap();
        if meta.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            all.push((shown, format!("-> {}", target.display())));
        } else if meta.is_dir() {
            all.push((shown, "/".to_owned()));
            walk(root, &path, all);
        } else {
            let content = String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned();
            let mark = if meta.permissions().mode() & 0o111 != 0 { "*" } else { "" };
            all.push((shown, format!("{mark}{content}")));
        }
    }
}

fn these(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries.iter().map(|(path, what)| ((*path).to_owned(), (*what).to_owned())).collect()
}

/// A sandbox, and a path in it.
struct Guest {
    backend: Arc<dyn Backend>,
    handle: Handle,
}

impl Guest {
    async fn of(backend: Arc<dyn Backend>) -> Self {
        let id = backend.create(&SandboxSpec::new()).await.unwrap().id;
        let handle = Handle::new(backend.name(), &id).unwrap();
        Self { backend, handle }
    }

    async fn local() -> Self {
        Self::of(Registry::new(BackendSettings::default()).open("local").unwrap()).await
    }

    async fn recording() -> (Self, Arc<RecordingBackend>) {
        let backend = Arc::new(RecordingBackend::new());
        (Self::of(Arc::clone(&backend) as Arc<dyn Backend>).await, backend)
    }

    /// Runs a command that only prepares something, or says something.
    async fn run(&self, command: &str) -> String {
        let timeout = ringfence::Timeout::from_secs_f64(60.0).unwrap();
        let limit = ringfence::OutputLimit::new(1 << 20).unwrap();
        let request = ringfence::CommandRequest::shell(command, timeout, limit);
        let result = self.backend.run_command(self.handle.sandbox(), request).await.unwrap();
        assert_eq!((result.ending, &*result.stderr.text()), (ringfence::Ending::Exited(0), ""), "{command}");
        result.stdout.text().into_owned()
    }

    fn inside<'a>(&'a self, path: &'a GuestPath, limits: TreeLimits) -> Inside<'a> {
        Inside { backend: &*self.backend, handle: &self.handle, path, limits }
    }
}

fn silent() -> Skips {
    Skips::new(|_| ())
}

/// How many entries were left out, or what was said instead.
type Outcome = std::result::Result<u64, String>;

fn outcome<T>(copied: Result<T>, skips: &Skips) -> Outcome {
    copied.map(|_| skips.count()).map_err(|failure| failure.to_string())
}

#[test]
fn what_is_called_like_nothing_gives_its_content() {
    for (path, name) in [
        ("a", Some("a")),
        ("a/b", Some("b")),
        ("/a/b/", Some("b")),
        ("a//", Some("a")),
        ("..a", Some("..a")),
        ("/", None),
        (".", None),
        ("..", None),
        ("a/.", None),
        ("a/./", None),
        ("a/..", None),
    ] {
        assert_eq!(name_of(path.as_bytes()), name.map(str::as_bytes), "{path}");
    }
}

#[test]
fn one_side_and_no_more_is_in_a_sandbox() {
    let parse = |text: &str| crate::operand::operand(text.into()).unwrap();
    let refused = |source: &str, target: &str| {
        let args = CpArgs { source: parse(source), target: parse(target), max_size: None, max_entries: 1 };
        let failure = sides(args).err().unwrap();
        (failure.to_string(), failure.status())
    };
    let both = "both are in a sandbox; one of them has to be here".to_owned();
    assert_eq!(refused("local:sb-1:a", "local:sb-2:a"), (both, 2));
    for (source, target) in [("a", "b"), ("-", "b"), ("a", "-"), ("-", "-")] {
        let neither = "neither of the two is in a sandbox".to_owned();
        assert_eq!(refused(source, target), (neither, 2), "{source} {target}");
    }
}
