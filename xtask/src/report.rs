//! The only place that writes to the terminal.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these tasks talk to the person who typed them"
)]

/// Prints a line of the report.
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Prints a failure.
pub(crate) fn complain(line: &str) {
    eprintln!("{line}");
}
