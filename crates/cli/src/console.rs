//! The only place that writes to the terminal. Standard output carries what was asked for and nothing else; whatever
//! ringfence has to say itself goes to standard error behind a prefix.
//!
//! Writes go straight to the descriptors: no buffer of ours can be lost when the process ends early.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::failure::Failure;

/// Nobody reads the stream any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// Writes all bytes to standard output.
pub(crate) fn stdout(bytes: &[u8]) -> Result<(), Closed> {
    write_all(rustix::stdio::stdout(), bytes)
}

/// Writes all bytes to standard error. A standard error that is gone cannot be reported anywhere.
pub(crate) fn stderr(bytes: &[u8]) {
    if write_all(rustix::stdio::stderr(), bytes).is_err() {
        // Deliberately nothing.
    }
}

/// Says something on standard error.
pub(crate) fn notice(text: &str) {
    stderr(format!("ringfence: {}\n", printable(text)).as_bytes());
}

/// Says what failed and what to try.
pub(crate) fn failure(failure: &Failure) {
    notice(&failure.to_string());
    if let Some(hint) = failure.hint_text() {
        stderr(format!("  try: {}\n", printable(hint)).as_bytes());
    }
}

/// Returns the text with control characters escaped but for line breaks: messages can quote what an untrusted program chose.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() && char != '\n' {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    out
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Closed> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(Closed),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Somebody made the descriptor non-blocking; wait for room.
            Err(Errno::AGAIN) => wait_writable(fd)?,
            Err(_) => return Err(Closed),
        }
    }
    Ok(())
}

fn wait_writable(fd: BorrowedFd<'_>) -> Result<(), Closed> {
    use rustix::event::{PollFd, PollFlags, poll};
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(_) => Err(Closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_of_a_message_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\r\n\u{9b}c"), "a\\u{1b}[2Jb\\r\n\\u{9b}c");
    }
}
