//! The four tools over the Model Context Protocol.
//!
//! [`Server`] offers a toolset to one client over one pair of byte streams, in both eras of the protocol: up to revision
//! 2025-11-25, which opens with `initialize`, and from 2026-07-28 on, where every request says its version itself. The
//! client chooses by how it opens.
//!
//! All calls share one sandbox, which the first call creates. There is no handle and no session of the protocol to lose:
//! whoever holds the streams holds the sandbox, and when they close, [`Server::close`] destroys it. Over a sandbox of somebody else
//! ([`Server::attach`]) nothing is created or destroyed; it is claimed before a client is served, and given back by [`Server::close`].
//!
//! | what happens | what the client gets |
//! | --- | --- |
//! | a command exits non-zero or times out | a result like any other |
//! | the model can do better: wrong arguments, no such file | `isError`, and the text says what |
//! | the sandbox cannot be created or cannot be used any more | `isError`; the text says that it is unusable and why. It is destroyed, and the next call starts in a new one; somebody else's is not replaced |
//! | there is no such tool | the protocol error -32602 |
//! | a message is no request, is not JSON, or is longer than 64 MiB | the protocol error -32600 or -32700, with the request's id where one can be found |
//!
//! Text and structure of a result say the same, because clients show the model only one of them. An `isError` has only its
//! text: the structure would have to follow the tool's output schema.

mod definitions;
mod progress;
mod server;
pub(crate) mod transport;

pub use server::{ServeError, Server};
