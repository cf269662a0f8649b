//! Measures Ringfence against the peers installed on the same machine.
//!
//! Every table is one run in interleaved rounds: each round does every case once, so that what the machine does
//! meanwhile hits all of them, and the ratios compare what was measured together. Called by `cargo xtask bench`, which
//! builds the binary and keeps what comes out.
#![expect(clippy::print_stdout, reason = "the tables are the output")]

mod bench;
mod cases;
mod document;
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

use crate::bench::Bench;

const USAGE: &str =
    "usage: ringfence-bench BINARY [--static BINARY] [--quick] [--only CASES] [--pictures FOLDER]";

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
    let mut linked_statically = None;
    let mut folder = None;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--quick" => quick = true,
            "--only" => only = Some(*options.next().context(USAGE)?),
            "--static" => linked_statically = Some(PathBuf::from(options.next().context(USAGE)?)),
            "--pictures" => folder = Some(PathBuf::from(options.next().context(USAGE)?)),
            _ => bail!(USAGE),
        }
    }
    let load = facts::load();
    let bench = Bench::new(binary, linked_statically, quick)?;
    let measured = cases::all(&bench, only)?;
    let mut pictures = Vec::new();
    if let Some(folder) = folder {
        pictures = picture::draw(&measured);
        for picture in &pictures {
            let path = folder.join(picture.file);
            std::fs::write(&path, &picture.svg).with_context(|| format!("write {}", path.display()))?;
        }
    }
    println!("{}", document::render(&facts::describe(&bench, &load), &measured, &pictures));
    Ok(())
}
