//! `cargo xtask fuzz`: parsers of what comes from a sandbox, a socket or a file are given what libFuzzer comes up with.
//!
//! The engine is compiled from its source and the instrumentation is LLVM's own, so the stable toolchain does. Without a sanitizer: the
//! parsers are safe Rust, and what they hold of memory is measured for each input.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::metadata::Metadata;
use crate::report;
use crate::stage::{Stages, cargo_command};
use crate::tools;

const PACKAGE: &str = "ringfence-fuzz";

/// The profile of the workspace's manifest: optimised, with all checks.
const PROFILE: &str = "fuzz";

/// What cargo-fuzz passes where no sanitizer is wanted.
const INSTRUMENTED: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// How long each target runs where nobody says.
const MINUTES: f64 = 1.0;
/// The longest run of one target: a day.
const MAX_MINUTES: f64 = 24.0 * 60.0;

/// The longest input. Whatever grows faster than it shows at this size.
const MAX_INPUT_BYTES: u64 = 16 << 10;
/// One input may take so long; what takes longer is a finding.
const INPUT_SECONDS: u64 = 10;
/// The engine with its corpus may hold so much.
const MEMORY_MIB: u64 = 1 << 10;
/// How long a finding is made shorter.
const MINIMISE_SECONDS: u64 = 30;

/// Where it is there, what targets write lies in memory: that is twenty times as fast.
const IN_MEMORY: &str = "/dev/shm";

/// Where the crates keep the seeds of their targets, a folder for each.
const SEEDS: &[&str] = &["xtask/fuzz/seeds", "crates/cli/seeds", "crates/local/seeds", "crates/server/seeds"];

/// A target and the folder of its seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    name: String,
    seeds: PathBuf,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Figures {
    executions: u64,
    /// On average.
    per_second: u64,
    /// Edges of the program that were taken, and combinations of edge and count.
    edges: u64,
    features: u64,
    /// Inputs that are kept for the next run.
    corpus: u64,
}

/// Runs the targets named, or all, and fails if anything was found.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let metadata = Metadata::members_only()?;
    let all = targets(&metadata.workspace_root)?;
    let (names, minutes) = parse(arguments)?;
    let wanted = choose(&all, &names)?;
    // The engine is C++. Where a compiler is named, it is taken at its word.
    if std::env::var_os("CXX").is_none() {
        tools::require("c++", "g++").context("the fuzzing engine is compiled from C++")?;
    }
    let stages = Stages::new(&metadata.target_directory)?;
    let program = build(&stages, &metadata.target_directory)?;
    let mut findings = Vec::new();
    report::say(&format!(
        "{:<12} {:>12} {:>8} {:>8} {:>8} {:>8}  findings",
        "target", "executions", "a second", "edges", "features", "corpus"
    ));
    for target in &wanted {
        let folder = stages.folder().join("fuzz").join(&target.name);
        let (figures, finding) = attack(&program, target, &folder, minutes)?;
        report::say(&format!(
            "{:<12} {:>12} {:>8} {:>8} {:>8} {:>8}  {}",
            target.name,
            figures.executions,
            figures.per_second,
            figures.edges,
            figures.features,
            figures.corpus,
            if finding.is_some() { "1, see below" } else { "none" }
        ));
        findings.extend(finding);
    }
    if findings.is_empty() {
        return Ok(());
    }
    report::say(&findings.join("\n"));
    bail!("{} of {} targets have a finding; mended, its file becomes a seed", findings.len(), wanted.len());
}

fn parse<'a>(arguments: &[&'a str]) -> Result<(Vec<&'a str>, f64)> {
    let mut names = Vec::new();
    let mut minutes = MINUTES;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match *argument {
            "--minutes" => {
                let number = arguments.next().and_then(|number| number.parse().ok());
                // The engine counts whole seconds, and takes none for no end.
                let number = number.filter(|number| (1.0 / 60.0..=MAX_MINUTES).contains(number));
                minutes = number.context("--minutes needs the minutes for each target, such as 3 or 0.5")?;
            }
            option if option.starts_with('-') => bail!("unknown option: {option}"),
            name => names.push(name),
        }
    }
    Ok((names, minutes))
}

fn targets(root: &Path) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for folder in SEEDS.iter().map(|folder| root.join(folder)) {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let entry = entry?;
            targets
                .push(Target { name: entry.file_name().to_string_lossy().into_owned(), seeds: entry.path() });
        }
    }
    targets.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(targets)
}

fn choose(all: &[Target], names: &[&str]) -> Result<Vec<Target>> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let known = || all.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ");
    names
        .iter()
        .map(|name| {
            let target = all.iter().find(|target| target.name == *name).cloned();
            target.with_context(|| format!("there is no target {name}; there are {}", known()))
        })
        .collect()
}

/// Builds the program with the engine. For a target that is named, or build scripts would be instrumented as well.
fn build(stages: &Stages, target_directory: &Path) -> Result<PathBuf> {
    let host = host()?;
    let mut cargo = cargo_command(&["build", "--package", PACKAGE, "--profile", PROFILE, "--target", &host]);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", INSTRUMENTED.join("\u{1f}")).env_remove("RUSTFLAGS");
    stages.command("build fuzz", &mut cargo, |_| String::new())?;
    Ok(target_directory.join(host).join(PROFILE).join(PACKAGE))
}

fn host() -> Result<String> {
    let said = tools::output(Command::new("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say for which machine it builds")
}

/// Runs one target. What it came to, and what is to be said about a finding.
fn attack(program: &Path, target: &Target, folder: &Path, minutes: f64) -> Result<(Figures, Option<String>)> {
    let corpus = folder.join("corpus");
    std::fs::create_dir_all(&corpus).with_context(|| format!("create {}", corpus.display()))?;
    let samples = folder.join("samples");
    tools::fresh_folder(&samples)?;
    let mut engine = engine(program, target, &samples);
    engine
        .args([&corpus, &target.seeds, &samples])
        .arg(format!("-max_total_time={:.0}", minutes * 60.0))
        .arg(format!("-artifact_prefix={}/", folder.display()))
        .arg("-print_final_stats=1");
    let output = engine.output().with_context(|| format!("start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let log = folder.join("log");
    std::fs::write(&log, &said).with_context(|| format!("write {}", log.display()))?;
    let figures = figures(&said);
    if output.status.success() {
        return Ok((figures, None));
    }
    let Some(found) = said.lines().rev().find_map(|line| line.split_once("Test unit written to ")) else {
        bail!("{} ended with {} and no input: see {}", target.name, output.status, log.display());
    };
    let file = minimise(program, target, folder, Path::new(found.1.trim()))?;
    Ok((figures, Some(format!("{}: {}\n  {}", target.name, reason(&said), file.display()))))
}

fn engine(program: &Path, target: &Target, samples: &Path) -> Command {
    let mut engine = Command::new(program);
    engine
        .env("RINGFENCE_FUZZ_TARGET", &target.name)
        .env("RINGFENCE_FUZZ_SAMPLES", samples)
        .env("RUST_BACKTRACE", "0")
        .arg(format!("-max_len={MAX_INPUT_BYTES}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .stdin(Stdio::null());
    if Path::new(IN_MEMORY).is_dir() {
        engine.env("TMPDIR", IN_MEMORY);
    }
    engine
}

/// Makes a finding as short as it gets in a while. One that is not found again stays as it is.
fn minimise(program: &Path, target: &Target, folder: &Path, found: &Path) -> Result<PathBuf> {
    let file = folder.join("finding");
    std::fs::copy(found, &file).with_context(|| format!("copy {}", found.display()))?;
    let mut engine = engine(program, target, &folder.join("samples"));
    engine
        .arg("-minimize_crash=1")
        .arg(format!("-max_total_time={MINIMISE_SECONDS}"))
        .arg(format!("-exact_artifact_path={}", file.display()))
        .arg(found);
    engine.output().with_context(|| format!("start {}", program.display()))?;
    Ok(file)
}

/// What went wrong: the message of the panic, or what the engine says.
fn reason(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let panic = lines.iter().position(|line| line.starts_with("thread '") && line.contains(" panicked at "));
    match panic {
        Some(at) => lines[at..]
            .iter()
            .take_while(|line| !line.starts_with("=="))
            .take(4)
            .copied()
            .collect::<Vec<_>>()
            .join("\n  "),
        None => lines
            .iter()
            .find(|line| line.contains("ERROR: libFuzzer"))
            .map_or("it ended early", |line| line)
            .to_owned(),
    }
}

/// Reads the last status line, such as `#524 DONE cov: 21 ft: 40 corp: 9/61b …`, and the final count.
fn figures(said: &str) -> Figures {
    let last =
        said.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: ")).unwrap_or_default();
    let words: Vec<&str> = last.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1)?.split('/').next()?.parse().ok()
    };
    let counted = |name: &str| {
        let number = said.lines().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name))?;
        number.trim_start_matches(':').trim().parse().ok()
    };
    let begun = || words.first()?.strip_prefix('#')?.parse().ok();
    let executions = counted("number_of_executed_units").or_else(begun);
    Figures {
        executions: executions.unwrap_or_default(),
        per_second: counted("average_exec_per_sec").unwrap_or_default(),
        edges: after("cov:").unwrap_or_default(),
        features: after("ft:").unwrap_or_default(),
        corpus: after("corp:").unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "INFO: Seed: 1\n#2\tINITED cov: 8 ft: 9 corp: 1/1b exec/s: 0 rss: 27Mb\n\
                       #70\tNEW    cov: 21 ft: 40 corp: 9/61b lim: 4 exec/s: 0 rss: 27Mb L: 4/4 MS: 3 X-\n";

    #[test]
    fn the_figures_are_the_last_ones_the_engine_says() {
        let expected = Figures { executions: 70, per_second: 0, edges: 21, features: 40, corpus: 9 };
        assert_eq!(figures(RUN), expected);
        let ended = format!(
            "{RUN}#524\tDONE   cov: 22 ft: 41 corp: 10/70b\nstat::number_of_executed_units: 524\n\
             stat::average_exec_per_sec:     131\n"
        );
        let expected = Figures { executions: 524, per_second: 131, edges: 22, features: 41, corpus: 10 };
        assert_eq!(figures(&ended), expected);
        assert_eq!(figures("no engine"), Figures::default());
    }

    #[test]
    fn a_finding_is_told_by_the_panic_or_by_the_engine() {
        let panic =
            "\nthread '<unnamed>' (7) panicked at a.rs:6:9:\nfound\n==7== ERROR: libFuzzer: deadly signal\n";
        assert_eq!(reason(panic), "thread '<unnamed>' (7) panicked at a.rs:6:9:\n  found");
        let slow = "==7== ERROR: libFuzzer: timeout after 10 seconds\n";
        assert_eq!(reason(slow), "==7== ERROR: libFuzzer: timeout after 10 seconds");
    }

    #[test]
    fn arguments_are_targets_and_a_time() {
        assert_eq!(parse(&[]).unwrap(), (vec![], MINUTES));
        assert_eq!(parse(&["a", "--minutes", "0.5", "b"]).unwrap(), (vec!["a", "b"], 0.5));
        for wrong in ["", "0", "0.01", "-1", "x", "NaN", "inf"] {
            assert!(parse(&["--minutes", wrong]).is_err(), "{wrong:?}");
        }
        for wrong in [&["--minutes"][..], &["--minute", "1"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        let all = [Target { name: "a".to_owned(), seeds: PathBuf::new() }];
        assert_eq!(choose(&all, &[]).unwrap(), all);
        assert_eq!(choose(&all, &["a"]).unwrap(), all);
        assert_eq!(choose(&all, &["b"]).unwrap_err().to_string(), "there is no target b; there are a");
    }
}
