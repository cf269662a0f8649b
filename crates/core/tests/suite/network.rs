use std::net::Ipv4Addr;

use proptest::prelude::*;
use ringfence_core::{Allowlist, CidrRange, ErrorKind, HostPattern, NetworkPolicy, NetworkStrength};

use super::support::shown;

const NONE: [&str; 0] = [];

fn hosts(hosts: &[&str]) -> Result<Allowlist, ringfence_core::Error> {
    Allowlist::parse(hosts, NONE, NetworkStrength::default())
}

fn cidrs(cidrs: &[&str]) -> Result<Allowlist, ringfence_core::Error> {
    Allowlist::parse(NONE, cidrs, NetworkStrength::default())
}

#[test]
fn mo_06_hosts_accepted() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "b".repeat(61));
    assert_eq!(longest.len(), 253);
    let wildcard = format!("*.{}", &longest[2..]);
    for host in [
        "repo.example.org",
        "*.cdn.example.org",
        "a-b.example.co.uk",
        "Repo.Example.ORG",
        "xn--bcher-kva.example",
        "1.example",
        "3com.example",
        "0x1.example",
        "a.b",
        "*.example.com",
        "*.bbc.co.uk",
        "co.uk",
        &longest,
        &wildcard,
    ] {
        assert_eq!(host.parse::<HostPattern>().as_ref().map(HostPattern::as_str), Ok(host));
    }
}

#[test]
fn mo_06_hosts_refused() {
    let label = "a".repeat(63);
    let too_long = format!("{label}.{label}.{label}.{}", "b".repeat(62));
    let wildcard_too_long = format!("*.{}", "a.".repeat(125) + "bb");
    let long_label = format!("{}.example.org", "a".repeat(64));
    for host in [
        "*",
        "*.",
        "*.*",
        "https://h.example",
        "h.example:443",
        "h.example/x",
        "h .example",
        " h.example",
        "h.example ",
        "",
        "*.*.h.example",
        "a.*.example",
        "a*.example.org",
        "**.example.org",
        "api.*",
        "10.0.0.5",
        "169.254.169.254",
        "443",
        "::1",
        "[::1]",
        "localhost",
        "internal",
        "*.com",
        "*.co.uk",
        "*.COM.au",
        "h.example.",
        ".h.example",
        "h..example",
        "under_score.example.org",
        "-a.example.org",
        "a-.example.org",
        "bücher.example",
        "h.example\u{3002}org",
        "a.example.1",
        "127.1",
        "127.0.0.0x1",
        "0x7f.0X1",
        "h.0x",
        "h.example\n",
        "h.example\r\n",
        "\nh.example",
        "h.exa\nmple",
        "h.example\0",
        "user@h.example",
        "h.example%00",
        "h.example?x",
        "h.example#x",
        "h.example\\x",
        &too_long,
        &wildcard_too_long,
        &long_label,
    ] {
        let why = host.parse::<HostPattern>().expect_err(host);
        assert!(why.starts_with(&format!("host {host:?} ")), "{why}");
    }
}

#[test]
fn mo_06_every_bad_entry_is_listed_with_its_remedy() {
    insta::assert_snapshot!(
        shown(hosts(&["https://h.example/x", "ok.example.org", "h.example:443", "10.0.0.5", "localhost", "*.co.uk"])),
        @r#"accept the network allowlist: host "https://h.example/x" is a URL or has a path; give the bare name, such as api.example.org; host "h.example:443" has a port; give the bare name; host "10.0.0.5" is an address; put it in allow_egress_to_cidrs; host "localhost" has a single label; give a full name, such as api.example.org; host "*.co.uk" covers every name that is sold under a registry; name the domain, such as *.example.org"#
    );
}

#[test]
fn mo_07_ranges_accepted() {
    let parse = |text: &str| text.parse::<CidrRange>().map(|range| (range.base(), range.prefix()));
    assert_eq!(parse("10.20.0.0/16"), Ok((Ipv4Addr::new(10, 20, 0, 0), 16)));
    assert_eq!(parse("203.0.113.7"), Ok((Ipv4Addr::new(203, 0, 113, 7), 32)));
    assert_eq!(parse("203.0.113.7/32"), Ok((Ipv4Addr::new(203, 0, 113, 7), 32)));
    assert_eq!(parse("  10.0.0.0/8 "), Ok((Ipv4Addr::new(10, 0, 0, 0), 8)));
    assert_eq!(parse("0.0.0.0/1"), Ok((Ipv4Addr::new(0, 0, 0, 0), 1)));
    assert_eq!(parse("255.255.255.255"), Ok((Ipv4Addr::new(255, 255, 255, 255), 32)));
}

#[test]
fn mo_07_ranges_refused() {
    for (cidr, why) in [
        ("", "is not an IPv4 range"),
        ("repo.example.org", "is not an IPv4 range"),
        ("https://10.0.0.0/8", "is not an IPv4 range"),
        ("10.0.0.5:443", "is not an IPv4 range"),
        ("010.0.0.1", "is not an IPv4 range"),
        ("10.0.0", "is not an IPv4 range"),
        ("10.0.0.0 /8", "is not an IPv4 range"),
        ("256.0.0.1", "is not an IPv4 range"),
        ("10.0.0.0/8\n", "has no prefix length"),
        ("10.0.0.5\n", "is not an IPv4 range"),
        ("\t10.0.0.5", "is not an IPv4 range"),
        ("10.0.0.0/33", "has no prefix length"),
        ("10.0.0.0/08", "has no prefix length"),
        ("10.0.0.0/+8", "has no prefix length"),
        ("10.0.0.0/-1", "has no prefix length"),
        ("10.0.0.0/", "has no prefix length"),
        ("10.0.0.0/255.0.0.0", "has no prefix length"),
        ("10.0.0.1/8", "has host bits set; write 10.0.0.0/8"),
        ("::1", "is IPv6"),
        ("2001:db8::/64", "is IPv6"),
        ("::ffff:10.0.0.1", "is IPv6"),
        ("::/0", "is IPv6"),
        ("0.0.0.0/0", "covers every address and so restricts nothing"),
        ("1.2.3.4/0", "covers every address and so restricts nothing"),
    ] {
        let refusal = cidr.parse::<CidrRange>().expect_err(cidr);
        assert!(refusal.starts_with(&format!("range {cidr:?} {why}")), "{refusal}");
    }
}

#[test]
fn mo_07_ranges_that_together_cover_everything_restrict_nothing() {
    for ranges in [
        &["0.0.0.0/1", "128.0.0.0/1"][..],
        &["128.0.0.0/1", "10.0.0.0/8", "0.0.0.0/1"],
        &["0.0.0.0/2", "64.0.0.0/2", "128.0.0.0/2", "192.0.0.0/2"],
    ] {
        let error = cidrs(ranges).expect_err("refused");
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
        assert!(error.message().contains("restrict nothing"), "{error}");
    }
    for ranges in
        [&["0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3"][..], &["128.0.0.0/1"], &["0.0.0.1", "128.0.0.0/1"]]
    {
        assert!(cidrs(ranges).is_ok(), "{ranges:?}");
    }
}

#[test]
fn mo_07_names_and_ranges_are_judged_together() {
    let text = shown(Allowlist::parse(["bad"], ["10.0.0.1/8"], NetworkStrength::default()));
    assert!(text.contains("host \"bad\"") && text.contains("range \"10.0.0.1/8\""), "{text}");
}

#[test]
fn sp_07_an_empty_allowlist_blocks() {
    assert_eq!(NetworkPolicy::allow(Allowlist::default()), NetworkPolicy::Blocked);
    assert_eq!(NetworkPolicy::allow(hosts(&[]).expect("empty")), NetworkPolicy::Blocked);
}

fn policy(hosts: &[&str], cidrs: &[&str], strength: NetworkStrength) -> NetworkPolicy {
    NetworkPolicy::allow(Allowlist::parse(hosts, cidrs, strength).expect("accepted"))
}

#[test]
fn sp_09_the_tag_is_canonical() {
    assert_eq!(
        NetworkPolicy::Blocked.to_tag(),
        r#"{"allow_egress_to":[],"allow_egress_to_cidrs":[],"block_network":true}"#
    );
    assert_eq!(
        NetworkPolicy::Open.to_tag(),
        r#"{"allow_egress_to":[],"allow_egress_to_cidrs":[],"block_network":false}"#
    );
    assert_eq!(
        policy(&["b.example.org", "a.example.org"], &["203.0.113.7"], NetworkStrength::Address).to_tag(),
        r#"{"allow_egress_to":["b.example.org","a.example.org"],"allow_egress_to_cidrs":["203.0.113.7/32"],"block_network":true}"#
    );
    assert_eq!(
        policy(&["a.example.org"], &[], NetworkStrength::Sni).to_tag(),
        r#"{"allow_egress_to":["a.example.org"],"allow_egress_to_cidrs":[],"block_network":true,"least_network_strength":"sni"}"#
    );
}

#[test]
fn sp_10_the_tag_round_trips_in_order() {
    for policy in [
        NetworkPolicy::Blocked,
        NetworkPolicy::Open,
        policy(&["b.example.org", "*.a.example.org"], &["10.0.0.0/8", "1.2.3.4"], NetworkStrength::Address),
        policy(&["b.example.org"], &[], NetworkStrength::Request),
        policy(&[], &["10.0.0.0/8"], NetworkStrength::Dns),
    ] {
        assert_eq!(NetworkPolicy::from_tag(&policy.to_tag()).expect("decoded"), policy);
    }
}

#[test]
fn sp_11_anything_else_is_no_tag() {
    for tag in [
        "",
        "not json",
        r#"{"block_network": true}"#,
        "[1, 2]",
        "null",
        "true",
        r#"[[],[],true]"#,
        r#"{"allow_egress_to":[],"allow_egress_to_cidrs":[]}"#,
        r#"{"allow_egress_to":[],"allow_egress_to_cidrs":[],"block_network":true,"env":{}}"#,
        r#"{"allow_egress_to":[],"allow_egress_to_cidrs":[],"block_network":true} x"#,
        r#"{"allow_egress_to":[],"allow_egress_to":[],"allow_egress_to_cidrs":[],"block_network":true}"#,
        r#"{"allow_egress_to":["a.example.org"],"allow_egress_to_cidrs":[],"block_network":false}"#,
        r#"{"allow_egress_to":["localhost"],"allow_egress_to_cidrs":[],"block_network":true}"#,
        r#"{"allow_egress_to":[],"allow_egress_to_cidrs":["0.0.0.0/0"],"block_network":true}"#,
        r#"{"allow_egress_to":[],"allow_egress_to_cidrs":[],"block_network":true,"least_network_strength":"none"}"#,
    ] {
        let error = NetworkPolicy::from_tag(tag).expect_err(tag);
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
        assert!(error.message().starts_with(&format!("{tag:?} is not one: ")), "{error}");
    }
    let huge = NetworkPolicy::from_tag(&"x".repeat(1 << 20)).expect_err("refused");
    assert!(huge.message().len() < 300, "shown in part only");
}

/// Upstream took `0` for a flag and a text for a list of its characters.
#[test]
fn sp_12_types_are_strict() {
    for tag in [
        r#"{"block_network":0,"allow_egress_to":"abc","allow_egress_to_cidrs":[]}"#,
        r#"{"block_network":0,"allow_egress_to":[],"allow_egress_to_cidrs":[]}"#,
        r#"{"block_network":"true","allow_egress_to":[],"allow_egress_to_cidrs":[]}"#,
        r#"{"block_network":true,"allow_egress_to":"a.example.org","allow_egress_to_cidrs":[]}"#,
        r#"{"block_network":true,"allow_egress_to":[1],"allow_egress_to_cidrs":[]}"#,
        r#"{"block_network":true,"allow_egress_to":null,"allow_egress_to_cidrs":[]}"#,
        r#"{"block_network":true,"allow_egress_to":{},"allow_egress_to_cidrs":[]}"#,
    ] {
        assert!(NetworkPolicy::from_tag(tag).is_err(), "{tag}");
    }
}

#[test]
fn strengths_are_ordered_weakest_first() {
    use NetworkStrength::{Address, Dns, Name, Request, Sni};
    let order = [Dns, Sni, Address, Name, Request];
    assert!(order.is_sorted());
    assert_eq!(order.map(|strength| strength.to_string()), ["dns", "sni", "address", "name", "request"]);
    assert_eq!(NetworkStrength::default(), Address);
}

proptest! {
    #[test]
    fn mo_06_an_accepted_host_is_a_plain_name(host in "(\\*\\.)?[a-zA-Z0-9.*: /\\\\_\n\r\t\u{0}é-]{0,40}") {
        if let Ok(pattern) = host.parse::<HostPattern>() {
            prop_assert_eq!(pattern.as_str(), &host);
            let name = host.strip_prefix("*.").unwrap_or(&host);
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte)));
            prop_assert!(name.split('.').count() >= 2 && host.len() <= 253);
            prop_assert!(name.split('.').all(|label| (1..=63).contains(&label.len())));
            prop_assert!(name.parse::<std::net::IpAddr>().is_err());
        }
    }

    #[test]
    fn mo_06_no_control_character_is_ever_accepted(
        host in "[a-z]{1,5}\\.[a-z]{2,5}", at in 0usize..12, character in "[\\x00-\\x20\\x7f\u{85}\u{2028}]"
    ) {
        let at = at.min(host.len());
        let host = format!("{}{character}{}", &host[..at], &host[at..]);
        prop_assert!(host.parse::<HostPattern>().is_err());
    }

    #[test]
    fn mo_07_an_accepted_range_is_canonical(address in any::<u32>(), prefix in 0u8..=40) {
        let text = format!("{}/{prefix}", Ipv4Addr::from(address));
        let accepted = text.parse::<CidrRange>();
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
        prop_assert_eq!(accepted.is_ok(), (1..=32).contains(&prefix) && address & !mask == 0);
        if let Ok(range) = accepted {
            prop_assert_eq!(range.to_string(), text);
        }
    }

    #[test]
    fn mo_07_covering_everything_is_found_in_any_order(
        splits in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        omitted in any::<prop::sample::Index>(), order in any::<prop::sample::Index>()
    ) {
        // Splits the whole space at random, so the parts cover everything, and one fewer does not.
        let mut parts = vec![(0u32, 1u8), (1 << 31, 1)];
        for split in splits {
            let (base, prefix) = parts.swap_remove(split.index(parts.len()));
            parts.push((base, prefix + 1));
            parts.push((base | 1 << (31 - prefix), prefix + 1));
        }
        let by = order.index(parts.len());
        parts.rotate_left(by);
        let text = |parts: &[(u32, u8)]| -> Vec<String> {
            parts.iter().map(|(base, prefix)| format!("{}/{prefix}", Ipv4Addr::from(*base))).collect()
        };
        prop_assert!(Allowlist::parse(NONE, text(&parts), NetworkStrength::default()).is_err());
        parts.remove(omitted.index(parts.len()));
        prop_assert!(Allowlist::parse(NONE, text(&parts), NetworkStrength::default()).is_ok());
    }

    #[test]
    fn sp_10_every_tag_round_trips(
        hosts in proptest::collection::vec("(\\*\\.)?[a-z][a-z0-9]{0,8}\\.[a-z]{3,6}", 0..5),
        cidrs in proptest::collection::vec(any::<u32>(), 0..5),
    ) {
        let cidrs: Vec<String> = cidrs.into_iter().map(|address| Ipv4Addr::from(address).to_string()).collect();
        let list = Allowlist::parse(&hosts, &cidrs, NetworkStrength::Name).expect("accepted");
        let policy = NetworkPolicy::allow(list);
        prop_assert_eq!(NetworkPolicy::from_tag(&policy.to_tag()).expect("decoded"), policy);
    }
}
