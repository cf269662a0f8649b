//! EX-17 to EX-21: the inherited export.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::pin::Pin;
use std::process::Command;
use std::task::{Context, Poll};
use std::time::Duration;

use ringfence_core::memory::RecordingBackend;
use ringfence_core::{Backend, Captured, CommandResult, Ending, ErrorKind, Result, SandboxSpec, shell};
use ringfence_testkit::LocalShellBackend;
use tokio::io::AsyncWrite;

use super::shell::{Guest, kind, tampered};
use super::support::path;

async fn export(guest: &Guest, name: &str, limit: u64, slice: u64) -> Result<Vec<u8>> {
    let mut sink = Vec::new();
    let size =
        shell::export_file_in_slices(&guest.backend, &guest.id, &path(name), limit, slice, &mut sink).await?;
    assert_eq!(size, sink.len() as u64);
    Ok(sink)
}

fn bytes(size: usize) -> Vec<u8> {
    (0..=255u8).cycle().step_by(7).take(size).collect()
}

#[tokio::test]
async fn ex_17_copies_are_exact_at_every_size_around_a_slice() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    for size in [0, 1, 63, 64, 65, 127, 128, 129, 1000] {
        fs::write(guest.root.join("file"), bytes(size)).expect("a file");
        assert_eq!(export(&guest, "file", 1000, 64).await.expect("exported"), bytes(size), "{size}");
        let mut sink = Vec::new();
        let whole = guest.backend.export_file(&guest.id, &path("./file"), 1000, &mut sink).await;
        assert_eq!((whole.expect("exported"), sink), (size as u64, bytes(size)));
    }
}

#[tokio::test]
async fn ex_17_hostile_names_are_names() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    for name in ["-n", "a b", "it's", "$(touch x)", "a\nb", "%d", "*"] {
        fs::write(guest.root.join(name), name).expect("a file");
        assert_eq!(export(&guest, name, 100, 4).await.expect("exported"), name.as_bytes());
    }
}

#[tokio::test]
async fn ex_17_over_the_limit_nothing_is_written() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    fs::write(guest.root.join("file"), bytes(500)).expect("a file");
    let mut sink = Vec::new();
    let refused = guest.backend.export_file(&guest.id, &path("file"), 100, &mut sink).await;
    assert_eq!(kind(refused), ErrorKind::FileTooLarge { size_bytes: 500, limit_bytes: 100 });
    assert!(sink.is_empty());
    assert_eq!(export(&guest, "file", 500, 64).await.expect("exported").len(), 500);
}

#[tokio::test]
async fn ex_17_what_is_not_a_file_is_refused() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    fs::create_dir(guest.root.join("dir")).expect("a directory");
    assert_eq!(kind(export(&guest, "missing", 9, 4).await), ErrorKind::NotFound);
    assert_eq!(kind(export(&guest, "dir", 9, 4).await), ErrorKind::IsADirectory);
    assert_eq!(kind(export(&guest, "/dev/zero", 9, 4).await), ErrorKind::NotARegularFile);
}

#[tokio::test]
async fn ex_21_links_are_followed() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    fs::create_dir(guest.root.join("dir")).expect("a directory");
    fs::write(guest.root.join("dir/file"), "x").expect("a file");
    symlink("dir/file", guest.root.join("link")).expect("a link");
    symlink("dir", guest.root.join("dir-link")).expect("a link");
    symlink("nowhere", guest.root.join("dangling")).expect("a link");
    assert!(Command::new("mkfifo").arg(guest.root.join("fifo")).status().expect("mkfifo").success());
    assert_eq!(export(&guest, "link", 9, 4).await.expect("exported"), b"x");
    assert_eq!(kind(export(&guest, "dir-link", 9, 4).await), ErrorKind::IsADirectory);
    assert_eq!(kind(export(&guest, "dangling", 9, 4).await), ErrorKind::NotFound);
    assert_eq!(kind(export(&guest, "fifo", 9, 4).await), ErrorKind::NotARegularFile);
}

/// Changes the file before the command with this number, and expects the copy to fail.
async fn export_while(number: usize, change: fn(&Path)) -> String {
    let backend = LocalShellBackend::new().before_command(move |at, root| {
        if at == number {
            change(root);
        }
    });
    let guest = Guest::new(backend).await;
    fs::write(guest.root.join("file"), bytes(200)).expect("a file");
    export(&guest, "file", 1000, 64).await.expect_err("changed").to_string()
}

#[tokio::test]
async fn ex_18_a_file_that_changes_is_an_error_and_never_short() {
    let changes: [fn(&Path); 4] = [
        |root| fs::write(root.join("file"), bytes(201)).expect("grown"),
        |root| fs::write(root.join("file"), bytes(100)).expect("shrunk"),
        |root| {
            // Of the same size: another file took its place.
            fs::write(root.join("other"), bytes(200)).expect("a file");
            fs::rename(root.join("other"), root.join("file")).expect("replaced");
        },
        |root| fs::write(root.join("file"), "").expect("emptied"),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        for number in 2..=5 {
            let text = export_while(number, change).await;
            assert!(text.contains("changed while it was copied"), "change {index} before {number}: {text}");
        }
    }
    let text = export_while(3, |root| fs::remove_file(root.join("file")).expect("removed")).await;
    assert!(text.contains("does not exist"), "{text}");
}

#[tokio::test]
async fn ex_18_a_slice_that_the_backend_cut_is_an_error() {
    let real = tempfile::tempdir().expect("a folder");
    fs::write(real.path().join("file"), bytes(200)).expect("a file");
    // Drops one group of four characters of base64, which decodes well without it.
    let damage = |result: &mut CommandResult| {
        let stdout = String::from_utf8(result.stdout.bytes.to_vec()).expect("text");
        result.stdout = Captured::complete(stdout.replacen("AAcO", "", 1));
    };
    let (inner, id) = tampered(real.path(), str::to_owned, damage).await;
    let mut sink = Vec::new();
    let error = shell::export_file(&inner, &id, &path("file"), 1000, &mut sink).await.expect_err("cut");
    assert!(error.message().contains("a part got lost"), "{error}");
}

#[tokio::test]
async fn ex_18_a_lost_sandbox_is_an_error() {
    let inner = RecordingBackend::new();
    let id = inner.create(&SandboxSpec::default()).await.expect("a sandbox").id;
    let lost =
        CommandResult { ending: Ending::Unknown, sandbox_lost: true, ..CommandResult::exited(0, "", "") };
    inner.set_command_result(lost);
    let result = shell::export_file(&inner, &id, &path("file"), 1000, &mut Vec::new()).await;
    assert_eq!(kind(result), ErrorKind::SandboxLost);
}

#[tokio::test(start_paused = true)]
async fn ex_19_the_time_allowance_follows_from_the_limit() {
    for (limit, seconds) in [(1 << 30, 1024), (1 << 10, 120), (0, 120), (u64::MAX, 365 * 24 * 3600)] {
        let backend = RecordingBackend::new();
        let id = backend.create(&SandboxSpec::default()).await.expect("a sandbox").id;
        backend.set_command_delay(Duration::from_secs(400 * 24 * 3600));
        let start = tokio::time::Instant::now();
        let error =
            shell::export_file(&backend, &id, &path("file"), limit, &mut Vec::new()).await.expect_err("late");
        assert_eq!(error.kind(), &ErrorKind::DeadlineExceeded);
        assert_eq!(
            (start.elapsed().as_secs(), error.fact("allowance")),
            (seconds, Some(&*format!("{seconds} s")))
        );
    }
}

#[tokio::test]
async fn ex_20_the_size_is_found_among_other_output() {
    let profile = "echo 12345; echo size 3; echo 9 >&2; trap 'echo 77' 0";
    let guest = Guest::new(LocalShellBackend::new().with_profile(profile)).await;
    fs::write(guest.root.join("file"), bytes(200)).expect("a file");
    assert_eq!(export(&guest, "file", 1000, 64).await.expect("exported"), bytes(200));
}

/// A destination without room.
struct Full;

impl AsyncWrite for Full {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Err(std::io::Error::other("no room")))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn ex_18_a_failing_destination_is_the_source() {
    let guest = Guest::new(LocalShellBackend::new()).await;
    fs::write(guest.root.join("file"), "x").expect("a file");
    let error = guest.backend.export_file(&guest.id, &path("file"), 9, &mut Full).await.expect_err("full");
    assert!(error.to_string().contains("the destination could not be written"), "{error}");
    assert!(error.to_string().contains("no room"), "{error}");
}
