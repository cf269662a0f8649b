//! The helper: one small static program in three parts, started from a sealed memory file.
//!
//! ```text
//! owner process (the library, any number of threads)
//!   `- launcher   one per owner: creates sandboxes, ends them, ends them all when the owner dies
//!        `- agent   PID 1 of each sandbox, a fork of the launcher: answers requests of the owner
//!             `- shim   one per command: the reaper and killer of that command's descendants
//! ```
//!
//! It has one thread, reads no configuration and takes nothing from the sandbox's file system.

mod agent;
mod cgroup;
mod files;
mod ids;
mod launcher;
mod setup;
mod shim;
mod sys;
mod transport;
mod tree;
#[path = "../src/wire/mod.rs"]
mod wire;

fn main() {
    // The owner passes its own process number, so that a launcher that starts after its owner died can tell. Not as an
    // argument: every sandbox shows the arguments of its first process.
    let owner = std::env::var("RINGFENCE_OWNER").ok().and_then(|owner| owner.parse().ok());
    let status = match owner {
        Some(owner) => launcher::run(owner),
        None => 2,
    };
    sys::process::exit(status)
}
