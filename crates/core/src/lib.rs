//! The Ringfence contract.
//!
//! A caller states what a sandbox must guarantee ([`SandboxSpec`]), a [`Backend`] says before anything is
//! provisioned whether it can ([`Backend::judge`]), and what it then enforces it states with evidence
//! ([`EnforcementStatement`]). Everything else here is what all backends share: results, errors with two axes,
//! bounded output, validators, and file operations over a shell.
//!
//! ```
//! use ringfence_core::{Capabilities, SandboxSpec};
//!
//! // The default is closed; a field that is left out asks for nothing.
//! let spec: SandboxSpec = serde_json::from_str(
//!     r#"{"allow_egress_to": ["api.example.org"], "limits": {"memory": "512MiB"}}"#,
//! )?;
//!
//! // What a backend does not claim, it refuses: by the field's name, and before anything exists.
//! let claimed = Capabilities { block_network: true, ..Capabilities::default() };
//! let refusal = claimed.refuse_unclaimed("example", &spec).unwrap_err();
//! assert_eq!(refusal.fact("field"), Some("allow_egress_to"));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! This crate performs no I/O of its own, knows no operating system and contains no `unsafe`.

pub mod attach;
pub mod backend;
pub mod background;
pub mod capability;
pub mod claim;
pub mod clip;
pub mod clock;
pub mod command;
pub mod document;
pub mod env;
pub mod error;
pub mod event;
pub mod file;
pub mod limits;
pub mod memory;
pub mod network;
pub mod output;
pub mod pool;
pub mod probe;
pub mod secret;
pub mod shell;
pub mod spec;
pub mod statement;
pub mod terminal;
pub mod tree;

pub use attach::{
    Attachable, Inspection, Leftover, Process, Reach, SandboxInfo, SandboxList, SilentSandbox, Tagged, Tags,
    Usage,
};
pub use backend::{Backend, Created, Fence, Plan, SandboxId};
pub use background::{Background, BackgroundRequest, CommandId, CommandState, CommandStatus, OutputChunk};
pub use capability::Capabilities;
pub use claim::{Claim, Claimant, Lease, Release};
pub use clock::Clock;
pub use command::{
    Captured, CommandRequest, CommandResult, Ending, Invocation, OutputObserver, Stdin, StreamName,
};
pub use env::EnvMap;
pub use error::{Disposition, Error, ErrorKind, Result, Retry};
pub use event::{Event, EventPosition, Events, EventsFrom};
pub use file::{DirectoryEntry, EntryKind, GuestPath, ListRequest, Listing, file_error};
pub use limits::{ByteSize, Cpus, Limits, Pids};
pub use network::{Allowlist, CidrRange, HostPattern, NetworkPolicy, NetworkStrength};
pub use output::{OutputLimit, TailBuffer, Timeout};
pub use pool::Pool;
pub use probe::{Check, Outcome, ProbeReport};
pub use secret::Secret;
pub use spec::{Isolation, SandboxSpec};
pub use statement::{EnforcementRow, EnforcementStatement, Evidence, SpecField};
pub use terminal::{Terminal, TerminalControl, TerminalRequest, TerminalSize};
pub use tree::{SkipReason, TreeGate, TreeLimits, TreePath, TreeSink, TreeSummary};
