//! Builds the helper as a static program, to be embedded into the library.
//!
//! A plain toolchain does this: the helper is made for the same target, so no other one has to be installed. It uses nothing of
//! the C library, but the linker is told to look for a static one all the same, by the crate libc. Cargo builds it in a project of its own under `OUT_DIR`, because a dependency kind for programs is not
//! stable; the one crate it needs, libc, is already on the machine, since this package depends on it too.

use std::env;
use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

const MANIFEST: &str = r#"[package]
name = "ringfence-helper"
version = "0.0.0"
edition = "2024"

[workspace]

[[bin]]
name = "ringfence-helper"
path = "@MAIN@"

[lints.rust]
unexpected_cfgs = { level = "warn", check-cfg = ['cfg(ringfence_embedded)', 'cfg(ringfence_sources, values(any()))'] }

[dependencies]
libc = { version = "0.2.187", default-features = false }

[profile.release]
opt-level = "s"
lto = "fat"
codegen-units = 1
panic = "abort"
strip = "symbols"
"#;

/// Which libc the rest of the build has.
const LOCK: &str = "../../Cargo.lock";

fn main() -> Result<(), Box<dyn Error>> {
    let source = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let target = env::var("TARGET")?;
    println!("cargo::rerun-if-changed=helper");
    println!("cargo::rerun-if-changed=src/wire");
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo takes a file that is not there for one that has changed.
    if source.join(LOCK).exists() {
        println!("cargo::rerun-if-changed={LOCK}");
    }
    let embedded = out.join("helper");
    if env::var("CARGO_CFG_TARGET_OS")? != "linux" {
        return Err("ringfence-local is for Linux; use a hosted backend elsewhere".into());
    }
    let project = out.join("helper-project");
    fs::create_dir_all(&project)?;
    let main = source.join("helper/main.rs");
    let sources = fingerprint(&[&source.join("helper"), &source.join("src/wire")])?;
    fs::write(project.join("Cargo.toml"), MANIFEST.replace("@MAIN@", &main.display().to_string()))?;
    // The same libc as the rest of the build, where that is known; Cargo drops the other entries.
    let lock = source.join(LOCK);
    if lock.exists() {
        fs::copy(lock, project.join("Cargo.lock"))?;
    }
    if !(build(&project, &target, sources, true)? || build(&project, &target, sources, false)?) {
        return Err(
            "the helper could not be built: see the messages above; a static C library is needed (Debian: \
                    libc6-dev, Fedora: glibc-static)"
                .into(),
        );
    }
    fs::copy(project.join("target").join(&target).join("release/ringfence-helper"), embedded)?;
    Ok(())
}

/// A number for the names and contents below some directories.
fn fingerprint(directories: &[&Path]) -> Result<u64, Box<dyn Error>> {
    let mut pending: Vec<PathBuf> = directories.iter().map(|path| path.to_path_buf()).collect();
    let mut files = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() { pending.push(path) } else { files.push(path) }
        }
    }
    files.sort_unstable();
    let mut hasher = DefaultHasher::new();
    for path in files {
        (&path, fs::read(&path)?).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// Offline first: nothing has to be fetched, and a build must not wait for a network it does not need.
fn build(project: &Path, target: &str, sources: u64, offline: bool) -> Result<bool, Box<dyn Error>> {
    let mut command = Command::new(env::var("CARGO")?);
    command.args(["build", "--release", "--quiet", "--target", target]).current_dir(project);
    if offline {
        command.arg("--offline");
    }
    // What the outer build was told is not for the helper: other flags would make it dynamic or instrument it.
    for name in
        ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET", "CARGO_MAKEFLAGS"]
    {
        command.env_remove(name);
    }
    command.env("CARGO_TARGET_DIR", project.join("target"));
    // Static, at any address, and begun by our own first instruction.
    let flags = [
        "--cfg=ringfence_embedded",
        "-Crelocation-model=pie",
        "-Clink-arg=-static-pie",
        "-Clink-arg=-nostartfiles",
        // By their contents: sources that were copied with their times can be older than what was built of others.
        &format!("--cfg=ringfence_sources=\"{sources:x}\""),
    ];
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    Ok(command.status()?.success())
}
