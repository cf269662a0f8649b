//! The background commands of a sandbox as its agent knows them: who answers for each, and what is kept of the ended ones.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;

use crate::ledger::Phase;
use crate::limits::{Limits, Struck};
use crate::record::Record;
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::{Errno, Result, process, socket};
use crate::transport;
use crate::wire::{CommandAsk, KEPT_ENDED, Reply};

/// Running and ended ones together; each takes three descriptors.
const MAX_COMMANDS: usize = 256;

/// All that are known, by number.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    last: u64,
    /// Of the first that came with them; they are the sandbox's.
    limits: Rc<Limits>,
    known: BTreeMap<u64, Command>,
}

#[derive(Debug)]
struct Command {
    record: Record,
    /// Gone together with the shim.
    desk: Option<Desk>,
}

/// Where the shim takes requests.
#[derive(Debug)]
struct Desk {
    /// Requests go in here.
    near: OwnedFd,
    /// The shim's end too: what it has not taken when it goes is taken from here, so that nothing is lost.
    far: OwnedFd,
}

/// What a shim needs to answer for its command.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The command's number.
    pub(crate) number: u64,
    /// Its end of the desk.
    pub(crate) desk: OwnedFd,
    /// The record.
    pub(crate) record: Record,
}

/// A command that is about to get a shim.
#[derive(Debug)]
pub(crate) struct Admission {
    number: u64,
    near: OwnedFd,
    far: OwnedFd,
    record: Record,
}

impl Admission {
    /// In the fork that becomes the shim. The agent's end closes there: that it has closed everywhere tells the shim that nobody
    /// can ask any more.
    pub(crate) fn take_seat(self) -> Seat {
        Seat { number: self.number, desk: self.far, record: self.record }
    }

    /// The descriptors in here.
    pub(crate) fn fds(&self) -> impl Iterator<Item = i32> {
        [&self.near, &self.far].map(OwnedFd::as_raw_fd).into_iter().chain(self.record.fds())
    }
}

impl Commands {
    /// Prepares another one. EMFILE where too many run.
    pub(crate) fn admit(&mut self, keep_bytes: u64, limits: Limits) -> Result<Admission> {
        if self.limits.is_empty() {
            self.limits = Rc::new(limits);
        }
        self.forget_old();
        if self.known.len() >= MAX_COMMANDS {
            return Err(Errno(libc::EMFILE));
        }
        let (near, far) = socket::pair()?;
        let record = Record::begin(keep_bytes, Struck::so_far(&self.limits), process::now_millis())?;
        self.last += 1;
        Ok(Admission { number: self.last, near, far, record })
    }

    /// Keeps one whose shim has been made.
    pub(crate) fn keep(&mut self, admitted: Admission) -> u64 {
        let Admission { number, near, far, record } = admitted;
        self.known.insert(number, Command { record, desk: Some(Desk { near, far }) });
        number
    }

    /// Whether it runs, so that somebody may wait for it.
    pub(crate) fn runs(&mut self, number: u64) -> bool {
        self.known.get_mut(&number).is_some_and(|command| command.phase() != Phase::Ended)
    }

    /// The numbers of all, in the order of their start.
    pub(crate) fn numbers(&mut self) -> Vec<u64> {
        self.forget_old();
        self.known.keys().copied().collect()
    }

    /// Has a request answered.
    pub(crate) fn ask(&mut self, number: u64, ask: &CommandAsk, channel: BorrowedFd<'_>) {
        self.forget_old();
        let reply = match self.known.get(&number) {
            None => Reply::UnknownCommand,
            Some(Command { record, desk: None }) => answer(record, ask),
            Some(Command { desk: Some(desk), .. }) => {
                // Never waits: a shim that takes nothing must not keep the agent from others.
                match transport::tell(desk.near.as_fd(), ask, &[channel]) {
                    Ok(()) => return,
                    Err(_) => Reply::Busy,
                }
            }
        };
        // Who does not listen any more does not want to know any more.
        drop(transport::reply_now(channel, &reply, &[]));
    }

    /// The shim has gone: from here on the record answers, also what that had not taken.
    pub(crate) fn lose_shim(&mut self, number: u64) {
        let Some(mut command) = self.known.remove(&number) else { return };
        let began = command.record.lose_shim(process::now_millis());
        if let Some(desk) = command.desk.take() {
            while socket::has_message(desk.far.as_fd()) {
                let Ok(Some((ask, fds))) = transport::receive::<CommandAsk>(desk.far.as_fd()) else {
                    continue;
                };
                let Some(channel) = fds.first() else { continue };
                let reply = if began { answer(&command.record, &ask) } else { Reply::UnknownCommand };
                drop(transport::reply_now(channel.as_fd(), &reply, &[]));
            }
        }
        if began {
            self.known.insert(number, command);
        }
    }

    /// Of those that have ended, only the last ones stay. What one of them left in the background goes on; its shim sees that
    /// nobody asks any more.
    fn forget_old(&mut self) {
        if self.known.len() <= KEPT_ENDED {
            return;
        }
        let mut ended: Vec<(u64, u64)> = self
            .known
            .iter_mut()
            .filter_map(|(number, command)| {
                (command.phase() == Phase::Ended).then(|| (command.record.ended_millis(), *number))
            })
            .collect();
        ended.sort_unstable();
        let surplus = ended.len().saturating_sub(KEPT_ENDED);
        for (_, number) in &ended[..surplus] {
            self.known.remove(number);
        }
    }
}

impl Command {
    /// As its shim, if any, says by now.
    fn phase(&mut self) -> Phase {
        if self.desk.is_some() {
            self.record.reload();
        }
        self.record.phase()
    }
}

/// What is to be said of a command whose shim is gone.
fn answer(record: &Record, ask: &CommandAsk) -> Reply {
    match ask {
        CommandAsk::Wait { .. } => Reply::Stands(record.standing(process::now_millis())),
        CommandAsk::Read { stream, offset, .. } => Reply::Wrote(record.piece(*stream, *offset)),
        CommandAsk::Write { .. } => Reply::NotOpen,
        CommandAsk::Signal(_) | CommandAsk::Kill => Reply::Done,
    }
}
