//! The network a sandbox may reach, with the one validator for host names and the one for address ranges.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The longest DNS name, in bytes of its text form.
const MAX_NAME_BYTES: usize = 253;

/// What egress a sandbox has. Contradictions cannot be written down.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkPolicy {
    /// Nothing, DNS included. The default (SP-01).
    #[default]
    Blocked,
    /// Only what the list names. An empty list is [`Self::Blocked`] (SP-07): build it with [`Self::allow`].
    Allow(Allowlist),
    /// Everything.
    Open,
}

impl NetworkPolicy {
    /// Returns the policy for a list; an empty one blocks everything (SP-07, S24).
    #[must_use]
    pub fn allow(list: Allowlist) -> Self {
        if list.hosts.is_empty() && list.cidrs.is_empty() { Self::Blocked } else { Self::Allow(list) }
    }

    /// Encodes the policy for a tag that travels with a sandbox: compact JSON, keys sorted, lists always present
    /// (SP-09). Two equal policies have equal tags. `least_network_strength` is written only where it is not the default.
    #[must_use]
    pub fn to_tag(&self) -> String {
        let no_list = Allowlist::default();
        let list = match self {
            Self::Allow(list) => list,
            Self::Blocked | Self::Open => &no_list,
        };
        let strength = list.least_strength;
        let tag = PolicyTag {
            allow_egress_to: list.hosts.iter().map(ToString::to_string).collect(),
            allow_egress_to_cidrs: list.cidrs.iter().map(ToString::to_string).collect(),
            block_network: *self != Self::Open,
            least_network_strength: (strength != NetworkStrength::default()).then_some(strength),
        };
        #[expect(
            clippy::expect_used,
            reason = "lists of texts, a boolean and an enum always have a JSON form"
        )]
        serde_json::to_string(&tag).expect("a JSON form")
    }

    /// Decodes what [`Self::to_tag`] wrote (SP-10). Types are strict (SP-12): a text is not a list and a number is not a flag.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) that shows the beginning of the value, for
    /// everything else (SP-11), and for a policy that [`Allowlist::parse`] would not take.
    pub fn from_tag(tag: &str) -> Result<Self> {
        const SHOWN: usize = 200;
        let refuse = |why: String| {
            let shown: String = tag.chars().take(SHOWN).collect();
            Error::invalid("decode the network policy", format!("{shown:?} is not one: {why}"))
        };
        // A derived reader would also take the fields from a bare JSON list, by position.
        if !tag.trim_start().starts_with('{') {
            return Err(refuse("it is not a JSON object".to_owned()));
        }
        let tag: PolicyTag = serde_json::from_str(tag).map_err(|error| refuse(error.to_string()))?;
        crate::spec::network_of(
            tag.block_network,
            &tag.allow_egress_to,
            &tag.allow_egress_to_cidrs,
            tag.least_network_strength.unwrap_or_default(),
        )
        .map_err(|error| refuse(error.message().to_owned()))
    }
}

/// The fields of a tag, in the order in which they are written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyTag {
    allow_egress_to: Vec<String>,
    allow_egress_to_cidrs: Vec<String>,
    block_network: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    least_network_strength: Option<NetworkStrength>,
}

/// Host names and address ranges that may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allowlist {
    hosts: Vec<HostPattern>,
    cidrs: Vec<CidrRange>,
    least_strength: NetworkStrength,
}

impl Allowlist {
    /// Builds a list from texts, in the order given. `least_strength` is the weakest way of telling names apart that
    /// the caller accepts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) that lists every bad entry and what it
    /// should become (MO-06, MO-07), or says that the ranges together cover every address and so restrict nothing.
    pub fn parse<H: AsRef<str>, C: AsRef<str>>(
        hosts: impl IntoIterator<Item = H>,
        cidrs: impl IntoIterator<Item = C>,
        least_strength: NetworkStrength,
    ) -> Result<Self> {
        let mut bad = Vec::new();
        let mut list = Self { least_strength, ..Self::default() };
        for host in hosts {
            match host.as_ref().parse() {
                Ok(host) => list.hosts.push(host),
                Err(why) => bad.push(why),
            }
        }
        for cidr in cidrs {
            match cidr.as_ref().parse() {
                Ok(cidr) => list.cidrs.push(cidr),
                Err(why) => bad.push(why),
            }
        }
        let operation = "accept the network allowlist";
        if !bad.is_empty() {
            return Err(Error::invalid(operation, bad.join("; ")));
        }
        if covers_everything(&list.cidrs) {
            return Err(Error::invalid(
                operation,
                "the ranges in allow_egress_to_cidrs cover every IPv4 address and so restrict nothing",
            )
            .hint("ask for an open network instead"));
        }
        Ok(list)
    }

    /// Returns the host names, in the order given.
    #[must_use]
    pub fn hosts(&self) -> &[HostPattern] {
        &self.hosts
    }

    /// Returns the address ranges, in the order given.
    #[must_use]
    pub fn cidrs(&self) -> &[CidrRange] {
        &self.cidrs
    }

    /// Returns the weakest strength that the caller accepts for the host names.
    #[must_use]
    pub fn least_strength(&self) -> NetworkStrength {
        self.least_strength
    }
}

/// How names are told apart, weakest first. A backend whose list is weaker than demanded refuses.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum NetworkStrength {
    /// Names are filtered when resolved; addresses stay reachable.
    Dns,
    /// Flows are routed by the TLS server name; resolution stays open.
    Sni,
    /// A connection reaches only addresses that an allowed name resolved to; nothing else resolves.
    #[default]
    Address,
    /// As `address`, and the TLS name or plain `Host` at the start of the flow is checked.
    Name,
    /// Every request inside TLS is checked, by interception.
    Request,
}

impl NetworkStrength {
    /// Returns what a sandbox can still reach under an allowlist of this strength although it is not listed.
    #[must_use]
    pub fn remaining_hole(self) -> &'static str {
        match self {
            Self::Dns => "names are filtered when they are resolved; every address stays reachable",
            Self::Sni => {
                "only the TLS name is matched; resolution stays open, and so does what shares an endpoint with a \
                 listed name"
            }
            Self::Address => "whatever else is served at the addresses of a listed name stays reachable",
            Self::Name => "requests inside TLS are not seen; a fronting server may pass them on",
            Self::Request => "nothing that is not listed is reachable by name",
        }
    }
}

impl fmt::Display for NetworkStrength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dns => "dns",
            Self::Sni => "sni",
            Self::Address => "address",
            Self::Name => "name",
            Self::Request => "request",
        })
    }
}

/// A DNS name of at least two labels, optionally with a leading `*.` wildcard over at least two more (MO-06).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPattern(String);

impl HostPattern {
    /// Returns the name as given, upper case kept.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostPattern {
    /// Why the entry is not accepted and what it should become.
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let refuse = |why: &str| Err(format!("host {text:?} {why}"));
        if text.is_empty() {
            return refuse("is empty");
        }
        if text.contains("://") || text.contains('/') {
            return refuse("is a URL or has a path; give the bare name, such as api.example.org");
        }
        if text.parse::<std::net::IpAddr>().is_ok() {
            return refuse("is an address; put it in allow_egress_to_cidrs");
        }
        if text.contains(':') {
            return refuse("has a port; give the bare name");
        }
        let name = text.strip_prefix("*.").unwrap_or(text);
        if name.contains('*') {
            return refuse("has a wildcard that is not one leading `*.`");
        }
        // Counted with the wildcard: what it stands for is at least as long, so a longer pattern could match no name.
        if text.len() > MAX_NAME_BYTES {
            return refuse("is longer than the 253 characters of a DNS name");
        }
        let labels: Vec<&str> = name.split('.').collect();
        for label in &labels {
            let well_formed = !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            if !well_formed {
                return refuse(
                    "is not a DNS name: labels of 1 to 63 letters, digits and inner hyphens, joined by single dots",
                );
            }
        }
        if labels.len() < 2 {
            return refuse("has a single label; give a full name, such as api.example.org");
        }
        if labels.last().is_some_and(|label| is_number(label)) {
            return refuse(
                "ends in a number, which no DNS name does; put an address in allow_egress_to_cidrs",
            );
        }
        if text.len() > name.len() && is_registry(&labels) {
            return refuse(
                "covers every name that is sold under a registry; name the domain, such as *.example.org",
            );
        }
        Ok(Self(text.to_owned()))
    }
}

/// Whether resolvers take a name with this last label for an IPv4 address: decimal digits, or hexadecimal ones after
/// `0x`, as in `127.0.0.0x1`.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Whether the two labels are a place where anyone can register, such as `co.uk`: a wildcard over it allows whatever an
/// attacker registers (P98). Covers the second-level names that country registries have in common, not the whole public
/// suffix list, which changes weekly.
fn is_registry(labels: &[&str]) -> bool {
    const OPEN: [&str; 11] = ["co", "com", "net", "org", "or", "ne", "biz", "info", "ltd", "plc", "nom"];
    match labels {
        [second, country] => country.len() == 2 && OPEN.iter().any(|open| open.eq_ignore_ascii_case(second)),
        _ => false,
    }
}

/// An IPv4 range in canonical CIDR form; a bare address is a `/32` (MO-07).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CidrRange {
    base: Ipv4Addr,
    prefix: u8,
}

impl CidrRange {
    /// Returns the first address.
    #[must_use]
    pub fn base(self) -> Ipv4Addr {
        self.base
    }

    /// Returns the prefix length, 1 to 32.
    #[must_use]
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    fn first_and_last(self) -> (u32, u32) {
        let first = u32::from(self.base);
        (first, first | u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0))
    }
}

impl fmt::Display for CidrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl FromStr for CidrRange {
    /// Why the entry is not accepted and what it should become.
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let refuse = |why: &str| Err(format!("range {text:?} {why}"));
        // Blanks are trimmed, line breaks are not: a newline has no business in an address (section 21, item 4).
        let trimmed = text.trim_matches(' ');
        let (address, prefix) = match trimmed.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (trimmed, None),
        };
        if address.parse::<std::net::Ipv6Addr>().is_ok() {
            return refuse("is IPv6; only IPv4 ranges are supported");
        }
        let Ok(base) = address.parse::<Ipv4Addr>() else {
            return refuse("is not an IPv4 range such as 10.20.0.0/16 or an address such as 203.0.113.7");
        };
        let prefix = match prefix {
            None => 32,
            Some(prefix) => {
                match prefix.parse::<u8>().ok().filter(|number| *number <= 32 && number.to_string() == prefix)
                {
                    Some(number) => number,
                    None => return refuse("has no prefix length between 1 and 32"),
                }
            }
        };
        if prefix == 0 {
            return refuse("covers every address and so restricts nothing; ask for an open network instead");
        }
        let range = Self { base, prefix };
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        let network = u32::from(base) & mask;
        if network != u32::from(base) {
            let canonical = Self { base: Ipv4Addr::from(network), prefix };
            return refuse(&format!("has host bits set; write {canonical}"));
        }
        Ok(range)
    }
}

/// Whether the ranges together cover the whole address space, in however many parts (section 21, item 5).
fn covers_everything(ranges: &[CidrRange]) -> bool {
    let mut spans: Vec<(u32, u32)> = ranges.iter().map(|range| range.first_and_last()).collect();
    spans.sort_unstable();
    let mut next = 0u32;
    for (first, last) in spans {
        if first > next {
            return false;
        }
        if last == u32::MAX {
            return true;
        }
        next = next.max(last + 1);
    }
    false
}
