//! One sandbox of the recording backend: its files, its tags, its clocks.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::attach::{Reach, SandboxInfo, Tagged};
use crate::backend::SandboxId;
use crate::claim;
use crate::memory::tree::Tree;
use crate::spec::SandboxSpec;
use crate::statement::EnforcementStatement;

#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) tree: Tree,
    pub(super) spec: SandboxSpec,
    pub(super) statement: EnforcementStatement,
    pub(super) reach: Reach,
    pub(super) tagged: Tagged,
    pub(super) created: Instant,
    /// How many commands run.
    pub(super) commands: u32,
    /// What its clocks run down to; absent while it is parked.
    running: Option<Running>,
    lifetime: Option<Duration>,
}

#[derive(Debug)]
struct Running {
    ends: Option<Instant>,
    last_used: Instant,
}

impl Sandbox {
    pub(super) fn new(
        spec: &SandboxSpec,
        statement: EnforcementStatement,
        tree: Tree,
        reach: Reach,
        lifetime: Option<Duration>,
        now: Instant,
    ) -> Self {
        let tags = claim::stamp(spec, Some(&tree.workdir()), None);
        Self {
            tree,
            spec: spec.clone(),
            statement,
            reach,
            tagged: Tagged { version: 1, tags },
            created: now,
            commands: 0,
            running: None,
            lifetime,
        }
    }

    /// Starts the clocks; those that run already go on.
    pub(super) fn start(&mut self, now: Instant) {
        let ends = self.lifetime.map(|lifetime| now + lifetime);
        self.running.get_or_insert(Running { ends, last_used: now });
    }

    pub(super) fn touch(&mut self, now: Instant) {
        if let Some(running) = &mut self.running {
            running.last_used = now;
        }
    }

    /// Sets what is left of its life; nothing for the lifetime it began with. Returns what it has now, nothing if it has no end.
    pub(super) fn renew(&mut self, lifetime: Option<Duration>, now: Instant) -> Option<Duration> {
        let lifetime = lifetime.or(self.lifetime)?;
        self.start(now);
        if let Some(running) = &mut self.running {
            running.ends = Some(now + lifetime);
        }
        Some(lifetime)
    }

    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        let ends = self.running.as_ref()?.ends?;
        Some(ends.saturating_duration_since(now))
    }

    fn remaining_idle(&self, now: Instant) -> Option<Duration> {
        let running = self.running.as_ref()?;
        let last_used = if self.commands > 0 { now } else { running.last_used };
        Some((last_used + self.spec.idle()?).saturating_duration_since(now))
    }

    /// Whether one of its clocks has run out.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        [self.remaining(now), self.remaining_idle(now)].contains(&Some(Duration::ZERO))
    }

    /// Returns the tags with the end of its life as it stands.
    pub(super) fn tagged(&self, now: Instant, wall: SystemTime) -> Tagged {
        let mut tagged = self.tagged.clone();
        match self.remaining(now) {
            Some(left) => {
                tagged.tags.insert(claim::EXPIRES_AT.to_owned(), claim::time_text(wall + left));
            }
            None => drop(tagged.tags.remove(claim::EXPIRES_AT)),
        }
        tagged
    }

    pub(super) fn info(&self, id: &SandboxId, now: Instant, wall: SystemTime) -> SandboxInfo {
        SandboxInfo {
            id: id.clone().unfenced(),
            created_at: wall - now.saturating_duration_since(self.created),
            reach: self.reach,
            remaining: self.remaining(now),
            remaining_idle: self.remaining_idle(now),
            tagged: self.tagged(now, wall),
        }
    }
}
