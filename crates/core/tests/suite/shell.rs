//! BD: the file operations that a backend inherits, over real shells.

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use async_trait::async_trait;
use ringfence_core::memory::RecordingBackend;
use ringfence_core::{
    Backend, Capabilities, Captured, CommandRequest, CommandResult, Created, DirectoryEntry, Ending,
    EntryKind, EnvMap, Error, ErrorKind, GuestPath, Invocation, ListRequest, Listing, OutputLimit, Plan,
    Result, SandboxId, SandboxSpec, shell,
};
use ringfence_testkit::LocalShellBackend;

use super::support::{path, seconds};

/// A sandbox of the double, and where its files lie.
pub(crate) struct Guest {
    pub(crate) backend: LocalShellBackend,
    pub(crate) id: SandboxId,
    pub(crate) root: PathBuf,
}

impl Guest {
    pub(crate) async fn new(backend: LocalShellBackend) -> Self {
        Self::with_spec(backend, SandboxSpec::default()).await
    }

    async fn with_spec(backend: LocalShellBackend, spec: SandboxSpec) -> Self {
        let id = backend.create(&spec).await.expect("a sandbox").id;
        let root = backend.root(&id).expect("a directory");
        Self { backend, id, root }
    }

    async fn read(&self, path: impl Into<Vec<u8>>, limit_bytes: u64) -> Result<Vec<u8>> {
        self.backend.read_file(&self.id, &GuestPath::new(path)?, limit_bytes).await
    }

    async fn write(&self, path: impl Into<Vec<u8>>, content: &[u8]) -> Result<()> {
        self.backend.write_file(&self.id, &GuestPath::new(path)?, content).await
    }

    async fn list(&self, path: impl Into<Vec<u8>>) -> Result<Listing> {
        self.backend.list_directory(&self.id, &GuestPath::new(path)?, ListRequest::default()).await
    }

    /// Names in the root that a write in progress would leave.
    fn leftovers(&self) -> Vec<String> {
        let names =
            fs::read_dir(&self.root).expect("the root").map(|entry| entry.expect("an entry").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name.starts_with(".ringfence"))
            .collect()
    }
}

pub(crate) fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("an error").kind().clone()
}

/// The shells that this machine has; `sh` is always there.
fn shells() -> Vec<Vec<String>> {
    let on_path = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists());
        found.map(|file| file.to_string_lossy().into_owned())
    };
    let mut shells = vec![vec!["sh".to_owned()]];
    shells.extend(
        ["dash", "bash", "mksh", "ksh", "zsh"].into_iter().filter_map(on_path).map(|shell| vec![shell]),
    );
    shells.extend(on_path("busybox").map(|busybox| vec![busybox, "sh".to_owned()]));
    shells
}

fn backend_over(shell: &[String]) -> LocalShellBackend {
    LocalShellBackend::new().with_shell(&shell.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Every shell, with and without standard input.
async fn guests() -> Vec<Guest> {
    let mut guests = Vec::new();
    for shell in shells() {
        guests.push(Guest::new(backend_over(&shell)).await);
        guests.push(Guest::new(backend_over(&shell).without_stdin()).await);
    }
    guests
}

fn entry(name: impl Into<Vec<u8>>, kind: EntryKind, size_bytes: Option<u64>) -> DirectoryEntry {
    DirectoryEntry { name: name.into(), kind, size_bytes }
}

fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

/// Whether modes bind this process; root is above them.
fn is_bound_by_modes(root: &Path) -> bool {
    let probe = root.join("probe");
    fs::write(&probe, "").expect("a file");
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o000)).expect("a mode");
    let bound = fs::read(&probe).is_err();
    fs::remove_file(&probe).expect("removed");
    bound
}

/// A backend with the three mandatory operations and nothing else.
#[derive(Debug)]
pub(crate) struct Minimal(RecordingBackend);

#[async_trait]
impl Backend for Minimal {
    fn name(&self) -> &str {
        "minimal"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { block_network: true, ..Capabilities::default() }
    }
    fn judge(&self, spec: &SandboxSpec) -> Result<Plan> {
        self.0.judge(spec)
    }
    async fn create(&self, spec: &SandboxSpec) -> Result<Created> {
        self.0.create(spec).await
    }
    async fn run_command(&self, sandbox: &SandboxId, request: CommandRequest) -> Result<CommandResult> {
        self.0.run_command(sandbox, request).await
    }
    async fn destroy(&self, sandbox: &SandboxId) -> Result<()> {
        self.0.destroy(sandbox).await
    }
}

/// A sandbox whose commands are really run, in `root`, after `edit` changed their text and before `damage` changes what
/// they wrote.
pub(crate) async fn tampered(
    root: &Path,
    edit: impl Fn(&str) -> String + Send + 'static,
    damage: impl Fn(&mut CommandResult) + Send + 'static,
) -> (Minimal, SandboxId) {
    let (backend, id) = minimal().await;
    let root = root.to_owned();
    backend.0.answer_commands(move |command| {
        let Invocation::Shell(text) = &command.invocation else { panic!("a shell command") };
        let output = Command::new("sh").args(["-c", &edit(text)]).current_dir(&root).output().expect("sh");
        let mut result =
            CommandResult::exited(output.status.code().unwrap_or(-1), output.stdout, output.stderr);
        damage(&mut result);
        Ok(result)
    });
    (backend, id)
}

fn replaced(result: &mut CommandResult, from: &str, to: &str) {
    let stdout = String::from_utf8(result.stdout.bytes.to_vec()).expect("text");
    assert!(stdout.contains(from), "{stdout:?} has no {from:?}");
    result.stdout = Captured::complete(stdout.replacen(from, to, 1));
}

async fn minimal() -> (Minimal, SandboxId) {
    let backend = Minimal(RecordingBackend::new());
    let id = backend.create(&SandboxSpec::default()).await.expect("a sandbox").id;
    (backend, id)
}

#[tokio::test]
async fn bd_01_round_trip_of_every_byte_in_a_nested_path() {
    let content: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    for guest in guests().await {
        guest.write("a/b/c.bin", &content).await.expect("written");
        assert_eq!(guest.read("a/b/c.bin", 512).await.expect("read"), content);
        assert_eq!(fs::read(guest.root.join("a/b/c.bin")).expect("a file"), content);
        let absolute = guest.root.join("./a/../d.bin");
        guest.write(absolute.as_os_str().as_bytes(), b"").await.expect("written");
        assert_eq!(guest.read("d.bin", 0).await.expect("read"), b"");
    }
}

#[tokio::test]
async fn bd_02_hostile_names_are_names() {
    let names: Vec<&[u8]> = vec![
        b"a b",
        b" a",
        b"a ",
        b"a\t",
        b"it's",
        b"say \"hi\"",
        b"a;touch pwned",
        b"$HOME",
        b"$(touch pwned)",
        b"`touch pwned`",
        b"a\nb",
        b"\n",
        b"a\n",
        b"*",
        b"[a-z]*",
        b"?",
        b"\\",
        b"%s%n",
        b"~",
        b"#",
        b"'; import os; os.system(\"touch pwned\")#",
        b"{a,b}",
        b"!!",
        b"a: Permission denied",
        b"\xff\xfe",
        b"\x01\x7f\x80\x81\x88\x9f",
        "é€😀\u{2028}".as_bytes(),
    ];
    for guest in guests().await {
        for name in &names {
            let content = name.repeat(3);
            guest.write(*name, &content).await.expect("written");
            assert_eq!(guest.read(*name, 1000).await.expect("read"), content, "{}", path(*name));
        }
        let mut expected: Vec<DirectoryEntry> =
            names.iter().map(|name| entry(*name, EntryKind::File, Some(name.len() as u64 * 3))).collect();
        expected.sort_by(|one, other| one.name.cmp(&other.name));
        assert_eq!(guest.list(".").await.expect("listed").entries, expected);
    }
}

#[tokio::test]
async fn bd_03_what_is_not_a_file_is_an_error_of_its_own() {
    for guest in guests().await {
        fs::create_dir(guest.root.join("dir")).expect("a directory");
        fs::write(guest.root.join("file"), "x").expect("a file");
        symlink("dir", guest.root.join("link")).expect("a link");
        mkfifo(&guest.root.join("fifo"));
        let read = async |path: &str| kind(guest.read(path, 10).await);
        assert_eq!(read("missing").await, ErrorKind::NotFound);
        assert_eq!(read("missing/x").await, ErrorKind::NotFound);
        assert_eq!(read("dir").await, ErrorKind::IsADirectory);
        assert_eq!(read("dir/").await, ErrorKind::IsADirectory);
        assert_eq!(read(".").await, ErrorKind::IsADirectory);
        assert_eq!(read("link").await, ErrorKind::IsADirectory);
        assert_eq!(read("file/x").await, ErrorKind::NotADirectory);
        assert_eq!(read("file/").await, ErrorKind::NotADirectory);
        assert_eq!(read("fifo").await, ErrorKind::NotARegularFile);
        assert_eq!(read("/dev/zero").await, ErrorKind::NotARegularFile);
        let text = guest.read("dir", 10).await.expect_err("an error").to_string();
        assert!(text.contains("list_directory") && text.contains("path dir"), "{text}");
    }
}

#[tokio::test]
async fn bd_03_the_statuses_of_helpers_are_reserved() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    fs::create_dir(guest.root.join("dir")).expect("a directory");
    fs::write(guest.root.join("large"), "too large").expect("a file");
    for (path, status) in [("missing", 66), ("dir", 67), ("/dev/null", 68), ("large", 69)] {
        // The same text again, to see the exit status that the operation saw.
        guest.read(path, 3).await.expect_err("an error");
        let Invocation::Shell(text) = guest.backend.commands().last().expect("a command").invocation.clone()
        else {
            panic!("a shell command");
        };
        let limit = OutputLimit::new(4096).expect("a limit");
        let again = CommandRequest::shell(text, seconds(10.0), limit);
        let result = guest.backend.run_command(&guest.id, again).await.expect("a result");
        assert_eq!(result.ending, Ending::Exited(status), "{path}");
    }
}

#[tokio::test]
async fn bd_04_read_cap_is_enforced_inside_the_guest() {
    for guest in guests().await {
        // Sparse, so that only a reader that stops in time is fast.
        let file = fs::File::create(guest.root.join("huge")).expect("a file");
        file.set_len(1 << 40).expect("a size");
        assert_eq!(
            kind(guest.read("huge", 1000).await),
            ErrorKind::FileTooLarge { size_bytes: 1 << 40, limit_bytes: 1000 }
        );
        fs::write(guest.root.join("exact"), vec![b'x'; 1000]).expect("a file");
        assert_eq!(guest.read("exact", 1000).await.expect("read").len(), 1000);
        assert_eq!(
            kind(guest.read("exact", 999).await),
            ErrorKind::FileTooLarge { size_bytes: 1000, limit_bytes: 999 }
        );
        for command in guest.backend.commands() {
            assert!(command.stdout_bytes <= 2 * 1000 + 4096, "{command:?}");
        }
    }
}

/// Files in /proc claim to be empty; they are measured by their content, and never read beyond the cap.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn bd_04_files_of_reported_size_0_are_measured_by_their_content() {
    for guest in guests().await {
        let version = guest.read("/proc/version", 4096).await.expect("read");
        assert_eq!(version, fs::read("/proc/version").expect("a file"));
        assert_eq!(
            kind(guest.read("/proc/version", 5).await),
            ErrorKind::FileTooLarge { size_bytes: 6, limit_bytes: 5 }
        );
        // Endless for all purposes, of size 0, and readable in multiples of 8 bytes only.
        assert_eq!(
            kind(guest.read("/proc/self/pagemap", 7).await),
            ErrorKind::FileTooLarge { size_bytes: 8, limit_bytes: 7 }
        );
    }
}

#[tokio::test]
async fn bd_05_dangling_links_loops_and_over_long_names_do_not_exist() {
    for guest in guests().await {
        symlink("nowhere", guest.root.join("dangling")).expect("a link");
        symlink("loop", guest.root.join("loop")).expect("a link");
        assert_eq!(kind(guest.read("dangling", 10).await), ErrorKind::NotFound);
        assert_eq!(kind(guest.read("loop", 10).await), ErrorKind::NotFound);
        assert_eq!(kind(guest.read("n".repeat(256), 10).await), ErrorKind::NotFound);
        assert_eq!(kind(guest.write("loop", b"").await), ErrorKind::NotFound);
        assert_eq!(kind(guest.write("n".repeat(256), b"").await), ErrorKind::NotFound);
        assert_eq!(kind(guest.read("", 10).await), ErrorKind::NotFound);
        assert_eq!(kind(guest.read("a\0b", 10).await), ErrorKind::InvalidArgument);
        assert!(guest.leftovers().is_empty());
    }
}

#[tokio::test]
async fn bd_06_listings_are_lossless_with_type_and_size() {
    for guest in guests().await {
        let sub = guest.root.join("sub");
        fs::create_dir_all(sub.join("inner/deeper")).expect("directories");
        fs::write(sub.join("new\nline.txt"), "12345").expect("a file");
        fs::write(sub.join(".hidden"), "").expect("a file");
        fs::write(sub.join("-dash"), "1").expect("a file");
        symlink("inner", sub.join("link")).expect("a link");
        symlink("nowhere", sub.join("dangling")).expect("a link");
        mkfifo(&sub.join("fifo"));
        let expected = vec![
            entry("-dash", EntryKind::File, Some(1)),
            entry(".hidden", EntryKind::File, Some(0)),
            entry("dangling", EntryKind::Symlink, None),
            entry("fifo", EntryKind::Other, None),
            entry("inner", EntryKind::Directory, None),
            entry("link", EntryKind::Symlink, None),
            entry("new\nline.txt", EntryKind::File, Some(5)),
        ];
        assert_eq!(guest.list("sub").await.expect("listed"), Listing { entries: expected, remaining: 0 });
        assert_eq!(kind(guest.list("missing").await), ErrorKind::NotFound);
        let empty = Listing { entries: Vec::new(), remaining: 0 };
        assert_eq!(guest.list("sub/inner/deeper").await.expect("listed"), empty);
    }
}

#[tokio::test]
async fn ld_10_a_file_is_not_a_directory_and_a_link_to_one_is() {
    for guest in guests().await {
        fs::create_dir(guest.root.join("sub")).expect("a directory");
        fs::write(guest.root.join("sub/a"), "").expect("a file");
        symlink("sub", guest.root.join("link")).expect("a link");
        symlink("sub/a", guest.root.join("to-file")).expect("a link");
        symlink("nowhere", guest.root.join("dangling")).expect("a link");
        let listing = Listing { entries: vec![entry("a", EntryKind::File, Some(0))], remaining: 0 };
        for path in ["sub", "sub/", "link", "link/", "./link/../sub"] {
            assert_eq!(guest.list(path).await.expect(path), listing, "{path}");
        }
        assert_eq!(kind(guest.list("sub/a").await), ErrorKind::NotADirectory);
        assert_eq!(kind(guest.list("to-file").await), ErrorKind::NotADirectory);
        assert_eq!(kind(guest.list("dangling").await), ErrorKind::NotFound);
        assert_eq!(kind(guest.list("/dev/null").await), ErrorKind::NotADirectory);
    }
}

#[tokio::test]
async fn ld_11_paths_that_begin_with_a_dash_are_paths() {
    for guest in guests().await {
        guest.write("-dash/-n", b"-e").await.expect("written");
        assert_eq!(guest.read("-dash/-n", 10).await.expect("read"), b"-e");
        let listing = Listing { entries: vec![entry("-n", EntryKind::File, Some(2))], remaining: 0 };
        assert_eq!(guest.list("-dash").await.expect("listed"), listing);
    }
}

#[tokio::test]
async fn p_62_large_directories_are_paged_in_a_stable_order() {
    for shell in shells() {
        let guest = Guest::new(backend_over(&shell)).await;
        let sub = guest.root.join("sub");
        fs::create_dir(&sub).expect("a directory");
        // More names than fit into one argument list of `find -exec … +`.
        let names: Vec<String> = (0..700).map(|n| format!("{n:04}-{}", "long name ".repeat(24))).collect();
        for name in &names {
            fs::write(sub.join(name), "").expect("a file");
        }
        let mut seen = Vec::new();
        loop {
            let after = seen.last().map(|entry: &DirectoryEntry| entry.name.clone());
            let request = ListRequest { max_entries: NonZeroUsize::new(300).expect("a size"), after };
            let page = guest.backend.list_directory(&guest.id, &path("sub"), request).await.expect("a page");
            seen.extend(page.entries);
            assert_eq!(seen.len() as u64 + page.remaining, 700);
            if page.remaining == 0 {
                break;
            }
        }
        let expected: Vec<DirectoryEntry> =
            names.iter().map(|name| entry(name.as_bytes(), EntryKind::File, Some(0))).collect();
        assert!(seen == expected);
    }
}

#[tokio::test]
async fn bd_07_content_has_no_limit_of_an_argument_list() {
    // 100 kB of text, and of bytes that take four characters each, and 3 MiB where that is one command (P51).
    let text = "0123456789abcde\n".repeat(6400).into_bytes();
    let binary = vec![0xff; 100_000];
    for guest in guests().await {
        for content in [&text, &binary] {
            guest.write("deep/er/file", content).await.expect("written");
            assert!(guest.read("deep/er/file", 200_000).await.expect("read") == *content);
        }
        assert!(fs::read_dir(guest.root.join("deep/er")).expect("a directory").count() == 1, "no leftovers");
        for command in guest.backend.commands() {
            let Invocation::Shell(text) = command.invocation else { panic!("a shell command") };
            assert!(text.len() < 128 << 10, "one argument of {} bytes", text.len());
        }
    }
    let guest = Guest::new(LocalShellBackend::new()).await;
    let large: Vec<u8> = (0u32..3 << 18).flat_map(u32::to_le_bytes).collect();
    guest.write("large", &large).await.expect("written");
    assert!(guest.read("large", 3 << 20).await.expect("read") == large);
}

#[tokio::test]
async fn bd_07_a_write_in_chunks_goes_to_one_place_and_cleans_up() {
    let guest = Guest::new(LocalShellBackend::new().without_stdin()).await;
    fs::create_dir_all(guest.root.join("real dir\n")).expect("a directory");
    fs::write(guest.root.join("real dir\n/target"), "old").expect("a file");
    symlink("real dir\n/target", guest.root.join("link")).expect("a link");
    let content = vec![0u8; 50_000];
    guest.write("link", &content).await.expect("written");
    assert!(guest.root.join("link").is_symlink());
    assert!(fs::read(guest.root.join("real dir\n/target")).expect("a file") == content);

    // What fails after the first chunk leaves the old content, and no temporary file.
    let spoil = |number: usize, root: &Path| {
        if number == 3 {
            let entries = fs::read_dir(root).expect("the root").map(|entry| entry.expect("an entry"));
            for entry in entries.filter(|entry| entry.file_name().as_bytes().starts_with(b".ringfence")) {
                fs::write(entry.path(), "spoiled").expect("a file");
            }
        }
    };
    let guest = Guest::new(LocalShellBackend::new().without_stdin().before_command(spoil)).await;
    fs::write(guest.root.join("file"), "old").expect("a file");
    let error = guest.write("file", &content).await.expect_err("an error");
    assert!(error.message().contains("not all of the content arrived"), "{error}");
    assert_eq!(fs::read(guest.root.join("file")).expect("a file"), b"old");
    assert!(guest.leftovers().is_empty());
}

#[tokio::test]
async fn bd_08_helpers_have_a_budget_of_time_and_output() {
    for stdin in [true, false] {
        let mut backend = LocalShellBackend::new();
        if !stdin {
            backend = backend.without_stdin();
        }
        let guest = Guest::new(backend).await;
        guest.write("a", b"1").await.expect("written");
        guest.read("a", 1000).await.expect("read");
        guest.list(".").await.expect("listed");
        let limits: Vec<usize> =
            guest.backend.commands().iter().map(|command| command.output_limit).collect();
        assert_eq!(limits, [1 << 20, 2 * 1000 + 4096, 32 << 20]);
        for command in guest.backend.commands() {
            assert_eq!(command.timeout, Duration::from_secs(120));
        }
    }
}

/// Many commands that are each in time are still one operation.
#[tokio::test(start_paused = true)]
async fn bd_08_a_write_in_chunks_has_one_budget() {
    let root = tempfile::tempdir().expect("a folder");
    let (backend, id) = tampered(root.path(), str::to_owned, |_| {}).await;
    backend.0.set_command_delay(Duration::from_secs(50));
    let start = tokio::time::Instant::now();
    let error = backend.write_file(&id, &path("file"), &[0; 100_000]).await.expect_err("late");
    assert_eq!((error.kind(), error.fact("allowance")), (&ErrorKind::DeadlineExceeded, Some("120 s")));
    // The command that begins, the allowance, and the one that cleans up.
    assert_eq!(start.elapsed(), Duration::from_secs(50 + 120 + 50));
    assert_eq!(fs::read_dir(root.path()).expect("the folder").count(), 0);
}

#[tokio::test]
async fn bd_08_a_helper_that_runs_out_of_time_is_a_deadline() {
    let (backend, id) = minimal().await;
    let timed_out = CommandResult { ending: Ending::TimedOut, ..CommandResult::exited(0, "", "") };
    backend.0.set_command_result(timed_out);
    assert_eq!(kind(backend.read_file(&id, &path("a"), 1).await), ErrorKind::DeadlineExceeded);
    assert_eq!(kind(backend.write_file(&id, &path("a"), b"").await), ErrorKind::DeadlineExceeded);
    let listed = backend.list_directory(&id, &path("a"), ListRequest::default()).await;
    assert_eq!(kind(listed), ErrorKind::DeadlineExceeded);
    assert_eq!(
        kind(backend.export_file(&id, &path("a"), 1, &mut Vec::new()).await),
        ErrorKind::DeadlineExceeded
    );
}

/// What is left of a listing that its backend cut must not pass for the listing.
#[tokio::test]
async fn bd_09_a_cut_listing_is_an_error() {
    let root = tempfile::tempdir().expect("a folder");
    for name in ["one", "two", "three"] {
        fs::write(root.path().join(name), "").expect("a file");
    }
    for keep in [100, 95, 60, 30, 0] {
        let cut = move |result: &mut CommandResult| {
            let from = result.stdout.bytes.len() * (100 - keep) / 100;
            result.stdout.bytes = result.stdout.bytes.slice(from..);
            result.stdout.truncated = from > 0;
        };
        let (backend, id) = tampered(root.path(), str::to_owned, cut).await;
        match backend.list_directory(&id, &path("."), ListRequest::default()).await {
            Ok(listing) => assert_eq!((keep, listing.entries.len()), (100, 3)),
            Err(error) => {
                assert!(keep < 100 && error.message().contains("larger than was allowed"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn bd_09_a_damaged_listing_is_an_error() {
    let root = tempfile::tempdir().expect("a folder");
    fs::write(root.path().join("one"), "").expect("a file");
    fs::write(root.path().join("two"), "").expect("a file");
    for (from, to) in [
        ("./one\0", "./one\0./three\0"),
        ("./one\0", ""),
        ("./one\0", "./o/ne\0"),
        ("./one\0", "one\0"),
        ("./one\0", "./\0"),
        ("./one\0", "./.\0"),
        ("./one\0", "./..\0"),
        ("./one\0", "stray\n./one\0"),
        (" 0\n", " x\n"),
        (" 0\n", " 0\nstray\n"),
        (" 0\n", " 0\n\0"),
    ] {
        let damage = move |result: &mut CommandResult| replaced(result, from, to);
        let (backend, id) = tampered(root.path(), str::to_owned, damage).await;
        let error = backend.list_directory(&id, &path("."), ListRequest::default()).await.expect_err(to);
        assert!(error.message().contains("cannot be trusted"), "{error}");
    }
}

/// Many names of few bytes take far more room here than on the way.
#[tokio::test]
async fn bd_09_a_listing_of_too_many_names_is_an_error() {
    let root = tempfile::tempdir().expect("a folder");
    let lie = |text: &str| text.replace("find . ! -name . -prune", "head -c 2000000 /dev/zero; :");
    let (backend, id) = tampered(root.path(), lie, |_| {}).await;
    let error = backend.list_directory(&id, &path("."), ListRequest::default()).await.expect_err("too many");
    assert!(error.message().contains("larger than was allowed"), "{error}");
}

/// Entries of /proc come and go while they are listed.
#[tokio::test]
async fn bd_06_an_entry_that_vanishes_is_no_failure() {
    let root = tempfile::tempdir().expect("a folder");
    fs::write(root.path().join("stays"), "").expect("a file");
    fs::write(root.path().join("vanishes"), "").expect("a file");
    let race = |text: &str| {
        text.replace("if m=$(stat", "rm -f vanishes; if m=$(stat")
            .replace("end 0 $?", "echo \"find: ./x: No such file or directory\" >&2; end 0 1")
    };
    let (backend, id) = tampered(root.path(), race, |_| {}).await;
    let listing = backend.list_directory(&id, &path("."), ListRequest::default()).await.expect("listed");
    assert_eq!(listing, Listing { entries: vec![entry("stays", EntryKind::File, None)], remaining: 0 });
    let fault = |text: &str| text.replace("end 0 $?", "echo \"find: .: Input/output error\" >&2; end 0 1");
    let (backend, id) = tampered(root.path(), fault, |_| {}).await;
    let error = backend.list_directory(&id, &path("."), ListRequest::default()).await.expect_err("an error");
    assert_eq!(error.fact("stderr"), Some("find: .: Input/output error"));
}

/// `base64` and `stat -c` are not POSIX: where they are missing, everything works but the sizes in listings.
#[tokio::test]
async fn bd_01_posix_tools_are_enough() {
    let root = tempfile::tempdir().expect("a folder");
    let posix = |text: &str| {
        assert!(text.contains("command -v base64") && (text.contains("stat -c") || !text.contains("find .")));
        text.replace("command -v base64", "false").replace("stat -c", "no-such-tool -c")
    };
    let (backend, id) = tampered(root.path(), posix, |_| {}).await;
    let content: Vec<u8> = (0..=255u8).cycle().take(50_000).collect();
    for content in [&content[..], b"", b"\n"] {
        backend.write_file(&id, &path("sub/file\n"), content).await.expect("written");
        assert!(backend.read_file(&id, &path("sub/file\n"), 50_000).await.expect("read") == content);
        let mut sink = Vec::new();
        backend.export_file(&id, &path("sub/file\n"), 50_000, &mut sink).await.expect("exported");
        assert!(sink == content);
    }
    let too_large = ErrorKind::FileTooLarge { size_bytes: 1, limit_bytes: 0 };
    assert_eq!(kind(backend.read_file(&id, &path("sub/file\n"), 0).await), too_large);
    symlink("nowhere", root.path().join("sub/link")).expect("a link");
    fs::create_dir(root.path().join("sub/dir")).expect("a directory");
    mkfifo(&root.path().join("sub/fifo"));
    let entries = vec![
        entry("dir", EntryKind::Directory, None),
        entry("fifo", EntryKind::Other, None),
        entry("file\n", EntryKind::File, None),
        entry("link", EntryKind::Symlink, None),
    ];
    let listing = backend.list_directory(&id, &path("sub"), ListRequest::default()).await.expect("listed");
    assert_eq!(listing, Listing { entries, remaining: 0 });
}

/// A file that cannot be read to its end is not handed out as a short one.
#[tokio::test]
async fn bd_04_a_read_that_breaks_off_is_an_error() {
    let root = tempfile::tempdir().expect("a folder");
    fs::write(root.path().join("file"), "some content").expect("a file");
    let breaks = |text: &str| text.replace("head -c", "printf some; false");
    let (backend, id) = tampered(root.path(), breaks, |_| {}).await;
    let error = backend.read_file(&id, &path("file"), 100).await.expect_err("an error");
    assert!(error.message().contains("could not be read to its end"), "{error}");
}

#[tokio::test]
async fn bd_10_what_a_profile_prints_does_not_matter() {
    let profile = "echo welcome; printf '0\\n66\\n'; echo oops >&2; printf 'no newline'\n\
                   printf '%s' \"${BASH_EXECUTION_STRING-}\"\n\
                   trap 'echo goodbye' 0\n\
                   alias cat=false ls=false printf=false\n\
                   cat() { echo cat; }; ls() { echo ls; }; printf() { echo printf; }; env() { echo env; }\n\
                   IFS=r; cd . ; CDPATH=/; set -f; umask 022";
    for shell in shells() {
        for stdin in [true, false] {
            let mut backend = backend_over(&shell).with_profile(profile);
            if !stdin {
                backend = backend.without_stdin();
            }
            let guest = Guest::new(backend).await;
            let content: Vec<u8> = (0..=255).collect();
            guest.write("a/b", &content).await.expect("written");
            assert_eq!(guest.read("a/b", 256).await.expect("read"), content, "{shell:?}");
            let listing = Listing { entries: vec![entry("b", EntryKind::File, Some(256))], remaining: 0 };
            assert_eq!(guest.list("a").await.expect("listed"), listing);
            assert_eq!(kind(guest.read("missing", 1).await), ErrorKind::NotFound);
        }
    }
}

#[tokio::test]
async fn bd_10_a_profile_that_prints_more_than_the_cap_does_not_matter() {
    let noise = "head -c 100000 /dev/zero | tr '\\0' x";
    let guest = Guest::new(LocalShellBackend::new().with_profile(noise)).await;
    fs::write(guest.root.join("a"), "content").expect("a file");
    assert_eq!(guest.read("a", 7).await.expect("read"), b"content");
}

#[tokio::test]
async fn bd_10_noise_inside_the_frame_is_noticed() {
    let root = tempfile::tempdir().expect("a folder");
    fs::write(root.path().join("file"), "some content of a file").expect("a file");
    for noise in ["c29tQUJD", "c29t*", "c29t=", "c29tQ", "c29t QUJD"] {
        let damage = move |result: &mut CommandResult| replaced(result, "c29t", noise);
        let (backend, id) = tampered(root.path(), str::to_owned, damage).await;
        let error = backend.read_file(&id, &path("file"), 1000).await.expect_err(noise);
        assert!(error.message().contains("cannot be trusted"), "{error}");
    }
}

#[tokio::test]
async fn bd_10_no_answer_is_an_error_that_shows_why() {
    let (backend, id) = minimal().await;
    backend.0.set_command_result(CommandResult::exited(127, "", "sh: not found\n"));
    let error = backend.read_file(&id, &path("a"), 1).await.expect_err("an error");
    assert_eq!((error.kind(), error.fact("stderr")), (&ErrorKind::Unexpected, Some("sh: not found")));
}

#[tokio::test]
async fn bd_11_writes_are_atomic_and_keep_the_mode() {
    for guest in guests().await {
        let file = guest.root.join("file");
        for mode in [0o600, 0o644, 0o751, 0o777] {
            fs::write(&file, "a longer old content").expect("a file");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a mode");
            let old = fs::File::open(&file).expect("a file");
            guest.write("file", b"new").await.expect("written");
            assert_eq!(fs::read(&file).expect("a file"), b"new", "nothing of the old tail (P60)");
            assert_eq!(fs::metadata(&file).expect("metadata").permissions().mode() & 0o7777, mode);
            // Whoever had the old file open still sees all of it.
            assert_eq!(std::io::read_to_string(old).expect("the old content"), "a longer old content");
        }
        assert!(guest.leftovers().is_empty());
    }
}

#[tokio::test]
async fn bd_11_a_write_that_fails_leaves_the_old_content() {
    for shell in shells() {
        // A file-size limit stands for a full disk: the temporary file cannot be filled.
        let backend = backend_over(&shell).with_profile("trap '' XFSZ 2>/dev/null; ulimit -f 8");
        let guest = Guest::new(backend).await;
        fs::write(guest.root.join("file"), "old").expect("a file");
        guest.write("file", &vec![b'x'; 1 << 20]).await.expect_err("an error");
        assert_eq!(fs::read(guest.root.join("file")).expect("a file"), b"old");
        assert!(guest.leftovers().is_empty());
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn bd_11_a_full_disk_is_said_to_be_full() {
    for guest in guests().await {
        symlink("/dev/full", guest.root.join("full")).expect("a link");
        // Not a regular file, so never written to; the text of a full disk is proved below the operation.
        assert_eq!(kind(guest.write("full", b"x").await), ErrorKind::NotARegularFile);
    }
    let root = tempfile::tempdir().expect("a folder");
    let full = |text: &str| text.replace("| cat 2>&1 >>\"$t\"", "| cat 2>&1 >>/dev/full");
    let (backend, id) = tampered(root.path(), full, |_| {}).await;
    assert_eq!(kind(backend.write_file(&id, &path("a"), b"x").await), ErrorKind::StorageFull);
    assert_eq!(fs::read_dir(root.path()).expect("the folder").count(), 0);
}

#[tokio::test]
async fn p_65_links_are_followed_and_their_target_is_replaced() {
    for guest in guests().await {
        fs::create_dir(guest.root.join("dir")).expect("a directory");
        fs::write(guest.root.join("dir/target"), "old").expect("a file");
        symlink("dir/target", guest.root.join("link")).expect("a link");
        symlink("link", guest.root.join("link-to-link")).expect("a link");
        symlink("../new file", guest.root.join("dir/dangling")).expect("a link");
        let absolute = guest.root.join("dir/abs-target");
        symlink(&absolute, guest.root.join("absolute")).expect("a link");
        symlink("dir", guest.root.join("dir-link")).expect("a link");

        guest.write("link-to-link", b"new").await.expect("written");
        assert!(guest.root.join("link").is_symlink() && guest.root.join("link-to-link").is_symlink());
        assert_eq!(fs::read(guest.root.join("dir/target")).expect("a file"), b"new");

        guest.write("dir-link/dangling", b"through").await.expect("written");
        assert_eq!(fs::read(guest.root.join("new file")).expect("a file"), b"through");
        guest.write("absolute", b"abs").await.expect("written");
        assert_eq!(fs::read(absolute).expect("a file"), b"abs");
        assert_eq!(guest.read("link-to-link", 10).await.expect("read"), b"new");
        assert_eq!(kind(guest.write("dir-link", b"").await), ErrorKind::IsADirectory);
    }
}

/// `..` after a link to a directory means what the kernel means by it.
#[tokio::test]
async fn p_65_dots_after_a_link_are_the_parents_of_its_target() {
    for guest in guests().await {
        fs::create_dir_all(guest.root.join("one/two")).expect("directories");
        symlink("one/two", guest.root.join("link")).expect("a link");
        guest.write("link/../file", b"x").await.expect("written");
        assert_eq!(fs::read(guest.root.join("one/file")).expect("a file"), b"x");
        assert_eq!(guest.read("link/../file", 1).await.expect("read"), b"x");
        assert_eq!(guest.list("link/..").await.expect("listed").entries.len(), 2);
    }
}

#[tokio::test]
async fn p_66_writing_where_no_file_can_be() {
    for guest in guests().await {
        fs::create_dir(guest.root.join("dir")).expect("a directory");
        fs::write(guest.root.join("file"), "x").expect("a file");
        mkfifo(&guest.root.join("fifo"));
        let write = async |path: &str| kind(guest.write(path, b"new").await);
        for path in ["dir", "dir/", ".", "..", "/", "dir/.", "new/", "new/.."] {
            assert_eq!(write(path).await, ErrorKind::IsADirectory, "{path}");
        }
        for path in ["file/x", "file/x/y"] {
            assert_eq!(write(path).await, ErrorKind::NotADirectory, "{path}");
        }
        for path in ["fifo", "/dev/null"] {
            assert_eq!(write(path).await, ErrorKind::NotARegularFile, "{path}");
        }
        assert_eq!(fs::read(guest.root.join("file")).expect("a file"), b"x");
        assert!(guest.leftovers().is_empty());
    }
}

#[tokio::test]
async fn p_69_permissions_are_typed_errors() {
    for guest in guests().await {
        let bound = is_bound_by_modes(&guest.root);
        for name in ["shut", "read-only"] {
            fs::create_dir(guest.root.join(name)).expect("a directory");
            fs::write(guest.root.join(name).join("a"), "1").expect("a file");
        }
        fs::write(guest.root.join("secret"), "1").expect("a file");
        for (name, mode) in [("shut", 0o000), ("read-only", 0o555), ("secret", 0o000)] {
            fs::set_permissions(guest.root.join(name), fs::Permissions::from_mode(mode)).expect("a mode");
        }
        let denied = [
            guest.list("shut").await.map(drop),
            guest.read("shut/a", 1).await.map(drop),
            guest.read("secret", 1).await.map(drop),
            guest.write("shut/a", b"2").await,
            guest.write("secret", b"2").await,
            guest.write("read-only/new", b"2").await,
        ];
        let expected = if bound { Some(ErrorKind::PermissionDenied) } else { None };
        for (index, result) in denied.into_iter().enumerate() {
            assert_eq!(result.err().map(|error| error.kind().clone()), expected, "operation {index}");
        }
        // The parent still lists.
        let names: Vec<Vec<u8>> =
            guest.list(".").await.expect("listed").entries.into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, [&b"read-only"[..], b"secret", b"shut"]);
        for name in ["shut", "read-only"] {
            fs::set_permissions(guest.root.join(name), fs::Permissions::from_mode(0o755)).expect("a mode");
        }
    }
}

#[tokio::test]
async fn s_41_planted_tools_are_not_used() {
    for shell in shells() {
        let evil = tempfile::tempdir().expect("a folder");
        for tool in [
            "sh", "env", "ls", "cat", "head", "base64", "od", "tr", "stat", "find", "mv", "rm", "mkdir",
            "chmod", "chown", "readlink", "sed", "wc", "dd", "printf", "test", "[",
        ] {
            let file = evil.path().join(tool);
            fs::write(&file, "#!/bin/sh\necho planted\n: >/tmp/../\"$0\".used\n").expect("a file");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a mode");
        }
        let folder = evil.path().to_str().expect("a path");
        let rc = format!("{folder}/rc");
        fs::write(&rc, "echo planted; cat() { echo planted; }").expect("a file");
        let env = EnvMap::new([
            ("PATH", folder),
            ("IFS", "/r"),
            ("CDPATH", "/tmp"),
            ("POSIXLY_CORRECT", "1"),
            ("TIME_STYLE", "+%Y"),
            ("QUOTING_STYLE", "shell"),
            ("LS_BLOCK_SIZE", "1M"),
            ("BASHOPTS", "failglob:nullglob"),
            ("ENV", &rc),
            ("BASH_ENV", &rc),
            ("LD_PRELOAD", "/nonexistent/planted.so"),
            ("LC_ALL", "de_DE.UTF-8"),
        ]);
        let spec = SandboxSpec::default().with_env(env.expect("env"));
        let backend =
            backend_over(&[which(&shell[0])].into_iter().chain(shell[1..].to_vec()).collect::<Vec<_>>());
        let guest = Guest::with_spec(backend, spec).await;
        guest.write("a/b", b"content").await.expect("written");
        assert_eq!(guest.read("a/b", 10).await.expect("read"), b"content");
        let listing = Listing { entries: vec![entry("b", EntryKind::File, Some(7))], remaining: 0 };
        assert_eq!(guest.list("a").await.expect("listed"), listing);
        let used = || -> Vec<PathBuf> {
            let files =
                fs::read_dir(evil.path()).expect("the folder").map(|entry| entry.expect("an entry").path());
            files.filter(|file| file.extension().is_some_and(|extension| extension == "used")).collect()
        };
        assert_eq!(used(), Vec::<PathBuf>::new(), "{shell:?}");
        // The traps work: an ordinary command falls into them. (BusyBox prefers its own tools to any `PATH`.)
        let limit = OutputLimit::new(1000).expect("a limit");
        let ordinary = CommandRequest::shell("ls", seconds(10.0), limit);
        guest.backend.run_command(&guest.id, ordinary).await.expect("a result");
        if !shell[0].contains("busybox") {
            assert_eq!(used(), [evil.path().join("ls.used")], "{shell:?}");
        }
    }
}

/// The absolute path of a shell, so that the planted `PATH` does not choose another one.
fn which(shell: &str) -> String {
    if shell.contains('/') { shell.to_owned() } else { format!("/bin/{shell}") }
}

#[tokio::test]
async fn er_08_a_sandbox_lost_under_a_file_operation_is_said_to_be_lost() {
    for stdin in [true, false] {
        let operations = ["read", "write", "list", "export"];
        for operation in operations {
            let mut backend = LocalShellBackend::new();
            if !stdin {
                backend = backend.without_stdin();
            }
            let guest = Guest::new(backend).await;
            guest.backend.lose(&guest.id);
            for attempt in ["while it ends", "afterwards"] {
                let error = match operation {
                    "read" => guest.read("a", 1).await.map(drop),
                    "write" => guest.write("a", &[0xff; 50_000]).await,
                    "list" => guest.list(".").await.map(drop),
                    _ => guest.backend.export_file(&guest.id, &path("a"), 1, &mut Vec::new()).await.map(drop),
                };
                let error: Error = error.expect_err("lost");
                assert_eq!(
                    (error.kind(), error.is_terminal()),
                    (&ErrorKind::SandboxLost, true),
                    "{operation} {attempt}"
                );
            }
        }
    }
}

/// Larger than one command takes: read in slices, of a real file.
#[tokio::test]
async fn bd_04_a_large_file_is_read_in_slices() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    let size = shell::SINGLE_READ_BYTES + 1;
    let content: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    fs::write(guest.root.join("large"), &content).expect("a file");
    assert!(guest.read("large", u64::MAX).await.expect("read") == content);
    assert_eq!(
        kind(guest.read("large", size - 1).await),
        ErrorKind::FileTooLarge { size_bytes: size, limit_bytes: size - 1 }
    );
}

#[tokio::test]
async fn bk_06_both_streams_are_drained_independently() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    let limit = OutputLimit::new(1000).expect("a limit");
    let command = "echo out; head -c 1000000 /dev/zero >&2; exit 3";
    let request = CommandRequest::shell(command, seconds(30.0), limit);
    let result = guest.backend.run_command(&guest.id, request).await.expect("a result");
    assert_eq!(
        (result.ending, &result.stdout.bytes[..], result.stdout.truncated),
        (Ending::Exited(3), &b"out\n"[..], false)
    );
    assert_eq!(
        (result.stderr.bytes.len(), result.stderr.truncated, result.stderr.total_bytes),
        (1000, true, 1_000_000)
    );
}

#[tokio::test]
async fn p_17_partial_output_survives_a_timeout_of_the_double() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    let limit = OutputLimit::new(1000).expect("a limit");
    let request = CommandRequest::shell("echo a; sleep 60 & sleep 60", seconds(0.5), limit);
    let result = guest.backend.run_command(&guest.id, request).await.expect("a result");
    assert_eq!(result, CommandResult { ending: Ending::TimedOut, ..CommandResult::exited(0, "a\n", "") });
}

#[tokio::test]
async fn bk_11_a_background_process_does_not_hold_the_double() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    let limit = OutputLimit::new(1000).expect("a limit");
    let request = CommandRequest::shell("sleep 20 & echo started", seconds(30.0), limit);
    let start = std::time::Instant::now();
    let result = guest.backend.run_command(&guest.id, request).await.expect("a result");
    assert_eq!(result, CommandResult::exited(0, "started\n", ""));
    assert!(start.elapsed() < Duration::from_secs(5));
}
