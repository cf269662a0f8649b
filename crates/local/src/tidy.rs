//! What launchers left behind that were killed, taken away by whoever comes next (P117): with nearly every call, because nobody else
//! would come.

use std::path::Path;
use std::time::{Duration, Instant};

use ringfence_core::{Leftover, Result};

use crate::backend::LocalBackend;
use crate::cgroup;
use crate::directory::Directory;
use crate::error::unexpected;

/// How often one backend looks by itself. Each process looks at least once.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long is waited for processes that the kernel is putting away: only for those, and they take milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);

/// Of launchers that seem to live, so many are asked for whether they were just killed by a call that has other things to do: each costs
/// as much as a file or two. Whoever lists sandboxes asks all.
const ASKED_IN_PASSING: usize = 32;

/// What launchers left in one place.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// What is theirs no more.
    pub(crate) found: Vec<Leftover>,
    /// One was just killed, and what it had is nobody's in a moment.
    pub(crate) more_to_come: bool,
}

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tidied {
    /// Nothing is left that could be removed.
    Done,
    /// Some of it is empty in a moment.
    NotYet,
}

impl LocalBackend {
    /// Takes away what is left, if nobody has just looked. What cannot be removed is somebody's to see in `prune`, and no reason not to
    /// go on.
    pub(crate) fn tidy(&self) -> Tidied {
        {
            let mut last = self.last_tidied();
            if last.is_some_and(|last| last.elapsed() < INTERVAL) {
                return Tidied::Done;
            }
            *last = Some(Instant::now());
        }
        self.tidy_now(ASKED_IN_PASSING)
    }

    /// The rest of [`Self::tidy`]: what was not nobody's yet.
    pub(crate) async fn finish_tidying(&self, tidied: Tidied) {
        self.tidy_until_done(tidied, ASKED_IN_PASSING).await;
    }

    /// Both, for a call that has nothing else to do meanwhile.
    pub(crate) async fn tidy_in_passing(&self) {
        self.finish_tidying(self.tidy()).await;
    }

    /// Takes away all that is left.
    pub(crate) async fn tidy_well(&self) {
        *self.last_tidied() = Some(Instant::now());
        self.tidy_until_done(self.tidy_now(usize::MAX), usize::MAX).await;
    }

    async fn tidy_until_done(&self, mut tidied: Tidied, ask: usize) {
        let deadline = Instant::now() + PATIENCE;
        while tidied == Tidied::NotYet && Instant::now() < deadline {
            tokio::time::sleep(PAUSE).await;
            tidied = self.tidy_now(ask);
        }
    }

    fn tidy_now(&self, ask: usize) -> Tidied {
        let emptying = self.hierarchies().sweep(ask);
        let directory = Directory::open("look for leftovers", &self.config().runtime_directory());
        let more_to_come = match directory {
            Ok(Some(directory)) => directory
                .leftovers(false, ask)
                .is_ok_and(|left| left.more_to_come || left.found.iter().any(stays_for_a_moment)),
            // Without one, or with one that is not to be trusted, there is nothing to be found.
            _ => false,
        };
        if emptying || more_to_come { Tidied::NotYet } else { Tidied::Done }
    }

    /// Finds and removes all of it, and says what it was.
    pub(crate) async fn prune_leftovers(
        &self,
        operation: &'static str,
        dry_run: bool,
    ) -> Result<Vec<Leftover>> {
        let deadline = Instant::now() + PATIENCE;
        let mut found = Vec::new();
        loop {
            let mut left = match Directory::open(operation, &self.config().runtime_directory())? {
                Some(directory) => directory
                    .leftovers(dry_run, usize::MAX)
                    .map_err(|error| unexpected(operation, "read the directory", error))?,
                None => Left::default(),
            };
            // A record names its control groups too.
            let known: Vec<_> = left.found.iter().map(|left| left.what.clone()).collect();
            let groups = self.hierarchies().leftovers(dry_run);
            left.found.extend(groups.found.into_iter().filter(|left| !known.contains(&left.what)));
            let more_to_come =
                left.more_to_come || groups.more_to_come || left.found.iter().any(stays_for_a_moment);
            if dry_run || !more_to_come || Instant::now() > deadline {
                found.extend(left.found);
                return Ok(found);
            }
            found.extend(left.found.into_iter().filter(|left| left.removed));
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn stays_for_a_moment(left: &Leftover) -> bool {
    left.fault.is_some() && cgroup::is_emptying(Path::new(&left.what))
}
