//! The helper: one small static program in three parts, started from a sealed memory file.
//!
//! ```text
//! owner process (the library, any number of threads)
//!   `- launcher   one per owner: creates sandboxes, ends them, ends them all when the owner dies
//!        `- agent   PID 1 of each sandbox, a fork of the launcher: answers requests of the owner
//!             `- shim   one per command: the reaper and killer of that command's descendants
//! ```
//!
//! It has one thread, reads no configuration and takes nothing from the sandbox's file system. It stands on the kernel alone,
//! without standard library and C library, because each of its starts is part of somebody's wait.

#![cfg_attr(ringfence_embedded, no_std, no_main)]

extern crate alloc;

mod agent;
mod cgroup;
mod commands;
mod crew;
mod files;
mod ids;
mod launcher;
mod ledger;
mod limits;
mod link;
mod listing;
mod living;
mod look;
mod record;
mod setup;
mod shim;
mod stat;
mod sys;
mod template;
mod transport;
mod tree;
mod walk;
#[path = "../src/wire/mod.rs"]
mod wire;

/// Serves the owner that started this program. Returns the exit status.
fn run() -> i32 {
    i32::from(!launcher::serve())
}

/// Of the build for lints; the static one begins in `sys::start`.
#[cfg(not(ringfence_embedded))]
fn main() {
    sys::process::exit(run())
}
