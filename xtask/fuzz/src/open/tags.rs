//! Tags of a sandbox, which others write as well: who may claim it, until when, with which network.

use std::time::{Duration, SystemTime};

use ringfence_core::claim::{self, HOLDER, LEASE_UNTIL, OWNER};
use ringfence_core::memory::RecordingBackend;
use ringfence_core::{Attachable, Backend, Claimant, Lease, SandboxSpec, Tags};

/// The bytes as tags, and as one time.
pub(super) fn target(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        check_time(text);
    }
    let Ok(tags) = serde_json::from_slice::<Tags>(bytes) else { return };
    tags.values().for_each(|text| check_time(text));
    if let Some(Ok(policy)) = claim::network(&tags) {
        let again = ringfence_core::NetworkPolicy::from_tag(&policy.to_tag());
        assert_eq!(again.expect("what was written is read"), policy);
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
    let ends = claim::expires_at(&tags);
    assert_eq!(claim::remaining(&tags, now).is_some(), ends.is_some());
    super::wait(check_claim(&tags, now));
}

/// A time is written as it is read, down to the millisecond, and never later.
fn check_time(text: &str) {
    let Some(time) = claim::read_time(text) else { return };
    let written = claim::time_text(time);
    let again = claim::read_time(&written).expect("what was written is read");
    assert!(again <= time && time.duration_since(again).expect("not later") < Duration::from_millis(1));
    assert_eq!(claim::time_text(again), written);
}

/// Whoever gets a claim was entitled to it, and nothing but the claim is changed.
async fn check_claim(tags: &Tags, now: SystemTime) {
    let backend = RecordingBackend::new().with_attach();
    let sandbox = backend.create(&SandboxSpec::new()).await.expect("a sandbox").id;
    let version = backend.tags(&sandbox).await.expect("tags").version;
    if backend.set_tags(&sandbox, version, tags).await.is_err() {
        return;
    }
    let claimant = Claimant::new("me").expect("a name");
    let lease = Lease::new(Lease::MIN).expect("a lease");
    let Ok(claim) = claim::claim(&backend, &sandbox, &claimant, lease, now).await else { return };
    assert_eq!(tags.get(OWNER).map(String::as_str), Some("me"));
    if tags.get(HOLDER).is_some_and(|holder| holder != "me") {
        let until = tags.get(LEASE_UNTIL).and_then(|until| claim::read_time(until));
        assert!(until.is_some_and(|until| until <= now), "{tags:?}");
    }
    assert_eq!(claim::fence_of(claim.tags()), Some(claim.fence()));
    let before = claim::fence_of(tags).map_or(0, ringfence_core::Fence::get);
    assert_eq!(claim.fence().get(), before + 1);
    // When it ends is said by the backend, each time anew.
    let ours = [HOLDER, LEASE_UNTIL, claim::FENCE, claim::EXPIRES_AT];
    let others = |tags: &Tags| -> Tags {
        tags.iter()
            .filter(|(name, _)| !ours.contains(&name.as_str()))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect()
    };
    assert_eq!(others(claim.tags()), others(tags));
}
