//! Doubles and helpers for testing Ringfence backends. Only ever a development dependency.
//!
//! The recording backend is not here: it is [`ringfence_core::memory`], because it is also the reference implementation.

#[cfg(target_os = "linux")]
pub mod kernel;
#[cfg(unix)]
pub mod local_shell;
pub mod seeds;
pub mod tree;

#[cfg(target_os = "linux")]
pub use kernel::{MissingCall, can_mount, own_mounts};
#[cfg(unix)]
pub use local_shell::LocalShellBackend;
pub use tree::{TreeEntry, TreeRecorder};
