//! Network policies as tags, host names and address ranges.

use std::net::{IpAddr, Ipv4Addr};

use ringfence_core::{Allowlist, CidrRange, HostPattern, NetworkPolicy};

/// The text as a tag, and each of its lines as an entry of a list.
pub(super) fn target(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(policy) = NetworkPolicy::from_tag(text) {
        let tag = policy.to_tag();
        assert_eq!(NetworkPolicy::from_tag(&tag).expect("what was written is read"), policy);
        if let NetworkPolicy::Allow(list) = &policy {
            check_list(list);
        }
    }
    for line in text.split('\n') {
        if let Ok(host) = line.parse::<HostPattern>() {
            assert_eq!(host.as_str(), line);
            check_host(line);
        }
        if let Ok(range) = line.parse::<CidrRange>() {
            assert_eq!(range.to_string().parse(), Ok(range));
            // A bare address means itself alone, and blanks around are nothing (MO-07).
            let written = line.trim_matches(' ');
            assert!(range.to_string() == written || range.to_string() == format!("{written}/32"), "{line:?}");
            check_range(range);
        }
    }
}

fn check_list(list: &Allowlist) {
    assert!(!list.hosts().is_empty() || !list.cidrs().is_empty());
    list.hosts().iter().for_each(|host| check_host(host.as_str()));
    list.cidrs().iter().copied().for_each(check_range);
    assert!(
        list.cidrs().iter().map(|range| 1u64 << (32 - range.prefix())).sum::<u64>() < 1 << 32 || holes(list)
    );
}

/// Whether some address is in no range (section 21, item 5). Looked for only where the ranges overlap so much that they could be all.
fn holes(list: &Allowlist) -> bool {
    let outside = |address: u32| {
        let covers = |range: &CidrRange| {
            let mask = u32::MAX << (32 - u32::from(range.prefix()));
            address & mask == u32::from(range.base())
        };
        !list.cidrs().iter().any(covers)
    };
    // If there is a hole, one begins at 0 or behind a range.
    let behind = |range: &CidrRange| {
        let last = u32::from(range.base()) | (u32::MAX.checked_shr(u32::from(range.prefix())).unwrap_or(0));
        last.checked_add(1)
    };
    outside(0) || list.cidrs().iter().filter_map(behind).any(outside)
}

fn check_host(text: &str) {
    let name = text.strip_prefix("*.").unwrap_or(text);
    assert!(text.len() <= 253 && text.parse::<IpAddr>().is_err(), "{text:?}");
    let labels: Vec<&str> = name.split('.').collect();
    assert!(labels.len() >= 2, "{text:?}");
    for label in &labels {
        assert!((1..=63).contains(&label.len()), "{text:?}");
        assert!(label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{text:?}");
    }
    // What a resolver would take for an address is no name.
    let last = labels.last().expect("at least two").to_ascii_lowercase();
    let digits = last.strip_prefix("0x").unwrap_or(&last);
    let radix = if last.starts_with("0x") { 16 } else { 10 };
    assert!(!digits.chars().all(|digit| digit.is_digit(radix)), "{text:?}");
}

fn check_range(range: CidrRange) {
    assert!((1..=32).contains(&range.prefix()));
    let mask = u32::MAX << (32 - u32::from(range.prefix()));
    assert_eq!(range.base(), Ipv4Addr::from(u32::from(range.base()) & mask));
}
