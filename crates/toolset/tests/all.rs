//! The behaviours of the contract that the toolset owes, each test named after its rule.

#![expect(clippy::unwrap_used, reason = "helpers of tests may, but clippy sees only the tests themselves")]

mod suite {
    mod arguments;
    mod attach;
    mod construction;
    mod corrections;
    mod definitions;
    mod inputs;
    mod lifecycle;
    mod list_directory;
    mod masking;
    #[cfg(unix)]
    mod over_a_shell;
    mod read_file;
    mod run_command;
    mod support;
    mod write_file;
}
