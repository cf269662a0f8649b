//! Whether a claim is admitted, as a function of what the tags say and of the time.

use std::time::SystemTime;

use super::{CLAIM, Claimant, FENCE, HOLDER, LEASE_UNTIL, Lease, OWNER, read_time, time_text};
use crate::attach::Tags;
use crate::backend::{Fence, SandboxId};
use crate::error::{Error, ErrorKind, Result};

/// Returns the fence of the new claim and the tags with it.
///
/// # Errors
/// As [`claim`](super::claim).
pub(super) fn admit(
    backend_name: &str,
    sandbox: &SandboxId,
    tags: &Tags,
    claimant: &Claimant,
    lease: Lease,
    now: SystemTime,
) -> Result<(Fence, Tags)> {
    let refuse = |kind, message: String| {
        Error::new(kind, backend_name, CLAIM, message).context("sandbox", sandbox.as_str()).terminal()
    };
    match tags.get(OWNER) {
        // The name of a sandbox is never enough: it is written in logs (AT-02).
        None => {
            let message = "the sandbox carries no owner, so nobody can attach to it".to_owned();
            return Err(
                refuse(ErrorKind::PermissionDenied, message).hint("create it with an owner in its spec")
            );
        }
        Some(owner) if owner != claimant.owner() => {
            let message = format!("the sandbox belongs to {owner:?}, not to {:?}", claimant.owner());
            return Err(refuse(ErrorKind::PermissionDenied, message));
        }
        Some(_) => {}
    }
    if let Some(holder) = tags.get(HOLDER).filter(|holder| *holder != claimant.holder())
        && let Some(left) = lease_left(tags, now)
    {
        return Err(refuse(ErrorKind::Conflict, format!("the sandbox is held by {holder:?}, {left}"))
            .hint("wait until that releases it"));
    }
    // Without the count no claim could be told from an earlier one. A missing one was never written.
    let count = match tags.get(FENCE) {
        None => Some(0),
        Some(count) => count.parse::<u64>().ok(),
    };
    let Some(fence) = count.and_then(|count| count.checked_add(1)).and_then(Fence::new) else {
        let count = tags.get(FENCE).map(String::as_str).unwrap_or_default();
        return Err(refuse(ErrorKind::Unexpected, format!("its count of claims is {count:?}")));
    };
    let mut tags = tags.clone();
    tags.insert(HOLDER.to_owned(), claimant.holder().to_owned());
    tags.insert(LEASE_UNTIL.to_owned(), time_text(after(now, lease)));
    tags.insert(FENCE.to_owned(), fence.get().to_string());
    Ok((fence, tags))
}

/// Says what is left of a running lease. One whose end is not readable runs: taking what somebody may hold is the worse mistake.
fn lease_left(tags: &Tags, now: SystemTime) -> Option<String> {
    match tags.get(LEASE_UNTIL).map(|until| read_time(until)) {
        None => Some("for an unknown time".to_owned()),
        Some(None) => Some("for a time that is not readable".to_owned()),
        Some(Some(until)) => {
            let left = until.duration_since(now).ok().filter(|left| !left.is_zero())?;
            let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
            Some(format!("whose lease runs for another {seconds} s"))
        }
    }
}

/// Returns the end of a lease that starts now.
pub(super) fn after(now: SystemTime, lease: Lease) -> SystemTime {
    // Only a clock at the end of time overflows; what it then protects is over soon as well.
    now.checked_add(lease.get()).unwrap_or(now)
}
