//! What a pool holds: sandboxes that wait, and the one task that makes more of them. No lock is held across a call of the backend.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::{FIRST_PAUSE, LONGEST_PAUSE, MAX_FAILURES};
use crate::backend::{Backend, Created, SandboxId};
use crate::error::{Error, ErrorKind};
use crate::spec::SandboxSpec;

type Observer = Arc<dyn Fn(&Error) + Send + Sync>;

pub(super) struct Shelf {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) spec: SandboxSpec,
    pub(super) size: usize,
    observer: Mutex<Option<Observer>>,
    state: Mutex<State>,
    /// Turns true when the pool closes: a pause ends then.
    closing: watch::Sender<bool>,
    /// How many tasks of this shelf run: refills and destructions.
    busy: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    ready: VecDeque<Created>,
    closed: bool,
    refilling: bool,
    /// Creations that failed in a row.
    failures: u32,
    /// The backend does not make this spec in advance, and never will.
    refused: bool,
    /// Where it was filled last: the last resort for destroying what nobody waits for.
    runtime: Option<Handle>,
}

/// A sandbox taken off the shelf, destroyed in the background unless it is handed out.
pub(super) struct Taken {
    shelf: Arc<Shelf>,
    created: Created,
    /// Whether nobody has it yet.
    unclaimed: bool,
}

impl Taken {
    pub(super) fn id(&self) -> &SandboxId {
        &self.created.id
    }

    /// It is the caller's.
    pub(super) fn hand_out(mut self) -> Created {
        self.unclaimed = false;
        self.created.clone()
    }

    /// It is gone already.
    pub(super) fn forget(mut self) {
        self.unclaimed = false;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.unclaimed {
            Shelf::discard(&self.shelf, self.created.id.clone());
        }
    }
}

/// Counts a task of the shelf as long as it lives, however it ends.
struct Busy(Arc<Shelf>);

impl Busy {
    fn new(shelf: &Arc<Shelf>) -> Self {
        shelf.busy.send_modify(|busy| *busy += 1);
        Self(Arc::clone(shelf))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.send_modify(|busy| *busy -= 1);
    }
}

/// The right to refill, which one task at a time has. Given back under the lock under which the task finds that it is not needed any
/// more: whoever takes a sandbox afterwards starts the next one. Given back at the latest when the task is dropped with its runtime.
struct Refilling {
    busy: Busy,
    given_back: bool,
}

impl Refilling {
    fn give_back(&mut self, state: &mut State) {
        state.refilling = false;
        self.given_back = true;
    }
}

impl Drop for Refilling {
    fn drop(&mut self) {
        if !self.given_back {
            self.busy.0.lock().refilling = false;
        }
    }
}

impl Shelf {
    pub(super) fn new(backend: Arc<dyn Backend>, spec: SandboxSpec, size: usize) -> Self {
        Self {
            backend,
            spec,
            size,
            observer: Mutex::default(),
            state: Mutex::default(),
            closing: watch::Sender::new(false),
            busy: watch::Sender::new(0),
        }
    }

    pub(super) fn report_to(&self, observer: Observer) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(observer);
    }

    pub(super) fn report(&self, error: &Error) {
        let observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(observer) = observer {
            observer(error);
        }
    }

    pub(super) fn ready(&self) -> usize {
        self.lock().ready.len()
    }

    /// Takes the oldest sandbox that waits.
    pub(super) fn take(shelf: &Arc<Self>) -> Option<Taken> {
        let created = shelf.lock().ready.pop_front()?;
        Some(Taken { shelf: Arc::clone(shelf), created, unclaimed: true })
    }

    /// Makes sure that what is missing is being made, if there is a runtime to do so.
    pub(super) fn refill(shelf: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        {
            let mut state = shelf.lock();
            if state.refilling || !state.wants_more(shelf.size) {
                return;
            }
            state.refilling = true;
            state.runtime = Some(runtime.clone());
        }
        // Outside the lock: a runtime that is shutting down drops the task at once.
        let refilling = Refilling { busy: Busy::new(shelf), given_back: false };
        drop(runtime.spawn(refill(refilling)));
    }

    /// Destroys a sandbox that nobody gets, in the background.
    fn discard(shelf: &Arc<Self>, id: SandboxId) {
        let runtime = Handle::try_current().ok().or_else(|| shelf.lock().runtime.clone());
        let Some(runtime) = runtime else { return };
        let busy = Busy::new(shelf);
        drop(runtime.spawn(async move {
            if let Err(mut error) = busy.0.backend.destroy(&id).await {
                if error.fact("sandbox").is_none() {
                    error = error.context("sandbox", id.as_str());
                }
                busy.0.report(&error);
            }
        }));
    }

    /// Takes nothing in any more, and destroys what is there in the background.
    pub(super) fn abandon(shelf: &Arc<Self>) {
        let ready = {
            let mut state = shelf.lock();
            state.closed = true;
            std::mem::take(&mut state.ready)
        };
        shelf.closing.send_replace(true);
        for created in ready {
            Self::discard(shelf, created.id);
        }
    }

    /// As [`Self::abandon`], and waits for that.
    pub(super) async fn close(shelf: &Arc<Self>) {
        Self::abandon(shelf);
        let mut busy = shelf.busy.subscribe();
        // The sender is in the shelf that is borrowed here.
        drop(busy.wait_for(|busy| *busy == 0).await.map(drop));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock; a poisoned one is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a sandbox on the shelf. Returns it when the pool was closed meanwhile.
    fn put(&self, created: Created) -> Option<SandboxId> {
        let mut state = self.lock();
        state.failures = 0;
        if state.closed {
            return Some(created.id);
        }
        state.ready.push_back(created);
        None
    }
}

impl State {
    fn wants_more(&self, size: usize) -> bool {
        !self.closed && !self.refused && self.ready.len() < size
    }

    /// Returns how long to wait before the next creation.
    fn pause(&self) -> Duration {
        match self.failures.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => {
                FIRST_PAUSE.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(LONGEST_PAUSE)
            }
        }
    }
}

/// Makes sandboxes until the shelf is full, the pool is closed, or too many creations failed in a row.
async fn refill(mut refilling: Refilling) {
    let shelf = Arc::clone(&refilling.busy.0);
    let mut closing = shelf.closing.subscribe();
    loop {
        let pause = {
            let mut state = shelf.lock();
            if !state.wants_more(shelf.size) {
                return refilling.give_back(&mut state);
            }
            state.pause()
        };
        if !pause.is_zero() && timeout(pause, closing.wait_for(|closing| *closing)).await.is_ok() {
            // Closed: the next round ends.
            continue;
        }
        let error = match shelf.backend.create_parked(&shelf.spec).await {
            Ok(created) => {
                if let Some(unwanted) = shelf.put(created) {
                    Shelf::discard(&shelf, unwanted);
                }
                continue;
            }
            Err(error) => error,
        };
        shelf.report(&error);
        let mut state = shelf.lock();
        state.refused = matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unsupported);
        state.failures = state.failures.saturating_add(1);
        if state.failures >= MAX_FAILURES {
            return refilling.give_back(&mut state);
        }
    }
}
