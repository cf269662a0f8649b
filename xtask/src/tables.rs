//! `cargo xtask bench`: builds as users build, measures, and writes the tables into `docs/performance.md`.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::metadata::Metadata;
use crate::report;
use crate::stage::{Stages, cargo_command};

const DOCUMENT: &str = "docs/performance.md";
const BEGIN: &str = "<!-- written by `cargo xtask bench`: begin -->";
const END: &str = "<!-- written by `cargo xtask bench`: end -->";

/// Enough that the 99th percentile is not one accident.
const ROUNDS: &str = "500";
/// A look while working; nothing is written.
const QUICK_ROUNDS: &str = "50";

/// Measures; a full run replaces the tables of the document, a quick one prints them.
pub(crate) fn bench(quick: bool) -> Result<()> {
    let metadata = Metadata::members_only()?;
    let stages = Stages::new(&metadata.target_directory)?;
    for (name, package) in [("build ringfence", "ringfence-cli"), ("build bench", "ringfence-bench")] {
        let mut build = cargo_command(&["build", "--release", "--package", package]);
        stages.command(name, &mut build, |_| String::new())?;
    }
    let release = metadata.target_directory.join("release");
    let mut measure = std::process::Command::new(release.join("ringfence-bench"));
    measure.arg(release.join("ringfence")).arg(if quick { QUICK_ROUNDS } else { ROUNDS });
    let tables = stages.command("measure", &mut measure, |_| String::new())?;
    report::say(&tables);
    if !quick {
        write(&metadata.workspace_root.join(DOCUMENT), &tables)?;
        report::say(&format!("written into {DOCUMENT}"));
    }
    Ok(())
}

fn write(path: &Path, tables: &str) -> Result<()> {
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
    use super::{BEGIN, END, replaced};

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(replaced(&text, "new\n\n").unwrap(), format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert!(replaced("no marks", "x").is_err());
    }
}
