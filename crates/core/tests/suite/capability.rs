use ringfence_core::memory::RecordingBackend;
use ringfence_core::{Backend, Capabilities, ErrorKind, Isolation, NetworkStrength, SandboxSpec};

use super::support::spec;

/// One spec for each thing that can be asked, with the field that a backend without the capability must refuse.
const ASKED: [(&str, &str); 15] = [
    (r#"{"owner": "o"}"#, "owner"),
    (r#"{"isolation": "user-space-kernel"}"#, "isolation"),
    (r#"{"isolation": "own-kernel"}"#, "isolation"),
    ("{}", "block_network"),
    (r#"{"block_network": false}"#, "block_network"),
    (r#"{"allow_egress_to": ["a.example.org"]}"#, "allow_egress_to"),
    (r#"{"allow_egress_to_cidrs": ["10.0.0.0/8"]}"#, "allow_egress_to_cidrs"),
    (r#"{"block_network": false, "limits": {"memory": 1}}"#, "limits.memory"),
    (r#"{"block_network": false, "limits": {"cpus": 1}}"#, "limits.cpus"),
    (r#"{"block_network": false, "limits": {"pids": 1}}"#, "limits.pids"),
    (r#"{"block_network": false, "limits": {"disk": 1}}"#, "limits.disk"),
    (r#"{"block_network": false, "image": "i"}"#, "image"),
    (r#"{"block_network": false, "lifetime_seconds": 1}"#, "lifetime_seconds"),
    (r#"{"block_network": false, "idle_seconds": 1}"#, "idle_seconds"),
    (r#"{"block_network": false, "labels": {"a": "b"}}"#, "labels"),
];

fn everything() -> Capabilities {
    Capabilities { attach: true, ..RecordingBackend::new().capabilities() }
}

fn claim(capabilities: &mut Capabilities, json: &str) {
    match json {
        _ if json.contains("owner") => capabilities.attach = true,
        _ if json.contains("user-space") => capabilities.isolation = Isolation::UserSpaceKernel,
        _ if json.contains("own-kernel") => capabilities.isolation = Isolation::OwnKernel,
        _ if json.contains("cidrs") => capabilities.cidr_allowlist = true,
        _ if json.contains("egress_to") => capabilities.host_allowlist = Some(NetworkStrength::Address),
        _ if json.contains("memory") => capabilities.memory_limit = true,
        _ if json.contains("cpus") => capabilities.cpu_limit = true,
        _ if json.contains("pids") => capabilities.pids_limit = true,
        _ if json.contains("disk") => capabilities.disk_limit = true,
        _ if json.contains("image") => capabilities.image = true,
        _ if json.contains("lifetime") => capabilities.lifetime = true,
        _ if json.contains("idle") => capabilities.idle = true,
        _ if json.contains("labels") => capabilities.labels = true,
        _ => {}
    }
}

#[test]
fn sp_08_what_is_not_claimed_is_refused_by_field_and_what_is_claimed_is_taken() {
    for (json, field) in ASKED {
        let spec = spec(json).expect(json);
        // Nothing but the network switch of the spec itself is claimed.
        let opens = json.contains("\"block_network\": false") && field != "block_network";
        let nothing = Capabilities { open_network: opens, ..Capabilities::default() };
        let error = nothing.refuse_unclaimed("none", &spec).expect_err(json);
        assert_eq!(
            (error.kind(), error.fact("field"), error.is_terminal()),
            (&ErrorKind::Refused, Some(field), true)
        );
        assert!(error.hint_text().is_some(), "a refusal names a way out: {error}");

        let mut one = Capabilities { open_network: true, block_network: true, ..Capabilities::default() };
        claim(&mut one, json);
        assert!(one.refuse_unclaimed("one", &spec).is_ok(), "{json}");
        assert!(everything().refuse_unclaimed("all", &spec).is_ok(), "{json}");
    }
}

/// 11.5: what the author of a spec must learn from each refusal.
#[test]
fn bk_02_the_texts_of_refusals() {
    let texts: Vec<String> = ASKED
        .into_iter()
        .map(|(json, field)| {
            let opens = json.contains("\"block_network\": false") && field != "block_network";
            let nothing = Capabilities { open_network: opens, ..Capabilities::default() };
            let refusal = nothing.refuse_unclaimed("none", &spec(json).expect("a spec"));
            refusal.expect_err("refused").to_string()
        })
        .collect();
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn a_weaker_allowlist_than_demanded_is_refused() {
    use NetworkStrength::{Address, Dns, Name, Request, Sni};
    for (has, demanded) in [Dns, Sni, Address, Name, Request]
        .into_iter()
        .flat_map(|has| [Dns, Sni, Address, Name, Request].map(|demanded| (has, demanded)))
    {
        let capabilities = Capabilities { host_allowlist: Some(has), ..Capabilities::default() };
        let json =
            format!(r#"{{"allow_egress_to": ["a.example.org"], "least_network_strength": "{demanded}"}}"#);
        let judged = capabilities.refuse_unclaimed("x", &spec(&json).expect("a spec"));
        assert_eq!(judged.is_ok(), has >= demanded, "{has} for {demanded}");
        if let Err(error) = judged {
            let text = error.to_string();
            assert!(text.contains(&format!("`{has}`")) && text.contains(&format!("`{demanded}`")), "{text}");
        }
    }
    let capabilities =
        Capabilities { host_allowlist: Some(Sni), cidr_allowlist: true, ..Capabilities::default() };
    let spec = spec(r#"{"allow_egress_to": ["a.example.org"]}"#).expect("a spec");
    insta::assert_snapshot!(
        capabilities.refuse_unclaimed("modal", &spec).expect_err("refused"),
        @"modal: accept the spec: its allowlist of host names has the strength `sni` (only the TLS name is matched; resolution stays open, and so does what shares an endpoint with a listed name), the spec accepts no less than `address`, field allow_egress_to; lower least_network_strength to accept that, list address ranges in allow_egress_to_cidrs, or block the network completely"
    );
}

/// A list of ranges alone says nothing of names, so the strength for names does not matter.
#[test]
fn a_list_of_ranges_needs_no_strength() {
    let capabilities = Capabilities { cidr_allowlist: true, ..Capabilities::default() };
    let spec = spec(r#"{"allow_egress_to_cidrs": ["10.0.0.0/8"], "least_network_strength": "request"}"#);
    assert!(capabilities.refuse_unclaimed("x", &spec.expect("a spec")).is_ok());
}

#[test]
fn env_and_workdir_are_owed_by_all() {
    let spec = spec(r#"{"env": {"A": "1"}, "workdir": "/w"}"#).expect("a spec");
    let capabilities = Capabilities { block_network: true, ..Capabilities::default() };
    assert!(capabilities.refuse_unclaimed("x", &spec).is_ok());
    assert!(Capabilities::default().refuse_unclaimed("x", &SandboxSpec::default()).is_err());
}
