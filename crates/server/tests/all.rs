//! What the MCP server owes its client, over a pair of in-memory streams and a recording backend.

#![expect(clippy::unwrap_used, reason = "helpers of tests may, but clippy sees only the tests themselves")]

mod suite {
    mod attached;
    mod calls;
    mod client;
    mod lifecycles;
    mod long_calls;
}
