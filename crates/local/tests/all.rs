//! The local backend on the machine the tests run on.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test and name what they skip; clippy sees only the tests themselves"
)]

mod suite;
