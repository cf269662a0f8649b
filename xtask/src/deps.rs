//! Asserts what the architecture promises by absence: who imports whom, where `unsafe` lives, who reads the environment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::metadata::{Metadata, Package};
use crate::rust_source::{code_only, lines_with_word};

/// Every member, and the members it may import. A member without a row here is an error.
const ARROWS: &[(&str, &[&str])] = &[
    ("ringfence-core", &[]),
    ("ringfence-toolset", &["ringfence-core"]),
    ("ringfence-local", &["ringfence-core"]),
    ("ringfence-testkit", &["ringfence-core"]),
    ("ringfence", &["ringfence-core", "ringfence-local", "ringfence-toolset"]),
    ("ringfence-server", &["ringfence", "ringfence-core", "ringfence-toolset"]),
    ("ringfence-cli", &["ringfence", "ringfence-core", "ringfence-toolset", "ringfence-server"]),
    ("ringfence-bench", &["ringfence", "ringfence-core"]),
    ("ringfence-chaos", &["ringfence"]),
    (
        "ringfence-fuzz",
        &[
            "ringfence",
            "ringfence-core",
            "ringfence-local",
            "ringfence-server",
            "ringfence-cli",
            "ringfence-testkit",
        ],
    ),
    ("xtask", &[]),
];

/// May be imported by anybody, but only for tests unless there is an arrow.
const TEST_ONLY: &str = "ringfence-testkit";

/// The contract is not allowed to reach for the operating system or the network, directly or through others.
const CORE: &str = "ringfence-core";
const NOT_IN_CORE_DIRECTLY: &[&str] = &["libc", "rustix", "nix", "caps", "seccompiler", "landlock"];
const NOT_IN_CORE_AT_ALL: &[&str] = &["hyper", "reqwest", "ureq", "h2", "axum", "tonic", "rustls", "openssl"];

/// The only directories whose files may contain `unsafe`.
const UNSAFE_HOMES: &[&str] = &["crates/local/src/sys/", "crates/local/helper/sys/"];
/// The only files outside those directories; a module may be `sys.rs` beside its directory.
const UNSAFE_FILES: &[&str] = &["crates/local/src/sys.rs", "crates/local/helper/sys.rs"];

/// Libraries get values; only the command line looks around.
const NO_ENVIRONMENT: &[&str] = &[
    "crates/core/src/",
    "crates/toolset/src/",
    "crates/local/src/",
    "crates/ringfence/src/",
    "crates/server/src/",
];
const ENVIRONMENT_CALLS: &[&str] =
    &["env::var", "env::var_os", "env::vars", "env::vars_os", "env::home_dir", "env::set_var", "env::args"];

/// Checks everything and returns the one line to print, or all violations at once.
pub(crate) fn check() -> Result<String> {
    let metadata = Metadata::with_graph()?;
    let members: BTreeMap<&str, &Package> =
        metadata.members().map(|package| (package.name.as_str(), package)).collect();
    let mut violations = Vec::new();
    let arrows = check_arrows(&members, &mut violations);
    check_core_graph(&metadata, &mut violations)?;
    let files = check_sources(&metadata.workspace_root, &mut violations)?;
    if !violations.is_empty() {
        bail!("the architecture is broken:\n  {}", violations.join("\n  "));
    }
    Ok(format!("{} members, {arrows} arrows, {files} source files", members.len()))
}

fn check_arrows(members: &BTreeMap<&str, &Package>, violations: &mut Vec<String>) -> usize {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut arrows = 0;
    for (&name, package) in members {
        let Some(may_import) = allowed.get(name) else {
            violations
                .push(format!("{name} has no row in ARROWS (xtask/src/deps.rs): say whom it may import"));
            continue;
        };
        for dependency in &package.dependencies {
            let target = dependency.name.as_str();
            let for_tests = dependency.kind.as_deref() == Some("dev");
            if name == CORE && !for_tests && NOT_IN_CORE_DIRECTLY.contains(&target) {
                violations.push(format!("{name} imports {target}: the contract knows no operating system"));
            }
            if !members.contains_key(target) {
                continue;
            }
            arrows += 1;
            let fine = match (target == TEST_ONLY, for_tests) {
                (true, for_tests) => for_tests || may_import.contains(&target),
                (false, true) => target == CORE || may_import.contains(&target),
                (false, false) => may_import.contains(&target),
            };
            if !fine {
                let kind = dependency.kind.as_deref().unwrap_or("normal");
                violations.push(format!("{name} must not import {target} (as a {kind} dependency)"));
            }
        }
    }
    arrows
}

/// Walks what core needs to be built, without its tests.
fn check_core_graph(metadata: &Metadata, violations: &mut Vec<String>) -> Result<()> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata gave no graph")?;
    let names: BTreeMap<&str, &str> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package.name.as_str())).collect();
    let edges: BTreeMap<&str, Vec<&str>> = resolve
        .nodes
        .iter()
        .map(|node| {
            let built = node.deps.iter().filter(|edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            (node.id.as_str(), built.map(|edge| edge.pkg.as_str()).collect())
        })
        .collect();
    let start = metadata.members().find(|package| package.name == CORE).context("there is no core crate")?;
    let mut queue = VecDeque::from([start.id.as_str()]);
    let mut seen = BTreeSet::new();
    while let Some(id) = queue.pop_front() {
        if !seen.insert(id) {
            continue;
        }
        let name = names.get(id).copied().unwrap_or(id);
        if NOT_IN_CORE_AT_ALL.contains(&name) {
            violations.push(format!("{CORE} reaches {name}: the contract performs no network I/O"));
        }
        queue.extend(edges.get(id).into_iter().flatten());
    }
    Ok(())
}

fn check_sources(root: &Path, violations: &mut Vec<String>) -> Result<usize> {
    let mut files = 0;
    for path in rust_files(root)? {
        // A file may be listed and deleted; whoever builds will notice what matters.
        let Ok(source) = std::fs::read_to_string(root.join(&path)) else { continue };
        files += 1;
        let code = code_only(&source);
        let unsafe_is_at_home =
            UNSAFE_HOMES.iter().any(|home| path.starts_with(home)) || UNSAFE_FILES.contains(&path.as_str());
        if !unsafe_is_at_home {
            for line in lines_with_word(&code, "unsafe") {
                violations.push(format!("{path}:{line}: `unsafe` outside {}", UNSAFE_HOMES.join(" and ")));
            }
        }
        if NO_ENVIRONMENT.iter().any(|folder| path.starts_with(folder)) {
            for call in ENVIRONMENT_CALLS {
                for line in lines_with_word(&code, call) {
                    violations
                        .push(format!("{path}:{line}: `{call}` in a library: only the command line may"));
                }
            }
        }
    }
    Ok(files)
}

/// Lists tracked files and those about to be; without git (an unpacked archive) it walks the source folders.
fn rust_files(root: &Path) -> Result<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--", "*.rs"])
        .current_dir(root)
        .stdin(Stdio::null())
        .output();
    if let Ok(output) = listed
        && output.status.success()
    {
        return Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect());
    }
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        walk(root, &root.join(folder), &mut files)?;
    }
    Ok(files)
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            walk(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path.strip_prefix(root)?.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
