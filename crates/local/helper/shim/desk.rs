//! The desk of a background command: its output is taken in as it comes, and whoever asks is answered. Nobody in particular has to
//! be there, so nobody's hanging up means anything but that this one does not want to know any more.

use alloc::vec;
use alloc::vec::Vec;

use crate::commands::Seat;
use crate::ledger::Phase;
use crate::record::Record;
use crate::shim::{Audience, Heard, Streams};
use crate::sys::fd::OwnedFd;
use crate::sys::socket::Poll;
use crate::sys::{Errno, Result, file, process, socket};
use crate::transport;
use crate::wire::{CommandAsk, CommandEnd, Reply, Stream};

/// Who may wait at a time. More are turned away; who does not want to wait is always answered.
const MAX_WAITING: usize = 64;

/// What is taken of a stream at once.
const CHUNK_BYTES: usize = 64 << 10;

const STREAMS: [Stream; 2] = [Stream::Output, Stream::Error];

/// The desk.
pub(super) struct Desk {
    /// Where requests come in; `None` once nobody can ask any more.
    requests: Option<OwnedFd>,
    record: Record,
    /// The reading ends; `None` once nobody writes there any more.
    outputs: [Option<OwnedFd>; 2],
    /// The writing end of standard input, while it is open.
    input: Option<OwnedFd>,
    waiting: Vec<Waiting>,
    /// Who has asked for the end of all descendants.
    killers: Vec<OwnedFd>,
    chunk: Vec<u8>,
}

/// Somebody who waits.
struct Waiting {
    channel: OwnedFd,
    until: u64,
    wish: Wish,
}

/// What for.
enum Wish {
    End,
    Output { stream: Stream, offset: u64 },
    Input { bytes: Vec<u8>, taken: usize, end: bool },
}

impl Desk {
    /// Makes the pipes of a command. Returns the command's ends of them.
    pub(super) fn open(seat: Seat, stdin: bool) -> Result<(Streams, Self)> {
        process::block_broken_pipe()?;
        let ((read_output, output), (read_error, error)) = (file::pipe()?, file::pipe()?);
        let (input, write_input) = match stdin.then(file::pipe).transpose()? {
            Some((read, write)) => (Some(read), Some(write)),
            None => (None, None),
        };
        for end in [Some(&read_output), Some(&read_error), write_input.as_ref()].into_iter().flatten() {
            file::set_nonblocking(end.as_fd())?;
        }
        let desk = Self {
            requests: Some(seat.desk),
            record: seat.record,
            outputs: [Some(read_output), Some(read_error)],
            input: write_input,
            waiting: Vec::new(),
            killers: Vec::new(),
            chunk: vec![0; CHUNK_BYTES],
        };
        Ok((Streams { input, output, error }, desk))
    }

    /// The command has become its program.
    pub(super) fn runs(&mut self) {
        self.record.runs();
    }

    /// Takes what has come on a stream; returns how much that is, `None` where there is nothing now.
    fn take_output(&mut self, stream: Stream) -> Option<usize> {
        let output = self.outputs[stream as usize].as_ref()?;
        match file::read(output.as_fd(), &mut self.chunk) {
            Ok(length @ 1..) => {
                // What is left in the background writes for nobody, and must neither fill the pipe nor meet its end.
                if self.record.phase() != Phase::Ended {
                    self.record.append(stream, &self.chunk[..length]);
                }
                Some(length)
            }
            Err(Errno(libc::EAGAIN)) => None,
            Ok(_) | Err(_) => {
                self.outputs[stream as usize] = None;
                if self.record.phase() != Phase::Ended {
                    self.record.close(stream);
                }
                None
            }
        }
    }

    /// Takes what the command wrote before it ended, without waiting for those it left behind (P1, P30).
    fn drain(&mut self, stream: Stream) {
        let Some(output) = &self.outputs[stream as usize] else { return };
        // The most that can lie in it now; more comes only from processes that were left behind.
        let room = file::pipe_room(output.as_fd()).unwrap_or(CHUNK_BYTES);
        let mut drained = 0;
        while drained < room {
            let Some(length) = self.take_output(stream) else { break };
            drained += length;
        }
    }

    /// Takes the requests that have come.
    fn take_requests(&mut self, main: Option<libc::pid_t>) {
        while let Some(requests) = &self.requests {
            match transport::receive::<CommandAsk>(requests.as_fd()) {
                Ok(Some((ask, fds))) => {
                    if let Some(channel) = fds.into_iter().next() {
                        self.take_request(ask, channel, main);
                    }
                }
                Ok(None) | Err(Errno(libc::ECONNRESET)) => self.requests = None,
                // One that cannot be read is dropped with its descriptors: its sender sees them close.
                Err(_) => {}
            }
            if !self.requests.as_ref().is_some_and(|requests| socket::has_message(requests.as_fd())) {
                break;
            }
        }
    }

    fn take_request(&mut self, ask: CommandAsk, channel: OwnedFd, main: Option<libc::pid_t>) {
        let (patience, wish) = match ask {
            CommandAsk::Wait { patience_millis } => (patience_millis, Wish::End),
            CommandAsk::Read { stream, offset, patience_millis } => {
                (patience_millis, Wish::Output { stream, offset })
            }
            CommandAsk::Write { bytes, end, patience_millis } => {
                (patience_millis, Wish::Input { bytes, taken: 0, end })
            }
            CommandAsk::Signal(signal) => {
                if let Some(main) = main {
                    if signal == libc::SIGKILL {
                        self.record.is_told_to_end();
                    }
                    // The number was checked by who sent it; and an unreaped child keeps its own.
                    drop(process::kill(main, signal));
                }
                return tell(&channel, &Reply::Done);
            }
            CommandAsk::Kill => {
                self.record.is_told_to_end();
                return self.killers.push(channel);
            }
        };
        if patience > 0 && self.waiting.len() >= MAX_WAITING {
            return tell(&channel, &Reply::Busy);
        }
        let until = process::now_millis().saturating_add(patience);
        self.waiting.push(Waiting { channel, until, wish });
    }

    /// Answers those whose wish can be granted, and those whose patience is over.
    fn serve(&mut self) {
        let now = process::now_millis();
        let mut waiting = core::mem::take(&mut self.waiting);
        let mut input_is_taken = false;
        waiting.retain_mut(|waiting| {
            let reply = match &mut waiting.wish {
                // One after the other, or the pieces of two would mix.
                Wish::Input { .. } if input_is_taken => None,
                Wish::Input { bytes, taken, end } => {
                    let reply = self.feed(bytes, taken, *end);
                    input_is_taken = reply.is_none();
                    reply
                }
                Wish::End => (self.record.phase() == Phase::Ended).then(|| self.stands(now)),
                Wish::Output { stream, offset } => {
                    self.record.has(*stream, *offset).then(|| self.wrote(*stream, *offset))
                }
            };
            let reply = reply.or_else(|| (now >= waiting.until).then(|| self.give_up(&waiting.wish, now)));
            if let Some(reply) = &reply {
                tell(&waiting.channel, reply);
            }
            reply.is_none()
        });
        self.waiting = waiting;
    }

    fn stands(&self, now: u64) -> Reply {
        Reply::Stands(self.record.standing(now))
    }

    fn wrote(&self, stream: Stream, offset: u64) -> Reply {
        Reply::Wrote(self.record.piece(stream, offset))
    }

    /// What is said when nothing has come of it in time.
    fn give_up(&self, wish: &Wish, now: u64) -> Reply {
        match wish {
            Wish::End => self.stands(now),
            Wish::Output { stream, offset } => self.wrote(*stream, *offset),
            Wish::Input { taken, .. } => Reply::Took(*taken as u64),
        }
    }

    /// Writes to standard input what it takes now; `None` where there is more.
    fn feed(&mut self, bytes: &[u8], taken: &mut usize, end: bool) -> Option<Reply> {
        while let Some(input) = &self.input {
            if *taken == bytes.len() {
                if end {
                    self.input = None;
                }
                return Some(Reply::Took(*taken as u64));
            }
            match file::write(input.as_fd(), &bytes[*taken..]) {
                Ok(length) => *taken += length,
                Err(Errno(libc::EAGAIN)) => return None,
                // Nobody reads it any more (P43).
                Err(_) => self.input = None,
            }
        }
        Some(if *taken > 0 { Reply::Took(*taken as u64) } else { Reply::NotOpen })
    }
}

/// Answers; who does not listen any more does not want to know any more.
fn tell(channel: &OwnedFd, reply: &Reply) {
    drop(transport::reply_now(channel.as_fd(), reply, &[]));
}

impl Audience for Desk {
    fn watch<'a>(&'a self, watch: &mut Vec<Poll<'a>>) {
        watch.push(Poll::new(self.requests.as_ref().map(OwnedFd::as_fd)));
        watch.extend(self.outputs.iter().map(|output| Poll::new(output.as_ref().map(OwnedFd::as_fd))));
        let feeds = self.waiting.iter().any(|waiting| matches!(waiting.wish, Wish::Input { .. }));
        watch.push(Poll::for_room(self.input.as_ref().filter(|_| feeds).map(OwnedFd::as_fd)));
        // Nothing is sent on these to us, so what is ready has hung up.
        watch.extend(self.waiting.iter().map(|waiting| Poll::new(Some(waiting.channel.as_fd()))));
    }

    fn next_millis(&self) -> Option<u64> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }

    fn hear(&mut self, ready: &[bool], main: Option<libc::pid_t>) -> Heard {
        let (own, hung_up) = ready.split_at(4);
        let mut index = 0;
        self.waiting.retain(|_| {
            index += 1;
            !hung_up[index - 1]
        });
        for stream in STREAMS.into_iter().filter(|stream| own[1 + *stream as usize]) {
            self.take_output(stream);
        }
        if own[0] {
            self.take_requests(main);
        }
        self.serve();
        if self.killers.is_empty() { Heard::Nothing } else { Heard::Kill }
    }

    fn times_out(&mut self) {
        self.record.times_out();
    }

    fn ended(&mut self, end: CommandEnd) {
        STREAMS.into_iter().for_each(|stream| self.drain(stream));
        self.input = None;
        self.record.ends(end, process::now_millis());
        self.serve();
    }

    fn unstoppable(&mut self) {
        // Whoever waits is answered by the agent, which ends what is left.
    }

    fn killed(&mut self, gone: bool) {
        let reply = if gone { Reply::Done } else { Reply::Unstoppable };
        for channel in core::mem::take(&mut self.killers) {
            tell(&channel, &reply);
        }
    }
}
