//! Where a command runs: in a sandbox that is made for it and destroyed behind it, or in one that is there, and stays.

use std::time::Duration;

use ringfence::toolset::Input;
use ringfence::{Backend, EnforcementStatement, Handle, SandboxId, SandboxSpec};

use crate::console;
use crate::exit;
use crate::failure::Result;
use crate::loss::{Loss, Watch};
use crate::settings::Settings;
use crate::signals::{Interrupt, Signals};

/// Where.
pub(crate) enum Place {
    /// In a sandbox that exists for the command alone.
    Fresh(Box<Fresh>),
    /// In one that stays.
    Standing(Handle),
}

/// A sandbox to be made.
pub(crate) struct Fresh {
    pub(crate) settings: Settings,
    pub(crate) spec: SandboxSpec,
    pub(crate) inputs: Vec<Input>,
}

/// The sandbox as it was made or found.
pub(super) struct Sandbox {
    pub(super) id: SandboxId,
    /// Of one that was made.
    pub(super) statement: Option<EnforcementStatement>,
}

/// What came of entering.
pub(super) enum Entered {
    Sandbox(Sandbox),
    /// A signal came first, of which this is the exit status; nothing is left.
    Interrupted(u8),
}

impl Place {
    /// Makes the sandbox, if it is one that is made. A first signal meanwhile is noted.
    pub(super) async fn enter(
        &self,
        backend: &dyn Backend,
        signals: &Signals,
        interrupt: &mut Option<Interrupt>,
    ) -> Result<Entered> {
        let fresh = match self {
            Self::Standing(handle) => {
                return Ok(Entered::Sandbox(Sandbox { id: handle.sandbox().clone(), statement: None }));
            }
            Self::Fresh(fresh) => fresh,
        };
        match (signals.shield(interrupt, backend.create(&fresh.spec)).await, *interrupt) {
            (Some(Ok(created)), _) => {
                Ok(Entered::Sandbox(Sandbox { id: created.id, statement: Some(created.statement) }))
            }
            (None | Some(Err(_)), Some(signal)) => Ok(Entered::Interrupted(signal.status())),
            (Some(Err(error)), None) => Err(fresh.settings.explain(error)),
            // Only a signal abandons it.
            (None, None) => Ok(Entered::Interrupted(exit::OURS)),
        }
    }

    /// Destroys the sandbox, if it was made.
    pub(super) async fn leave(
        &self,
        backend: &dyn Backend,
        sandbox: &SandboxId,
        signals: &Signals,
        interrupt: &mut Option<Interrupt>,
    ) {
        if let Self::Fresh(_) = self
            && let Some(Err(error)) = signals.shield(interrupt, backend.destroy(sandbox)).await
        {
            console::notice(&format!("the sandbox {sandbox} may still exist: {error}"));
        }
    }

    /// Looks out for the end of a sandbox whose end is not decided here.
    pub(super) async fn watch<'a>(&'a self, backend: &'a dyn Backend) -> Lookout<'a> {
        match self {
            Self::Standing(handle) => Lookout::Record(Watch::begin(backend, handle.sandbox()).await),
            Self::Fresh(fresh) => Lookout::Clock(fresh.spec.lifetime()),
        }
    }
}

/// By what it is known why a sandbox was lost.
pub(super) enum Lookout<'a> {
    /// By the lifetime of one that was made here.
    Clock(Option<Duration>),
    /// By what others write down.
    Record(Watch<'a>),
}

impl Lookout<'_> {
    /// Returns why the sandbox was lost, which stood for `lived`. With `surely_begun` it was there when it was entered, and so the
    /// reason of its end is waited for.
    pub(super) async fn loss(self, lived: Duration, surely_begun: bool) -> Loss {
        match self {
            Self::Clock(lifetime) => {
                let outlived = lifetime.filter(|lifetime| lived >= *lifetime);
                outlived.map_or(Loss::Unknown, |lifetime| Loss::Lifetime(Some(lifetime)))
            }
            Self::Record(watch) if surely_begun => watch.reason().await,
            Self::Record(watch) => watch.reason_so_far().await,
        }
    }
}
