//! Measures Ringfence against the peers installed on the same machine.
//!
//! Every table is one run in interleaved rounds: each round does every case once, so that what the machine does
//! meanwhile hits all of them, and the ratios compare what was measured together. Called by `cargo xtask bench`, which
//! builds the binary and keeps what comes out.
#![expect(clippy::print_stdout, reason = "the tables are the output")]

mod cases;
mod facts;
mod owner;
mod peers;
mod picture;
mod processes;
mod room;
mod rounds;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::cases::Bench;

const USAGE: &str = "usage: ringfence-bench BINARY [--quick] [--only CASES] [--picture FILE]";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // What this program does when it is started by itself.
        [owner::ROLE, count, spec] => owner::be(count.parse()?, spec == owner::LIMITED),
        [room::ROLE] => room::serve(),
        [binary, ref options @ ..] => measure(PathBuf::from(binary), options),
        [] => bail!(USAGE),
    }
}

fn measure(binary: PathBuf, options: &[&str]) -> Result<()> {
    let mut quick = false;
    let mut only = None;
    let mut picture = None;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--quick" => quick = true,
            "--only" => only = Some(*options.next().context(USAGE)?),
            "--picture" => picture = Some(PathBuf::from(options.next().context(USAGE)?)),
            _ => bail!(USAGE),
        }
    }
    let load = facts::load();
    let bench = Bench::new(binary, quick)?;
    let tables = cases::all(&bench, only)?;
    println!("{}\n", facts::describe(&bench, &load));
    for table in &tables {
        println!("{}", table.markdown());
    }
    println!("{}", cases::NOT_YET);
    if let Some(path) = picture {
        std::fs::write(&path, picture::draw(&tables)).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
