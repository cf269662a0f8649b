//! The other machines people build for, type-checked: aarch64 Linux with everything, macOS with everything but `local`.
//!
//! Their standard libraries are added by rustup where it can. Where it cannot, the run says so and goes on: those machines are
//! then unchecked, which is not the same as broken.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::report;
use crate::stage::{Stages, cargo_command};
use crate::tools;

/// The cross linker for the embedded helper, which is linked even when the rest is only checked.
const ARM_LINKER: (&str, &str) = ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu");

/// Checks every other target that can be had here.
pub(crate) fn check(stages: &Stages) -> Result<()> {
    if !available("aarch64-unknown-linux-gnu") {
        report::say("aarch64        not checked: rustup cannot add the target here");
    } else if let Err(error) = tools::require(ARM_LINKER.0, ARM_LINKER.1) {
        report::say(&format!("aarch64        not checked: {error}"));
    } else {
        let mut command = cargo_command(&[
            "check",
            "--workspace",
            "--target",
            "aarch64-unknown-linux-gnu",
            "--exclude",
            "xtask",
        ]);
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", ARM_LINKER.0);
        stages.command("aarch64", &mut command, |_| String::new())?;
    }
    if available("aarch64-apple-darwin") {
        let packages = ["-p", "ringfence-cli", "-p", "ringfence-testkit"];
        let mut command = cargo_command(&["check", "--target", "aarch64-apple-darwin"]);
        stages.command("macos", command.args(packages), |_| String::new())?;
    } else {
        report::say("macos          not checked: rustup cannot add the target here");
    }
    Ok(())
}

fn available(target: &str) -> bool {
    let quiet = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let installed = quiet(&["target", "list", "--installed"])
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).lines().any(|line| line == target));
    installed
        || quiet(&["target", "add", target])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}
