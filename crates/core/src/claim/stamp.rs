//! What is written on a sandbox when it is created, and how that is read back.

use std::time::{Duration, SystemTime};

use super::{EXPIRES_AT, FENCE, HOLDER, MAX_NAME_BYTES, NETWORK, OWNER, WORKDIR};
use crate::attach::{MAX_TAG_BYTES, Tags, tag_bytes};
use crate::backend::Fence;
use crate::error::Result;
use crate::network::NetworkPolicy;
use crate::spec::SandboxSpec;

/// What the tags of a claim take at most: a holder, a time, a count and their names.
const CLAIM_BYTES: usize = MAX_NAME_BYTES + 256;

/// Returns the tags a sandbox is created with: its labels, its owner, its network policy (SP-09), where relative paths start, and when it
/// ends, as far as that is known. With those of a claim they stay below [`MAX_TAG_BYTES`]: a network policy too long for that is left
/// out, and whoever attaches is told that it is not known (AT-17).
#[must_use]
pub fn stamp(spec: &SandboxSpec, workdir: Option<&str>, expires_at: Option<SystemTime>) -> Tags {
    let mut tags = spec.labels().clone();
    let facts = [
        (OWNER, spec.owner().map(str::to_owned)),
        (WORKDIR, workdir.map(str::to_owned)),
        (EXPIRES_AT, expires_at.map(time_text)),
    ];
    tags.extend(facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    let network = spec.network().to_tag();
    if tag_bytes(&tags) + NETWORK.len() + network.len() + CLAIM_BYTES <= MAX_TAG_BYTES {
        tags.insert(NETWORK.to_owned(), network);
    }
    tags
}

/// Returns the fence of the claim that stands, with which alone fenced operations are admitted; `None` while nobody holds the sandbox.
#[must_use]
pub fn fence_in_force(tags: &Tags) -> Option<Fence> {
    fence_of(tags).filter(|_| tags.contains_key(HOLDER))
}

/// Returns the fence of the last claim, also of one that was released; `None` before the first.
#[must_use]
pub fn fence_of(tags: &Tags) -> Option<Fence> {
    tags.get(FENCE)?.parse().ok().and_then(Fence::new)
}

/// Returns when the sandbox ends; `None` where that is not said, or not readable (AT-09).
#[must_use]
pub fn expires_at(tags: &Tags) -> Option<SystemTime> {
    read_time(tags.get(EXPIRES_AT)?)
}

/// Returns what is left of the sandbox's life, zero when it should be over; `None` where that is not said, or not readable (AT-09).
#[must_use]
pub fn remaining(tags: &Tags, now: SystemTime) -> Option<Duration> {
    Some(expires_at(tags)?.duration_since(now).unwrap_or_default())
}

/// Returns the network policy that the sandbox was created with; `None` where that is not said (AT-10).
///
/// # Errors
/// As [`NetworkPolicy::from_tag`]: what is said is not a policy.
pub fn network(tags: &Tags) -> Option<Result<NetworkPolicy>> {
    tags.get(NETWORK).map(|tag| NetworkPolicy::from_tag(tag))
}

/// Writes a time as the tags have it: seconds since 1970, with up to three decimals. What is finer is dropped, so that nothing is said to
/// last longer than it does; an earlier time is 0.
#[must_use]
pub fn time_text(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    match since.subsec_millis() {
        0 => since.as_secs().to_string(),
        millis => format!("{}.{millis:03}", since.as_secs()).trim_end_matches('0').to_owned(),
    }
}

/// Reads a time as the tags have it: a decimal number of seconds since 1970, with or without a fraction; `None` for anything else.
#[must_use]
pub fn read_time(text: &str) -> Option<SystemTime> {
    const NANO_DIGITS: usize = 9;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(fraction) {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(NANO_DIGITS)];
    let nanos: u32 = format!("{fraction:0<NANO_DIGITS$}").parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds.parse().ok()?, nanos))
}
