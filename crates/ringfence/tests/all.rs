//! The one integration binary of the facade.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod suite;
