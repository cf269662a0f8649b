//! Tools that a fresh machine may lack: what can be installed without asking is, the rest is named.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::report;
use crate::stage::cargo_command;

const CARGO_DENY: &str = "cargo-deny@0.20.2";

/// Finds a program in the search path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(extra)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Returns whether cargo knows a subcommand.
pub(crate) fn has_cargo_subcommand(name: &str) -> bool {
    cargo_command(&[name, "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Installs cargo-deny where it is missing; a debug build does the same checks after a third of the compile time.
pub(crate) fn ensure_cargo_deny() -> Result<()> {
    if has_cargo_subcommand("deny") {
        return Ok(());
    }
    report::say(&format!("deny           installing {CARGO_DENY}, once (about a minute)"));
    let status = cargo_command(&["install", CARGO_DENY, "--locked", "--debug", "--quiet"])
        .env_remove("CARGO_TARGET_DIR")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .stdin(Stdio::null())
        .status()
        .context("start cargo install")?;
    if !status.success() {
        bail!("cargo-deny is missing and could not be installed: run `cargo install {CARGO_DENY} --locked`");
    }
    Ok(())
}

/// Makes sure that a program is there; as root on a Debian system its package is installed.
pub(crate) fn require(program: &str, package: &str) -> Result<PathBuf> {
    if let Some(path) = find(program) {
        return Ok(path);
    }
    if is_root() && find("apt-get").is_some() {
        report::say(&format!("installing the package {package} for {program}"));
        apt_install(&[package]).with_context(|| format!("{program} is missing"))?;
    }
    find(program).with_context(|| format!("{program} is missing: install it (Debian package {package})"))
}

/// Installs Debian packages, which takes root.
pub(crate) fn apt_install(packages: &[&str]) -> Result<()> {
    let mut update = Command::new("apt-get");
    update.args(["update", "-qq"]);
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages);
    for command in [&mut update, &mut install] {
        output(command.env("DEBIAN_FRONTEND", "noninteractive"))
            .with_context(|| format!("install {}", packages.join(", ")))?;
    }
    Ok(())
}

/// Returns whether this process may act as root.
pub(crate) fn is_root() -> bool {
    user_id() == Some(0)
}

/// Returns the effective user id, read from /proc so that no foreign call is needed.
pub(crate) fn user_id() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

/// Empties a folder, or makes it.
pub(crate) fn fresh_folder(path: &Path) -> Result<()> {
    remove(path)?;
    std::fs::create_dir_all(path).with_context(|| format!("create {}", path.display()))
}

/// Removes a folder with what is in it, if it is there.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Runs a command and returns what it printed; a failure is told with the last lines of that.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {program}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    bail!("{program} failed:\n{}", lines[lines.len().saturating_sub(12)..].join("\n"))
}
