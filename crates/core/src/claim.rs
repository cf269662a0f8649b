//! Who may use somebody else's sandbox: the owner must match, one holder at a time, and the claim is a lease with a fence that
//! every operation of the holder carries (AT, S54).
//!
//! Everything is kept in tags, which are written only if nobody else wrote them meanwhile: whoever loses that race reads and
//! judges again. The lease decides who *may* take a sandbox, by clocks that may disagree; the fence decides who *can* use it, and needs
//! no clock. A holder that slept through its lease does no harm: its operations are refused.

mod rules;
mod stamp;

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use crate::attach::{Attachable, Tags};
use crate::backend::{Fence, SandboxId};
use crate::error::{Error, ErrorKind, Result, Retry};

pub use stamp::{expires_at, fence_in_force, fence_of, network, read_time, remaining, stamp, time_text};

/// Who may attach. The value of [`SandboxSpec::owner`](crate::SandboxSpec::owner).
pub const OWNER: &str = "ringfence_owner";
/// Who holds the sandbox.
pub const HOLDER: &str = "ringfence_holder";
/// Until when the holder does, in seconds since 1970.
pub const LEASE_UNTIL: &str = "ringfence_lease_until";
/// The count of claims; stays when a claim is released, so that a fence is never given twice.
pub const FENCE: &str = "ringfence_fence";
/// When the sandbox ends, in seconds since 1970.
pub const EXPIRES_AT: &str = "ringfence_expires_at";
/// The network policy as its canonical document (SP-09).
pub const NETWORK: &str = "ringfence_network";
/// Where relative paths start.
pub const WORKDIR: &str = "ringfence_workdir";

/// The longest name of an owner or a holder.
pub const MAX_NAME_BYTES: usize = 1 << 10;

/// How often a write of tags is tried again because somebody else was faster. Whoever loses a claim to another holder is refused when
/// it reads again, so that only writers who keep changing tags for nothing get this far.
const MAX_ROUNDS: u32 = 16;

/// Who wants a sandbox: as whose it is presented, and under which name it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimant {
    owner: String,
    holder: String,
}

impl Claimant {
    /// Returns the claimant that presents `owner` and holds under the same name.
    ///
    /// Whoever comes back under the same name takes its own claim over, as after a crash (AT-05). Processes that are to exclude each
    /// other therefore need [holders](Self::with_holder) of their own.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for the empty text and for more than [`MAX_NAME_BYTES`].
    pub fn new(owner: impl Into<String>) -> Result<Self> {
        let owner = name("an owner", owner.into())?;
        Ok(Self { holder: owner.clone(), owner })
    }

    /// Sets the name under which the sandbox is held.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_holder(mut self, holder: impl Into<String>) -> Result<Self> {
        self.holder = name("a holder", holder.into())?;
        Ok(self)
    }

    /// Returns the owner that is presented.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the name under which the sandbox is held.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }
}

fn name(what: &str, value: String) -> Result<String> {
    let fault = match value.len() {
        0 => format!("attaching needs {what}, which must not be empty"),
        1..=MAX_NAME_BYTES => return Ok(value),
        bytes => format!("{what} of {bytes} bytes is too long, at most {MAX_NAME_BYTES} are accepted"),
    };
    Err(Error::invalid(CLAIM, fault))
}

/// For how long a claim keeps others out if its holder is not heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(Duration);

impl Lease {
    /// The shortest lease: 1 second. Clocks of two machines differ by more than less.
    pub const MIN: Duration = Duration::from_secs(1);
    /// The longest lease: 24 hours. Nobody else can have the sandbox of a crashed holder for that long.
    pub const MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Checks a duration.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for less than [`Self::MIN`] or more than [`Self::MAX`].
    pub fn new(duration: Duration) -> Result<Self> {
        if duration < Self::MIN || duration > Self::MAX {
            let fault = format!("a lease must be of 1 to {} seconds, not {duration:?}", Self::MAX.as_secs());
            return Err(Error::invalid(CLAIM, fault));
        }
        Ok(Self(duration))
    }

    /// Returns the duration.
    #[must_use]
    pub fn get(self) -> Duration {
        self.0
    }

    /// Returns how often to renew it: two renewals may fail before others can take over.
    #[must_use]
    pub fn renewal_interval(self) -> Duration {
        self.0 / 3
    }
}

/// 5 minutes.
impl Default for Lease {
    fn default() -> Self {
        Self(Duration::from_secs(5 * 60))
    }
}

const CLAIM: &str = "claim the sandbox";
const RENEW: &str = "renew the claim";
const RELEASE: &str = "release the claim";

/// A sandbox that is held. Not released by itself: call [`Self::release`].
#[derive(Debug)]
#[must_use = "a claim keeps others out until it is released or its lease runs out"]
pub struct Claim {
    sandbox: SandboxId,
    fence: Fence,
    claimant: Claimant,
    lease: Lease,
    tags: Tags,
}

/// What came of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The claim is gone.
    Done,
    /// It was over before: released, or taken over. Nothing was written.
    AlreadyOver,
}

/// Claims a sandbox for `lease` from `now` on (AT-02 to AT-07): its owner must be the one presented, and no other holder's lease may run.
/// A lease that has run out is taken over; so is a claim of the same holder, because a process that crashed comes back under its name
/// (AT-05). Each claim has a fence of its own, so that what the crashed one left behind is kept out too. All other tags stay.
///
/// # Errors
/// All terminal. [`ErrorKind::PermissionDenied`] for a sandbox without an owner or with another; [`ErrorKind::Conflict`] if another
/// holds it, or others kept writing its tags; [`ErrorKind::SandboxLost`]; what kept the tags from being read or written.
pub async fn claim(
    backend: &dyn Attachable,
    sandbox: &SandboxId,
    claimant: &Claimant,
    lease: Lease,
    now: SystemTime,
) -> Result<Claim> {
    // A fence that the caller carries is of an earlier claim.
    let sandbox = sandbox.clone().unfenced();
    let Change::Write(tags, fence) = update::<Infallible, Fence>(backend, &sandbox, CLAIM, |tags| {
        let (fence, tags) = rules::admit(backend.name(), &sandbox, tags, claimant, lease, now)?;
        Ok(Change::Write(tags, fence))
    })
    .await
    .map_err(|error| terminal(backend.name(), &sandbox, error))?;
    Ok(Claim { sandbox: sandbox.fenced(fence), fence, claimant: claimant.clone(), lease, tags })
}

impl Claim {
    /// Returns the sandbox as its holder names it: what is done through this id is refused once the claim is over.
    #[must_use]
    pub fn sandbox(&self) -> &SandboxId {
        &self.sandbox
    }

    /// Returns the fence of this claim.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Returns who holds it.
    #[must_use]
    pub fn claimant(&self) -> &Claimant {
        &self.claimant
    }

    /// Returns for how long each renewal holds.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// Returns the tags as they were when it was claimed, the claim's own included.
    #[must_use]
    pub fn tags(&self) -> &Tags {
        &self.tags
    }

    /// Starts the lease anew at `now`, and returns the tags as they are now. One that ran out meanwhile is mended unless somebody else
    /// took the sandbox.
    ///
    /// # Errors
    /// [`ErrorKind::ClaimLost`] once it is somebody else's or was released; [`ErrorKind::SandboxLost`]; what kept the tags from being
    /// read or written, after which it can be tried again.
    pub async fn renew(&self, backend: &dyn Attachable, now: SystemTime) -> Result<Tags> {
        let sandbox = self.sandbox.clone().unfenced();
        let Change::Write(tags, ()) = update::<Infallible, ()>(backend, &sandbox, RENEW, |tags| {
            if !self.stands_in(tags) {
                return Err(lost(backend.name(), RENEW, &sandbox));
            }
            let mut tags = tags.clone();
            tags.insert(LEASE_UNTIL.to_owned(), time_text(rules::after(now, self.lease)));
            Ok(Change::Write(tags, ()))
        })
        .await?;
        Ok(tags)
    }

    /// Gives the sandbox back: removes holder and lease if they are still this claim's, and keeps all the rest, the count of claims
    /// included (AT-08). May be done again.
    ///
    /// # Errors
    /// [`ErrorKind::SandboxLost`]; what kept the tags from being read or written, after which it can be tried again.
    pub async fn release(&self, backend: &dyn Attachable) -> Result<Release> {
        let sandbox = self.sandbox.clone().unfenced();
        let change = update(backend, &sandbox, RELEASE, |tags| {
            if !self.stands_in(tags) {
                return Ok(Change::Leave(Release::AlreadyOver));
            }
            let mut tags = tags.clone();
            tags.remove(HOLDER);
            tags.remove(LEASE_UNTIL);
            Ok(Change::Write(tags, Release::Done))
        })
        .await?;
        let (Change::Leave(release) | Change::Write(_, release)) = change;
        Ok(release)
    }

    fn stands_in(&self, tags: &Tags) -> bool {
        fence_of(tags) == Some(self.fence)
            && tags.get(HOLDER).is_some_and(|holder| *holder == self.claimant.holder)
    }
}

/// Lets an operation through unless its id carries the fence of a claim that is over, taken over or released. For backends: to be called
/// with the tags as they stand, before the operation has any effect.
///
/// # Errors
/// [`ErrorKind::ClaimLost`].
pub fn enforce_fence(
    backend_name: &str,
    operation: &'static str,
    sandbox: &SandboxId,
    tags: &Tags,
) -> Result<()> {
    match sandbox.fence() {
        Some(fence) if fence_in_force(tags) != Some(fence) => Err(lost(backend_name, operation, sandbox)),
        Some(_) | None => Ok(()),
    }
}

/// Returns the error of an operation under a claim that is over. For backends that learn it from elsewhere than the tags.
#[must_use]
pub fn lost(backend_name: &str, operation: &'static str, sandbox: &SandboxId) -> Error {
    Error::new(
        ErrorKind::ClaimLost,
        backend_name,
        operation,
        "the claim on the sandbox is over, and somebody else may hold it by now",
    )
    .context("sandbox", sandbox.as_str())
    .hint("claim it again")
}

/// What is to become of tags that were read.
enum Change<L, W> {
    /// They stay as they are.
    Leave(L),
    /// They become these.
    Write(Tags, W),
}

/// Reads the tags, lets `change` judge them, and writes what it says; again from the start when somebody else was faster. Returns
/// what it said last.
async fn update<L, W>(
    backend: &dyn Attachable,
    sandbox: &SandboxId,
    operation: &'static str,
    mut change: impl FnMut(&Tags) -> Result<Change<L, W>>,
) -> Result<Change<L, W>> {
    for _ in 0..MAX_ROUNDS {
        let found = backend.tags(sandbox).await?;
        let change = change(&found.tags)?;
        let Change::Write(tags, _) = &change else { return Ok(change) };
        match backend.set_tags(sandbox, found.version, tags).await {
            Ok(_) => return Ok(change),
            Err(error) if *error.kind() == ErrorKind::Conflict => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(
        ErrorKind::Conflict,
        backend.name(),
        operation,
        format!("others were faster with writing its tags {MAX_ROUNDS} times in a row"),
    )
    .context("sandbox", sandbox.as_str())
    .retry(Retry::Safe))
}

/// Nothing can be done with a sandbox that could not be claimed, so whatever kept it from that ends the run (AT-12).
fn terminal(backend_name: &str, sandbox: &SandboxId, error: Error) -> Error {
    if error.is_terminal() {
        return error;
    }
    let wrapped = Error::new(error.kind().clone(), backend_name, CLAIM, "the sandbox could not be claimed");
    wrapped.context("sandbox", sandbox.as_str()).retry(error.retry_policy()).source(error).terminal()
}
