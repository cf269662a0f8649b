//! Whole trees out of a sandbox that does what it can to be copied wrongly, and files of any size into it (S37, S40, EX-18).

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ringfence_core::{
    Backend, ByteSize, ErrorKind, Limits, Result, SkipReason, TreeGate, TreeLimits, TreePath, TreeSink,
    TreeSummary, tree,
};
use ringfence_testkit::{TreeEntry, TreeRecorder};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::support::{Box as Sandbox, Marker, Said, assert_took, path, shell, timed};

fn directory(path: &str) -> TreeEntry {
    TreeEntry::Directory(path.to_owned())
}

fn file(path: &str, executable: bool, content: &str) -> TreeEntry {
    TreeEntry::File(path.to_owned(), executable, content.as_bytes().to_vec())
}

fn symlink(path: &str, target: &str) -> TreeEntry {
    TreeEntry::Symlink(path.to_owned(), target.as_bytes().to_vec())
}

fn skipped(path: &str, reason: SkipReason) -> TreeEntry {
    TreeEntry::Skipped(path.to_owned(), reason)
}

fn path_of(entry: &TreeEntry) -> &str {
    match entry {
        TreeEntry::Directory(path)
        | TreeEntry::File(path, ..)
        | TreeEntry::Broken(path, _)
        | TreeEntry::Symlink(path, _)
        | TreeEntry::Skipped(path, _) => path,
    }
}

impl Sandbox {
    /// What came of a tree, in byte order of the paths: a directory has no order of its own.
    async fn copied(&self, name: &str, limits: TreeLimits) -> (Result<TreeSummary>, Vec<TreeEntry>) {
        let mut sink = TreeRecorder::default();
        let summary = tree::export(&self.backend, &self.id, &path(name), limits, &mut sink).await;
        let mut entries = sink.entries;
        entries.sort_by(|one, other| path_of(one).cmp(path_of(other)));
        (summary, entries)
    }

    async fn tree(&self, name: &str) -> Vec<TreeEntry> {
        let (summary, entries) = self.copied(name, TreeLimits::default()).await;
        summary.unwrap();
        entries
    }

    async fn refused(&self, name: &str, limits: TreeLimits) -> ErrorKind {
        self.copied(name, limits).await.0.unwrap_err().kind().clone()
    }

    async fn import(&self, name: &str, content: &[u8], size: u64, executable: bool) -> Result<()> {
        let mut source = content;
        self.backend.import_file(&self.id, &path(name), size, executable, &mut source).await
    }
}

#[tokio::test]
async fn s_40_a_tree_comes_out_as_it_is_and_nothing_is_followed_in_it() {
    let sandbox = Sandbox::new().await;
    sandbox
        .prepare(
            "mkdir -p t/d/empty && printf one > t/a && printf run > t/run && chmod 4755 t/run && : > t/d/none
             ln t/a t/d/hard && ln -s ../a t/d/up && ln -s /etc/passwd t/out && ln -s nowhere t/dangling
             ln -s d t/to-d && mkfifo t/fifo && printf x > \"$(printf 't/new\\nline')\"
             printf y > \"$(printf 't/\\377')\" && mkdir t/closed && printf z > t/closed/f && chmod 0 t/closed
             printf s > t/secret && chmod 0 t/secret && ln -s t to-t && ln -s t/a to-a",
        )
        .await;
    let expected = [
        directory("."),
        file("\\xff", false, "y"),
        file("a", false, "one"),
        skipped("closed", SkipReason::Unreadable),
        directory("d"),
        directory("d/empty"),
        file("d/hard", false, "one"),
        file("d/none", false, ""),
        symlink("d/up", "../a"),
        symlink("dangling", "nowhere"),
        skipped("fifo", SkipReason::Special),
        file("new\\nline", false, "x"),
        symlink("out", "/etc/passwd"),
        file("run", true, "run"),
        skipped("secret", SkipReason::Unreadable),
        symlink("to-d", "d"),
    ];
    let sum = TreeSummary { directories: 3, files: 6, bytes: 11, symlinks: 4, skipped: 3 };
    for name in ["t", "./t/", "to-t", "/workspace/t/d/.."] {
        let (summary, entries) = sandbox.copied(name, TreeLimits::default()).await;
        assert_eq!((summary.unwrap(), entries), (sum, expected.to_vec()), "{name}");
    }
    // A tree that is one file.
    for name in ["t/a", "to-a", "t/d/up"] {
        assert_eq!(sandbox.tree(name).await, [file(".", false, "one")], "{name}");
    }
    for (name, kind) in [
        ("missing", ErrorKind::NotFound),
        ("t/a/b", ErrorKind::NotADirectory),
        ("t/dangling", ErrorKind::NotFound),
        ("t/fifo", ErrorKind::NotARegularFile),
        ("/dev/zero", ErrorKind::NotARegularFile),
        ("t/closed", ErrorKind::PermissionDenied),
        ("t/secret", ErrorKind::PermissionDenied),
    ] {
        assert_eq!(sandbox.copied(name, TreeLimits::default()).await.0.unwrap_err().kind(), &kind, "{name}");
    }
}

#[tokio::test]
async fn s_38_what_the_kernel_writes_for_its_reader_is_never_in_a_tree() {
    let sandbox = Sandbox::new().await;
    for name in ["/proc", "/proc/self", "/proc/1/environ", "/proc/self/fd/0", "/sys"] {
        let (copied, entries) = sandbox.copied(name, TreeLimits::default()).await;
        assert!(copied.is_err() && entries.is_empty(), "{name}: {copied:?} {entries:?}");
    }
    assert_eq!(sandbox.refused("/proc", TreeLimits::default()).await, ErrorKind::NotARegularFile);
    // From the root, no other mount is entered, whichever there are.
    sandbox.prepare("printf one > /workspace/a").await;
    let entries = sandbox.tree("/").await;
    let mounted = sandbox.run("cut -d ' ' -f 5 /proc/self/mountinfo").await.stdout;
    let mounted: BTreeSet<&str> = mounted.lines().filter_map(|line| line.strip_prefix('/')).collect();
    assert!(mounted.contains("proc"), "{mounted:?}");
    for entry in &entries {
        let below =
            mounted.iter().any(|mount| !mount.is_empty() && path_of(entry).starts_with(&format!("{mount}/")));
        assert!(!below, "{entry:?}");
    }
    assert!(entries.contains(&skipped("proc", SkipReason::Mount)), "{entries:?}");
    // By its own path a mount is a tree like any other.
    assert_eq!(sandbox.tree("/workspace").await, [directory("."), file("a", false, "one")]);
}

#[tokio::test]
async fn s_40_sizes_and_counts_refuse_before_they_cost_anything() {
    let sandbox = Sandbox::new().await;
    sandbox
        .prepare("mkdir s && truncate -s 1T s/sparse && mkdir n && (cd n && seq 30000 | xargs touch)")
        .await;
    let limits = TreeLimits::default();
    let limit_bytes = limits.max_bytes;
    for name in ["s", "s/sparse"] {
        let (refused, took) = timed(sandbox.refused(name, limits)).await;
        assert_eq!(refused, ErrorKind::FileTooLarge { size_bytes: 1 << 40, limit_bytes });
        assert_took(took, 0.0, 0.5);
    }
    let (refused, took) = timed(sandbox.copied("n", TreeLimits { max_entries: 1000, ..limits })).await;
    let (error, came) = (refused.0.unwrap_err(), refused.1.len());
    assert_eq!((error.message(), came), ("it has more than 1000 entries", 1000));
    assert_took(took, 0.0, 0.5);
    // The control: with room for them they all come.
    let all = TreeLimits { max_entries: 30_001, ..limits };
    assert_eq!(sandbox.copied("n", all).await.0.unwrap().files, 30_000);
    // A sparse file within the limit comes with its holes.
    sandbox.prepare("mkdir h && truncate -s 3M h/holes && printf end >> h/holes").await;
    let expected = [vec![0; 3 << 20], b"end".to_vec()].concat();
    let holes = TreeEntry::File("holes".to_owned(), false, expected);
    assert_eq!(sandbox.tree("h").await, [directory("."), holes]);
    // What was refused has left nothing behind that works on.
    // Agent, shim, shell and the two that ask, of which one may not have begun yet.
    let processes = sandbox.run("ls /proc | grep -c '^[0-9]'").await.stdout.trim().parse::<u32>().unwrap();
    assert!((4..=5).contains(&processes), "{processes}");
}

#[tokio::test]
async fn s_40_many_entries_go_through_in_bounded_time() {
    let limits = Limits { disk: Some(ByteSize::from_bytes(4 << 30).unwrap()), ..Limits::default() };
    let sandbox = Sandbox::limited(limits).await;
    let made = sandbox
        .run_for("for d in $(seq 10); do mkdir -p n/$d && (cd n/$d && seq 20000 | xargs touch); done", 120.0)
        .await;
    assert_eq!(made, Said::ok(""));
    let (copied, took) = timed(sandbox.copied("n", TreeLimits::default())).await;
    assert_eq!(copied.0.unwrap(), TreeSummary { directories: 11, files: 200_000, ..TreeSummary::default() });
    assert_took(took, 0.0, 5.0);
}

#[tokio::test]
async fn s_40_deep_trees_are_refused_and_deep_enough_ones_are_not() {
    let sandbox = Sandbox::new().await;
    sandbox.prepare("(for i in $(seq 127); do mkdir d && cd d; done; printf end > f)").await;
    let (copied, entries) = sandbox.copied(".", TreeLimits::default()).await;
    assert_eq!(
        copied.unwrap(),
        TreeSummary { directories: 128, files: 1, bytes: 3, ..TreeSummary::default() }
    );
    assert!(entries.contains(&file(&format!("{}f", "d/".repeat(127)), false, "end")));
    // Far deeper than a path can say, and than there are descriptors.
    let nest = "p=$(printf 'd/%.0s' $(seq 100)); mkdir e
                for i in $(seq 30); do mkdir -p x/$p && mv e x/$p && mv x e || exit 1; done";
    sandbox.prepare(nest).await;
    for max_depth in [128, 1000, 100_000] {
        let (refused, took) =
            timed(sandbox.refused("e", TreeLimits { max_depth, ..TreeLimits::default() })).await;
        assert_eq!(refused, ErrorKind::Unexpected);
        assert_took(took, 0.0, 1.0);
    }
}

/// A tree that others change as fast as they can is copied as something that it was, never as what lies elsewhere.
#[tokio::test]
async fn s_37_a_directory_that_is_swapped_for_a_link_is_never_entered() {
    let sandbox = Sandbox::new().await;
    sandbox.prepare("mkdir -p t/a elsewhere && printf inside > t/a/f && printf outside > elsewhere/f").await;
    let marker = Marker::new();
    let swap = format!(
        "(exec -a x sleep {marker}) & ln -s ../elsewhere t/link
         while :; do mv t/a t/b; mv t/link t/a; mv t/a t/link; mv t/b t/a; done"
    );
    let backend = Arc::new(sandbox.backend);
    let id = sandbox.id.clone();
    let (other, other_id) = (Arc::clone(&backend), id.clone());
    let swapping = tokio::spawn(async move { other.run_command(&other_id, shell(&swap, 60.0)).await });
    assert!(marker.lives().await);
    let (mut as_link, mut as_directory) = (0, 0);
    let limits = TreeLimits::default();
    for round in 0.. {
        let mut sink = TreeRecorder::default();
        // The same name may come twice while it moves: that is an error and not another tree.
        drop(tree::export(&*backend, &id, &path("t"), limits, &mut sink).await);
        for entry in sink.entries {
            match entry {
                TreeEntry::Symlink(name, target) => {
                    assert!(["a", "link"].contains(&name.as_str()) && target == b"../elsewhere", "{name}");
                    as_link += u32::from(name == "a");
                }
                TreeEntry::File(name, _, content) => {
                    assert!(["a/f", "b/f"].contains(&name.as_str()), "{name}");
                    assert_eq!(content, b"inside");
                    as_directory += 1;
                }
                TreeEntry::Directory(_) | TreeEntry::Skipped(_, SkipReason::Changed) => {}
                other => panic!("{other:?}"),
            }
        }
        if as_link > 0 && as_directory > 0 && round > 300 {
            break;
        }
        assert!(round < 30_000, "{as_link} as link, {as_directory} as directory");
    }
    // Reading by path does get there, which is what a walk must not do.
    drop(swapping);
    backend.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn ex_18_a_file_that_changes_while_it_is_read_is_told_as_such() {
    /// Makes the walk wait in the middle of a file until the file has been changed.
    struct Slow<'a> {
        sandbox: &'a Sandbox,
        change: &'static str,
        came: usize,
        recorder: TreeRecorder,
    }
    #[async_trait::async_trait]
    impl TreeSink for Slow<'_> {
        async fn directory(&mut self, path: &TreePath) -> Result<()> {
            self.recorder.directory(path).await
        }
        async fn file(
            &mut self,
            path: &TreePath,
            _: bool,
            _: u64,
            content: &mut (dyn AsyncRead + Send + Unpin),
        ) -> Result<()> {
            let mut first = [0; 1];
            self.came += content.read(&mut first).await.unwrap();
            self.sandbox.prepare(self.change).await;
            let mut rest = Vec::new();
            let read = content.read_to_end(&mut rest).await;
            self.came += rest.len();
            assert!(read.is_err(), "{path} was taken for whole");
            Ok(())
        }
        async fn symlink(&mut self, path: &TreePath, target: &[u8]) -> Result<()> {
            self.recorder.symlink(path, target).await
        }
        async fn skipped(&mut self, path: &TreePath, reason: SkipReason) -> Result<()> {
            self.recorder.skipped(path, reason).await
        }
    }
    const SIZE: u64 = 8 << 20;
    for change in ["truncate -s 3M t/f", "printf x >> t/f", "printf x | dd of=t/f conv=notrunc status=none"] {
        let sandbox = Sandbox::new().await;
        sandbox.prepare("mkdir t && head -c 8M /dev/zero > t/f").await;
        let recorder = TreeRecorder::default();
        let mut sink = Slow { sandbox: &sandbox, change, came: 0, recorder };
        let summary =
            tree::export(&sandbox.backend, &sandbox.id, &path("t"), TreeLimits::default(), &mut sink).await;
        let expected = TreeSummary { directories: 1, skipped: 1, ..TreeSummary::default() };
        assert_eq!(summary.unwrap(), expected, "{change}");
        // Never short: what comes after it would be taken for its content.
        assert_eq!(sink.came as u64, SIZE, "{change}");
        assert_eq!(sink.recorder.entries, [directory("."), skipped("f", SkipReason::Changed)], "{change}");
    }
}

#[tokio::test]
async fn bk_04_a_walk_ends_with_its_sandbox_and_with_its_reader() {
    let sandbox = Sandbox::new().await;
    sandbox.prepare("mkdir t && head -c 200M /dev/zero > t/f").await;
    // Given up in the middle: the process that tells goes, and the sandbox goes on.
    {
        let mut sink = TreeRecorder { fail_at: Some("f".to_owned()), ..TreeRecorder::default() };
        let mut gate = TreeGate::new("local", TreeLimits::default(), &mut sink);
        let failed = sandbox.backend.export_tree(&sandbox.id, &path("t"), &mut gate).await.unwrap_err();
        assert_eq!(*failed.kind(), ErrorKind::StorageFull);
    }
    let alone = async || sandbox.run("ls /proc | grep -c '^[0-9]'").await.stdout == "5\n";
    let mut rounds = 0;
    while !alone().await {
        rounds += 1;
        assert!(rounds < 1000);
    }
    // The sandbox goes in the middle of a file.
    struct Destroys<'a>(&'a Sandbox, bool);
    #[async_trait::async_trait]
    impl TreeSink for Destroys<'_> {
        async fn directory(&mut self, _: &TreePath) -> Result<()> {
            Ok(())
        }
        async fn file(
            &mut self,
            _: &TreePath,
            _: bool,
            _: u64,
            content: &mut (dyn AsyncRead + Send + Unpin),
        ) -> Result<()> {
            content.read_exact(&mut [0; 1000]).await.unwrap();
            self.0.destroy().await;
            self.1 = content.read_to_end(&mut Vec::new()).await.is_err();
            Ok(())
        }
        async fn symlink(&mut self, _: &TreePath, _: &[u8]) -> Result<()> {
            Ok(())
        }
        async fn skipped(&mut self, _: &TreePath, _: SkipReason) -> Result<()> {
            panic!("a file of a sandbox that is gone is not one that changed")
        }
    }
    let mut sink = Destroys(&sandbox, false);
    let mut gate = TreeGate::new("local", TreeLimits::default(), &mut sink);
    let lost = sandbox.backend.export_tree(&sandbox.id, &path("t"), &mut gate).await.unwrap_err();
    assert_eq!((lost.kind(), sink.1), (&ErrorKind::SandboxLost, true), "{lost:?}");
    let gone = sandbox.copied("t", TreeLimits::default()).await.0.unwrap_err();
    assert_eq!(*gone.kind(), ErrorKind::SandboxLost);
}

#[tokio::test]
async fn ex_17_files_of_any_size_go_in_byte_for_byte() {
    let sandbox = Sandbox::new().await;
    for size in [0usize, 1, 32 << 10, (32 << 10) + 1, (5 << 20) + 3] {
        let content: Vec<u8> = (0..size).map(|index| (index * 7 + index / 251) as u8).collect();
        let name = format!("d/e/{size}");
        sandbox.import(&name, &content, size as u64, size % 2 == 1).await.unwrap();
        assert_eq!(sandbox.read(&name).await.unwrap(), content, "{size}");
    }
    let modes = sandbox.run("stat -c '%n %a' d/e/* | sort -n").await.stdout;
    let expected = "d/e/0 644\nd/e/1 755\nd/e/32768 644\nd/e/32769 755\nd/e/5242883 755\n";
    assert_eq!(modes, expected);
    // An existing file keeps its mode, and gets what it needs to be executed by those who can read it.
    sandbox.prepare("printf x > m && chmod 640 m && printf x > big && chmod 640 big").await;
    let big = vec![7; 100_000];
    sandbox.import("m", b"y", 1, false).await.unwrap();
    sandbox.import("big", &big, 100_000, false).await.unwrap();
    assert_eq!(sandbox.run("stat -c %a m big").await, Said::ok("640\n640\n"));
    sandbox.import("m", b"y", 1, true).await.unwrap();
    sandbox.import("big", &big, 100_000, true).await.unwrap();
    assert_eq!(sandbox.run("stat -c %a m big").await, Said::ok("750\n750\n"));
}

#[tokio::test]
async fn ex_18_a_source_of_another_size_changes_nothing() {
    let sandbox = Sandbox::new().await;
    sandbox.prepare("mkdir d && printf old > d/f").await;
    for (came, promised) in [(2usize, 3u64), (4, 3), (0, 1), (1, 0), (99_999, 100_000), (100_001, 100_000)] {
        let refused = sandbox.import("d/f", &vec![7; came], promised, true).await.unwrap_err();
        let told = format!(
            "the source does not have the {promised} bytes that it had at first; the file is unchanged"
        );
        assert_eq!(refused.message(), told);
    }
    /// Fails in the middle.
    struct Failing(usize);
    impl AsyncRead for Failing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            if self.0 == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()));
            }
            self.0 -= 1;
            buf.put_slice(&[7; 1000]);
            Poll::Ready(Ok(()))
        }
    }
    let failed =
        sandbox.backend.import_file(&sandbox.id, &path("d/f"), 100_000, false, &mut Failing(50)).await;
    assert_eq!(failed.unwrap_err().message(), "the source could not be read");
    assert_eq!(sandbox.run("cat d/f; stat -c ' %a' d/f; ls -A d").await, Said::ok("old 644\nf\n"));
    // Nothing reads when there is no place for it: that is the answer, and no broken pipe.
    let full = sandbox.import("/proc/x/y", &[7; 100_000], 100_000, false).await.unwrap_err();
    assert_eq!(*full.kind(), ErrorKind::NotFound, "{full:?}");
    let huge =
        Sandbox::limited(Limits { disk: Some(ByteSize::from_bytes(1 << 20).unwrap()), ..Limits::default() });
    let huge = huge.await;
    let content = vec![7; 8 << 20];
    let full = huge.import("f", &content, content.len() as u64, false).await.unwrap_err();
    assert_eq!(*full.kind(), ErrorKind::StorageFull);
    assert_eq!(huge.run("ls -A").await, Said::ok(""));
    // Given up in the middle: what was begun is put away.
    let endless = tokio::io::repeat(7);
    let mut endless = endless.take(u64::MAX);
    let name = path("d/f");
    let import = sandbox.backend.import_file(&sandbox.id, &name, 1 << 40, false, &mut endless);
    let stopped = tokio::time::timeout(std::time::Duration::from_millis(50), import).await;
    assert!(stopped.is_err());
    let mut left = String::new();
    let mut rounds = 0;
    while left != "f\n" {
        left = sandbox.run("ls -A d").await.stdout;
        rounds += 1;
        assert!(rounds < 1000, "{left}");
    }
}
