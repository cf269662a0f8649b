//! One sandbox per session: created once however many calls want it, and destroyed whatever happens (LC).
//!
//! Creation runs in a task of its own. A caller that is cancelled while it waits therefore cancels nothing: the handle
//! still arrives and is destroyed when the session ends (LC-08). The lock here is never held across a backend call
//! (LC-17), and all state is shared by pointer, so callers may live on different runtimes (LC-07).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_core::{Backend, EnforcementStatement, Error, ErrorKind, Result, SandboxId, SandboxSpec};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::inputs::{self, InputList};
use crate::mask::Masker;

const MANUAL_CLEANUP: &str = "it may still exist; remove it by hand with the backend's own tools";

/// A sandbox that stands.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: SandboxId,
    /// What is enforced; of an attached one as far as its backend says.
    pub(crate) statement: Option<EnforcementStatement>,
    /// Set once somebody learned that the sandbox is gone; it is not used or destroyed again (LC-19).
    lost: AtomicBool,
    created: Instant,
    /// Where it was created: the last resort for destroying it when nobody waits any more.
    runtime: Handle,
}

impl Live {
    pub(crate) fn new(
        id: SandboxId,
        statement: Option<EnforcementStatement>,
        created: Instant,
        runtime: Handle,
    ) -> Self {
        Self { id, statement, lost: AtomicBool::new(false), created, runtime }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Returns the lifetime of the sandbox if that is over.
    pub(crate) fn outlived(&self, spec: &SandboxSpec) -> Option<Duration> {
        spec.lifetime().filter(|lifetime| self.created.elapsed() >= *lifetime)
    }
}

/// What a creation came to; a failure is shared because every waiter gets it (LC-21).
type Outcome = Result<Arc<Live>, Arc<Failed>>;

/// A failed creation: the error itself for the first who asks (LC-11), a copy that says the same for the others.
#[derive(Debug)]
pub(crate) struct Failed {
    original: Mutex<Option<Error>>,
    copy: Error,
}

impl Failed {
    fn error(&self, masker: &Masker) -> Error {
        let original = self.original.lock().unwrap_or_else(PoisonError::into_inner).take();
        original.unwrap_or_else(|| masker.restated(&self.copy))
    }
}

#[derive(Debug)]
enum Standing {
    Nothing,
    Creating(watch::Receiver<Option<Outcome>>),
    Ready(Arc<Live>),
}

#[derive(Debug)]
struct State {
    closed: bool,
    standing: Standing,
}

struct Shared {
    backend: Arc<dyn Backend>,
    spec: SandboxSpec,
    inputs: InputList,
    masker: Arc<Masker>,
    state: Mutex<State>,
    /// Turns true when the session closes: inputs that are being staged are not waited for, they can be large, and a network
    /// file may never come.
    closing: watch::Sender<bool>,
}

/// The sandbox of one session, or the lack of one.
pub(crate) struct Provisioner {
    shared: Arc<Shared>,
}

impl fmt::Debug for Provisioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provisioner").field("state", &*self.shared.lock()).finish_non_exhaustive()
    }
}

/// A caller's place at one creation, taken when it arrives.
#[derive(Debug)]
pub(crate) enum Attempt {
    Done(Arc<Live>),
    Waiting(watch::Receiver<Option<Outcome>>),
}

impl Provisioner {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        spec: SandboxSpec,
        inputs: InputList,
        masker: Arc<Masker>,
    ) -> Self {
        let state = Mutex::new(State { closed: false, standing: Standing::Nothing });
        let closing = watch::Sender::new(false);
        Self { shared: Arc::new(Shared { backend, spec, inputs, masker, state, closing }) }
    }

    /// Joins the creation in flight, starts one, or returns what stands.
    pub(crate) fn acquire(&self) -> Result<Attempt> {
        let (publisher, attempt) = {
            let mut state = self.shared.lock();
            if state.closed {
                return Err(self.shared.not_open());
            }
            match &state.standing {
                Standing::Ready(live) => return Ok(Attempt::Done(Arc::clone(live))),
                Standing::Creating(receiver) => return Ok(Attempt::Waiting(receiver.clone())),
                Standing::Nothing => {}
            }
            let (sender, receiver) = watch::channel(None);
            state.standing = Standing::Creating(receiver.clone());
            (Publisher { shared: Arc::clone(&self.shared), sender: Some(sender) }, Attempt::Waiting(receiver))
        };
        // Outside the lock: a runtime that is shutting down drops the task at once, and dropping it publishes.
        match Handle::try_current() {
            Ok(runtime) => {
                let creation = create(Arc::clone(&self.shared), publisher, runtime.clone());
                drop(runtime.spawn(creation));
                Ok(attempt)
            }
            Err(_) => Err(publisher.shared.error(
                ErrorKind::InvalidArgument,
                "a session must be used inside a tokio runtime; use BlockingSession elsewhere",
            )),
        }
    }

    /// Returns the sandbox once its creation has ended.
    pub(crate) async fn wait(&self, attempt: Attempt) -> Result<Arc<Live>> {
        let mut receiver = match attempt {
            Attempt::Done(live) => return Ok(live),
            Attempt::Waiting(receiver) => receiver,
        };
        let outcome = match receiver.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        match outcome {
            Some(Ok(live)) => Ok(live),
            Some(Err(failed)) => Err(failed.error(&self.shared.masker)),
            // The publisher always publishes; without it there is nothing to wait for.
            None => Err(self.shared.abandoned()),
        }
    }

    /// Returns what stands now.
    pub(crate) fn current(&self) -> Option<Arc<Live>> {
        match &self.shared.lock().standing {
            Standing::Ready(live) => Some(Arc::clone(live)),
            Standing::Nothing | Standing::Creating(_) => None,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    pub(crate) fn not_open(&self) -> Error {
        self.shared.not_open()
    }

    /// Forgets a sandbox that is gone: the next call provisions anew (LC-19).
    pub(crate) fn lost(&self, live: &Arc<Live>) {
        live.lost.store(true, Ordering::Release);
        let mut state = self.shared.lock();
        if matches!(&state.standing, Standing::Ready(standing) if Arc::ptr_eq(standing, live)) {
            state.standing = Standing::Nothing;
        }
    }

    /// Ends the session: waits for a creation in flight and for the destruction of what stands (LC-03, LC-09). Dropping
    /// this future does not stop the destruction.
    pub(crate) async fn close(&self) {
        match self.shut() {
            Standing::Nothing => {}
            // Whoever creates sees that the session is closed, destroys, and publishes when that is done.
            Standing::Creating(mut receiver) => drop(receiver.wait_for(Option::is_some).await.map(drop)),
            Standing::Ready(live) => {
                let destruction = destroy(Arc::clone(&self.shared), live.id.clone());
                match Handle::try_current() {
                    // Its own task, so that a cancelled close still destroys. How it ended is in the log (LC-04).
                    Ok(runtime) => drop(runtime.spawn(destruction).await),
                    Err(_) => destruction.await,
                }
            }
        }
    }

    /// Ends the session without waiting. A runtime destroys in the background: the current one, else the one that
    /// created the sandbox. If neither runs, the warning of [`LeftBehind`] is all that can be done.
    pub(crate) fn abandon(&self) {
        if let Standing::Ready(live) = self.shut() {
            let runtime = Handle::try_current().unwrap_or_else(|_| live.runtime.clone());
            drop(runtime.spawn(destroy(Arc::clone(&self.shared), live.id.clone())));
        }
    }

    /// Clears the state before anything is taken down (LC-16), and returns what stood.
    fn shut(&self) -> Standing {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.closing.send_replace(true);
        match &state.standing {
            // Stays, for the creator and for a second close that must wait as well.
            Standing::Creating(receiver) => Standing::Creating(receiver.clone()),
            Standing::Nothing | Standing::Ready(_) => {
                std::mem::replace(&mut state.standing, Standing::Nothing)
            }
        }
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock; a poisoned one is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, kind: ErrorKind, message: &str) -> Error {
        Error::new(kind, self.backend.name(), "provision a sandbox", message).terminal()
    }

    fn not_open(&self) -> Error {
        Error::new(ErrorKind::InvalidArgument, self.backend.name(), "call a tool", "the session is not open")
            .hint("open one with Toolset::open and call its tools before closing it")
            .terminal()
    }

    fn abandoned(&self) -> Error {
        self.error(
            ErrorKind::Unexpected,
            "could not provision a sandbox: its creation was given up half-way because the runtime ended or the backend \
             panicked",
        )
    }
}

/// Publishes what a creation came to exactly once, also when its task is dropped or panics.
struct Publisher {
    shared: Arc<Shared>,
    sender: Option<watch::Sender<Option<Outcome>>>,
}

impl Publisher {
    /// Makes a sandbox the standing one. Returns it when the session was closed meanwhile.
    fn ready(&mut self, live: Arc<Live>) -> Result<(), Arc<Live>> {
        let mut state = self.shared.lock();
        if state.closed {
            return Err(live);
        }
        state.standing = Standing::Ready(Arc::clone(&live));
        if let Some(sender) = self.sender.take() {
            sender.send_replace(Some(Ok(live)));
        }
        Ok(())
    }

    /// Publishes a failure and forgets it: the next call provisions again (LC-12).
    fn failed(&mut self, error: Error) {
        let Some(sender) = self.sender.take() else { return };
        self.shared.lock().standing = Standing::Nothing;
        let copy = self.shared.masker.restated(&error);
        sender.send_replace(Some(Err(Arc::new(Failed { original: Mutex::new(Some(error)), copy }))));
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if self.sender.is_some() {
            let error = self.shared.abandoned();
            self.failed(error);
        }
    }
}

/// Warns about a sandbox whose destruction did not come to a good end (LC-04).
struct LeftBehind {
    shared: Arc<Shared>,
    id: Option<SandboxId>,
}

impl LeftBehind {
    /// The sandbox is gone, or in someone else's care.
    fn disarm(&mut self) {
        self.id = None;
    }

    fn warn(&mut self, why: &str) {
        if let Some(id) = self.id.take() {
            let why = self.shared.masker.text(why);
            tracing::warn!(
                sandbox = id.as_str(),
                backend = self.shared.backend.name(),
                "could not destroy sandbox {id} of backend {}: {why}; {MANUAL_CLEANUP}",
                self.shared.backend.name(),
            );
        }
    }
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        self.warn("the runtime ended first");
    }
}

/// Destroys a sandbox; a failure is logged and fails nothing (LC-04). So is a future that is dropped unfinished, or before
/// it was polled at all.
fn destroy(shared: Arc<Shared>, id: SandboxId) -> impl Future<Output = ()> + Send + 'static {
    let mut left_behind = LeftBehind { shared, id: Some(id.clone()) };
    async move {
        match left_behind.shared.backend.destroy(&id).await {
            Ok(()) => {
                tracing::debug!(sandbox = id.as_str(), "sandbox destroyed");
                left_behind.disarm();
            }
            Err(error) => left_behind.warn(&error.to_string()),
        }
    }
}

/// Creates a sandbox, puts the inputs into it, and publishes it.
async fn create(shared: Arc<Shared>, mut publisher: Publisher, runtime: Handle) {
    let inputs = match shared.inputs.list().await {
        Ok(inputs) => inputs,
        Err(error) => return publisher.failed(terminal(&shared, error)),
    };
    // A lifetime counts from some moment after this one, so that nothing is told to be over too late.
    let requested = Instant::now();
    let created = match shared.backend.create(&shared.spec).await {
        Ok(created) => created,
        Err(error) => return publisher.failed(terminal(&shared, error)),
    };
    tracing::debug!(sandbox = created.id.as_str(), backend = shared.backend.name(), "sandbox created");
    let mut left_behind = LeftBehind { shared: Arc::clone(&shared), id: Some(created.id.clone()) };
    let mut closing = shared.closing.subscribe();
    let staged = tokio::select! {
        biased;
        _ = closing.wait_for(|closing| *closing) => Err(shared.not_open()),
        staged = inputs::stage(&inputs, &*shared.backend, &created.id) => staged,
    };
    let failure = match staged {
        Ok(()) => {
            let live = Live::new(created.id.clone(), Some(created.statement), requested, runtime);
            match publisher.ready(Arc::new(live)) {
                Ok(()) => {
                    left_behind.disarm();
                    return;
                }
                Err(_) => shared.not_open(),
            }
        }
        Err(error) => error,
    };
    left_behind.disarm();
    destroy(Arc::clone(&shared), created.id).await;
    publisher.failed(failure);
}

/// Every failure to create ends the run; one that is terminal already passes as it is (LC-10, LC-11, BK-03).
fn terminal(shared: &Shared, error: Error) -> Error {
    if error.is_terminal() {
        return error;
    }
    let wrapped = Error::new(
        error.kind().clone(),
        shared.backend.name(),
        "provision a sandbox",
        "could not provision a sandbox",
    );
    wrapped.retry(error.retry_policy()).source(error).terminal()
}
