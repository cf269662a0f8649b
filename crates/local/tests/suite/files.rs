//! Files: names are bytes, content is exact, nothing hangs, nothing is half done.

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use ringfence_core::{
    Backend, ByteSize, DirectoryEntry, EntryKind, ErrorKind, GuestPath, Limits, ListRequest, Listing, Pids,
};
use tokio::io::AsyncWrite;

use super::support::{Box, Marker, Said, assert_took, facts, has_process_limit, path, shell, timed, until};

/// A file of `/sys` on every kernel.
const KERNEL_NUMBER: &str = "/sys/kernel/uevent_seqnum";

fn disk(bytes: u64) -> Limits {
    Limits { disk: Some(ByteSize::from_bytes(bytes).unwrap()), ..Limits::default() }
}

fn file(name: impl AsRef<[u8]>, size: u64) -> DirectoryEntry {
    DirectoryEntry { name: name.as_ref().to_vec(), kind: EntryKind::File, size_bytes: Some(size) }
}

fn entry(name: impl AsRef<[u8]>, kind: EntryKind) -> DirectoryEntry {
    DirectoryEntry { name: name.as_ref().to_vec(), kind, size_bytes: None }
}

impl Box {
    async fn list(&self, name: impl AsRef<[u8]>) -> Result<Vec<DirectoryEntry>, ErrorKind> {
        let listed = self.backend.list_directory(&self.id, &path(name), ListRequest::default()).await;
        listed.map(|listing| listing.entries).map_err(|error| error.kind().clone())
    }

    async fn page(&self, name: &str, max_entries: usize, after: Option<&str>) -> Listing {
        let after = after.map(|name| name.as_bytes().to_vec());
        let max_entries = NonZeroUsize::new(max_entries).unwrap();
        self.backend.list_directory(&self.id, &path(name), ListRequest { max_entries, after }).await.unwrap()
    }

    async fn read_at_most(&self, name: &str, limit_bytes: u64) -> Result<Vec<u8>, ErrorKind> {
        let content = self.backend.read_file(&self.id, &path(name), limit_bytes).await;
        content.map_err(|error| error.kind().clone())
    }

    async fn export(&self, name: &str, limit_bytes: u64) -> (Result<u64, ErrorKind>, Vec<u8>) {
        let mut sink = Vec::new();
        let copied = self.backend.export_file(&self.id, &path(name), limit_bytes, &mut sink).await;
        (copied.map_err(|error| error.kind().clone()), sink)
    }
}

fn every_byte() -> Vec<u8> {
    (0..=255).collect()
}

#[tokio::test]
async fn bd_01_content_round_trips_and_parents_are_made() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.write("a/b/c.bin", every_byte()).await, Ok(()));
    assert_eq!(sandbox.read("a/b/c.bin").await, Ok(every_byte()));
    assert_eq!(sandbox.read("/workspace/a/../a/./b//c.bin").await, Ok(every_byte()));
    assert_eq!(
        sandbox.run("stat -c '%a %U' a a/b a/b/c.bin").await,
        Said::ok("755 sandbox\n755 sandbox\n644 sandbox\n")
    );
    assert_eq!(sandbox.write("empty", b"").await, Ok(()));
    assert_eq!(sandbox.read("empty").await, Ok(Vec::new()));
}

#[tokio::test]
async fn bd_02_names_are_only_names() {
    let sandbox = Box::new().await;
    let names: [&[u8]; 14] = [
        b"a b",
        b"'",
        b"\"",
        b";",
        b"$HOME",
        b"a ",
        b" a",
        b"a\t",
        b"a\nb",
        b"\xff\xfe",
        b"-rf",
        b"*",
        b"\\",
        b"'; import os; os.system(\"touch p\")#",
    ];
    for name in names {
        let content = [b"in ", name].concat();
        assert_eq!(sandbox.write(name, &content).await, Ok(()), "{}", name.escape_ascii());
        assert_eq!(sandbox.read(name).await, Ok(content), "{}", name.escape_ascii());
    }
    let mut expected: Vec<DirectoryEntry> =
        names.iter().map(|name| file(name, 3 + name.len() as u64)).collect();
    expected.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(sandbox.list(".").await, Ok(expected));
}

#[tokio::test]
async fn p_50_a_path_is_not_code() {
    let sandbox = Box::new().await;
    let name = "'; import os; os.system(\"touch /tmp/p\")#";
    assert_eq!(sandbox.read(name).await, Err(ErrorKind::NotFound));
    assert_eq!(sandbox.list("/tmp").await, Ok(Vec::new()));
}

#[tokio::test]
async fn p_51_large_files_round_trip() {
    let sandbox = Box::new().await;
    for size in [20_000, 100 << 10, 120_000, 3 << 20, 64 << 20] {
        let content: Vec<u8> =
            (0..size).map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let (written, took) = timed(sandbox.write("f", &content)).await;
        assert_eq!(written, Ok(()));
        if size <= 120_000 {
            assert_took(took, 0.0, 0.1);
        }
        assert!(sandbox.read("f").await.unwrap() == content, "{size} bytes");
    }
    assert_eq!(sandbox.list(".").await, Ok(vec![file("f", 64 << 20)]));
}

#[tokio::test]
async fn p_53_twenty_kilobytes_are_there_when_the_write_is_done() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.write("f", vec![b'x'; 20_000]).await, Ok(()));
    assert_eq!(sandbox.run("wc -c < f").await, Said::ok("20000\n"));
    assert!(sandbox.read("f").await.unwrap() == vec![b'x'; 20_000]);
}

#[tokio::test]
async fn p_54_a_hundred_and_twenty_kilobytes_are_written_at_once() {
    let sandbox = Box::new().await;
    let (written, took) = timed(sandbox.write("f", vec![b'x'; 120_000])).await;
    assert_eq!(written, Ok(()));
    assert_took(took, 0.0, 0.1);
    assert_eq!(sandbox.run("wc -c < f").await, Said::ok("120000\n"));
}

#[tokio::test]
async fn p_56_blanks_at_the_ends_of_a_name_belong_to_it() {
    let sandbox = Box::new().await;
    let names = ["\tz", " a", " a ", "a\t", "a "];
    for name in names {
        assert_eq!(sandbox.write(name, name).await, Ok(()));
    }
    for name in names {
        assert_eq!(sandbox.read(name).await, Ok(name.as_bytes().to_vec()), "{name:?}");
    }
    let listed = sandbox.list(".").await.unwrap();
    let found: Vec<_> = listed.into_iter().map(|entry| entry.name).collect();
    assert_eq!(found, names.map(|name| name.as_bytes().to_vec()));
}

#[tokio::test]
async fn p_59_an_archive_is_read_byte_by_byte() {
    let sandbox = Box::new().await;
    // The end of an empty archive, with bytes that no text has.
    let archive = [b"PK\x05\x06".as_slice(), &[0; 16], &[0xff, 0xfe, b'\r', b'\n', 0]].concat();
    assert_eq!(sandbox.write("a.zip", &archive).await, Ok(()));
    assert_eq!(sandbox.run("od -An -tx1 -N4 a.zip").await, Said::ok(" 50 4b 05 06\n"));
    assert_eq!(sandbox.read("a.zip").await, Ok(archive));
}

#[tokio::test]
async fn p_51_sizes_around_the_inline_limit_round_trip() {
    let sandbox = Box::new().await;
    for size in [(32 << 10) - 1, 32 << 10, (32 << 10) + 1, (48 << 10) - 100, 64 << 10, (256 << 10) + 1] {
        let content = vec![b'x'; size];
        assert_eq!(sandbox.write("f", &content).await, Ok(()), "{size}");
        assert!(sandbox.read("f").await.unwrap() == content, "{size}");
    }
}

#[tokio::test]
async fn p_52_commands_and_file_operations_see_the_same_files() {
    let sandbox = Box::new().await;
    for directory in ["/tmp", "/var/tmp", "/dev/shm", "/home/sandbox", "/workspace"] {
        let name = format!("{directory}/f");
        assert_eq!(sandbox.write(&name, b"one\n").await, Ok(()), "{name}");
        assert_eq!(sandbox.run(&format!("cat {name}; echo two > {name}")).await, Said::ok("one\n"));
        assert_eq!(sandbox.read(&name).await, Ok(b"two\n".to_vec()));
    }
}

#[tokio::test]
async fn p_57_a_variable_name_that_is_none_is_refused_with_the_reason() {
    let error = ringfence_core::EnvMap::new([("MY-KEY", "1")]).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("MY-KEY"), "{error}");
}

#[tokio::test]
async fn p_60_a_shorter_file_leaves_nothing_of_the_longer_one() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.write("f", [b'x'; 100]).await, Ok(()));
    assert_eq!(sandbox.write("f", b"0123456789").await, Ok(()));
    assert_eq!(sandbox.read("f").await, Ok(b"0123456789".to_vec()));
}

#[tokio::test]
async fn p_60_a_reader_sees_the_old_file_or_the_new_one() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.write("f", b"old").await, Ok(()));
    sandbox.prepare("exec 3< f; (sleep 0.5; cat <&3 > kept) > /dev/null 2>&1 &").await;
    assert_eq!(sandbox.write("f", b"new").await, Ok(()));
    assert_eq!(sandbox.run("sleep 1; cat f kept").await, Said::ok("newold"));
}

#[tokio::test]
async fn p_62_a_huge_directory_is_read_in_pages() {
    const COUNT: usize = 120_000;
    let sandbox = Box::new().await;
    sandbox.prepare(&format!("mkdir d; cd d; seq {COUNT} | xargs touch")).await;
    let mut names: Vec<String> = (1..=COUNT).map(|number| number.to_string()).collect();
    names.sort_unstable();
    let expected: Vec<DirectoryEntry> = names.iter().map(|name| file(name, 0)).collect();
    let first = sandbox.page("d", 50_000, None).await;
    assert!(first.entries == expected[..50_000]);
    assert_eq!(first.remaining, 70_000);
    let second = sandbox.page("d", 50_000, Some(&names[49_999])).await;
    assert!(second.entries == expected[50_000..100_000]);
    assert_eq!(second.remaining, 20_000);
    let last = sandbox.page("d", 50_000, Some(&names[99_999])).await;
    assert!(last.entries == expected[100_000..]);
    assert_eq!(last.remaining, 0);
    let past = sandbox.page("d", 50_000, Some("a")).await;
    assert_eq!(past, Listing { entries: Vec::new(), remaining: 0 });
    let one = sandbox.page("d", 1, None).await;
    assert_eq!(one, Listing { entries: vec![file("1", 0)], remaining: 119_999 });
}

#[tokio::test]
async fn p_63_a_file_over_the_limit_is_refused() {
    let sandbox = Box::new().await;
    sandbox.prepare("printf 0123456789 > f; truncate -s 2G big").await;
    assert_eq!(sandbox.read_at_most("f", 10).await, Ok(b"0123456789".to_vec()));
    let over = |size_bytes, limit_bytes| ErrorKind::FileTooLarge { size_bytes, limit_bytes };
    assert_eq!(sandbox.read_at_most("f", 9).await, Err(over(10, 9)));
    assert_eq!(sandbox.read_at_most("f", 0).await, Err(over(10, 0)));
    let (refused, took) = timed(sandbox.read_at_most("big", 1 << 20)).await;
    assert_eq!(refused, Err(over(2 << 30, 1 << 20)));
    assert_took(took, 0.0, 0.1);
    assert_eq!(sandbox.export("big", 1 << 20).await, (Err(over(2 << 30, 1 << 20)), Vec::new()));
}

#[tokio::test]
async fn p_63_a_size_that_no_machine_has_is_an_error() {
    let sandbox = Box::new().await;
    sandbox.prepare("truncate -s 7E huge").await;
    assert_eq!(sandbox.read_at_most("huge", u64::MAX).await, Err(ErrorKind::Unexpected));
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn p_63_a_disk_that_is_full_leaves_the_old_file() {
    let sandbox = Box::limited(disk(4 << 20)).await;
    assert_eq!(sandbox.write("f", b"old").await, Ok(()));
    assert_eq!(sandbox.write("f", vec![b'x'; 5 << 20]).await, Err(ErrorKind::StorageFull));
    assert_eq!(sandbox.write("new/f", vec![b'x'; 5 << 20]).await, Err(ErrorKind::StorageFull));
    assert_eq!(sandbox.read("f").await, Ok(b"old".to_vec()));
    assert_eq!(sandbox.list("new").await, Ok(Vec::new()));
    assert_eq!(
        sandbox
            .run("find . -name '.ringfence*' | wc -l; df --output=used . | tail -1")
            .await
            .stdout
            .lines()
            .next(),
        Some("0")
    );
    // Everything else still works, and so does this once there is room.
    let said = sandbox.run("head -c 10M /dev/zero > fill").await;
    assert_eq!(said.ending, ringfence_core::Ending::Exited(1));
    assert_eq!(sandbox.write("g", [b'x'; 10_000]).await, Err(ErrorKind::StorageFull));
    sandbox.prepare("rm fill").await;
    assert_eq!(sandbox.write("g", [b'x'; 10_000]).await, Ok(()));
}

#[tokio::test]
async fn p_65_a_link_is_followed_and_its_target_replaced() {
    let sandbox = Box::new().await;
    sandbox
        .prepare(
            "mkdir d; echo old > d/target; chmod 751 d/target; ln -s d/target l; ln -s l ll; ln -s /workspace/d/target \
             absolute; ln -s d/new dangling; ln -s no/such/new deep; ln -s loop loop; ln -s /etc/passwd system",
        )
        .await;
    for link in ["l", "ll", "absolute"] {
        assert_eq!(sandbox.write(link, link).await, Ok(()));
        assert_eq!(sandbox.read("d/target").await, Ok(link.as_bytes().to_vec()));
        assert_eq!(sandbox.read(link).await, Ok(link.as_bytes().to_vec()));
    }
    assert_eq!(sandbox.read("dangling").await, Err(ErrorKind::NotFound));
    assert_eq!(sandbox.write("dangling", b"now").await, Ok(()));
    assert_eq!(sandbox.read("d/new").await, Ok(b"now".to_vec()));
    assert_eq!(sandbox.write("deep", b"deep").await, Ok(()));
    assert_eq!(sandbox.read("no/such/new").await, Ok(b"deep".to_vec()));
    assert_eq!(sandbox.read("loop").await, Err(ErrorKind::InvalidArgument));
    assert_eq!(sandbox.write("loop", b"x").await, Err(ErrorKind::InvalidArgument));
    assert_eq!(sandbox.write("system", b"x").await, Err(ErrorKind::PermissionDenied));
    let links = "for l in l ll absolute dangling deep loop system; do readlink $l; done; stat -c %a d/target";
    let expected = "d/target\nl\n/workspace/d/target\nd/new\nno/such/new\nloop\n/etc/passwd\n751\n";
    assert_eq!(sandbox.run(links).await, Said::ok(expected));
}

#[tokio::test]
async fn p_65_a_parent_that_leads_nowhere_is_not_found() {
    let sandbox = Box::new().await;
    sandbox.prepare("ln -s /no/such d; ln -s missing m").await;
    assert_eq!(sandbox.write("d/f", b"x").await, Err(ErrorKind::NotFound));
    assert_eq!(sandbox.write("m/f", b"x").await, Err(ErrorKind::NotFound));
}

#[tokio::test]
async fn p_66_targets_that_are_no_files_are_typed_errors() {
    let sandbox = Box::new().await;
    sandbox.prepare("mkdir dir; touch file; ln -s dir link").await;
    for name in ["dir", "link", ".", "..", "/", "dir/", "dir/.", "dir/.."] {
        assert_eq!(sandbox.read(name).await, Err(ErrorKind::IsADirectory), "{name}");
        assert_eq!(sandbox.write(name, b"x").await, Err(ErrorKind::IsADirectory), "{name}");
        assert_eq!(sandbox.export(name, 100).await.0, Err(ErrorKind::IsADirectory), "{name}");
    }
    for name in ["file/x", "file/x/y"] {
        assert_eq!(sandbox.read(name).await, Err(ErrorKind::NotADirectory), "{name}");
        assert_eq!(sandbox.write(name, b"x").await, Err(ErrorKind::NotADirectory), "{name}");
        assert_eq!(sandbox.list(name).await, Err(ErrorKind::NotADirectory), "{name}");
    }
    assert_eq!(sandbox.read("no/such/x").await, Err(ErrorKind::NotFound));
    assert_eq!(sandbox.list("no/such/x").await, Err(ErrorKind::NotFound));
    assert_eq!(sandbox.list("file").await, Err(ErrorKind::NotADirectory));
    let long = "x".repeat(256);
    assert_eq!(sandbox.read(&long).await, Err(ErrorKind::InvalidArgument));
    assert_eq!(sandbox.write(&long, b"x").await, Err(ErrorKind::InvalidArgument));
    assert_eq!(sandbox.write("x".repeat(255), b"x").await, Ok(()));
    assert_eq!(sandbox.write("d/".repeat(2000) + "f", b"x").await, Ok(()));
    assert_eq!(sandbox.read("d/".repeat(2000) + "f").await, Ok(b"x".to_vec()));
}

#[tokio::test]
async fn bd_05_paths_that_are_none_are_refused() {
    let kind = |bytes: &[u8]| GuestPath::new(bytes).unwrap_err().kind().clone();
    assert_eq!(kind(b""), ErrorKind::NotFound);
    assert_eq!(kind(b"a\0b"), ErrorKind::InvalidArgument);
    assert_eq!(kind(&[b'a'; 4096]), ErrorKind::InvalidArgument);
}

#[tokio::test]
async fn bd_03_fifos_devices_and_sockets_are_refused_at_once() {
    let sandbox = Box::new().await;
    sandbox.prepare("mkfifo fifo; ln -s fifo link; ln -s /dev/zero zero").await;
    if super::support::has_program("bd_03_fifos_devices_and_sockets_are_refused_at_once", "perl") {
        sandbox
            .prepare(
                "perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => \"socket\", Listen => 1) or die'",
            )
            .await;
    } else {
        sandbox.prepare("mkfifo socket").await;
    }
    for name in [
        "fifo",
        "link",
        "socket",
        "zero",
        "/dev/null",
        "/dev/zero",
        "/dev/tty",
        "/dev/full",
        "/dev/ptmx",
        "/dev/pts/ptmx",
    ] {
        let (read, took) = timed(sandbox.read(name)).await;
        assert_eq!(read, Err(ErrorKind::NotARegularFile), "read {name}");
        assert_took(took, 0.0, 0.1);
        let written = sandbox.write(name, b"x").await;
        assert_eq!(written, Err(ErrorKind::NotARegularFile), "write {name}");
        let written = sandbox.write(name, vec![b'x'; 1 << 20]).await;
        assert_eq!(written, Err(ErrorKind::NotARegularFile), "write a lot {name}");
        assert_eq!(sandbox.export(name, 100).await.0, Err(ErrorKind::NotARegularFile), "export {name}");
        assert_eq!(sandbox.list(name).await, Err(ErrorKind::NotADirectory), "list {name}");
    }
    let kinds = sandbox.list(".").await.unwrap();
    let expected = vec![
        entry("fifo", EntryKind::Other),
        entry("link", EntryKind::Symlink),
        entry("socket", EntryKind::Other),
        entry("zero", EntryKind::Symlink),
    ];
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn bd_04_a_file_that_grows_for_ever_ends_at_the_limit() {
    let sandbox = Box::limited(disk(64 << 20)).await;
    let marker = Marker::new();
    sandbox
        .prepare(&format!(
            "touch f; while :; do head -c 100000 /dev/zero >> f; done > /dev/null 2>&1 & : {marker}"
        ))
        .await;
    for _ in 0..20 {
        match sandbox.read_at_most("f", 1 << 20).await {
            Ok(content) => assert!(content.len() <= 1 << 20),
            Err(ErrorKind::FileTooLarge { limit_bytes: 1_048_576, .. }) => break,
            Err(kind) => panic!("{kind:?}"),
        }
    }
}

#[tokio::test]
async fn s_38_magic_links_are_no_way_in_or_out() {
    let sandbox = Box::new().await;
    sandbox.prepare("ln -s /proc/self/root r; ln -s /proc/1/fd/0 f; ln -s /proc/self/cwd/x x").await;
    for name in [
        "/proc/self/fd/0",
        "/proc/self/fd/3",
        "/proc/1/fd/1",
        "/proc/self/exe",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/f",
        "r/etc/passwd",
        "f",
        "x",
        "/dev/fd/0",
        "/dev/stdin",
    ] {
        let read = sandbox.read(name).await;
        assert_eq!(read, Err(ErrorKind::InvalidArgument), "read {name}");
        let written = sandbox.write(name, b"x").await;
        assert!(written.is_err(), "write {name}");
    }
    assert_eq!(sandbox.list("r/etc").await, Err(ErrorKind::InvalidArgument));
    assert_eq!(sandbox.run("ls /workspace; echo on").await, Said::ok("f\nr\nx\non\n"));
}

#[tokio::test]
async fn s_38_what_the_kernel_writes_for_its_reader_is_not_read_for_the_sandbox() {
    // Read by the owner, each would say something of the host: its name, its numbers of processes, its control groups.
    let sandbox = super::security_support::showing(&[Path::new(KERNEL_NUMBER)]).await;
    let marker = Marker::new();
    let said = sandbox.run(&format!("sleep {marker} > /dev/null 2>&1 & echo $!")).await;
    let pid = said.stdout.trim();
    let of_process = ["stat", "status", "cgroup", "timerslack_ns", "environ", "mounts", "attr/current"];
    let names = [
        "sys/kernel/hostname",
        "sys/kernel/ns_last_pid",
        "sys/kernel/random/boot_id",
        "loadavg",
        "version",
        "cpuinfo",
    ];
    let names = (names.into_iter().map(|name| format!("/proc/{name}")))
        .chain(of_process.into_iter().map(|name| format!("/proc/{pid}/{name}")))
        .chain([KERNEL_NUMBER.to_owned()]);
    for name in names {
        let error = sandbox.backend.read_file(&sandbox.id, &path(&name), 1 << 20).await.unwrap_err();
        let expected = (ErrorKind::NotARegularFile, false, Some(name.clone()));
        assert_eq!(facts(&error, "path"), expected, "{error}");
        assert_eq!(error.hint_text(), Some("read it with a command, such as cat"));
        assert_eq!(
            sandbox.export(&name, 1 << 20).await,
            (Err(ErrorKind::NotARegularFile), Vec::new()),
            "{name}"
        );
    }
    // What says something of the agent is not even opened for the owner, or is refused as the rest.
    for name in ["/proc/1/environ", "/proc/self/environ", "/proc/self/mem"] {
        let error = sandbox.read(name).await.unwrap_err();
        assert!(
            matches!(error, ErrorKind::PermissionDenied | ErrorKind::NotARegularFile),
            "{name}: {error:?}"
        );
    }
    // Control: a command reads them as what it is. Other files are read, those without content and those of the host too.
    assert_eq!(sandbox.run("cat /proc/sys/kernel/hostname").await, Said::ok("sandbox\n"));
    assert_eq!(sandbox.run(&format!("cat {KERNEL_NUMBER} | wc -l")).await, Said::ok("1\n"));
    sandbox.prepare("touch empty /dev/shm/empty").await;
    for name in ["empty", "/dev/shm/empty"] {
        assert_eq!(sandbox.read(name).await, Ok(Vec::new()), "{name}");
    }
    let program = std::fs::read("/usr/bin/env").unwrap();
    assert!(sandbox.read("/usr/bin/env").await == Ok(program));
    assert!(sandbox.write("/proc/self/mem", b"x").await.is_err());
    assert!(sandbox.write("/proc/1/oom_score_adj", b"0").await.is_err());
    assert!(sandbox.write("/proc/sys/kernel/hostname", b"x").await.is_err());
    assert_eq!(sandbox.run("echo on; hostname").await, Said::ok("on\nsandbox\n"));
}

#[tokio::test]
async fn bd_the_mode_of_a_replaced_file_stays() {
    let sandbox = Box::new().await;
    sandbox.prepare("for m in 600 755 444 200 640; do touch $m; chmod $m $m; done").await;
    for mode in ["600", "755", "640", "200"] {
        assert_eq!(sandbox.write(mode, b"new").await, Ok(()), "{mode}");
    }
    assert_eq!(sandbox.write("444", b"new").await, Err(ErrorKind::PermissionDenied));
    assert_eq!(sandbox.read("200").await, Err(ErrorKind::PermissionDenied));
    let said = sandbox.run("stat -c '%n %a %s' *").await;
    assert_eq!(said, Said::ok("200 200 3\n444 444 0\n600 600 3\n640 640 3\n755 755 3\n"));
}

#[tokio::test]
async fn p_67_a_name_that_is_no_text_is_listed_and_read() {
    let sandbox = Box::new().await;
    sandbox.prepare("printf x > \"$(printf '\\xff')\"; mkdir \"$(printf 'd\\xfe')\"").await;
    let expected = vec![entry(b"d\xfe", EntryKind::Directory), file(b"\xff", 1)];
    assert_eq!(sandbox.list(".").await, Ok(expected));
    assert_eq!(sandbox.read(b"\xff").await, Ok(b"x".to_vec()));
    assert_eq!(sandbox.write(b"d\xfe/\xfd", b"y").await, Ok(()));
    assert_eq!(sandbox.list(b"d\xfe").await, Ok(vec![file(b"\xfd", 1)]));
}

#[tokio::test]
async fn p_69_closed_directories_are_typed_errors_and_their_parents_list() {
    let sandbox = Box::new().await;
    sandbox.prepare("mkdir d; touch d/f; chmod 000 d; mkdir names; touch names/f; chmod 444 names").await;
    let expected = vec![entry("d", EntryKind::Directory), entry("names", EntryKind::Directory)];
    assert_eq!(sandbox.list(".").await, Ok(expected));
    assert_eq!(sandbox.list("d").await, Err(ErrorKind::PermissionDenied));
    assert_eq!(sandbox.read("d").await, Err(ErrorKind::IsADirectory));
    assert_eq!(sandbox.read("d/f").await, Err(ErrorKind::PermissionDenied));
    assert_eq!(sandbox.write("d/f", b"x").await, Err(ErrorKind::PermissionDenied));
    // Names and types can be read, sizes can not.
    assert_eq!(sandbox.list("names").await, Ok(vec![entry("f", EntryKind::File)]));
}

#[tokio::test]
async fn s_05_the_system_is_read_only() {
    let sandbox = Box::new().await;
    for name in [
        "/usr/f",
        "/usr/bin/env",
        "/etc/passwd",
        "/etc/new",
        "/new/dir/f",
        "/f",
        "/bin/sh",
        "/proc/new",
        "/dev/new",
    ] {
        let kind = sandbox.write(name, b"x").await.unwrap_err();
        assert!(matches!(kind, ErrorKind::PermissionDenied | ErrorKind::NotFound), "{name}: {kind:?}");
    }
    assert_eq!(sandbox.write("/usr/bin/env", b"x").await, Err(ErrorKind::PermissionDenied));
    assert_eq!(sandbox.write("/f", b"x").await, Err(ErrorKind::PermissionDenied));
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn bd_file_operations_go_on_while_no_process_can_be_made() {
    if !has_process_limit("bd_file_operations_go_on_while_no_process_can_be_made").await {
        return;
    }
    let limits = Limits { pids: Some(Pids::new(32).unwrap()), ..Limits::default() };
    let sandbox = Box::limited(limits).await;
    let marker = Marker::new();
    assert_eq!(sandbox.write("before", b"x").await, Ok(()));
    // Fills the limit and stays.
    let fill = format!("for i in $(seq 40); do sleep {marker} & done 2> /dev/null; wait");
    let operations = async {
        assert!(until(5.0, || marker.processes().len() >= 30).await);
        assert_eq!(sandbox.read("before").await, Ok(b"x".to_vec()));
        assert_eq!(sandbox.write("during", b"y").await, Ok(()));
        // These need a process of their own.
        assert_eq!(sandbox.list(".").await, Err(ErrorKind::Unavailable));
        assert_eq!(sandbox.write("large", vec![b'x'; 1 << 20]).await, Err(ErrorKind::Unavailable));
    };
    tokio::select! {
        said = sandbox.run(&fill) => panic!("{said:?}"),
        () = operations => {}
    }
    assert!(marker.dies_within(2.0).await);
    assert_eq!(sandbox.read("during").await, Ok(b"y".to_vec()));
    assert!(sandbox.list("large").await.is_err());
}

#[tokio::test]
async fn bd_a_dropped_write_changes_nothing() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.write("f", b"old").await, Ok(()));
    let content = vec![b'x'; 64 << 20];
    for _ in 0..5 {
        tokio::select! {
            biased;
            () = tokio::time::sleep(std::time::Duration::from_millis(3)) => {}
            done = sandbox.write("f", &content) => panic!("{done:?} before it could be dropped"),
        }
    }
    for _ in 0..100 {
        if sandbox.list(".").await == Ok(vec![file("f", 3)]) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(sandbox.list(".").await, Ok(vec![file("f", 3)]));
    assert_eq!(sandbox.read("f").await, Ok(b"old".to_vec()));
}

#[tokio::test]
async fn bd_many_operations_at_once() {
    let sandbox = std::sync::Arc::new(Box::new().await);
    let tasks: Vec<_> = (0..40usize)
        .map(|number| {
            let sandbox = std::sync::Arc::clone(&sandbox);
            tokio::spawn(async move {
                let content = vec![number as u8; number * 10_000];
                assert_eq!(sandbox.write("same", &content).await, Ok(()));
                let name = format!("f{number}");
                assert_eq!(sandbox.write(&name, &content).await, Ok(()));
                assert!(sandbox.read(&name).await.unwrap() == content);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let same = sandbox.read("same").await.unwrap();
    let number = same.first().copied().unwrap_or(0);
    assert!(same == vec![number; usize::from(number) * 10_000]);
    assert_eq!(sandbox.list(".").await.unwrap().len(), 41);
}

#[tokio::test]
async fn ex_18_an_export_is_whole_or_an_error() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.write("f", every_byte().repeat(10_000)).await, Ok(()));
    assert_eq!(sandbox.export("f", 1 << 30).await, (Ok(2_560_000), every_byte().repeat(10_000)));
    assert_eq!(sandbox.export("f", 2_560_000).await.0, Ok(2_560_000));
    assert_eq!(sandbox.export("missing", 10).await, (Err(ErrorKind::NotFound), Vec::new()));
    sandbox.prepare("chmod 000 f").await;
    assert_eq!(sandbox.export("f", 1 << 30).await, (Err(ErrorKind::PermissionDenied), Vec::new()));
}

/// Takes the first bytes only when something else has happened.
struct Meanwhile<'a> {
    work: Option<Pin<std::boxed::Box<dyn Future<Output = ()> + Send + 'a>>>,
    taken: u64,
}

impl AsyncWrite for Meanwhile<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(work) = &mut self.work {
            std::task::ready!(work.as_mut().poll(context));
            self.work = None;
        }
        self.taken += bytes.len() as u64;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn ex_18_a_file_that_changes_while_it_is_copied_is_an_error() {
    let sandbox = Box::new().await;
    for (change, most) in
        [("printf x >> f", 1 << 20), ("truncate -s 700000 f", 700_000), ("rm f; printf y > f", 1 << 20)]
    {
        sandbox.prepare("rm -f f; head -c 1048576 /dev/zero > f").await;
        let work = std::boxed::Box::pin(sandbox.prepare(change));
        let mut sink = Meanwhile { work: Some(work), taken: 0 };
        let copied = sandbox.backend.export_file(&sandbox.id, &path("f"), 1 << 30, &mut sink).await;
        // A new file under the name is not the one that is copied.
        let expected = if change.starts_with("rm") { Ok(1 << 20) } else { Err(ErrorKind::Unexpected) };
        assert_eq!(copied.map_err(|error| error.kind().clone()), expected, "{change}");
        assert_eq!(sink.taken, most, "{change}");
    }
}

#[tokio::test]
async fn ex_a_sink_that_fails_is_the_source_of_the_error() {
    struct Broken;
    impl AsyncWrite for Broken {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
    let sandbox = Box::new().await;
    assert_eq!(sandbox.write("f", b"x").await, Ok(()));
    let error = sandbox.backend.export_file(&sandbox.id, &path("f"), 10, &mut Broken).await.unwrap_err();
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::BrokenPipe));
}

#[tokio::test]
async fn bd_the_working_directory_may_go() {
    let sandbox = Box::new().await;
    let said = sandbox.request(shell("mkdir sub; cd sub; rmdir ../sub; pwd", 60.0)).await;
    assert_eq!(said.ending, ringfence_core::Ending::Exited(0));
    assert_eq!(sandbox.list(".").await, Ok(Vec::new()));
}
