//! A sandbox of somebody else as one session holds it: nothing is created and nothing destroyed, its claim is renewed while the
//! session is open, and given back at the end whatever happened (AT-14 to AT-16).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ringfence_core::{
    Attachable, Backend, Claim, Clock, EnforcementStatement, Error, ErrorKind, Release, Result, claim,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::mask::Masker;
use crate::provision::Live;

const CALL: &str = "call a tool";

/// How often a release is tried (AT-15).
const RELEASE_ATTEMPTS: u32 = 3;
/// What lies between two of them.
const RELEASE_PAUSE: Duration = Duration::from_secs(1);
/// How long closing waits for the call that it has interrupted. One that nobody polls any more does not end.
const CALL_PATIENCE: Duration = Duration::from_secs(5);
/// A renewal that failed is repeated after this part of the time between two.
const RENEWAL_HURRY: u32 = 4;

/// The claim on an attached sandbox, given back when it is dropped.
pub(crate) struct Hold {
    shared: Arc<Shared>,
    renewal: AbortHandle,
}

struct Shared {
    backend: Arc<dyn Backend>,
    claim: Claim,
    clock: Clock,
    masker: Arc<Masker>,
    /// Where it was attached: the last resort for giving it back when nobody waits any more.
    runtime: Handle,
    live: Arc<Live>,
    /// When the sandbox ends, as its tags said last.
    expires_at: Mutex<Option<SystemTime>>,
    standing: watch::Sender<Standing>,
}

/// Why nothing can be done in the sandbox any more, if so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Standing {
    closed: bool,
    over: Option<Over>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// Somebody else may hold it.
    ClaimLost,
    /// It is gone.
    Ended,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("claim", &self.shared.claim)
            .field("standing", &*self.shared.standing.borrow())
            .finish_non_exhaustive()
    }
}

impl Hold {
    /// Starts to renew a claim.
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        claim: Claim,
        statement: Option<EnforcementStatement>,
        clock: Clock,
        masker: Arc<Masker>,
        runtime: Handle,
    ) -> Self {
        let live = Live::new(claim.sandbox().clone(), statement, Instant::now(), runtime.clone());
        let expires_at = Mutex::new(claim::expires_at(claim.tags()));
        let shared = Arc::new(Shared {
            backend,
            claim,
            clock,
            masker,
            runtime,
            live: Arc::new(live),
            expires_at,
            standing: watch::Sender::default(),
        });
        let renewal = shared.runtime.spawn(renew(Arc::clone(&shared))).abort_handle();
        Self { shared, renewal }
    }

    /// Returns the sandbox as long as something can be done in it.
    pub(crate) fn live(&self) -> Result<Arc<Live>> {
        match self.shared.fault(*self.shared.standing.borrow()) {
            None => Ok(Arc::clone(&self.shared.live)),
            Some(fault) => Err(fault),
        }
    }

    /// Returns what is left of the sandbox's life, if that is known.
    pub(crate) fn left(&self) -> Option<Duration> {
        let expires_at = *self.shared.expires_at.lock().unwrap_or_else(PoisonError::into_inner);
        Some(expires_at?.duration_since(self.shared.clock.now()).unwrap_or_default())
    }

    /// Notes what the kind of an operation's error says about the hold, and returns the error that ends the run for it; nothing if it
    /// says nothing.
    pub(crate) fn over(&self, kind: &ErrorKind) -> Option<Error> {
        let over = match kind {
            ErrorKind::SandboxLost => Over::Ended,
            ErrorKind::ClaimLost => Over::ClaimLost,
            _ => return None,
        };
        self.shared.end(over);
        Some(self.shared.over(over))
    }

    /// Notes that the sandbox is gone, and returns the error that ends the run for it (AT-16).
    pub(crate) fn ended(&self) -> Error {
        self.shared.end(Over::Ended);
        self.shared.over(Over::Ended)
    }

    /// Returns once nothing can be done in the sandbox any more, with the reason. A call in flight ends then: a command must not run on
    /// beside another holder's.
    pub(crate) async fn interrupted(&self) -> Error {
        let mut standing = self.shared.standing.subscribe();
        let standing = match standing.wait_for(|standing| *standing != Standing::default()).await {
            Ok(standing) => *standing,
            // The sender lives as long as this hold.
            Err(_) => Standing { closed: true, over: None },
        };
        self.shared.fault(standing).unwrap_or_else(|| self.shared.not_open())
    }

    /// Ends the session: interrupts the call that is in flight, waits for it, and gives the sandbox back. Dropping this future does not
    /// stop that.
    pub(crate) async fn close(&self, turn: &Arc<tokio::sync::Mutex<()>>) {
        if !self.shut() {
            return;
        }
        let (turn, release) = (Arc::clone(turn), release(Arc::clone(&self.shared)));
        let ending = self.runtime().spawn(async move {
            drop(timeout(CALL_PATIENCE, turn.lock()).await.map(drop));
            release.await;
        });
        // How it went is in the log (AT-15).
        drop(ending.await);
    }

    /// Clears the state before the sandbox is given back (LC-16). Returns whether that is still to be done.
    fn shut(&self) -> bool {
        self.renewal.abort();
        self.shared.standing.send_if_modified(|standing| !std::mem::replace(&mut standing.closed, true))
    }

    fn runtime(&self) -> Handle {
        Handle::try_current().unwrap_or_else(|_| self.shared.runtime.clone())
    }
}

/// Gives the sandbox back in the background. If neither the current runtime runs nor the one where it was attached, the warning of
/// [`StillHeld`] is all that can be done; the lease runs out by itself.
impl Drop for Hold {
    fn drop(&mut self) {
        if self.shut() {
            drop(self.runtime().spawn(release(Arc::clone(&self.shared))));
        }
    }
}

impl Shared {
    fn attachable(&self) -> Result<&dyn Attachable> {
        self.backend.attachable().ok_or_else(|| {
            let fault = "the backend is not attachable any more";
            Error::new(ErrorKind::Unsupported, self.backend.name(), "reach the sandbox", fault)
        })
    }

    fn end(&self, over: Over) {
        self.standing.send_if_modified(|standing| {
            let news = standing.over.is_none();
            standing.over.get_or_insert(over);
            news
        });
    }

    fn fault(&self, standing: Standing) -> Option<Error> {
        match standing {
            Standing { closed: true, .. } => Some(self.not_open()),
            Standing { over: Some(over), .. } => Some(self.over(over)),
            Standing { closed: false, over: None } => None,
        }
    }

    fn not_open(&self) -> Error {
        Error::new(ErrorKind::InvalidArgument, self.backend.name(), CALL, "the session is not open")
            .hint("attach again, and call its tools before closing it")
            .terminal()
    }

    fn over(&self, over: Over) -> Error {
        let (kind, message) = match over {
            Over::Ended => (
                ErrorKind::SandboxLost,
                "the attached sandbox has ended, and what was in it is gone; no other takes its place",
            ),
            Over::ClaimLost => (
                ErrorKind::ClaimLost,
                "the claim on the attached sandbox is over and somebody else may hold it by now, so nothing more is done in it",
            ),
        };
        Error::new(kind, self.backend.name(), CALL, message)
            .context("sandbox", self.live.id.as_str())
            .context("holder", self.claim.claimant().holder())
            .terminal()
    }
}

/// Renews the lease every third of its length until the claim or the sandbox is gone. A renewal that fails otherwise is repeated sooner.
async fn renew(shared: Arc<Shared>) {
    let interval = shared.claim.lease().renewal_interval();
    let mut pause = interval;
    loop {
        sleep(pause).await;
        let renewed = match shared.attachable() {
            Ok(backend) => shared.claim.renew(backend, shared.clock.now()).await,
            Err(error) => Err(error),
        };
        match renewed {
            Ok(tags) => {
                pause = interval;
                *shared.expires_at.lock().unwrap_or_else(PoisonError::into_inner) = claim::expires_at(&tags);
            }
            Err(error) if *error.kind() == ErrorKind::ClaimLost => return shared.end(Over::ClaimLost),
            Err(error) if *error.kind() == ErrorKind::SandboxLost => return shared.end(Over::Ended),
            Err(error) => {
                pause = interval / RENEWAL_HURRY;
                let (id, error) = (shared.live.id.as_str(), error.to_string());
                let why = shared.masker.text(&error);
                tracing::warn!(sandbox = id, "could not renew the claim on sandbox {id}: {why}");
            }
        }
    }
}

/// Warns about a claim whose release did not come to a good end (AT-15).
struct StillHeld {
    shared: Arc<Shared>,
    attempts: u32,
    armed: bool,
}

impl StillHeld {
    /// It is given back, or there is nothing left to give back.
    fn disarm(&mut self) {
        self.armed = false;
    }

    fn warn(&mut self, why: &str) {
        if std::mem::replace(&mut self.armed, false) {
            let (id, backend) = (self.shared.live.id.as_str(), self.shared.backend.name());
            let why = self.shared.masker.text(why);
            tracing::warn!(
                sandbox = id,
                backend,
                attempts = self.attempts,
                holder = self.shared.claim.claimant().holder(),
                "could not release sandbox {id} of backend {backend}: {why}; it stays claimed until the lease runs out",
            );
        }
    }
}

impl Drop for StillHeld {
    fn drop(&mut self) {
        self.warn("the runtime ended first");
    }
}

/// Gives the sandbox back; a failure is logged and fails nothing (AT-15). So is a future that is dropped unfinished, or before it was
/// polled at all.
fn release(shared: Arc<Shared>) -> impl Future<Output = ()> + Send + 'static {
    let mut still_held = StillHeld { shared, attempts: 0, armed: true };
    async move {
        let shared = Arc::clone(&still_held.shared);
        let id = shared.live.id.as_str();
        loop {
            still_held.attempts += 1;
            let released = match shared.attachable() {
                Ok(backend) => shared.claim.release(backend).await,
                Err(error) => Err(error),
            };
            match released {
                Ok(Release::Done) => tracing::debug!(sandbox = id, "sandbox released"),
                Ok(Release::AlreadyOver) => {
                    tracing::info!(sandbox = id, "the claim on sandbox {id} was over before")
                }
                Err(error) if *error.kind() == ErrorKind::SandboxLost => {
                    tracing::info!(sandbox = id, "sandbox {id} ended before it could be released");
                }
                Err(error) if still_held.attempts == RELEASE_ATTEMPTS => {
                    return still_held.warn(&error.to_string());
                }
                Err(_) => {
                    sleep(RELEASE_PAUSE).await;
                    continue;
                }
            }
            return still_held.disarm();
        }
    }
}
