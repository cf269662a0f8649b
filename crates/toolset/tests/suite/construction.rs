//! TC: what a toolset may be built from.

use std::sync::Arc;

use ringfence_core::memory::RecordingBackend;
use ringfence_core::{NetworkPolicy, OutputLimit, SandboxSpec, Timeout};
use ringfence_toolset::{Bounds, MAX_PREFIX_BYTES, Toolset, ToolsetConfig};
use serde_json::json;

use super::support::{recording, session, text, toolset};

fn refusal(config: ToolsetConfig) -> String {
    match Toolset::new(recording(), config) {
        Err(error) => error.to_string(),
        Ok(toolset) => panic!("accepted: {toolset:?}"),
    }
}

type Setter<T> = fn(ToolsetConfig, T) -> ToolsetConfig;

fn seconds(value: f64) -> Timeout {
    Timeout::from_secs_f64(value).unwrap()
}

#[test]
fn tc_01_bounds_must_be_positive_and_finite_and_are_named() {
    let timeouts: [(&str, Setter<f64>); 2] = [
        ("default_command_timeout", ToolsetConfig::default_command_timeout_seconds),
        ("max_command_timeout", ToolsetConfig::max_command_timeout_seconds),
    ];
    for (name, set) in timeouts {
        for (value, shown) in [
            (0.0, "0"),
            (-1.0, "-1"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "NaN"),
            (1e18, "1000000000000000000"),
        ] {
            assert_eq!(
                refusal(set(ToolsetConfig::new(), value)),
                format!(
                    "build the toolset: {name} must be a positive number of seconds, at most 31536000, not {shown}"
                )
            );
        }
    }
    let zeroes = [
        ("max_output_lines", ToolsetConfig::new().max_output_lines(0)),
        ("max_output_bytes", ToolsetConfig::new().max_output_bytes(0)),
        ("max_read_bytes", ToolsetConfig::new().max_read_bytes(0)),
        ("max_export_bytes", ToolsetConfig::new().max_export_bytes(0)),
    ];
    for (name, config) in zeroes {
        assert_eq!(refusal(config), format!("build the toolset: {name} must be at least 1, not 0"));
    }
    assert_eq!(
        refusal(ToolsetConfig::new().max_output_bytes(OutputLimit::MAX_BYTES + 1)),
        "build the toolset: max_output_bytes an output limit must be between 1 and 67108864 bytes, not 67108865"
    );
}

#[test]
fn tc_02_the_default_may_not_exceed_the_maximum() {
    let config =
        ToolsetConfig::new().default_command_timeout_seconds(100.0).max_command_timeout_seconds(10.0);
    assert_eq!(
        refusal(config),
        "build the toolset: default_command_timeout is 100 s, which exceeds max_command_timeout, 10 s"
    );
}

#[test]
fn tc_03_lowering_only_the_maximum_lowers_an_unset_default() {
    let built = toolset(&recording(), ToolsetConfig::new().max_command_timeout_seconds(30.0));
    assert_eq!((built.bounds().default_timeout, built.bounds().max_timeout), (seconds(30.0), seconds(30.0)));
    let built = toolset(&recording(), ToolsetConfig::new().max_command_timeout_seconds(600.0));
    assert_eq!((built.bounds().default_timeout, built.bounds().max_timeout), (seconds(60.0), seconds(600.0)));
}

#[test]
fn tc_04_prefixes_that_are_no_identifiers_are_refused() {
    for prefix in ["not-an-identifier", "9lives", "has space", "a-b", "é", "a\n"] {
        assert_eq!(
            refusal(ToolsetConfig::new().prefix(prefix)),
            format!(
                "build the toolset: tool prefix must be an ASCII identifier (letters, digits and _, not starting \
                 with a digit), not {prefix:?}"
            )
        );
    }
    assert_eq!(
        refusal(ToolsetConfig::new().prefix("p".repeat(MAX_PREFIX_BYTES + 1))),
        "build the toolset: tool prefix must have at most 49 characters, not 50"
    );
}

#[test]
fn tc_05_keywords_and_underscores_are_prefixes_like_any_other() {
    let longest = "p".repeat(MAX_PREFIX_BYTES);
    for (prefix, name) in [
        ("class", "class_run_command".to_owned()),
        ("_x", "_x_run_command".to_owned()),
        ("x_", "x__run_command".to_owned()),
        ("", "run_command".to_owned()),
        (longest.as_str(), format!("{longest}_run_command")),
    ] {
        let built = toolset(&recording(), ToolsetConfig::new().prefix(prefix));
        assert_eq!(built.definitions()[0].name, name);
        assert!(built.definitions().iter().all(|definition| definition.name.len() <= 64));
    }
}

#[test]
fn tc_11_an_owner_on_a_sandbox_of_ones_own_is_refused() {
    assert_eq!(
        refusal(ToolsetConfig::new().spec(SandboxSpec::new().with_owner("me").unwrap())),
        "accept the spec: a toolset that provisions its own sandbox destroys it before anyone could attach, field \
         owner; drop the owner, or create the sandbox outside and attach to it"
    );
}

#[test]
fn tc_14_the_first_fault_in_order_is_reported() {
    let all_wrong = ToolsetConfig::new()
        .spec(SandboxSpec::new().with_owner("me").unwrap())
        .prefix("a-b")
        .default_command_timeout_seconds(100.0)
        .max_command_timeout_seconds(10.0)
        .max_read_bytes(0);
    let steps = [
        (all_wrong.clone(), "max_read_bytes"),
        (all_wrong.clone().max_read_bytes(1), "default_command_timeout"),
        (all_wrong.clone().max_read_bytes(1).default_command_timeout_seconds(1.0), "tool prefix"),
        (
            all_wrong.max_read_bytes(1).default_command_timeout_seconds(1.0).prefix("ok"),
            "a toolset that provisions",
        ),
    ];
    for (config, named) in steps {
        let refused = refusal(config);
        assert!(refused.contains(named), "{refused} does not start with {named}");
    }
}

#[test]
fn tc_16_construction_touches_nothing_even_when_the_backend_would_refuse() {
    let backend = Arc::new(RecordingBackend::new().with_capabilities(Default::default()));
    let built = toolset(&backend, ToolsetConfig::new());
    assert!(built.judge().is_err());
    assert_eq!(backend.created(), []);
}

#[tokio::test]
async fn tc_17_a_clone_runs_its_tools() {
    let backend = recording();
    let copy = toolset(&backend, ToolsetConfig::new()).clone();
    let session = copy.open();
    assert_eq!(text(&session, "run_command", json!({"command": "ls"})).await, "[stdout]\nout");
    session.close().await;
}

#[test]
fn tc_18_the_identity_names_backend_and_prefix() {
    assert_eq!(toolset(&recording(), ToolsetConfig::new()).identity(), "sandbox-rec");
    assert_eq!(toolset(&recording(), ToolsetConfig::new().prefix("local")).identity(), "sandbox-rec-local");
}

#[test]
fn tc_19_defaults() {
    assert_eq!(
        *toolset(&recording(), ToolsetConfig::new()).bounds(),
        Bounds {
            default_timeout: seconds(60.0),
            max_timeout: seconds(300.0),
            max_output_lines: 2000,
            max_output_bytes: 51200,
            max_read_bytes: 5_242_880,
            max_export_bytes: 1_073_741_824,
        }
    );
}

#[tokio::test]
async fn sp_05_sp_06_the_backend_sees_exactly_the_spec() {
    let backend = recording();
    let spec = SandboxSpec::new()
        .with_env(ringfence_core::EnvMap::new([("A", "1")]).unwrap())
        .with_network(NetworkPolicy::Open);
    let run = session(&backend, ToolsetConfig::new().spec(spec.clone()));
    run.prepare().await.unwrap();
    run.close().await;
    let run = session(&backend, ToolsetConfig::new());
    run.prepare().await.unwrap();
    run.close().await;
    assert_eq!(backend.created(), [spec, SandboxSpec::new()]);
}

#[test]
fn mk_debug_of_a_configuration_shows_no_secret() {
    let config = ToolsetConfig::new()
        .secret("hunter2-hunter2")
        .spec(SandboxSpec::new().with_env(ringfence_core::EnvMap::new([("T", "tok-123456")]).unwrap()))
        .input(
            ringfence_toolset::InputSource::Bytes("hunter2-hunter2".into()),
            ringfence_core::GuestPath::new("k").unwrap(),
        );
    let shown = format!("{config:?} {:?}", toolset(&recording(), config.clone()));
    assert!(!shown.contains("hunter2") && !shown.contains("tok-123456"), "{shown}");
}
