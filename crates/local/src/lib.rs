#![doc = include_str!("../README.md")]

#[cfg(not(target_os = "linux"))]
compile_error!("ringfence-local is for Linux; use a hosted backend elsewhere");

pub mod backend;
mod background;
extern crate alloc;

mod access;
mod attach;
mod audit;
mod cgroup;
pub mod config;
mod create;
mod directory;
mod error;
mod files;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod judge;
mod launcher;
mod link;
mod note;
mod probe;
mod processes;
mod run;
mod sandbox;
mod seccomp;
mod statement;
mod sys;
mod terminal;
mod tidy;
mod transport;
mod tree;
mod view;
mod wire;

pub use backend::LocalBackend;
pub use config::{LocalConfig, Shell};
pub use ringfence_core::{Check, Outcome, ProbeReport};

/// The scheme of this backend's handles.
pub const SCHEME: &str = "local";
