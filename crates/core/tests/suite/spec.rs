use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use ringfence_core::claim::MAX_NAME_BYTES;
use ringfence_core::file::MAX_PATH_BYTES;
use ringfence_core::spec::{MAX_LABEL_BYTES, SpecDocument, network_of};
use ringfence_core::{
    Allowlist, ByteSize, Cpus, EnforcementRow, EnforcementStatement, EnvMap, ErrorKind, Isolation, Limits,
    NetworkPolicy, NetworkStrength, Pids, SandboxSpec, SpecField,
};
use serde_json::json;

use super::support::spec;

/// A spec that uses every field.
pub(crate) fn full() -> SandboxSpec {
    let list = Allowlist::parse(["b.example.org", "*.a.example.org"], ["10.20.0.0/16"], NetworkStrength::Sni);
    SandboxSpec::new()
        .with_env(EnvMap::new([("A", "1")]).expect("env"))
        .with_network(NetworkPolicy::allow(list.expect("a list")))
        .with_limits(Limits {
            memory: Some(ByteSize::from_bytes(64 << 20).expect("a size")),
            cpus: Some(Cpus::new(1.5).expect("cpus")),
            pids: Some(Pids::new(64).expect("pids")),
            disk: Some(ByteSize::from_bytes(1 << 30).expect("a size")),
        })
        .with_isolation(Isolation::UserSpaceKernel)
        .with_image("python:3.12-slim")
        .expect("an image")
        .with_workdir("/my dir/é\n")
        .expect("a workdir")
        .with_lifetime(Duration::from_millis(3_600_001))
        .expect("a lifetime")
        .with_idle(Duration::from_secs(60))
        .expect("an idle time")
        .with_owner("dag/run")
        .expect("an owner")
        .with_labels(BTreeMap::from([("team".to_owned(), "data".to_owned())]))
        .expect("labels")
}

#[test]
fn sp_01_the_default_is_closed() {
    let spec = SandboxSpec::default();
    assert_eq!(spec.network(), &NetworkPolicy::Blocked);
    assert!(spec.env().is_empty() && spec.labels().is_empty());
    assert_eq!(spec.limits(), &Limits::default());
    assert_eq!(spec.isolation(), Isolation::SharedKernel);
    assert_eq!(
        (spec.owner(), spec.image(), spec.workdir(), spec.lifetime(), spec.idle()),
        (None, None, None, None, None)
    );
    let asked: Vec<SpecField> =
        SpecField::ALL.iter().copied().filter(|field| spec.asks_for(*field)).collect();
    assert_eq!(asked, [SpecField::Network]);
    assert_eq!(super::support::spec("{}").expect("the default"), spec);
}

#[test]
fn sp_06_a_spec_reaches_the_other_side_unchanged() {
    let spec = full();
    let json = serde_json::to_string(&spec).expect("JSON");
    assert_eq!(serde_json::from_str::<SandboxSpec>(&json).expect("a spec"), spec);
    assert!(SpecField::ALL.iter().copied().all(|field| spec.asks_for(field)));
    insta::assert_snapshot!(serde_json::to_string_pretty(&spec).expect("JSON"));
}

#[test]
fn sp_03_the_schema_of_the_document() {
    let schema = schemars::schema_for!(SpecDocument);
    insta::assert_snapshot!(serde_json::to_string_pretty(&schema).expect("JSON"));
}

#[test]
fn sp_03_unknown_keys_are_refused() {
    for json in [r#"{"block_netwrok": false}"#, r#"{"limits": {"ram": 1}}"#, r#"{"gpu": 1}"#] {
        assert!(spec(json).is_err(), "{json}");
    }
}

/// Labels share the tags of a sandbox with what says whose it is (AT-01).
#[test]
fn at_01_labels_cannot_pass_for_tags_of_ringfence() {
    let labels = |name: &str, value: &str| {
        let labels = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let json = json!({ "labels": labels }).to_string();
        let set = SandboxSpec::new().with_labels(labels);
        let read = spec(&json);
        assert_eq!(set.is_ok(), read.is_ok(), "{name}: the setter and the document agree");
        set.map(drop).map_err(|error| error.message().to_owned())
    };
    for (name, value) in [("team", ""), ("Ringfence_owner", "x"), ("ringfence", "x"), ("a b\n", "x")] {
        assert_eq!(labels(name, value), Ok(()), "{name}");
    }
    let faults = [
        ("ringfence_owner", "label \"ringfence_owner\" begins with ringfence_, which is reserved".to_owned()),
        ("ringfence_", "label \"ringfence_\" begins with ringfence_, which is reserved".to_owned()),
        ("", "the name of a label must not be empty".to_owned()),
    ];
    for (name, fault) in faults {
        assert_eq!(labels(name, "x"), Err(fault));
    }
    assert_eq!(labels("l", &"x".repeat(MAX_LABEL_BYTES - 1)), Ok(()));
    assert_eq!(
        labels("l", &"x".repeat(MAX_LABEL_BYTES)),
        Err("labels have 8193 bytes, at most 8192 are accepted".to_owned())
    );
    let owner = |bytes: usize| SandboxSpec::new().with_owner("o".repeat(bytes)).map(drop).is_ok();
    assert_eq!((owner(MAX_NAME_BYTES), owner(MAX_NAME_BYTES + 1)), (true, false));
}

/// Empty equals unset, and never means everything (S24).
#[test]
fn sp_07_an_empty_list_is_no_list() {
    for json in [
        "{}",
        r#"{"block_network": true}"#,
        r#"{"allow_egress_to": [], "allow_egress_to_cidrs": []}"#,
        r#"{"block_network": true, "allow_egress_to": []}"#,
    ] {
        assert_eq!(spec(json).expect("a spec").network(), &NetworkPolicy::Blocked, "{json}");
    }
    for json in [r#"{"allow_egress_to": [""]}"#, r#"{"allow_egress_to": null}"#] {
        assert!(spec(json).is_err(), "{json}");
    }
}

#[test]
fn sp_08_contradictions_are_refused() {
    for json in [
        r#"{"block_network": false, "allow_egress_to": ["a.example.org"]}"#,
        r#"{"block_network": false, "allow_egress_to_cidrs": ["10.0.0.0/8"]}"#,
    ] {
        let error = spec(json).expect_err("refused").to_string();
        assert!(
            error.contains("contradict") && error.contains("set block_network or drop the list"),
            "{error}"
        );
    }
    let empty = SandboxSpec::new().with_network(NetworkPolicy::Allow(Allowlist::default()));
    assert_eq!(empty, SandboxSpec::new(), "SP-07, S24: an empty list made by hand blocks as well");
    let open = network_of(false, &[] as &[&str], &[] as &[&str], NetworkStrength::default());
    assert_eq!(open.expect("open"), NetworkPolicy::Open);
}

/// Facts of MO-08: which field, and that it must be wrapped.
#[test]
fn mo_08_a_bare_text_is_not_a_list() {
    for field in ["allow_egress_to", "allow_egress_to_cidrs"] {
        let error = spec(&format!(r#"{{"{field}": "abc"}}"#)).expect_err("refused").to_string();
        assert!(error.contains(field) && error.contains("write it as a list"), "{error}");
        let error = spec(&format!(r#"{{"{field}": [1]}}"#)).expect_err("refused").to_string();
        assert!(error.contains(field) && error.contains("a number"), "{error}");
        let error = spec(&format!(r#"{{"{field}": {{}}}}"#)).expect_err("refused").to_string();
        assert!(error.contains(field) && error.contains("an object"), "{error}");
    }
}

#[test]
fn sp_12_flags_and_numbers_are_strict() {
    for json in [
        r#"{"block_network": 0}"#,
        r#"{"block_network": "false"}"#,
        r#"{"block_network": null}"#,
        r#"{"lifetime_seconds": true}"#,
        r#"{"lifetime_seconds": "60"}"#,
        r#"{"isolation": "vm"}"#,
        r#"{"least_network_strength": "strong"}"#,
        r#"{"owner": ""}"#,
        r#"{"image": ""}"#,
        r#"{"workdir": ""}"#,
        r#"{"workdir": "relative"}"#,
        r#"{"workdir": "/nul\u0000"}"#,
        r#"{"labels": {"a": 1}}"#,
    ] {
        assert!(spec(json).is_err(), "{json}");
    }
}

/// A derived reader takes fields by position from a list.
#[test]
fn sp_12_a_spec_is_an_object() {
    for json in [
        "[]",
        "[{}, false]",
        "null",
        "true",
        "\"\"",
        r#"{"limits": []}"#,
        r#"{"limits": [1]}"#,
        r#"{"limits": null}"#,
    ] {
        let error = spec(json).expect_err(json).to_string();
        assert!(error.contains("expected an object"), "{error}");
    }
}

/// Whichever of our documents is read, and whether it stands alone or in another one.
#[test]
fn sp_12_no_document_is_read_by_position() {
    fn fault<T: serde::de::DeserializeOwned + std::fmt::Debug>(json: &str) -> String {
        serde_json::from_str::<T>(json).expect_err(json).to_string()
    }
    let faults = [
        fault::<SandboxSpec>("[{}, false]"),
        fault::<SpecDocument>("[{}, false]"),
        fault::<Limits>("[1048576]"),
        fault::<EnforcementRow>(r#"["env", "none", null, "applied"]"#),
        fault::<EnforcementStatement>("[1, null, []]"),
    ];
    for fault in faults {
        assert!(fault.starts_with("invalid type: sequence, expected an object"), "{fault}");
    }
}

#[test]
fn sp_16_spans_of_time_are_positive_and_finite() {
    for field in ["lifetime_seconds", "idle_seconds"] {
        for value in ["0", "-1", "-0.0", "1e999", "1e300", "31536001"] {
            let error = spec(&format!(r#"{{"{field}": {value}}}"#)).expect_err(value).to_string();
            assert!(error.contains(field.trim_end_matches("_seconds")) || value == "1e999", "{error}");
        }
        for (value, millis) in
            [("1", 1000), ("0.5", 500), ("3600", 3_600_000), ("1e-9", 1), ("31536000", 31_536_000_000)]
        {
            let spec = spec(&format!(r#"{{"{field}": {value}}}"#)).expect(value);
            let read = if field == "lifetime_seconds" { spec.lifetime() } else { spec.idle() };
            assert_eq!(read, Some(Duration::from_millis(millis)));
        }
    }
    for duration in [Duration::ZERO, Duration::MAX] {
        assert!(SandboxSpec::new().with_lifetime(duration).is_err());
        assert!(SandboxSpec::new().with_idle(duration).is_err());
    }
}

/// The same words by whichever door a value comes in.
#[test]
fn sp_12_setters_refuse_what_the_document_refuses() {
    let new = SandboxSpec::new;
    let long = format!("/{}", "x".repeat(MAX_PATH_BYTES));
    for (set, document, fault) in [
        (new().with_image(""), json!({"image": ""}), "image must not be empty; leave it out"),
        (new().with_owner(""), json!({"owner": ""}), "owner must not be empty; leave it out"),
        (new().with_workdir(""), json!({"workdir": ""}), r#"workdir must be absolute, not """#),
        (new().with_workdir("a/b"), json!({"workdir": "a/b"}), r#"workdir must be absolute, not "a/b""#),
        (new().with_workdir("/a\0"), json!({"workdir": "/a\0"}), "workdir cannot contain a NUL byte"),
        (
            new().with_workdir(long.as_str()),
            json!({"workdir": long}),
            "workdir has 4096 bytes, at most 4095 are accepted",
        ),
    ] {
        let error = set.expect_err(fault);
        assert_eq!((error.kind(), error.message()), (&ErrorKind::InvalidArgument, fault));
        let read = serde_json::from_value::<SandboxSpec>(document).expect_err(fault).to_string();
        assert_eq!(read, format!("accept the spec: {fault}"));
    }
    assert_eq!(
        new().with_workdir(&long[..MAX_PATH_BYTES]).expect("taken").workdir(),
        Some(&long[..MAX_PATH_BYTES])
    );
}

#[test]
fn isolation_is_ordered_weakest_first() {
    let order = [Isolation::SharedKernel, Isolation::UserSpaceKernel, Isolation::OwnKernel];
    assert!(order.is_sorted());
    for isolation in order {
        assert_eq!(serde_json::to_value(isolation).expect("JSON"), isolation.to_string());
    }
}

proptest! {
    #[test]
    fn sp_06_every_workdir_and_span_round_trips(
        workdir in "/[^\u{0}]{0,30}", lifetime in 1u64..31_536_000_000_000_000, value in "[^\u{0}]{0,20}"
    ) {
        let spec = SandboxSpec::new()
            .with_workdir(workdir).expect("a workdir")
            .with_lifetime(Duration::from_nanos(lifetime)).expect("a lifetime")
            .with_env(EnvMap::new([("A", value)]).expect("env"));
        let json = serde_json::to_string(&spec).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<SandboxSpec>(&json).expect("a spec"), spec);
    }

    #[test]
    fn sp_11_no_text_makes_the_reader_panic(text in "\\PC{0,60}") {
        drop(spec(&text));
        drop(NetworkPolicy::from_tag(&text));
    }
}
