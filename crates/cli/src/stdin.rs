//! Standard input as the command's: streamed, binary, never waited for once the command has ended.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ringfence::Stdin;
use rustix::fs::FileType;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

/// What is read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks read ahead of the command; more would only be memory.
const CHUNKS_AHEAD: usize = 4;

/// Returns what a command gets on its standard input: ours, unless that is a terminal, closed, or has nothing to say.
pub(crate) fn for_command() -> Stdin {
    let stdin = rustix::stdio::stdin();
    match rustix::fs::fstat(stdin) {
        Ok(stat) if is_null_device(&stat) => Stdin::Closed,
        Ok(_) if rustix::termios::isatty(stdin) => Stdin::Closed,
        Ok(_) => Stdin::Reader(Box::pin(StdinReader::default())),
        Err(_) => Stdin::Closed,
    }
}

/// Whether this is `/dev/null`, the most usual standard input of an automated caller; it saves a thread.
fn is_null_device(stat: &rustix::fs::Stat) -> bool {
    let null = cfg!(target_os = "linux")
        && (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == (1, 3);
    null && FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
}

/// Whether standard input is a pipe or socket, which whoever started us holds the other end of.
pub(crate) fn is_pipe() -> bool {
    rustix::fs::fstat(rustix::stdio::stdin())
        .is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket))
}

/// Waits until nobody can write to a pipe on standard input any more. Nothing is read from it: that may be for somebody else.
pub(crate) async fn writers_gone() {
    use rustix::event::{PollFd, PollFlags, poll};
    let (told, gone) = tokio::sync::oneshot::channel();
    // A thread that is left behind and ends with the process, as below.
    let started = std::thread::Builder::new().name("hangup".to_owned()).spawn(move || {
        let stdin = rustix::stdio::stdin();
        // Hang-ups are told without being asked for, those of one direction of a socket apart.
        #[cfg(target_os = "linux")]
        const ASKED: PollFlags = PollFlags::RDHUP;
        #[cfg(not(target_os = "linux"))]
        const ASKED: PollFlags = PollFlags::empty();
        while !matches!(poll(&mut [PollFd::from_borrowed_fd(stdin, ASKED)], None), Ok(1..)) {}
        told.send(()).ok();
    });
    if started.is_err() || gone.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Reads standard input on a thread of its own, started by the first read.
///
/// The descriptor is shared with whoever started us, so it is not made non-blocking, and a thread that
/// is blocked in a read cannot be joined: it is left behind and ends with the process.
#[derive(Debug, Default)]
pub(crate) struct StdinReader {
    chunks: Option<mpsc::Receiver<io::Result<Vec<u8>>>>,
    current: Vec<u8>,
    taken: usize,
}

impl AsyncRead for StdinReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.taken == this.current.len() {
            let chunks = match &mut this.chunks {
                Some(chunks) => chunks,
                none => none.insert(start_thread()?),
            };
            match ready!(chunks.poll_recv(cx)) {
                Some(Ok(chunk)) => {
                    this.current = chunk;
                    this.taken = 0;
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Ok(())),
            }
        }
        let rest = &this.current[this.taken..];
        let count = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..count]);
        this.taken += count;
        Poll::Ready(Ok(()))
    }
}

fn start_thread() -> io::Result<mpsc::Receiver<io::Result<Vec<u8>>>> {
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let read = loop {
                match rustix::io::read(rustix::stdio::stdin(), &mut chunk) {
                    Err(rustix::io::Errno::INTR) => {}
                    Err(rustix::io::Errno::AGAIN) => wait_readable(),
                    other => break other,
                }
            };
            let message = match read {
                Ok(0) => return,
                Ok(count) => {
                    chunk.truncate(count);
                    Ok(chunk)
                }
                Err(error) => Err(error.into()),
            };
            let last = message.is_err();
            if sender.blocking_send(message).is_err() || last {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// Waits until somebody else's non-blocking standard input has something; the next read reports what poll cannot.
fn wait_readable() {
    use rustix::event::{PollFd, PollFlags, poll};
    let stdin = rustix::stdio::stdin();
    if poll(&mut [PollFd::from_borrowed_fd(stdin, PollFlags::IN)], None).is_err() {
        std::thread::yield_now();
    }
}
