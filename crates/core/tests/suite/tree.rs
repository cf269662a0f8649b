//! Trees on their way out: what a gate lets through, and the walk that backends inherit.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use ringfence_core::memory::RecordingBackend;
use ringfence_core::{
    Backend, Error, ErrorKind, Result, SandboxSpec, SkipReason, TreeGate, TreeLimits, TreePath, TreeSummary,
    tree,
};
use ringfence_testkit::{LocalShellBackend, TreeEntry, TreeRecorder};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::shell::{Guest, kind};
use super::support::path;

fn directory(path: &str) -> TreeEntry {
    TreeEntry::Directory(path.to_owned())
}

fn file(path: &str, content: &str) -> TreeEntry {
    TreeEntry::File(path.to_owned(), false, content.as_bytes().to_vec())
}

fn skipped(path: &str, reason: SkipReason) -> TreeEntry {
    TreeEntry::Skipped(path.to_owned(), reason)
}

/// Content that fails after `content`.
fn failing(content: &'static str, error: io::Error) -> impl AsyncRead + Unpin + Send {
    struct Failing(Option<io::Error>);
    impl AsyncRead for Failing {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(self.0.take().map_or(Ok(()), Err))
        }
    }
    content.as_bytes().chain(Failing(Some(error)))
}

async fn put(gate: &mut TreeGate<'_>, name: &str, content: &str) -> Result<()> {
    gate.file(name.as_bytes(), false, content.len() as u64, &mut content.as_bytes()).await
}

#[tokio::test]
async fn s_40_a_tree_comes_in_order_and_is_summed_up() {
    let mut sink = TreeRecorder::default();
    let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
    gate.enter(b"").await.unwrap();
    put(&mut gate, "a", "one").await.unwrap();
    gate.enter(b"d").await.unwrap();
    gate.file(b"a", true, 3, &mut b"two".as_slice()).await.unwrap();
    gate.symlink(b"l", b"../a").await.unwrap();
    gate.leave().unwrap();
    gate.skip(b"\xff\n", SkipReason::Special).await.unwrap();
    gate.leave().unwrap();
    let summary = gate.finish().unwrap();
    assert_eq!(summary, TreeSummary { directories: 2, files: 2, bytes: 6, symlinks: 1, skipped: 1 });
    assert_eq!(
        sink.entries,
        [
            directory("."),
            file("a", "one"),
            directory("d"),
            TreeEntry::File("d/a".to_owned(), true, b"two".to_vec()),
            TreeEntry::Symlink("d/l".to_owned(), b"../a".to_vec()),
            skipped("\\xff\\n", SkipReason::Special),
        ]
    );
}

#[tokio::test]
async fn s_40_no_name_leads_anywhere_else() {
    let long = [b'a'; 256];
    let names: [&[u8]; 9] = [b"", b".", b"..", b"/", b"a/b", b"../a", b"/etc/passwd", b"a\0b", &long];
    for name in names {
        for way in 0..4 {
            let mut sink = TreeRecorder::default();
            let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
            gate.enter(b"").await.unwrap();
            let refused = match way {
                0 => gate.enter(name).await,
                1 => gate.file(name, false, 0, &mut b"".as_slice()).await,
                2 => gate.symlink(name, b"t").await,
                _ => gate.skip(name, SkipReason::Special).await,
            };
            assert_eq!(kind(refused), ErrorKind::Unexpected, "{}", name.escape_ascii());
            assert_eq!(sink.entries, [directory(".")]);
        }
    }
}

#[tokio::test]
async fn s_40_every_path_comes_once_and_in_a_directory_that_is_open() {
    let mut sink = TreeRecorder::default();
    let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
    gate.enter(b"").await.unwrap();
    put(&mut gate, "a", "").await.unwrap();
    let twice = gate.enter(b"a").await.unwrap_err();
    let told = "b: copy the tree: the same name came twice: the directory changed while it was copied, directory ., name a; copy it when nothing writes to it";
    assert_eq!(twice.to_string(), told);

    // A root has no name, comes first, and is alone.
    for before in [false, true] {
        let mut sink = TreeRecorder::default();
        let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
        if before {
            put(&mut gate, "", "x").await.unwrap();
        }
        let name = if before { "" } else { "a" };
        assert_eq!(kind(put(&mut gate, name, "").await), ErrorKind::Unexpected, "{before}");
    }

    let mut sink = TreeRecorder::default();
    let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
    assert_eq!(kind(gate.leave()), ErrorKind::Unexpected);
    // Neither nothing nor a part is a tree.
    let finished = TreeGate::new("b", TreeLimits::default(), &mut sink).finish();
    assert_eq!(kind(finished), ErrorKind::Unexpected);
    let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
    gate.enter(b"").await.unwrap();
    assert_eq!(kind(gate.finish()), ErrorKind::Unexpected);
}

#[tokio::test]
async fn s_40_limits_refuse_before_anything_is_taken() {
    let limits = TreeLimits { max_bytes: 5, max_entries: 4, max_depth: 2 };
    let mut sink = TreeRecorder::default();
    let mut gate = TreeGate::new("b", limits, &mut sink);
    gate.enter(b"").await.unwrap();
    put(&mut gate, "a", "abc").await.unwrap();
    assert_eq!(gate.bytes_left(), 2);
    // A sparse file of 1 TiB: its size is enough to refuse it, nothing of it is read.
    let mut holes = tokio::io::repeat(0);
    let refused = gate.file(b"sparse", false, 1 << 40, &mut holes).await;
    let size_bytes = (1 << 40) + 3;
    assert_eq!(kind(refused), ErrorKind::FileTooLarge { size_bytes, limit_bytes: 5 });
    assert_eq!(
        kind(gate.file(b"huge", false, u64::MAX, &mut holes).await),
        ErrorKind::FileTooLarge { size_bytes: u64::MAX, limit_bytes: 5 }
    );
    let one_more = gate.skip(b"b", SkipReason::Special).await.unwrap_err();
    assert_eq!(one_more.to_string(), "b: copy the tree: it has more than 4 entries, limit max_entries");
    assert_eq!(sink.entries, [directory("."), file("a", "abc")]);

    let mut sink = TreeRecorder::default();
    let mut gate = TreeGate::new("b", limits, &mut sink);
    gate.enter(b"").await.unwrap();
    gate.enter(b"a").await.unwrap();
    let deeper = gate.enter(b"b").await.unwrap_err();
    let told = "b: copy the tree: directories lie more than 2 deep in each other, path a/b, limit max_depth";
    assert_eq!(deeper.to_string(), told);

    // A path that no call takes.
    let limits = TreeLimits { max_depth: 100, ..TreeLimits::default() };
    let mut sink = TreeRecorder::default();
    let mut gate = TreeGate::new("b", limits, &mut sink);
    gate.enter(b"").await.unwrap();
    for _ in 0..15 {
        gate.enter(&[b'd'; 255]).await.unwrap();
    }
    put(&mut gate, &"f".repeat(255), "").await.unwrap();
    gate.enter(&[b'd'; 255]).await.unwrap();
    assert_eq!(kind(put(&mut gate, "f", "").await), ErrorKind::Unexpected);
}

#[tokio::test]
async fn ex_18_content_that_is_not_what_was_announced_is_a_file_that_was_skipped() {
    type Content = Box<dyn AsyncRead + Send + Unpin>;
    let broken =
        |content, reason: SkipReason| -> Content { Box::new(failing(content, io::Error::other(reason))) };
    let cases: [(_, &dyn Fn() -> Content, _, _); 5] = [
        ("short", &|| Box::new(b"ab".as_slice()), SkipReason::Changed, 2),
        ("long", &|| Box::new(b"abcd".as_slice()), SkipReason::Changed, 3),
        ("changed", &|| broken("abc", SkipReason::Changed), SkipReason::Changed, 3),
        ("unreadable", &|| broken("a", SkipReason::Unreadable), SkipReason::Unreadable, 1),
        ("empty", &|| Box::new(b"".as_slice()), SkipReason::Changed, 0),
    ];
    for (name, content, reason, came) in cases {
        for ignore_content in [false, true] {
            let mut sink = TreeRecorder { ignore_content, ..TreeRecorder::default() };
            let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
            gate.enter(b"").await.unwrap();
            gate.file(name.as_bytes(), false, 3, &mut content()).await.unwrap();
            gate.leave().unwrap();
            let summary = gate.finish().unwrap();
            assert_eq!(summary, TreeSummary { directories: 1, skipped: 1, ..TreeSummary::default() });
            let taken = match ignore_content {
                true => TreeEntry::File(name.to_owned(), false, Vec::new()),
                false => TreeEntry::Broken(name.to_owned(), came),
            };
            assert_eq!(sink.entries, [directory("."), taken, skipped(name, reason)]);
        }
    }

    // What is no matter of the file ends the copy, with its own error.
    let lost = Error::new(ErrorKind::SandboxLost, "b", "copy", "gone");
    let mut sink = TreeRecorder::default();
    let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
    let ended = gate.file(b"", false, 3, &mut failing("a", io::Error::other(lost))).await;
    assert_eq!(kind(ended), ErrorKind::SandboxLost);
    let ended = {
        let mut sink = TreeRecorder::default();
        let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
        gate.file(b"", false, 3, &mut failing("a", io::ErrorKind::BrokenPipe.into())).await
    };
    assert_eq!(kind(ended), ErrorKind::Unexpected);
}

#[tokio::test]
async fn ex_18_a_failing_sink_ends_the_copy_with_its_own_error() {
    let mut sink = TreeRecorder { fail_at: Some("a".to_owned()), ..TreeRecorder::default() };
    let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
    gate.enter(b"").await.unwrap();
    assert_eq!(kind(put(&mut gate, "a", "abc").await), ErrorKind::StorageFull);
}

#[test]
fn a_path_in_a_tree_knows_its_parts() {
    let root = TreePath::root();
    let path = root.join(b"a").unwrap().join(b"ab").unwrap();
    assert_eq!(path.to_string(), "a/ab");
    assert_eq!(path.split(), Some((root.join(b"a").unwrap(), b"ab".as_slice())));
    assert_eq!(root.split(), None);
    assert_eq!(path.names().collect::<Vec<_>>(), [b"a".as_slice(), b"ab"]);
    assert!(path.is_within(&root) && path.is_within(&path) && path.is_within(&root.join(b"a").unwrap()));
    let sibling = root.join(b"a").unwrap().join(b"abc").unwrap();
    assert!(!sibling.is_within(&path) && !root.is_within(&path));
}

/// Something said to a gate.
#[derive(Debug, Clone)]
enum Said {
    Enter(Vec<u8>),
    Leave,
    File(Vec<u8>, u64, u64),
    Symlink(Vec<u8>, Vec<u8>),
}

fn said() -> impl Strategy<Value = Said> {
    let name = || {
        prop_oneof![
            Just(b"".to_vec()),
            Just(b"..".to_vec()),
            Just(b"a/b".to_vec()),
            "[a-c]".prop_map(String::into_bytes),
            // Bytes that are shown alike alone and in a path, since the recorder keeps what is shown.
            proptest::collection::vec(
                prop_oneof![Just(0), Just(1), Just(b'/'), Just(b'a'), Just(0xff)],
                0..4
            ),
        ]
    };
    prop_oneof![
        name().prop_map(Said::Enter),
        Just(Said::Leave),
        (name(), 0..4u64, 0..4u64).prop_map(|(name, size, real)| Said::File(name, size, real)),
        (name(), name()).prop_map(|(name, target)| Said::Symlink(name, target)),
    ]
}

proptest! {
    /// Whatever is said, what comes out is a tree within the limits.
    #[test]
    fn s_40_only_trees_come_out(all in proptest::collection::vec(said(), 0..24)) {
        let limits = TreeLimits { max_bytes: 6, max_entries: 8, max_depth: 3 };
        let mut sink = TreeRecorder::default();
        let mut gate = TreeGate::new("b", limits, &mut sink);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // The root first, so that something gets through.
            gate.enter(b"").await.unwrap();
            for one in all {
                let done = match one {
                    Said::Enter(name) => gate.enter(&name).await,
                    Said::Leave => gate.leave(),
                    Said::File(name, size, real) => {
                        gate.file(&name, false, size, &mut tokio::io::repeat(0).take(real)).await
                    }
                    Said::Symlink(name, target) => gate.symlink(&name, &target).await,
                };
                if done.is_err() {
                    break;
                }
            }
        });
        let mut paths = std::collections::HashSet::new();
        let mut directories = std::collections::HashSet::new();
        let mut bytes = 0;
        for entry in &sink.entries {
            let (path, again) = match entry {
                TreeEntry::Directory(path) | TreeEntry::Symlink(path, _) | TreeEntry::Broken(path, _) => (path, false),
                TreeEntry::File(path, _, content) => {
                    bytes += content.len();
                    (path, false)
                }
                // What broke is said to be skipped as well.
                TreeEntry::Skipped(path, _) => (path, true),
            };
            prop_assert!(again || paths.insert(path.clone()), "{path} twice");
            if path != "." {
                let parent = path.rsplit_once('/').map_or(".", |(parent, _)| parent);
                prop_assert!(directories.contains(parent), "{path} in nothing");
                prop_assert!(!path.starts_with('/') && !path.split('/').any(|name| name.is_empty() || name == "." || name == ".."));
            }
            if matches!(entry, TreeEntry::Directory(_)) {
                directories.insert(path.clone());
            }
        }
        prop_assert!(bytes <= 6 && paths.len() <= 8);
    }
}

#[tokio::test]
async fn bd_a_backend_inherits_a_walk_over_its_own_operations() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    fs::create_dir_all(guest.root.join("t/d/empty")).unwrap();
    fs::write(guest.root.join("t/a"), "one").unwrap();
    fs::write(guest.root.join("t/d/new\nline"), "x".repeat(300_000)).unwrap();
    symlink("a", guest.root.join("t/link")).unwrap();
    symlink("t", guest.root.join("to-t")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(guest.root.join("t/fifo")).status().unwrap().success());
    let expected = [
        directory("."),
        file("a", "one"),
        directory("d"),
        directory("d/empty"),
        file("d/new\\nline", &"x".repeat(300_000)),
        skipped("fifo", SkipReason::Special),
        skipped("link", SkipReason::Link),
    ];
    for name in ["t", "to-t"] {
        let mut sink = TreeRecorder::default();
        let limits = TreeLimits::default();
        let copied = tree::export(&guest.backend, &guest.id, &path(name), limits, &mut sink).await.unwrap();
        let expected_sum = TreeSummary { directories: 3, files: 2, bytes: 300_003, symlinks: 0, skipped: 2 };
        assert_eq!(copied, expected_sum);
        assert_eq!(sink.entries, expected);
    }
    // One file, and nothing.
    let mut sink = TreeRecorder::default();
    let limits = TreeLimits { max_bytes: 3, ..TreeLimits::default() };
    tree::export(&guest.backend, &guest.id, &path("t/link"), limits, &mut sink).await.unwrap();
    assert_eq!(sink.entries, [file(".", "one")]);
    let limits = TreeLimits { max_bytes: 2, ..TreeLimits::default() };
    let over = tree::export(&guest.backend, &guest.id, &path("t/a"), limits, &mut sink).await;
    assert_eq!(kind(over), ErrorKind::FileTooLarge { size_bytes: 3, limit_bytes: 2 });
    let missing = tree::export(&guest.backend, &guest.id, &path("no"), limits, &mut sink).await;
    assert_eq!(kind(missing), ErrorKind::NotFound);
}

#[tokio::test]
async fn ex_18_an_inherited_import_takes_exactly_what_was_promised() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    let import = async |content: &str, size: u64, executable| {
        let source = &mut content.as_bytes();
        guest.backend.import_file(&guest.id, &path("d/f"), size, executable, source).await
    };
    import("abc", 3, false).await.unwrap();
    for (content, size) in [("ab", 3), ("abcd", 3)] {
        assert_eq!(kind(import(content, size, false).await), ErrorKind::Unexpected, "{content}");
    }
    let is_executable = || {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(guest.root.join("d/f")).unwrap().permissions().mode() & 0o111 != 0
    };
    assert_eq!((fs::read(guest.root.join("d/f")).unwrap(), is_executable()), (b"abc".to_vec(), false));
    import("run", 3, true).await.unwrap();
    assert_eq!((fs::read(guest.root.join("d/f")).unwrap(), is_executable()), (b"run".to_vec(), true));
    let too_large = import("", (1 << 30) + 1, false).await;
    let (size_bytes, limit_bytes) = ((1 << 30) + 1, 1 << 30);
    assert_eq!(kind(too_large), ErrorKind::FileTooLarge { size_bytes, limit_bytes });
}

#[tokio::test]
async fn bk_a_sandbox_that_is_lost_ends_the_walk() {
    let backend = RecordingBackend::new();
    backend.seed_file("d/a", "one").unwrap();
    let id = backend.create(&SandboxSpec::new()).await.unwrap().id;
    let mut sink = TreeRecorder::default();
    let lost = || Error::new(ErrorKind::SandboxLost, "rec", "export the file", "gone");
    backend.fail_once(ringfence_core::memory::Operation::Export, lost());
    let copied = tree::export(&backend, &id, &path("d"), TreeLimits::default(), &mut sink).await;
    assert_eq!(kind(copied), ErrorKind::SandboxLost);
    assert_eq!(sink.entries, [directory("."), TreeEntry::Broken("a".to_owned(), 0)]);
}
