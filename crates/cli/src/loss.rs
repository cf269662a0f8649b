//! Why a sandbox ended under whoever used it.

use std::time::Duration;

use ringfence::{Backend, ErrorKind, Event, EventPosition, EventsFrom, SandboxId};
use tokio::time::Instant;

use crate::exit;
use crate::failure::Failure;

/// How long the reason is waited for: whoever ends a sandbox writes it down a moment later.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// The end of a sandbox as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its time was up, which it was given so much of, as far as that is known.
    Lifetime(Option<Duration>),
    /// Somebody removed it.
    Removed,
    /// It was not kept, and its creator ended.
    CreatorGone,
    /// Nothing is known.
    Unknown,
}

impl Loss {
    /// Says it.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Lifetime(None) => "the sandbox ended with its lifetime".to_owned(),
            Self::Lifetime(Some(lifetime)) => {
                format!("the sandbox ended with its lifetime of {}", humantime::format_duration(lifetime))
            }
            Self::Removed => "the sandbox was removed".to_owned(),
            Self::CreatorGone => "the sandbox ended with the process that made it".to_owned(),
            Self::Unknown => "the sandbox was lost".to_owned(),
        }
    }

    /// Returns the exit status of whoever used it.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Lifetime(_) => exit::TIMED_OUT,
            Self::Removed | Self::CreatorGone | Self::Unknown => exit::OURS,
        }
    }

    /// Returns what is said instead of `failure`, where more is known than that.
    pub(crate) fn explain(self, failure: Failure) -> Failure {
        match self {
            Self::Unknown => failure,
            known => Failure::new(known.text())
                .with_kind(ErrorKind::SandboxLost.name())
                .with_status(known.status()),
        }
    }

    fn of_reason(reason: &str) -> Self {
        match reason {
            "lifetime" => Self::Lifetime(None),
            "destroyed" => Self::Removed,
            "owner_gone" => Self::CreatorGone,
            _ => Self::Unknown,
        }
    }
}

/// Looks out for the end of a sandbox that this process did not make.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    backend: &'a dyn Backend,
    sandbox: &'a SandboxId,
    /// `None` where no record is kept.
    from: Option<EventPosition>,
}

impl<'a> Watch<'a> {
    /// Notes where the record stands: what it says of an earlier end is not meant.
    pub(crate) async fn begin(backend: &'a dyn Backend, sandbox: &'a SandboxId) -> Self {
        let from = match backend.attachable() {
            Some(attachable) => attachable.events(&EventsFrom::Now).await.ok().map(|now| now.next),
            None => None,
        };
        Self { backend, sandbox, from }
    }

    /// Returns why a sandbox ended that was lost while it was used.
    pub(crate) async fn reason(mut self) -> Loss {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.look().await {
                Some(loss) => return loss,
                None if self.from.is_none() || Instant::now() >= deadline => return Loss::Unknown,
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Returns the same of one that may have been lost before: what is not written down yet is not waited for.
    pub(crate) async fn reason_so_far(mut self) -> Loss {
        self.look().await.unwrap_or(Loss::Unknown)
    }

    /// Reads what is new. A record that cannot be read says nothing.
    async fn look(&mut self) -> Option<Loss> {
        let attachable = self.backend.attachable()?;
        loop {
            let page = attachable.events(&EventsFrom::After(self.from.take()?)).await.ok()?;
            let ends = page.events.iter().filter(|event| event.sandbox == *self.sandbox);
            if let Some(reason) = ends.filter_map(Event::end_reason).next() {
                return Some(Loss::of_reason(reason));
            }
            self.from = Some(page.next);
            if !page.more {
                return None;
            }
        }
    }
}
