//! What cargo knows about the workspace, reduced to the fields the tasks use.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) workspace_root: PathBuf,
    pub(crate) target_directory: PathBuf,
    pub(crate) resolve: Option<Resolve>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` is a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Edge {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct EdgeKind {
    pub(crate) kind: Option<String>,
}

impl Metadata {
    /// Reads the members alone: fast, and needs no registry.
    pub(crate) fn members_only() -> Result<Self> {
        Self::read(&["--no-deps"])
    }

    /// Reads the whole graph as this host builds it.
    pub(crate) fn with_graph() -> Result<Self> {
        Self::read(&["--all-features", "--filter-platform", &host_triple()?])
    }

    fn read(flags: &[&str]) -> Result<Self> {
        let output = Command::new(cargo())
            .args(["metadata", "--format-version", "1"])
            .args(flags)
            .stdin(Stdio::null())
            .output()
            .context("start cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("read the answer of cargo metadata")
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

/// Returns the cargo that runs this task, so that all stages use one toolchain.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Returns the triple that this machine compiles for.
pub(crate) fn host_triple() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").stdin(Stdio::null()).output().context("start rustc")?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .context("rustc -vV names no host")
}

/// Returns the folder of the toolchain in use.
pub(crate) fn toolchain() -> Result<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .stdin(Stdio::null())
        .output()
        .context("start rustc")?;
    Ok(PathBuf::from(String::from_utf8(output.stdout).context("read the place of the toolchain")?.trim_end()))
}
