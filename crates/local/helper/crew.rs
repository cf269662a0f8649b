//! The processes that the agent has made, and what it does when one of them goes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::agent::Place;
use crate::commands::Commands;
use crate::sys::activity::Mark;
use crate::sys::fd::OwnedFd;
use crate::sys::process::Status;
use crate::sys::{Errno, process, socket};
use crate::wire::{KILL_MILLIS, Reply};
use crate::{transport, tree};

/// How long after a look for processes that lost their shim the next one is: what they have started comes here one by one.
const STRAYS_MILLIS: u64 = 20;

/// What a process of ours is there for.
#[derive(Debug)]
pub(crate) enum Duty {
    /// To answer one request on this socket. That the other end has closed means that nobody waits for the answer.
    Answer(OwnedFd),
    /// To be the shim of the background command of this number. Who started that need not be there any more.
    Background(u64),
}

/// A process of ours.
#[derive(Debug)]
struct Worker {
    duty: Duty,
    mark: Option<Mark>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    workers: BTreeMap<libc::pid_t, Worker>,
    /// Whether there may be processes that lost their shim: until a look has found none.
    strays: bool,
    /// The background commands, also those whose shim has gone.
    pub(crate) commands: Commands,
}

impl Crew {
    /// Takes one in.
    pub(crate) fn add(&mut self, pid: libc::pid_t, duty: Duty, mark: Option<Mark>) {
        self.workers.insert(pid, Worker { duty, mark });
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> Vec<libc::pid_t> {
        self.workers.keys().copied().collect()
    }

    /// Whether what any of them does is of use to anybody: an answer that is waited for, or a background command that runs.
    pub(crate) fn is_needed(&mut self) -> bool {
        let Self { workers, commands, .. } = self;
        let mut watch: Vec<socket::Poll<'_>> = Vec::new();
        for worker in workers.values() {
            match &worker.duty {
                Duty::Answer(channel) => watch.push(socket::Poll::new(Some(channel.as_fd()))),
                Duty::Background(number) if commands.runs(*number) => return true,
                Duty::Background(_) => {}
            }
        }
        // Nothing is sent on these sockets to us, so what is ready has been closed. Usually there are none.
        !watch.is_empty()
            && (socket::poll(&mut watch, Some(0)).is_err() || watch.iter().any(|entry| !entry.ready))
    }

    /// Reaps what ended. Every process of a command is a descendant of its shim; one that arrives here lost its shim, which a
    /// command has killed, or which could not end them. It is ended, whatever it is: nobody else would ever end it.
    pub(crate) fn reap(&mut self, place: &Place) {
        // A shim that a command stopped would keep no time any more.
        while let Some(pid) = process::stopped() {
            if self.workers.contains_key(&pid) {
                // ESRCH cannot be: an unreaped child keeps its number.
                drop(process::kill(pid, libc::SIGKILL));
            }
        }
        let mut ended = Vec::new();
        while let Ok(Some((pid, status))) = process::reap() {
            let worker = self.workers.remove(&pid);
            // One that ended by itself may have had children, and they are here now.
            self.strays |= worker.is_none() || status != Status::Exited(tree::GONE);
            ended.extend(worker);
        }
        // First: who is told that a command has ended is told the truth.
        self.end_strays();
        for Worker { duty, mark } in ended {
            place.ended(mark);
            if let Duty::Background(number) = duty {
                self.commands.lose_shim(number);
            }
        }
    }

    /// When [`end_strays`](Self::end_strays) wants to be called again at the latest, in milliseconds.
    pub(crate) fn patience(&self) -> Option<u64> {
        self.strays.then_some(STRAYS_MILLIS)
    }

    /// Ends the children of this process that are none of ours. Their own children become ours when they end, so it is done again until
    /// a look finds none.
    pub(crate) fn end_strays(&mut self) {
        if !self.strays {
            return;
        }
        if self.workers.is_empty() {
            // All that lives is one: one signal to everything is exact, needs nothing, and spares the first of the namespace.
            drop(process::kill(-1, libc::SIGKILL));
        }
        let (children, all) = tree::living_children();
        self.strays = !all;
        for pid in children.into_iter().filter(|pid| !self.workers.contains_key(pid)) {
            self.strays = true;
            // ESRCH cannot be: an unreaped child keeps its number.
            drop(process::kill(pid, libc::SIGKILL));
        }
    }

    /// A shim whose tree grows faster than it can be stopped asks for this. One signal to everything is more than a walk can do,
    /// and exact when that shim is the only process of ours: then whatever else lives is its command's. This process makes the
    /// others, so none can come in between; and as the first of the namespace it is spared. Anybody inside can send the signal,
    /// only a shim's counts.
    pub(crate) fn end_everything(&mut self, asking: libc::pid_t, place: &Place) {
        if self.workers.len() != 1 {
            return;
        }
        let Some(worker) = self.workers.remove(&asking) else { return };
        let deadline = process::now_millis() + KILL_MILLIS;
        let ended = loop {
            drop(process::kill(-1, libc::SIGKILL));
            match process::reap() {
                Err(Errno(libc::ECHILD)) => break true,
                Ok(Some(_)) => {}
                // The kernel is still putting them away.
                Ok(None) if process::now_millis() < deadline => drop(socket::poll(&mut [], Some(1))),
                Ok(None) | Err(_) => break false,
            }
        };
        place.ended(worker.mark);
        // The shim is gone too, and what it would have said is known here.
        match worker.duty {
            Duty::Answer(channel) => {
                let reply = if ended { Reply::TimedOut } else { Reply::Unstoppable };
                // An owner that has gone needs no answer.
                drop(transport::reply(channel.as_fd(), &reply, &[]));
            }
            // Whoever waited for an answer of the shim asks again, and the record says why the command was ended.
            Duty::Background(number) => self.commands.lose_shim(number),
        }
    }
}
