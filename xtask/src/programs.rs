//! What the tests of the tools inside a sandbox need of this machine (`crates/cli/tests/suite/tools.rs`): programs, which are installed where
//! that can be done without asking, and packages of registries, which are fetched once into `target/tools`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::metadata::Metadata;
use crate::stage::{Stages, cargo_command};
use crate::{report, tools};

/// Programs, and the Debian packages that have them.
const PROGRAMS: &[(&str, &str)] = &[
    ("chromium", "chromium"),
    ("ffmpeg", "ffmpeg"),
    ("gcc", "gcc"),
    ("git", "git"),
    ("go", "golang-go"),
    ("gradle", "gradle"),
    ("java", "default-jre-headless"),
    ("make", "make"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("pip3", "python3-pip"),
    ("python3", "python3"),
    ("script", "bsdutils"),
    ("sqlite3", "sqlite3"),
    ("tmux", "tmux"),
    ("zsh", "zsh"),
];
/// Python's module that makes environments; on Debian a package of its own.
const ENSUREPIP: (&str, &str) = ("ensurepip", "python3-venv");

/// Marks a folder whose content has all arrived, and says what was asked for.
const COMPLETE: &str = ".complete";
const WHEELS: &[&str] = &["pytest==9.2.0", "pytest-xdist==3.8.0", "uv==0.13.9"];
/// Without special processor instructions, so that it runs on every machine.
#[cfg(target_arch = "x86_64")]
const BUN: &str = "@oven/bun-linux-x64-baseline@1.4.5";
#[cfg(not(target_arch = "x86_64"))]
const BUN: &str = "@oven/bun-linux-aarch64@1.4.5";
const NPM: &[&str] = &[BUN, "is-number@7.0.0"];

/// Installs and fetches what is missing; returns the programs that still are, whose tests will be skipped.
pub(crate) fn prepare(stages: &Stages, metadata: &Metadata) -> Result<Vec<&'static str>> {
    let mut missing = missing_programs();
    stages.check("programs", || {
        if !missing.is_empty() && tools::is_root() && tools::find("apt-get").is_some() {
            install(&missing)?;
            missing = missing_programs();
            if !missing.is_empty() {
                bail!("still missing after they were installed: {}", names(&missing));
            }
        }
        let folder = metadata.target_directory.join("tools");
        if !missing.contains(&ENSUREPIP) {
            fetch(&folder, "wheels", WHEELS, |part| wheels(&folder, part))?;
        }
        if !missing.iter().any(|(program, _)| *program == "npm") {
            fetch(&folder, "npm", NPM, npm)?;
        }
        let fixture = metadata.workspace_root.join("crates/cli/tests/fixtures/signals");
        let lock = std::fs::read_to_string(fixture.join("Cargo.lock"))?;
        fetch(&folder, "crates", &[&lock], |part| vendor(&fixture, part))?;
        Ok(if missing.is_empty() { String::new() } else { format!("{} missing", missing.len()) })
    })?;
    if !missing.is_empty() {
        let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
        report::say(&format!(
            "  tests of tools inside a sandbox are skipped for want of {}; as root: apt-get install --no-install-recommends {}",
            names(&missing),
            packages.join(" ")
        ));
    }
    Ok(missing.iter().map(|(program, _)| *program).collect())
}

fn names(missing: &[(&str, &str)]) -> String {
    missing.iter().map(|(program, _)| *program).collect::<Vec<_>>().join(", ")
}

/// Only what lies in the system directories is seen inside.
fn missing_programs() -> Vec<(&'static str, &'static str)> {
    let is_missing = |(program, _): &&(&str, &str)| {
        !["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(program).is_file())
    };
    let mut missing: Vec<_> = PROGRAMS.iter().filter(is_missing).copied().collect();
    let has_pip = |library: &str| {
        let folders = std::fs::read_dir(library).into_iter().flatten().flatten();
        folders.into_iter().any(|folder| folder.path().join("ensurepip/__init__.py").is_file())
    };
    if !["/usr/lib", "/usr/lib64", "/usr/local/lib"].into_iter().any(has_pip) {
        missing.push(ENSUREPIP);
    }
    missing
}

fn install(missing: &[(&str, &str)]) -> Result<()> {
    report::say(&format!("programs       installing {}, once (a minute or two)", names(missing)));
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    tools::apt_install(&packages).context("install the programs that run in a sandbox in the tests")
}

/// Makes a folder with what is wanted, unless it is there already.
fn fetch(folder: &Path, name: &str, wanted: &[&str], make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let (place, part) = (folder.join(name), folder.join(format!("{name}.part")));
    let wanted = wanted.join("\n");
    if std::fs::read_to_string(place.join(COMPLETE)).is_ok_and(|had| had == wanted) {
        return Ok(());
    }
    report::say(&format!("programs       fetching {name}, once"));
    tools::fresh_folder(&part)?;
    make(&part).with_context(|| format!("fetch {name} for the tests of tools inside a sandbox"))?;
    std::fs::write(part.join(COMPLETE), wanted)?;
    if place.exists() {
        std::fs::remove_dir_all(&place)?;
    }
    std::fs::rename(&part, &place).with_context(|| format!("put {} in place", place.display()))
}

/// The interpreter is the one that the sandbox sees, whatever else the search path has: wheels are chosen for it.
fn wheels(folder: &Path, part: &Path) -> Result<()> {
    let environment = folder.join("venv");
    tools::output(Command::new("/usr/bin/python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    let mut pip = Command::new(environment.join("bin/pip"));
    tools::output(
        pip.args(["download", "--quiet", "--only-binary", ":all:", "--dest"]).arg(part).args(WHEELS),
    )
    .map(drop)
}

fn npm(part: &Path) -> Result<()> {
    tools::output(Command::new("npm").args(["pack", "--silent"]).args(NPM).current_dir(part)).map(drop)
}

fn vendor(fixture: &Path, part: &Path) -> Result<()> {
    let mut cargo = cargo_command(&["vendor", "--quiet", "--locked", "--manifest-path"]);
    tools::output(cargo.arg(fixture.join("Cargo.toml")).arg(part)).map(drop)
}
