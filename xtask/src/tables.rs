//! `cargo xtask bench`: builds as users build, measures, and writes tables and pictures into `docs/`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::dist;
use crate::metadata::Metadata;
use crate::report;
use crate::stage::{Stages, cargo_command};

const DOCUMENT: &str = "docs/performance.md";
/// Where the document is, and the pictures beside it.
const PICTURES: &str = "docs";
const BEGIN: &str = "<!-- written by `cargo xtask bench --write`: begin -->";
const END: &str = "<!-- written by `cargo xtask bench --write`: end -->";

/// Measures and prints the tables; with `--write` they replace those of the document, and the pictures beside it.
pub(crate) fn bench(options: &[&str]) -> Result<()> {
    if options == ["--inner"] {
        return inner();
    }
    let write = options.contains(&"--write");
    if write && options.len() > 1 {
        bail!("what is kept is a whole run: no {} with --write", options.join(" "));
    }
    let metadata = Metadata::members_only()?;
    let stages = Stages::new(&metadata.target_directory)?;
    for (name, package) in [("build ringfence", "ringfence-cli"), ("build bench", "ringfence-bench")] {
        let mut build = cargo_command(&["build", "--release", "--package", package]);
        stages.command(name, &mut build, |_| String::new())?;
    }
    let release = metadata.target_directory.join("release");
    let mut measure = Command::new(release.join("ringfence-bench"));
    measure.arg(release.join("ringfence"));
    if starts_programs(options) {
        measure.arg("--static").arg(dist::build(&stages, &metadata)?);
    }
    if write {
        measure.arg("--pictures").arg(metadata.workspace_root.join(PICTURES));
    } else {
        measure.args(options);
    }
    let tables = stages.command("measure", &mut measure, |_| String::new())?;
    report::say(&tables);
    if write {
        replace(&metadata.workspace_root.join(DOCUMENT), &tables)?;
        report::say(&format!("written into {DOCUMENT} and its pictures"));
    }
    Ok(())
}

/// Whether a case is measured that starts the program: minutes of building are for those alone.
fn starts_programs(options: &[&str]) -> bool {
    let only = options.iter().skip_while(|option| **option != "--only").nth(1);
    only.is_none_or(|cases| cases.split(',').any(|case| ["one-shot", "cold"].contains(&case)))
}

/// What becomes of output between a backend and a model, piece by piece in one process.
fn inner() -> Result<()> {
    let mut bench = cargo_command(&["bench", "--package", "ringfence-toolset", "--bench", "inner"]);
    if !bench.status().context("start cargo bench")?.success() {
        bail!("the inner benches failed");
    }
    Ok(())
}

fn replace(path: &Path, tables: &str) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    std::fs::write(path, replaced(&text, tables)?).with_context(|| format!("write {}", path.display()))
}

fn replaced(text: &str, tables: &str) -> Result<String> {
    let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
        bail!("{DOCUMENT} has lost the marks between which the tables go");
    };
    let kept = text.get(..begin + BEGIN.len()).context("the first mark")?;
    let rest = text.get(end..).context("the second mark comes first")?;
    Ok(format!("{kept}\n{}\n{rest}", tables.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, replaced, starts_programs};

    #[test]
    fn the_static_program_is_built_for_those_cases_that_start_it() {
        for options in [&[][..], &["--write"], &["--quick", "--only", "idle,cold"], &["--only", "one-shot"]] {
            assert!(starts_programs(options), "{options:?}");
        }
        assert!(!starts_programs(&["--only", "idle,growth", "--quick"]));
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(replaced(&text, "new\n\n").unwrap(), format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert!(replaced("no marks", "x").is_err());
    }
}
