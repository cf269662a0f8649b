//! One caller who waits for a command: it brought the streams, and its hanging up ends the command.

use alloc::vec;
use alloc::vec::Vec;

use crate::shim::{Audience, Failure, Heard, NotStartedBecause, Streams};
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::socket::Poll;
use crate::sys::{Errno, file};
use crate::transport;
use crate::wire::{CommandEnd, NotStarted, Reply, RunRequest};

/// The streams for a command, and the reading ends of its output, by which a late writer is kept from SIGPIPE.
pub(super) fn streams(
    request: &RunRequest,
    channel: BorrowedFd<'_>,
    fds: Vec<OwnedFd>,
) -> Result<(Streams, Vec<OwnedFd>), NotStartedBecause> {
    match request.terminal {
        Some(size) => match open_terminal(channel, size) {
            Ok(streams) => Ok((streams, Vec::new())),
            Err(errno) => Err((NotStarted::Terminal, errno)),
        },
        None => given(fds).ok_or((NotStarted::Fork, Errno(libc::EBADMSG))),
    }
}

fn given(fds: Vec<OwnedFd>) -> Option<(Streams, Vec<OwnedFd>)> {
    let mut fds = fds.into_iter();
    let (output, error) = (fds.next()?, fds.next()?);
    let read_back = vec![fds.next()?, fds.next()?];
    Some((Streams { input: fds.next(), output, error }, read_back))
}

fn open_terminal(channel: BorrowedFd<'_>, size: (u32, u32)) -> crate::sys::Result<Streams> {
    let cells = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
    let (master, slave) = file::open_terminal(cells(size.0), cells(size.1))?;
    transport::reply(channel, &Reply::Terminal, &[master.as_fd()])?;
    let copy = || slave.as_fd().duplicate(3);
    Ok(Streams { input: Some(copy()?), output: copy()?, error: slave })
}

/// The caller.
pub(super) struct Caller<'a> {
    /// `None` once it has hung up.
    channel: Option<BorrowedFd<'a>>,
    read_back: Vec<OwnedFd>,
    failure: Failure,
}

impl<'a> Caller<'a> {
    pub(super) fn new(channel: BorrowedFd<'a>, read_back: Vec<OwnedFd>, failure: Failure) -> Self {
        Self { channel: Some(channel), read_back, failure }
    }

    fn tell(&self, reply: &Reply) {
        if let Some(channel) = self.channel {
            // One that has gone is seen by its hanging up.
            drop(transport::reply(channel, reply, &[]));
        }
    }

    fn discard(&mut self, ready: &[bool]) {
        let mut buffer = [0u8; 16 << 10];
        let mut index = 0;
        self.read_back.retain(|fd| {
            index += 1;
            !ready[index - 1] || !matches!(file::read(fd.as_fd(), &mut buffer), Ok(0))
        });
    }
}

impl Audience for Caller<'_> {
    fn watch<'a>(&'a self, watch: &mut Vec<Poll<'a>>) {
        match self.channel {
            Some(channel) => watch.push(Poll::new(Some(channel))),
            // Only once nobody else reads them: then a background child must not fill the pipe or meet its end.
            None => watch.extend(self.read_back.iter().map(|fd| Poll::new(Some(fd.as_fd())))),
        }
    }

    fn next_millis(&self) -> Option<u64> {
        None
    }

    fn hear(&mut self, ready: &[bool], _: Option<libc::pid_t>) -> Heard {
        if self.channel.is_none() {
            self.discard(ready);
        } else if ready[0] {
            // The caller says nothing while a command runs, so what is heard is its going away.
            self.channel = None;
            return Heard::HungUp;
        }
        Heard::Nothing
    }

    fn times_out(&mut self) {}

    fn ended(&mut self, end: CommandEnd) {
        self.tell(&match end {
            CommandEnd::Exited(status) => match self.failure.told() {
                Some((step, errno)) => Reply::NotStarted(step, errno.0),
                None => Reply::Exited(status),
            },
            CommandEnd::Signalled(signal) => Reply::Signalled(signal),
            CommandEnd::TimedOut => Reply::TimedOut,
            // Known of one in the background alone. Of this one whoever waits judges, from outside.
            CommandEnd::MemoryExceeded => Reply::Signalled(libc::SIGKILL),
            CommandEnd::PidsExceeded => Reply::Exited(1),
        });
    }

    fn unstoppable(&mut self) {
        self.tell(&Reply::Unstoppable);
    }

    fn killed(&mut self, _: bool) {}
}
