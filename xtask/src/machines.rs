//! `cargo xtask test --machines`: the local backend on kernels and distributions other than this one.
//!
//! The tests that were built here run on emulated Debian machines (`xtask/machine/`), as root, as a user with a
//! delegated control group, as one without, and `ringfence doctor` also where user namespaces are switched off.
//! Correctness only: a machine emulated in software says nothing about time.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::metadata::Metadata;
use crate::stage::{Stages, cargo_command, closing_lines};
use crate::test::PRIVILEGE_DEPENDENT;
use crate::{report, skips, tools};

const SUITES: &[&str] = &["bookworm", "trixie"];
const MEMORY_MIB: &str = "3072";
/// Emulation is about fifteen times slower than the machine.
const SECONDS: &str = "5400";

/// Boots the wanted machines, or all of them, and runs the payload.
///
/// A machine takes about twenty minutes: boot and doctor one, and six for the tests of each of three identities. What needs
/// no privilege, the unit tests, is two seconds of that, so nothing is gained by leaving it out.
pub(crate) fn run(wanted: &[&str]) -> Result<()> {
    if let Some(unknown) = wanted.iter().find(|name| !SUITES.contains(name)) {
        bail!("unknown machine: {unknown}; there are {}", SUITES.join(" and "));
    }
    for (program, package) in [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("debootstrap", "debootstrap"),
        ("mkfs.ext4", "e2fsprogs"),
        ("strip", "binutils"),
    ] {
        tools::require(program, package)?;
    }
    let metadata = Metadata::members_only()?;
    let stages = Stages::new(&metadata.target_directory)?;
    let payload = stages.folder().join("payload");
    stages.check("payload", || pack(&metadata, &payload))?;
    let mut closing = Vec::new();
    let mut failures = Vec::new();
    for suite in SUITES.iter().filter(|suite| wanted.is_empty() || wanted.contains(suite)) {
        let mut boot = Command::new(metadata.workspace_root.join("xtask/machine/boot"));
        boot.arg(suite).arg(&payload).args([MEMORY_MIB, SECONDS]);
        let booted = stages.command(suite, &mut boot, |output| {
            format!("{} sections", output.lines().filter(|line| line.starts_with("== ")).count())
        });
        // What fails on one machine may well pass on the other, which takes long enough to be worth knowing.
        let output = match booted {
            Ok(output) => output,
            Err(error) => {
                failures.push(error.to_string());
                continue;
            }
        };
        for section in sections(&output) {
            report::say(&format!("  {:<46} {}", section.name, section.remark()));
            let compared =
                skips::compare_machine(&metadata.workspace_root, suite, &section.name, &section.skips);
            failures.extend(compared.err().map(|error| error.to_string()));
            closing.extend(closing_lines(&section.text));
        }
    }
    for line in closing {
        report::say(&line);
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    report::say(&format!("everything passed in {:.0} s", stages.elapsed().as_secs_f64()));
    Ok(())
}

/// One thing that was done on a machine.
#[derive(Debug)]
struct Section {
    name: String,
    text: String,
    skips: Vec<String>,
}

impl Section {
    fn remark(&self) -> String {
        let passed: u64 = closing_lines(&self.text)
            .iter()
            .filter_map(|line| line.split(" passed").next()?.rsplit(' ').next()?.parse::<u64>().ok())
            .sum();
        match (passed, self.skips.len()) {
            (0, 0) => "ok".to_owned(),
            (passed, 0) => format!("{passed} passed"),
            (passed, skipped) => format!("{passed} passed, of which {skipped} found a primitive missing"),
        }
    }
}

fn sections(output: &str) -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            all.push(Section { name: name.to_owned(), text: String::new(), skips: Vec::new() });
        } else if let Some(section) = all.last_mut() {
            if line.starts_with("skipped: ") {
                section.skips.push(line.to_owned());
            }
            section.text.push_str(line);
            section.text.push('\n');
        }
    }
    all
}

/// A line of cargo's JSON output, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Artifact {
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the tests and lays them out as the machine wants them.
fn pack(metadata: &Metadata, payload: &Path) -> Result<String> {
    tools::fresh_folder(payload)?;
    let mut tests = String::new();
    let packages = PRIVILEGE_DEPENDENT.iter().flat_map(|name| ["--package", name]).collect::<Vec<_>>();
    for artifact in built(&[&["test", "--no-run", "--all-features"], packages.as_slice()].concat())? {
        if artifact.is_test {
            tests.push_str(&format!("{} {}\n", artifact.folder.display(), artifact.executable.display()));
            copy_stripped(&artifact.executable, payload)?;
        }
    }
    let programs = built(&["build", "--bins", "--all-features", "--package", "ringfence-cli"])?;
    let program = programs
        .into_iter()
        .find(|artifact| artifact.executable.ends_with("ringfence"))
        .context("no binary named ringfence was built")?;
    copy_stripped(&program.executable, payload)?;
    std::fs::write(payload.join("tests"), &tests)?;
    std::fs::write(payload.join("ringfence"), program.executable.as_os_str().as_encoded_bytes())?;
    for folder in ["crates/local", "crates/cli"] {
        copy_tree(&metadata.workspace_root.join(folder), payload)?;
    }
    std::fs::copy(metadata.workspace_root.join("xtask/machine/run"), payload.join("run"))?;
    Ok(format!("{} test binaries", tests.lines().count()))
}

/// Runs cargo and returns what it made.
fn built(arguments: &[&str]) -> Result<Vec<Built>> {
    let output = cargo_command(arguments)
        .args(["--message-format", "json"])
        .stdin(Stdio::null())
        .output()
        .context("start cargo")?;
    if !output.status.success() {
        bail!("cargo {}:\n{}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    Ok(artifacts
        .filter_map(|artifact| {
            Some(Built {
                executable: artifact.executable?,
                folder: artifact.manifest_path?.parent()?.to_owned(),
                is_test: artifact.profile?.test,
            })
        })
        .collect())
}

/// A program that cargo made.
#[derive(Debug)]
struct Built {
    executable: PathBuf,
    folder: PathBuf,
    is_test: bool,
}

fn inside(payload: &Path, path: &Path) -> Result<PathBuf> {
    let place = payload.join("files").join(path.strip_prefix("/").context("a path that is not absolute")?);
    let parent = place.parent().context("a path without a folder")?;
    std::fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    Ok(place)
}

/// Copies a program without its debug information, which is nine tenths of it.
fn copy_stripped(executable: &Path, payload: &Path) -> Result<()> {
    let place = inside(payload, executable)?;
    let status = Command::new("strip")
        .args(["--strip-debug", "-o"])
        .args([&place, executable])
        .stdin(Stdio::null())
        .status()
        .context("start strip")?;
    if !status.success() {
        bail!("strip failed on {}", executable.display());
    }
    Ok(())
}

/// Copies what tests may read: the sources and fixtures of a crate.
fn copy_tree(from: &Path, payload: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let path = entry?.path();
        let kind = std::fs::symlink_metadata(&path)?.file_type();
        if kind.is_symlink() {
            symlink(std::fs::read_link(&path)?, inside(payload, &path)?)?;
        } else if kind.is_dir() {
            copy_tree(&path, payload)?;
        } else {
            std::fs::copy(&path, inside(payload, &path)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::sections;

    #[test]
    fn output_is_cut_into_sections() {
        let output = "noise\n== one\na\n-- one 0\n== two\nskipped: t: memory\ntest result: ok. 3 passed; 0 failed\n-- two 0\n";
        let found = sections(output);
        let shape: Vec<(&str, usize, String)> =
            found.iter().map(|s| (s.name.as_str(), s.skips.len(), s.remark())).collect();
        assert_eq!(
            shape,
            [
                ("one", 0, "ok".to_owned()),
                ("two", 1, "3 passed, of which 1 found a primitive missing".to_owned())
            ]
        );
    }
}
