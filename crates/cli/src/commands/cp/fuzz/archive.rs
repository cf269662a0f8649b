//! Archives: wherever an entry wants to go, nothing is put anywhere but beneath the place that was named (S40).

#![expect(clippy::expect_used, reason = "what does not hold is said by panicking")]

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use ringfence::memory::{RecordedCommand, RecordedWrite, RecordingBackend};
use ringfence::{Backend, GuestPath, Invocation, SandboxSpec, TreeLimits};
use tokio::io::{AsyncRead, ReadBuf};

use super::super::from_tar;
use super::super::into_sandbox::IntoSandbox;
use super::super::skips::Skips;
use super::stays;

const BASE: &str = "/t";
const LIMITS: TreeLimits = TreeLimits { max_bytes: 1 << 14, max_entries: 64, max_depth: 8 };
const BLOCK: usize = 512;

/// The first byte says whether the rest is an archive as it is, or written shorter, with sums that are right.
pub(crate) fn target(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first() else { return };
    let archive = if how % 2 == 0 { rest.to_vec() } else { blocks(rest) };
    let whole = unpack(&archive, archive.len());
    check(&whole);
    assert_eq!(unpack(&archive, usize::from(*how) + 1), whole, "in parts of {how} and one");
}

/// Blocks out of parts behind their lengths in two bytes: filled up with zeros, and the sum put right.
fn blocks(mut bytes: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    // Not many: what an archive takes of memory is measured against what was given.
    while archive.len() < 32 * BLOCK
        && let Some((length, rest)) = bytes.split_first_chunk::<2>()
    {
        let length = usize::from(u16::from_le_bytes(*length)) % (BLOCK + 1);
        let (part, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        let mut block = [0; BLOCK];
        block[..part.len()].copy_from_slice(part);
        if block != [0; BLOCK] {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        archive.extend_from_slice(&block);
    }
    archive
}

/// What was asked of the sandbox.
#[derive(Debug, PartialEq)]
struct Asked {
    commands: Vec<RecordedCommand>,
    writes: Vec<RecordedWrite>,
    failure: Option<String>,
}

fn unpack(archive: &[u8], part: usize) -> Asked {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let backend = RecordingBackend::new();
    let result = runtime.block_on(async {
        let sandbox = backend.create(&SandboxSpec::new()).await.expect("a sandbox").id;
        let base = GuestPath::new(BASE).expect("a path");
        let mut skips = Skips::new(|_| {});
        let mut into = IntoSandbox::new(&backend, &sandbox, base, LIMITS, &mut skips);
        from_tar::copy(Parts { rest: archive, part }, &mut into).await?;
        into.finish().await
    });
    let failure = result.err().map(|failure| failure.to_string());
    Asked { commands: backend.commands(), writes: backend.writes(), failure }
}

fn check(asked: &Asked) {
    let bytes: usize = asked.writes.iter().map(|write| write.content.len()).sum();
    assert!(bytes as u64 <= LIMITS.max_bytes);
    asked.writes.iter().for_each(|write| beneath(write.path.as_bytes()));
    for command in &asked.commands {
        let Invocation::Program(words) = &command.invocation else { unreachable!("{command:?}") };
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match words.as_slice() {
            [b"/bin/mkdir", b"-p", b"--", paths @ ..] => paths.iter().copied().for_each(beneath),
            [b"/bin/chmod", b"+x", b"--", path] => beneath(path),
            [b"/bin/sh", b"-c", _, b"sh", kind, links @ ..] => {
                let (pairs, rest) = links.as_chunks::<2>();
                assert!(rest.is_empty());
                for [target, path] in pairs {
                    beneath(path);
                    match *kind {
                        b"-s" => stays(depth(path), target),
                        _ => beneath(target),
                    }
                }
            }
            other => unreachable!("{other:?}"),
        }
    }
}

/// A path that lies beneath the base whatever is there: no name of it leads back.
fn beneath(path: &[u8]) {
    let names = path.strip_prefix(BASE.as_bytes()).expect("beneath the base");
    assert!(names.is_empty() || names.starts_with(b"/"), "{}", path.escape_ascii());
    for name in names.split(|byte| *byte == b'/').skip(1) {
        let odd = matches!(name, b"" | b"." | b"..") || name.contains(&0);
        assert!(!odd, "{}", path.escape_ascii());
    }
}

/// How many directories lie between the base and a path.
fn depth(path: &[u8]) -> usize {
    let within = path.strip_prefix(BASE.as_bytes()).expect("beneath the base");
    within.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count() - 1
}

/// An archive that comes in parts of one size.
struct Parts<'a> {
    rest: &'a [u8],
    part: usize,
}

impl AsyncRead for Parts<'_> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (part, rest) = this.rest.split_at(this.part.min(this.rest.len()).min(buf.remaining()));
        buf.put_slice(part);
        this.rest = rest;
        Poll::Ready(Ok(()))
    }
}
