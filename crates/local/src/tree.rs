//! Trees out of a sandbox and files of any size into it, in bounded memory: asked of the agent, and passed through pipes that are
//! made here. Nothing that a walk says is believed; what it can say at all is the parser's business, and what may come of it the
//! gate's (S40).

pub(crate) mod parser;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ringfence_core::{Error, GuestPath, Result, SkipReason, TreeGate};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, Interest, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::SCHEME;
use crate::access::Access;
use crate::error::{file_failed, unexpected};
use crate::files::{
    INLINE_CONTENT_BYTES, PIPE_BYTES, answer, deadline_passed, no_process, not_understood,
    written_for_its_reader,
};
use crate::sandbox::FILE_DEADLINE;
use crate::transport::{Channel, watch_nonblocking};
use crate::tree::parser::{EVENT_BYTES, Nonsense, Parser, Step};
use crate::wire::{AgentRequest, FileFault, Reply, TreeEvent, TreeSkip};

const EXPORT: &str = "copy the tree";
const IMPORT: &str = "write the file";

/// What is read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// What is sent at once; a part of what the pipe holds, so that both sides have something to do.
const SENT_BYTES: usize = 256 << 10;

/// Both ends of a pipe: the reading one, the writing one.
fn pipe(operation: &'static str) -> Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
        .map_err(|error| unexpected(operation, "create a pipe", error.into()))?;
    // Only speed: where the user's share of pipe memory is used up, the pipe stays as it is.
    rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES).ok();
    Ok((read, write))
}

/// Tells `gate` a tree. Waits without a limit for who takes it, and at most [`FILE_DEADLINE`] for each part of it.
pub(crate) async fn export(sandbox: &Access, path: &GuestPath, gate: &mut TreeGate<'_>) -> Result<()> {
    let _request = sandbox.requests.read().await;
    let (read, write) = pipe(EXPORT)?;
    let max_depth = u32::try_from(gate.limits().max_depth).unwrap_or(u32::MAX);
    let request = AgentRequest::Walk { path: path.as_bytes().to_vec(), max_depth };
    let channel = sandbox.ask(EXPORT, request, &[write.as_fd()]).await?;
    drop(write);
    let mut walk = Walk::new(read).map_err(|error| unexpected(EXPORT, "wait for a pipe", error))?;
    let mut began = false;
    loop {
        let event = match walk.event().await {
            Ok(Some(event)) => event,
            Ok(None) => return Err(ended_early(sandbox, path, &channel, began).await),
            Err(error) => return Err(failed(error)),
        };
        began = true;
        match event {
            TreeEvent::Enter(name) => gate.enter(&name).await?,
            TreeEvent::Leave => gate.leave()?,
            TreeEvent::File { name, executable, size } => {
                let mut content = Content { walk: &mut walk, ended: false };
                let taken = gate.file(&name, executable, size, &mut content).await;
                if walk.broke_off {
                    return Err(ended_early(sandbox, path, &channel, began).await);
                }
                taken?;
            }
            TreeEvent::Symlink { name, target } => gate.symlink(&name, &target).await?,
            TreeEvent::Skipped { name, why } => gate.skip(&name, reason(why)).await?,
            TreeEvent::End => return Ok(()),
            TreeEvent::Whole | TreeEvent::Broken(_) => return Err(not_understood(EXPORT)),
        }
    }
}

fn reason(why: TreeSkip) -> SkipReason {
    match why {
        TreeSkip::Special => SkipReason::Special,
        TreeSkip::Mount => SkipReason::Mount,
        TreeSkip::Unreadable => SkipReason::Unreadable,
        TreeSkip::Changed => SkipReason::Changed,
    }
}

/// Says why a walk ended before its end.
async fn ended_early(sandbox: &Access, path: &GuestPath, channel: &Channel, began: bool) -> Error {
    match answer(EXPORT, sandbox, channel).await {
        Ok((Reply::FileFailed(FileFault::Errno, errno), _))
            if !began && errno == Errno::XDEV.raw_os_error() =>
        {
            written_for_its_reader(EXPORT, path)
        }
        Ok((Reply::FileFailed(fault, errno), _)) if !began => file_failed(EXPORT, path, fault, errno),
        Ok((Reply::NotStarted(_, errno), _)) if !began => no_process(EXPORT, errno),
        Ok(_) => not_understood(EXPORT),
        Err(error) => error,
    }
}

/// The error of the contract behind one of a reader.
fn failed(error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => unexpected(EXPORT, "read from the sandbox", error),
    }
}

/// What comes through the pipe.
struct Walk {
    pipe: AsyncFd<OwnedFd>,
    parser: Parser,
    buffer: Box<[u8]>,
    /// The part of the buffer that is still to be read.
    start: usize,
    end: usize,
    /// Counts from when nothing was there to read.
    deadline: Pin<Box<Sleep>>,
    waits: bool,
    /// Nothing came any more in the middle of a file.
    broke_off: bool,
}

impl Walk {
    fn new(pipe: OwnedFd) -> io::Result<Self> {
        const { assert!(BUFFER_BYTES >= EVENT_BYTES) };
        Ok(Self {
            pipe: watch_nonblocking(pipe, Interest::READABLE)?,
            parser: Parser::Event,
            buffer: vec![0; BUFFER_BYTES].into(),
            start: 0,
            end: 0,
            deadline: Box::pin(tokio::time::sleep(FILE_DEADLINE)),
            waits: false,
            broke_off: false,
        })
    }

    /// The next event; `None` when nothing comes any more.
    async fn event(&mut self) -> io::Result<Option<TreeEvent>> {
        std::future::poll_fn(|cx| {
            loop {
                match self.step()? {
                    Step::Event(event, used) => {
                        self.start += used;
                        return Poll::Ready(Ok(Some(event)));
                    }
                    Step::More => {
                        if ready!(self.poll_fill(cx))? == 0 {
                            return Poll::Ready(Ok(None));
                        }
                    }
                    // The gate has taken all content of the file before.
                    Step::Content(_) | Step::Verdict(..) => return Poll::Ready(Err(nonsense(Nonsense))),
                }
            }
        })
        .await
    }

    fn break_off(&mut self) -> io::Result<()> {
        self.broke_off = true;
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn step(&mut self) -> io::Result<Step> {
        self.parser.step(&self.buffer[self.start..self.end]).map_err(nonsense)
    }

    /// Reads more behind what is there; 0 when nothing comes any more.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.poll_pipe(cx, &mut buffer[self.end..]);
        self.buffer = buffer;
        if let Poll::Ready(Ok(count)) = read {
            self.end += count;
        }
        read
    }

    fn poll_pipe(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let Poll::Ready(ready) = self.pipe.poll_read_ready(cx) else {
                if !std::mem::replace(&mut self.waits, true) {
                    self.deadline.as_mut().reset(Instant::now() + FILE_DEADLINE);
                }
                ready!(self.deadline.as_mut().poll(cx));
                return Poll::Ready(Err(io::Error::other(deadline_passed(EXPORT))));
            };
            let read = |pipe: &AsyncFd<OwnedFd>| Ok(rustix::io::read(pipe.get_ref(), &mut *into)?);
            match ready?.try_io(read) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => {
                    self.waits = false;
                    return Poll::Ready(done);
                }
                Err(_) => {}
            }
        }
    }
}

fn nonsense(_: Nonsense) -> io::Error {
    io::Error::other(not_understood(EXPORT))
}

/// The content of one file of a walk.
struct Content<'a> {
    walk: &'a mut Walk,
    ended: bool,
}

impl AsyncRead for Content<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { walk, ended } = self.get_mut();
        if *ended || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            match walk.step()? {
                Step::Content(left) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX).min(buf.remaining());
                    let count = if walk.start < walk.end {
                        let count = most.min(walk.end - walk.start);
                        buf.put_slice(&walk.buffer[walk.start..walk.start + count]);
                        walk.start += count;
                        count
                    } else {
                        let count = ready!(walk.poll_pipe(cx, buf.initialize_unfilled_to(most)))?;
                        buf.advance(count);
                        count
                    };
                    walk.parser.take(count as u64);
                    return Poll::Ready(if count > 0 { Ok(()) } else { walk.break_off() });
                }
                Step::Verdict(verdict, used) => {
                    walk.start += used;
                    *ended = true;
                    return Poll::Ready(verdict.map_err(|why| io::Error::other(reason(why))));
                }
                Step::More => {
                    if ready!(walk.poll_fill(cx))? == 0 {
                        return Poll::Ready(walk.break_off());
                    }
                }
                Step::Event(..) => return Poll::Ready(Err(nonsense(Nonsense))),
            }
        }
    }
}

/// Replaces or creates a file with what a source yields, of exactly the size that was promised.
pub(crate) async fn import(
    sandbox: &Access,
    path: &GuestPath,
    size: u64,
    executable: bool,
    source: &mut (dyn AsyncRead + Send + Unpin),
) -> Result<()> {
    let _request = sandbox.requests.read().await;
    let mut source = Source { source, buffer: Vec::new(), left: size, path, size };
    let path_bytes = path.as_bytes().to_vec();
    let request = |content| AgentRequest::Import { path: path_bytes, size, executable, content };
    let (channel, sent) = if size <= INLINE_CONTENT_BYTES as u64 {
        let mut content = Vec::new();
        while let Some(part) = source.next(INLINE_CONTENT_BYTES).await? {
            content.extend_from_slice(part);
        }
        (sandbox.ask(IMPORT, request(Some(content)), &[]).await?, Ok(()))
    } else {
        let (read, write) = pipe(IMPORT)?;
        let channel = sandbox.ask(IMPORT, request(None), &[read.as_fd()]).await?;
        drop(read);
        let sent = send(&mut source, write).await;
        (channel, sent)
    };
    // Also after a failure: then the agent has put away what it had begun.
    let answer = answer(IMPORT, sandbox, &channel).await;
    sent?;
    match answer?.0 {
        Reply::Written => Ok(()),
        Reply::FileFailed(fault, errno) => Err(file_failed(IMPORT, path, fault, errno)),
        Reply::NotStarted(_, errno) => Err(no_process(IMPORT, errno)),
        _ => Err(not_understood(IMPORT)),
    }
}

/// Sends until the end, or until nobody reads: the answer says why.
async fn send(source: &mut Source<'_>, pipe: OwnedFd) -> Result<()> {
    let failed = |error| unexpected(IMPORT, "send the content", error);
    let pipe = watch_nonblocking(pipe, Interest::WRITABLE).map_err(failed)?;
    while let Some(mut rest) = source.next(SENT_BYTES).await? {
        while !rest.is_empty() {
            let write =
                pipe.async_io(Interest::WRITABLE, |fd| rustix::io::write(fd, rest).map_err(io::Error::from));
            match tokio::time::timeout(FILE_DEADLINE, write).await {
                Ok(Ok(length)) => rest = &rest[length..],
                Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Ok(Err(error)) => return Err(failed(error)),
                Err(_) => return Err(deadline_passed(IMPORT)),
            }
        }
    }
    Ok(())
}

/// A source that has to end when it has yielded what was promised.
struct Source<'a> {
    source: &'a mut (dyn AsyncRead + Send + Unpin),
    buffer: Vec<u8>,
    left: u64,
    path: &'a GuestPath,
    size: u64,
}

impl Source<'_> {
    /// The next part; `None` at the end. The last part is given out only once the end was seen behind it, so that a source which
    /// has more never makes a file (EX-18).
    async fn next(&mut self, most: usize) -> Result<Option<&[u8]>> {
        if self.left == 0 {
            // A source of nothing has not been looked at yet.
            if self.size == 0 {
                self.end().await?;
            }
            return Ok(None);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(most);
        if self.buffer.len() < most {
            self.buffer.resize(most, 0);
        }
        let length = self.source.read(&mut self.buffer[..most]).await.map_err(unreadable)?;
        if length == 0 {
            return Err(self.changed());
        }
        self.left -= length as u64;
        if self.left == 0 {
            self.end().await?;
        }
        Ok(Some(&self.buffer[..length]))
    }

    async fn end(&mut self) -> Result<()> {
        match self.source.read(&mut [0]).await.map_err(unreadable)? {
            0 => Ok(()),
            _ => Err(self.changed()),
        }
    }

    fn changed(&self) -> Error {
        ringfence_core::shell::source_changed(SCHEME, self.path, self.size)
    }
}

fn unreadable(error: io::Error) -> Error {
    unexpected(IMPORT, "the source could not be read", error)
}
