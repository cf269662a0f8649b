//! The one integration binary of the command line: it drives the real program.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod suite;
