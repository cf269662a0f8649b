//! A place for AI agents to run the code they write: one contract, many backends.
//!
//! A caller states what a sandbox must guarantee ([`SandboxSpec`]), picks a backend by its scheme ([`Registry`]), and
//! gives an agent the four tools of [`toolset`] or runs commands itself through [`Backend`]:
//!
//! ```no_run
//! use std::time::Duration;
//! use ringfence::{BackendSettings, CommandRequest, OutputLimit, Registry, Result, SandboxSpec, Timeout};
//!
//! # async fn example() -> Result<()> {
//! let backend = Registry::new(BackendSettings::default()).open("local")?;
//! let sandbox = backend.create(&SandboxSpec::new()).await?.id;
//! let timeout = Timeout::new(Duration::from_secs(30))?;
//! let result = backend
//!     .run_command(&sandbox, CommandRequest::shell("echo hello", timeout, OutputLimit::new(1 << 20)?))
//!     .await;
//! backend.destroy(&sandbox).await?;
//! assert_eq!(&result?.stdout.bytes[..], b"hello\n");
//! # Ok(())
//! # }
//! ```
//!
//! Backends run on tokio, on a runtime with I/O and time enabled: `#[tokio::main]`, or a `Builder` with `enable_all`.
//! `examples/agent.rs` is a whole program with the four tools, limits and an input.
//!
//! This crate is the only place that names concrete backends. It reads no environment and no home directory: whatever
//! a backend needs to know comes in as [`BackendSettings`]. It compiles on every system that has a backend to offer;
//! a scheme that this build lacks is still known, and answers what it would need.

mod backends;
mod handle;
mod registry;

pub use ringfence_core::*;
pub use ringfence_toolset as toolset;

pub use backends::{BackendSettings, LocalConfig};
pub use handle::{CommandHandle, Handle};
pub use registry::{Availability, Constructor, DEFAULT_SCHEME, Registry};
