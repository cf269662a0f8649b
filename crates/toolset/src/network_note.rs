//! What the model is told about the network of its sandbox (TD-09 to TD-13).
//!
//! Derived from what the spec allows *and* from how the backend keeps it, so that no sentence is true of another backend
//! only (TD-14, TD-15 done right). A port is named only where the way of telling names apart implies one.

use ringfence_core::{Allowlist, Capabilities, NetworkPolicy, NetworkStrength};

/// Returns the note for `policy` as `capabilities` keep it: whole sentences, without a blank before or after.
pub(crate) fn network_note(policy: &NetworkPolicy, capabilities: &Capabilities) -> String {
    match policy {
        NetworkPolicy::Blocked if capabilities.block_network => {
            "There is NO network access, including DNS: nothing can be downloaded or installed from outside.".into()
        }
        NetworkPolicy::Blocked => "There is NO network access: nothing can be downloaded or installed from outside.".into(),
        NetworkPolicy::Open if capabilities.open_network => "The network is open: the sandbox has outbound access.".into(),
        NetworkPolicy::Open => {
            "Outbound network access was asked for, but may be restricted; test what you need before relying on it.".into()
        }
        NetworkPolicy::Allow(list) => allowlist_note(list, capabilities),
    }
}

fn allowlist_note(list: &Allowlist, capabilities: &Capabilities) -> String {
    let hosts = joined(list.hosts());
    let ranges = joined(list.cidrs());
    let strength = capabilities.host_allowlist;
    match (hosts.is_empty(), ranges.is_empty()) {
        (false, true) => format!(
            "The network is limited to {}: {hosts}. {}",
            hosts_clause(strength),
            consequence(strength, "any host", "them")
        ),
        (true, false) => {
            format!(
                "The network is limited to these address ranges, on any port: {ranges}. {}",
                resolution(strength)
            )
        }
        (false, false) => format!(
            "The network is limited to {}: {hosts}; and these address ranges, on any port: {ranges}. {}",
            hosts_clause(strength),
            consequence(strength, "these hosts", "these hosts")
        ),
        // An empty list is a blocked network and cannot get here (SP-07).
        (true, true) => "There is NO network access.".into(),
    }
}

fn hosts_clause(strength: Option<NetworkStrength>) -> &'static str {
    match strength {
        // Routing by the TLS name needs TLS, and the name is looked for on the port of HTTPS.
        Some(NetworkStrength::Sni) => "these hosts, by HTTPS on port 443 only",
        Some(NetworkStrength::Request) => "these hosts, by HTTP and HTTPS requests, each of which is checked",
        Some(NetworkStrength::Dns | NetworkStrength::Address | NetworkStrength::Name) | None => "these hosts",
    }
}

/// Says what will not work, so that the model does not spend its calls on finding out. Beside address ranges, which take
/// any port and no names, it must be clear that only the hosts are meant.
fn consequence(strength: Option<NetworkStrength>, plain_http_fails_to: &str, hosts: &str) -> String {
    const REST: &str = "Everything else is unreachable.";
    match strength {
        Some(NetworkStrength::Sni) => {
            format!("Use https:// URLs: plain HTTP to {plain_http_fails_to} fails. {REST}")
        }
        Some(NetworkStrength::Dns) => "Other host names do not resolve.".into(),
        Some(NetworkStrength::Address) => format!("Other host names do not resolve. {REST}"),
        Some(NetworkStrength::Name | NetworkStrength::Request) => format!(
            "Connect to {hosts} by name, not by address: the name in the connection is checked, and other host names do not \
             resolve. {REST}"
        ),
        None => REST.into(),
    }
}

/// Says whether names resolve when only ranges are allowed.
fn resolution(strength: Option<NetworkStrength>) -> &'static str {
    match strength {
        Some(NetworkStrength::Sni) => {
            "Host names still resolve, but only addresses in these ranges can be reached."
        }
        Some(NetworkStrength::Address | NetworkStrength::Name | NetworkStrength::Request) => {
            "Host names do not resolve: use addresses."
        }
        Some(NetworkStrength::Dns) | None => "Host names may or may not resolve: use addresses.",
    }
}

fn joined<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
