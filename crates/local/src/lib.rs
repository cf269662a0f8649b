//! The embedded Linux backend of Ringfence.

pub mod backend;
pub mod config;
pub mod probe;

pub use backend::LocalBackend;
pub use config::LocalConfig;
pub use probe::{Check, Outcome, ProbeReport};

/// The scheme of this backend's handles.
pub const SCHEME: &str = "local";
