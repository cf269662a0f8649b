//! `cargo xtask dist`: the program as one file that starts without a dynamic loader and runs on any distribution.
//!
//! Its addresses stay random. What it cannot do is to look names up through the modules of the C library that a machine is
//! configured with; nothing in it asks for names.

use std::path::PathBuf;

use anyhow::Result;

use crate::metadata::{Metadata, host_triple};
use crate::report;
use crate::stage::{Stages, cargo_command};

/// Builds it and says where it is.
pub(crate) fn dist() -> Result<()> {
    let metadata = Metadata::members_only()?;
    let built = build(&Stages::new(&metadata.target_directory)?, &metadata)?;
    report::say(&built.display().to_string());
    Ok(())
}

/// Builds it; returns its path.
pub(crate) fn build(stages: &Stages, metadata: &Metadata) -> Result<PathBuf> {
    let triple = host_triple()?;
    // The target is named, or build scripts and macros would be linked like this too, and those cannot.
    let mut build = cargo_command(&["build", "--release", "--package", "ringfence-cli", "--target", &triple]);
    let variable = format!("CARGO_TARGET_{}_RUSTFLAGS", triple.to_uppercase().replace('-', "_"));
    build.env(variable, "-C target-feature=+crt-static");
    stages.command("build static", &mut build, |_| String::new())?;
    Ok(metadata.target_directory.join(triple).join("release/ringfence"))
}
