//! Measures Ringfence against the peers installed on the same machine, and prints the tables as Markdown.
//!
//! Every table is one run in interleaved rounds: each round does every case once, so that what the machine does
//! meanwhile hits all of them, and the ratios compare what was measured together. Called by `cargo xtask bench`, which
//! builds the binary and writes `docs/performance.md`.
#![expect(clippy::print_stdout, reason = "the tables are the output")]

mod cases;
mod facts;
mod peers;
mod rounds;

use std::path::PathBuf;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let binary = PathBuf::from(arguments.next().context("usage: ringfence-bench BINARY ROUNDS")?);
    let rounds: usize =
        arguments.next().context("usage: ringfence-bench BINARY ROUNDS")?.to_string_lossy().parse()?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let peers = peers::Peers::find()?;
    let load = facts::load();
    let tables = [
        cases::whole_process(&binary, &peers, rounds)?,
        runtime.block_on(cases::command_in_living_sandbox(&peers, rounds))?,
        runtime.block_on(cases::lifetime(rounds))?,
    ];
    println!("{}", facts::describe(&binary, &peers, rounds, &load));
    for table in tables {
        println!("{table}");
    }
    Ok(())
}
