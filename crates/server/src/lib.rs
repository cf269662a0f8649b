//! Ringfence for programs that speak a protocol instead of Rust: the MCP server.
//!
//! Nothing here knows a backend, reads the environment or touches standard streams: a checked
//! [`Toolset`](ringfence::toolset::Toolset) and a pair of byte streams come in.

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod mcp;
