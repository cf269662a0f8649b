//! What a fuzzing engine comes up with, given to one of our parsers at a time. `cargo xtask fuzz` builds and runs this; built as
//! anybody builds, it has no engine and does nothing.
//!
//! Parsers that are public are tried from here. Those that are not have a module `fuzz` in their own crate, which only tests and this
//! program see.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod engine;
#[cfg(any(test, fuzzing))]
#[expect(clippy::expect_used, reason = "what does not hold is said by panicking")]
mod open;

#[cfg(not(fuzzing))]
fn main() {}
