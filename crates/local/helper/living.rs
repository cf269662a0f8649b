//! A sandbox as its launcher knows it: a process, clocks, tags, and what others find it by.

use alloc::vec::Vec;

use crate::cgroup::Own;
use crate::link::LinkMessage;
use crate::listing::Listing;
use crate::setup::Failure;
use crate::sys::activity::Activity;
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::{Errno, process, socket};
use crate::wire::{CreateRequest, SandboxReply, State, Subject};
use crate::{stat, transport, tree};

/// A living sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// Its first process.
    pub(crate) pid: libc::pid_t,
    pidfd: OwnedFd,
    /// To the agent. Open as long as the launcher lives, which is how the sandbox's first process knows that it does.
    link: OwnedFd,
    /// Removed after it.
    pub(crate) cgroups: Vec<Own>,
    clocks: Clocks,
    listing: Option<Listing>,
    /// Why it is being ended.
    reason: Option<&'static str>,
    /// Who wants to know when it is gone.
    pub(crate) waiting: Vec<OwnedFd>,
}

/// When a sandbox ends by itself.
#[derive(Debug)]
struct Clocks {
    created_millis: u64,
    /// The first one; 0 is without end.
    lifetime_millis: u64,
    /// `None` without a lifetime, and while parked.
    deadline_millis: Option<u64>,
    idle_millis: u64,
    parked: bool,
    activity: Option<Activity>,
}

impl Clocks {
    fn new(request: &CreateRequest, activity: Option<Activity>) -> Self {
        let now = process::now_millis();
        let mut clocks = Self {
            created_millis: now,
            lifetime_millis: request.lifetime_millis,
            deadline_millis: None,
            idle_millis: request.idle_millis,
            parked: request.parked,
            activity,
        };
        if !request.parked {
            clocks.renew(0, now);
        }
        clocks
    }

    /// Begins both anew; returns the lifetime from now on, 0 without one.
    fn renew(&mut self, lifetime_millis: u64, now: u64) -> u64 {
        self.parked = false;
        let lifetime = if lifetime_millis > 0 { lifetime_millis } else { self.lifetime_millis };
        self.deadline_millis = (lifetime > 0).then(|| now.saturating_add(lifetime));
        if let Some(activity) = &self.activity {
            activity.touch(now);
        }
        lifetime
    }

    fn remaining(&self, now: u64) -> Option<u64> {
        Some(self.deadline_millis?.saturating_sub(now))
    }

    fn remaining_idle(&self, now: u64) -> Option<u64> {
        let activity = self.activity.as_ref().filter(|_| !self.parked)?;
        Some(self.idle_millis.saturating_sub(activity.idle_millis(now)))
    }
}

impl Sandbox {
    /// Takes over what was just cloned.
    pub(crate) fn new(
        request: &CreateRequest,
        pid: libc::pid_t,
        pidfd: OwnedFd,
        link: OwnedFd,
        activity: Option<Activity>,
    ) -> Self {
        Self {
            name: request.name.clone(),
            pid,
            pidfd,
            link,
            cgroups: Vec::new(),
            clocks: Clocks::new(request, activity),
            listing: None,
            reason: None,
            waiting: Vec::new(),
        }
    }

    /// Makes it possible for others to find it, if that was asked for.
    pub(crate) fn publish(&mut self, request: &CreateRequest, note: Option<OwnedFd>) -> Result<(), Failure> {
        let Some(listing) = &request.listing else { return Ok(()) };
        let missing = || Failure::about(Subject::Listing, "take the creator's note")(Errno(libc::EBADMSG));
        let note = note.ok_or_else(missing)?;
        self.listing = Some(Listing::publish(listing, &request.name, note)?);
        Ok(())
    }

    /// Lets its first process go on.
    pub(crate) fn go(&self) -> crate::sys::Result<()> {
        socket::send(self.link.as_fd(), b"go", &[])
    }

    /// Where others come, if they may.
    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listing.as_ref().map(|listing| listing.listener.as_fd())
    }

    /// How many descriptors it takes.
    pub(crate) fn descriptors(&self) -> usize {
        // Its process and the agent; and where it can be found directory, record, listener and note.
        2 + if self.listing.is_some() { 4 } else { 0 } + self.cgroups.len() + self.waiting.len()
    }

    /// Its first process, which becomes readable at its end.
    pub(crate) fn process(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Keeps what it shares with this process from sandboxes to come.
    pub(crate) fn keep_from_forks(&self) -> crate::sys::Result<()> {
        self.clocks.activity.as_ref().map_or(Ok(()), Activity::keep_from_forks)
    }

    /// Whether its first process is there and nothing ends it. One that was killed has ended, also where the kernel has not begun
    /// with it: what is granted is granted of a living sandbox.
    pub(crate) fn lives(&self) -> bool {
        let mut watch = [socket::Poll::new(Some(self.pidfd.as_fd()))];
        let has_ended = socket::poll(&mut watch, Some(0)).is_ok() && watch[0].ready;
        self.reason.is_none() && !has_ended && !is_being_killed(self.pid)
    }

    /// Whether it outlives its owner.
    pub(crate) fn is_kept(&self) -> bool {
        self.listing.as_ref().is_some_and(|listing| listing.kept)
    }

    /// Makes sure that nobody finds it any more.
    pub(crate) fn withdraw(&mut self) {
        if let Some(listing) = self.listing.take() {
            listing.withdraw();
        }
    }

    /// Writes down that it has ended, and why where it was not ended here.
    pub(crate) fn note_end(&self, otherwise: &str) {
        if let Some(listing) = &self.listing {
            listing.note_end(self.reason.unwrap_or(otherwise));
        }
    }

    /// Makes a socket to the agent; returns the client's end, and what the creator left for clients.
    pub(crate) fn attach(&self) -> crate::sys::Result<(OwnedFd, BorrowedFd<'_>)> {
        let listing = self.listing.as_ref().ok_or(Errno(libc::ENOTCONN))?;
        let (client, theirs) = socket::pair()?;
        transport::tell(self.link.as_fd(), &LinkMessage::Client, &[theirs.as_fd()])?;
        Ok((client, listing.note.as_fd()))
    }

    /// How it stands.
    pub(crate) fn state(&self, now: u64) -> State {
        let (version, tags) = match &self.listing {
            Some(listing) => (listing.version, listing.tags.clone()),
            None => (0, Vec::new()),
        };
        State {
            version,
            tags,
            kept: self.is_kept(),
            age_millis: now.saturating_sub(self.clocks.created_millis),
            remaining_millis: self.clocks.remaining(now).unwrap_or(u64::MAX),
            remaining_idle_millis: self.clocks.remaining_idle(now).unwrap_or(u64::MAX),
        }
    }

    /// Whether a request under a claim with this fence is of the one that stands; 0 is under none.
    pub(crate) fn admits(&self, fence: u64) -> bool {
        fence == 0 || self.listing.as_ref().is_some_and(|listing| listing.fence == fence)
    }

    /// Writes tags if they still have this version. The agent is told of the fence before the writer is told of the success, so
    /// whatever an earlier holder asks from then on is refused (S54).
    pub(crate) fn set_tags(&mut self, expected: u64, fence: u64, tags: Vec<u8>) -> SandboxReply {
        let Some(listing) = &mut self.listing else { return SandboxReply::Failed(libc::ENOTCONN) };
        if listing.version != expected {
            return SandboxReply::Conflict(listing.version);
        }
        match transport::tell(self.link.as_fd(), &LinkMessage::Fence(fence), &[]) {
            Ok(()) => {
                listing.version += 1;
                listing.fence = fence;
                listing.tags = tags;
                SandboxReply::Tagged(listing.version)
            }
            Err(Errno(errno)) => SandboxReply::Failed(errno),
        }
    }

    /// Begins its clocks anew.
    pub(crate) fn renew(&mut self, lifetime_millis: u64, now: u64) -> u64 {
        self.clocks.renew(lifetime_millis, now)
    }

    /// Until it ends by itself.
    pub(crate) fn remaining_millis(&self, now: u64) -> Option<u64> {
        if self.reason.is_some() {
            return None;
        }
        let both = [self.clocks.remaining(now), self.clocks.remaining_idle(now)];
        both.into_iter().flatten().min()
    }

    /// Ends it where its time is over.
    pub(crate) fn keep_time(&mut self, now: u64) {
        if self.clocks.remaining(now) == Some(0) {
            self.end("lifetime");
        } else if self.clocks.remaining_idle(now) == Some(0) {
            self.end("idle");
        }
    }

    /// Ends it, for a reason of which the first counts.
    pub(crate) fn end(&mut self, reason: &'static str) {
        if self.reason.is_none() {
            self.reason = Some(reason);
            self.kill();
        }
    }

    /// Ends the first process, and with it the kernel every other one of the pid namespace.
    pub(crate) fn kill(&self) {
        match process::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL) {
            // It has ended already, which is what was wanted.
            Ok(()) | Err(Errno(libc::ESRCH)) => {}
            // A surrounding filter does not know the call. The number is still its own: it is a child that has not been reaped.
            Err(_) => drop(process::kill(self.pid, libc::SIGKILL)),
        }
    }
}

/// PF_EXITING and PF_SIGNALED in the flags of `/proc/PID/stat`.
const ENDING: u64 = 0x4 | 0x400;
/// SIGKILL in the mask of pending signals there.
const KILLED: u64 = 1 << (libc::SIGKILL - 1);

/// Whether a child of this process ends, or will as soon as it is scheduled. Where `/proc` does not show it, that is not known.
fn is_being_killed(pid: libc::pid_t) -> bool {
    let number = |index| -> Option<u64> { stat::fields(&tree::stat_of(pid).ok()?)?.nth(index)?.parse().ok() };
    // Pending signals, the 31st field, before flags, the 9th: a signal is pending until the process begins to end, which its flags say for
    // good.
    number(28).is_some_and(|mask| mask & KILLED != 0) || number(6).is_some_and(|flags| flags & ENDING != 0)
}
