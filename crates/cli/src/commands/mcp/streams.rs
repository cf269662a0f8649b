//! Standard input and output as the two streams of a protocol.

use std::io;
use std::os::unix::net::UnixStream as StdStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use crate::failure::{Failure, Result};
use crate::stdin::StdinReader;

pub(super) fn stdin_is_a_terminal() -> bool {
    rustix::termios::isatty(rustix::stdio::stdin())
}

/// Returns standard input.
pub(super) fn reader() -> impl AsyncRead + Send + Unpin + 'static {
    StdinReader::default()
}

/// Returns standard output. A pipe is opened again so as not to block, because the flag itself is shared with whoever started us.
/// A socket that they made non-blocking is waited for as such; anything else is written by a thread.
pub(super) fn writer() -> Box<dyn AsyncWrite + Send + Unpin> {
    if let Ok(sender) = pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
        return Box::new(sender);
    }
    match nonblocking_socket() {
        Some(socket) => Box::new(socket),
        None => Box::new(tokio::io::stdout()),
    }
}

fn nonblocking_socket() -> Option<UnixStream> {
    let stdout = rustix::stdio::stdout();
    let kind = FileType::from_raw_mode(rustix::fs::fstat(stdout).ok()?.st_mode);
    let flags = rustix::fs::fcntl_getfl(stdout).ok()?;
    if kind != FileType::Socket || !flags.contains(OFlags::NONBLOCK) {
        return None;
    }
    let socket = rustix::io::fcntl_dupfd_cloexec(stdout, 3).ok()?;
    UnixStream::from_std(StdStream::from(socket)).ok()
}

/// Waits until nobody reads standard output any more. A client that was killed may have left its end of our standard input to
/// another process, which then never closes.
pub(super) fn nobody_reads() -> Result<impl Future<Output = ()>> {
    let (sender, receiver) = oneshot::channel();
    let wait = move || {
        // Nothing is asked for: errors and hang-ups are always told. Files and closed descriptors are told to be ready at once,
        // and have no reader to lose.
        let mut stdout = [PollFd::from_borrowed_fd(rustix::stdio::stdout(), PollFlags::empty())];
        while poll(&mut stdout, None) == Err(Errno::INTR) {}
        if stdout[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            // The receiver is gone when the service has ended otherwise.
            let _received = sender.send(()).is_ok();
        }
    };
    std::thread::Builder::new()
        .name("stdout".to_owned())
        .spawn(wait)
        .map_err(|error: io::Error| Failure::new(format!("watch standard output: {error}")))?;
    Ok(async {
        if receiver.await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
