//! Development tasks: what is done to the repository, never what the product does.
//!
//! `cargo xtask test` is the only gate, and `.ci/run` calls exactly it. Nothing here is compiled into the product, and
//! nothing of the product is compiled into this, so a broken crate cannot keep the tasks from saying so.

mod chaos;
mod clients;
mod deps;
mod dist;
mod engines;
mod environments;
mod fuzz;
mod machines;
mod metadata;
mod programs;
mod report;
mod rust_source;
mod second_pass;
mod skips;
mod stage;
mod tables;
mod targets;
mod test;
mod tools;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
Usage: cargo xtask TASK

  test             everything that must hold: format, import arrows, licences, lints, docs, tests as root and as a user, MCP
                   with its official clients
  test --quick     the inner loop: format, import arrows, lints, tests
  test --clients   of all that, MCP with its official clients
  test --machines [bookworm|trixie]
                   the local backend's tests and `ringfence doctor` on emulated Debian 12 and 13 machines, or on one of
                   them; about twenty minutes for each
  test --engines   inside containers of a Docker daemon started for it: works, or refuses and says what to change
  test --agents    Claude Code, Codex and opencode with `ringfence mcp` and a scripted model: 1.2 GB of packages, a minute
  dist             the program linked statically: one file for any distribution, which starts faster
  deps             the import arrows, the home of `unsafe`, and who reads the environment
  fuzz [TARGET…] [--minutes N]
                   the parsers of what comes from a sandbox, a socket or a file, given what a fuzzing engine comes up with: N minutes
                   for each target, 1 where nobody says; fails on a finding. Needs a C++ compiler
  bench [--quick] [--only CASES]
                   measures against the peers installed here: about three minutes, with --quick less than one; CASES are
                   names with commas, as under each table
  bench --write    the same, and keeps it: docs/performance.md and the pictures beside it
  chaos [--rounds N] [--seed S] [--from ROUND] [--keep-going] [--user]
                   kills whatever ringfence starts at random moments and counts what is left: 100 rounds, a quarter of a
                   second for each; --user: as a plain user although called by root; --from: as a finding says
  bench --inner    what becomes of output between a backend and a model, piece by piece in one process
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::complain(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["test"] => test::full(),
        ["test", "--quick"] => test::quick(),
        ["test", "--clients"] => clients::alone(),
        ["test", "--agents"] => clients::agents(),
        ["test", "--machines", wanted @ ..] => machines::run(wanted),
        ["test", "--engines"] => engines::run(),
        ["dist"] => dist::dist(),
        ["deps"] => deps::check().map(|summary| report::say(&summary)),
        ["fuzz", options @ ..] => fuzz::run(options),
        ["bench", options @ ..] => tables::bench(options),
        ["chaos", options @ ..] => chaos::chaos(options),
        // Called by cargo and nextest for each test binary of the second pass; see second_pass.rs.
        [second_pass::RUNNER_TASK, command @ ..] => second_pass::become_user(command),
        [] | ["help" | "--help" | "-h"] => {
            report::say(USAGE);
            Ok(())
        }
        other => bail!("unknown task: {}\n{USAGE}", other.join(" ")),
    }
}
