//! Files into a sandbox and out of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use ringfence::{GuestPath, SandboxId, shell};

use crate::bench::Bench;
use crate::processes::peak_mib;
use crate::rounds::{Rounds, milliseconds};
use crate::table::{Drawn, Row, Table, Target};

const SIZE: usize = 64 << 20;
#[expect(clippy::cast_precision_loss, reason = "a power of two")]
const RATE: Target = Target::Throughput { gigabytes: 2.0, bytes: SIZE as f64 };
/// A few chunks of a copy: memory that does not depend on the size of the file.
const FLAT: Target = Target::AtMost(2.0, None);

/// A place in memory outside of any sandbox.
const MEMORY: &str = "/dev/shm";

/// The ways a file goes, in the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Write,
    Read,
    Export,
    BareWrite,
    BareRead,
    ShellWrite,
    ShellRead,
}

const WAYS: [(Way, &str); 7] = [
    (Way::Write, "`write_file`"),
    (Way::Read, "`read_file`"),
    (Way::Export, "`export_file`, into nothing"),
    (Way::BareWrite, "no sandbox: write a file in memory"),
    (Way::BareRead, "no sandbox: read a file in memory"),
    (Way::ShellWrite, "write with base64 over a shell, in the same sandbox"),
    (Way::ShellRead, "read with base64 over a shell, in the same sandbox"),
];

impl Way {
    fn row(self, name: &str, target: Target) -> Row {
        match self {
            Self::Write | Self::Read | Self::Export => Row::ours(name).target(target),
            Self::BareWrite | Self::ShellWrite => Row::peer(name, 0),
            Self::BareRead | Self::ShellRead => Row::peer(name, 1),
        }
    }

    fn every(self) -> usize {
        if matches!(self, Self::ShellWrite | Self::ShellRead) { 10 } else { 1 }
    }
}

pub(super) fn times(bench: &Bench) -> Result<Table> {
    let (sandbox, content) = (bench.create()?.0, content());
    let bare = Bare::new();
    let mut rounds = Rounds::default();
    for (way, name) in WAYS {
        let (sandbox, content, bare) = (&sandbox, &content, &bare);
        rounds.add_every(way.every(), way.row(name, RATE), move || {
            let begun = Instant::now();
            let held = go(bench, sandbox, bare, way, content)?;
            let took = begun.elapsed();
            drop(held);
            Ok(milliseconds(took))
        });
    }
    let rows = rounds.run(bench.rounds(20))?;
    bench.destroy(&sandbox)?;
    Ok(Table { title: "A file of 64 MiB", drawn: Drawn::Nowhere, unit: "ms", rows, notes: Vec::new() })
}

/// Once each: memory does not vary as times do.
pub(super) fn memory(bench: &Bench) -> Result<Table> {
    let (sandbox, content) = (bench.create()?.0, content());
    let bare = Bare::new();
    let mut rows = Vec::new();
    for (way, name) in WAYS {
        let (held, grown) = peak_mib(|| go(bench, &sandbox, &bare, way, &content))?;
        #[expect(clippy::cast_precision_loss, reason = "a file's size")]
        let held = held.map_or(0.0, |content| content.len() as f64 / f64::from(1 << 20));
        rows.push(way.row(name, FLAT).with_samples(vec![grown - held]));
    }
    bench.destroy(&sandbox)?;
    // There is no ratio of next to nothing to next to nothing.
    rows.iter_mut().for_each(|row| row.peer_of = None);
    let notes =
        vec!["What the caller passes in and gets back, the 64 MiB themselves, is not counted.".to_owned()];
    Ok(Table {
        title: "Memory of the calling process at its peak, for the same file",
        drawn: Drawn::Nowhere,
        unit: "MiB",
        rows,
        notes,
    })
}

/// A file outside of any sandbox, which goes when this is dropped.
struct Bare(PathBuf);

impl Bare {
    fn new() -> Self {
        Self(Path::new(MEMORY).join(format!("ringfence-bench-{}", std::process::id())))
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It may never have been written.
        drop(fs::remove_file(&self.0));
    }
}

fn content() -> Vec<u8> {
    // Not all the same, so that nothing on the way can be clever.
    (0u32..).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).take(SIZE).collect()
}

/// Copies the file one way; returns what was read, so that it is not freed within the time.
fn go(bench: &Bench, sandbox: &SandboxId, bare: &Bare, way: Way, content: &[u8]) -> Result<Option<Vec<u8>>> {
    let path = GuestPath::new("file")?;
    let limit = SIZE as u64;
    let backend = &*bench.backend;
    let read = bench.runtime.block_on(async {
        anyhow::Ok(match way {
            Way::Read => Some(backend.read_file(sandbox, &path, limit).await?),
            Way::BareRead => Some(fs::read(&bare.0)?),
            Way::ShellRead => Some(shell::read_file(backend, sandbox, &path, limit).await?),
            Way::Write => {
                backend.write_file(sandbox, &path, content).await?;
                None
            }
            Way::BareWrite => {
                fs::write(&bare.0, content)?;
                None
            }
            Way::ShellWrite => {
                shell::write_file(backend, sandbox, &path, content).await?;
                None
            }
            Way::Export => {
                backend.export_file(sandbox, &path, limit, &mut tokio::io::sink()).await?;
                None
            }
        })
    })?;
    if read.as_ref().is_some_and(|read| read.len() != SIZE) {
        bail!("the file came back with another size");
    }
    Ok(read)
}
