//! TD: what the model is offered.

use std::sync::Arc;

use ringfence_core::memory::RecordingBackend;
use ringfence_core::{
    Allowlist, Backend as _, Capabilities, EnvMap, NetworkPolicy, NetworkStrength, SandboxSpec,
};
use ringfence_toolset::{CodeSurface, MASK, Tool, Toolset, ToolsetConfig};
use serde_json::{Value, json};

use super::support::{recording, toolset};

const HOSTS: [&str; 2] = ["a.example.org", "b.example.org"];
const RANGES: [&str; 2] = ["10.20.0.0/16", "203.0.113.7/32"];

fn allow(hosts: &[&str], ranges: &[&str]) -> NetworkPolicy {
    NetworkPolicy::allow(Allowlist::parse(hosts, ranges, NetworkStrength::Dns).unwrap())
}

fn built(network: NetworkPolicy, capabilities: Capabilities) -> Toolset {
    let backend = RecordingBackend::new().with_capabilities(capabilities);
    let config = ToolsetConfig::new().spec(SandboxSpec::new().with_network(network));
    Toolset::new(Arc::new(backend), config).unwrap()
}

fn able(strength: Option<NetworkStrength>) -> Capabilities {
    Capabilities { host_allowlist: strength, ..recording().capabilities() }
}

fn note(network: NetworkPolicy, capabilities: Capabilities) -> String {
    let toolset = built(network, capabilities);
    let description = &toolset.definitions()[0].description;
    let start = description.find(" are returned. ").unwrap() + " are returned. ".len();
    description[start..].to_owned()
}

#[test]
fn td_the_whole_offer_is_reviewed_as_a_snapshot() {
    let mut settings = insta::Settings::clone_current();
    settings.set_sort_maps(true);
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    let _bound = settings.bind_to_scope();
    insta::assert_json_snapshot!(
        "definitions_blocked",
        built(NetworkPolicy::Blocked, able(None)).definitions()
    );
    let others = [
        ("open", NetworkPolicy::Open),
        ("hosts", allow(&HOSTS, &[])),
        ("ranges", allow(&[], &RANGES)),
        ("hosts_and_ranges", allow(&HOSTS, &RANGES)),
    ];
    for (name, network) in others {
        let toolset = built(network, able(Some(NetworkStrength::Name)));
        insta::assert_json_snapshot!(format!("definitions_{name}"), toolset.definitions()[0]);
    }
}

#[test]
fn td_01_td_05_td_06_td_07_four_sequential_tools_and_one_code_surface() {
    let toolset = toolset(&recording(), ToolsetConfig::new());
    let shape: Vec<_> = toolset
        .definitions()
        .iter()
        .map(|d| (d.tool, d.name.as_str(), d.sequential, d.max_corrections, d.read_only, d.code_surface))
        .collect();
    let code = Some(CodeSurface { argument: "command", language: "shell" });
    assert_eq!(
        shape,
        [
            (Tool::RunCommand, "run_command", true, 2, false, code),
            (Tool::ReadFile, "read_file", true, 2, true, None),
            (Tool::WriteFile, "write_file", true, 2, false, None),
            (Tool::ListDirectory, "list_directory", true, 2, true, None),
        ]
    );
}

#[test]
fn td_02_schemas_state_types_and_what_is_required() {
    let toolset = toolset(&recording(), ToolsetConfig::new());
    let shapes: Vec<Value> = toolset
        .definitions()
        .iter()
        .map(|definition| {
            let schema = &definition.input_schema;
            let types: serde_json::Map<String, Value> = schema["properties"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, property)| (name.clone(), property["type"].clone()))
                .collect();
            assert_eq!(schema["type"], "object");
            assert_eq!(schema["additionalProperties"], false);
            json!([types, schema["required"]])
        })
        .collect();
    assert_eq!(
        json!(shapes),
        json!([
            [{"command": "string", "timeout_seconds": ["number", "null"]}, ["command"]],
            [{"path": "string", "offset": ["integer", "null"], "limit": ["integer", "null"]}, ["path"]],
            [{"path": "string", "content": "string"}, ["path", "content"]],
            [{"path": "string"}, null],
        ])
    );
}

#[test]
fn td_08_only_run_command_speaks_of_the_network() {
    let policies = [NetworkPolicy::Blocked, NetworkPolicy::Open, allow(&HOSTS, &RANGES)];
    for policy in policies {
        let toolset = built(policy, able(Some(NetworkStrength::Sni)));
        let speaks: Vec<bool> = toolset
            .definitions()
            .iter()
            .map(|definition| definition.description.to_lowercase().contains("network"))
            .collect();
        assert_eq!(speaks, [true, false, false, false]);
    }
}

#[test]
fn td_09_td_13_blocked_and_open_as_far_as_the_backend_claims() {
    let unable = Capabilities::default();
    assert_eq!(
        note(NetworkPolicy::Blocked, able(None)),
        "There is NO network access, including DNS: nothing can be downloaded or installed from outside."
    );
    assert_eq!(
        note(NetworkPolicy::Blocked, unable.clone()),
        "There is NO network access: nothing can be downloaded or installed from outside."
    );
    assert_eq!(
        note(NetworkPolicy::Open, able(None)),
        "The network is open: the sandbox has outbound access."
    );
    assert_eq!(
        note(NetworkPolicy::Open, unable),
        "Outbound network access was asked for, but may be restricted; test what you need before relying on it."
    );
}

#[test]
fn td_10_td_15_the_host_note_names_a_port_only_where_the_strength_implies_one() {
    let list = "a.example.org, b.example.org";
    let cases = [
        (
            Some(NetworkStrength::Dns),
            format!("The network is limited to these hosts: {list}. Other host names do not resolve."),
        ),
        (
            Some(NetworkStrength::Sni),
            format!(
                "The network is limited to these hosts, by HTTPS on port 443 only: {list}. Use https:// URLs: plain HTTP \
                 to any host fails. Everything else is unreachable."
            ),
        ),
        (
            Some(NetworkStrength::Address),
            format!(
                "The network is limited to these hosts: {list}. Other host names do not resolve. Everything else is \
                 unreachable."
            ),
        ),
        (
            Some(NetworkStrength::Name),
            format!(
                "The network is limited to these hosts: {list}. Connect to them by name, not by address: the name in the \
                 connection is checked, and other host names do not resolve. Everything else is unreachable."
            ),
        ),
        (
            Some(NetworkStrength::Request),
            format!(
                "The network is limited to these hosts, by HTTP and HTTPS requests, each of which is checked: {list}. \
                 Connect to them by name, not by address: the name in the connection is checked, and other host names do not \
                 resolve. Everything else is unreachable."
            ),
        ),
        (None, format!("The network is limited to these hosts: {list}. Everything else is unreachable.")),
    ];
    for (strength, expected) in cases {
        assert_eq!(note(allow(&HOSTS, &[]), able(strength)), expected);
        assert_eq!(expected.contains("443"), strength == Some(NetworkStrength::Sni));
    }
}

#[test]
fn td_11_the_range_note_does_not_speak_of_http() {
    let ranges = "The network is limited to these address ranges, on any port: 10.20.0.0/16, 203.0.113.7/32.";
    assert_eq!(
        note(allow(&[], &RANGES), able(Some(NetworkStrength::Sni))),
        format!("{ranges} Host names still resolve, but only addresses in these ranges can be reached.")
    );
    assert_eq!(
        note(allow(&[], &RANGES), able(Some(NetworkStrength::Name))),
        format!("{ranges} Host names do not resolve: use addresses.")
    );
    assert_eq!(
        note(allow(&[], &RANGES), able(None)),
        format!("{ranges} Host names may or may not resolve: use addresses.")
    );
}

#[test]
fn td_12_with_both_lists_plain_http_fails_only_to_the_hosts() {
    assert_eq!(
        note(allow(&HOSTS, &RANGES), able(Some(NetworkStrength::Sni))),
        "The network is limited to these hosts, by HTTPS on port 443 only: a.example.org, b.example.org; and these address \
         ranges, on any port: 10.20.0.0/16, 203.0.113.7/32. Use https:// URLs: plain HTTP to these hosts fails. Everything \
         else is unreachable."
    );
    assert_eq!(
        note(allow(&HOSTS, &RANGES), able(Some(NetworkStrength::Name))),
        "The network is limited to these hosts: a.example.org, b.example.org; and these address ranges, on any port: \
         10.20.0.0/16, 203.0.113.7/32. Connect to these hosts by name, not by address: the name in the connection is \
         checked, and other host names do not resolve. Everything else is unreachable."
    );
}

#[test]
fn td_17_the_command_description_names_shell_directory_and_limits() {
    let spec = SandboxSpec::new()
        .with_workdir("/data")
        .unwrap()
        .with_env(EnvMap::new([("TOKEN", "0123456789")]).unwrap());
    let backend = RecordingBackend::new()
        .with_capabilities(Capabilities { shell: "bash".into(), ..recording().capabilities() });
    let config = ToolsetConfig::new()
        .spec(spec)
        .prefix("box")
        .default_command_timeout_seconds(2.5)
        .max_command_timeout_seconds(10.0)
        .max_output_lines(7)
        .max_output_bytes(1536);
    let toolset = Toolset::new(Arc::new(backend), config).unwrap();
    let description = &toolset.definitions()[0].description;
    for fact in [
        "with bash",
        "working directory /data",
        "Pipes, redirection, && and globs work",
        "Standard input is closed",
        "fresh shell",
        "background lives on",
        "after 2.5 s",
        "at most 10 s",
        "the last 7 lines or 1.5KB",
        &format!("shown as {MASK}"),
    ] {
        assert!(description.contains(fact), "{fact}: {description}");
    }
    assert!(toolset.definitions()[1].description.contains("box_run_command"));
    assert!(!description.contains("0123456789"));
}

#[tokio::test]
async fn td_18_the_offer_is_the_same_bytes_at_every_step() {
    let backend = recording();
    let first = toolset(&backend, ToolsetConfig::new());
    let before = serde_json::to_string(first.definitions()).unwrap();
    let run = first.open();
    run.call("run_command", &json!({"command": "ls"})).await.unwrap();
    let during = serde_json::to_string(run.definitions()).unwrap();
    run.close().await;
    let again = serde_json::to_string(toolset(&backend, ToolsetConfig::new()).definitions()).unwrap();
    assert_eq!([&during, &again], [&before, &before]);
}

#[tokio::test]
async fn structures_have_the_keys_their_schemas_promise() {
    let backend = recording();
    let run = toolset(&backend, ToolsetConfig::new()).open();
    let calls = [
        ("run_command", json!({"command": "x"})),
        ("write_file", json!({"path": "f", "content": "x"})),
        ("read_file", json!({"path": "f"})),
        ("list_directory", json!({})),
    ];
    for (tool, arguments) in calls {
        let structured = run.call(tool, &arguments).await.unwrap().structured;
        let definitions = run.definitions();
        let schema = &definitions.iter().find(|definition| definition.name == tool).unwrap().output_schema;
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&structured), keys(&schema["properties"]), "{tool}");
        let required: Vec<&str> =
            schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(required.iter().all(|key| structured.get(key).is_some()), "{tool}: {required:?}");
    }
    run.close().await;
}

#[test]
fn td_17_the_model_is_told_of_files_that_were_put_in() {
    let told = |config: ToolsetConfig| toolset(&recording(), config).definitions()[0].description.clone();
    let inputs = "copies of the files it was given";
    assert!(!told(ToolsetConfig::new()).contains(inputs));
    assert!(told(ToolsetConfig::new().inputs_found_by(|| Ok(Vec::new()))).contains(inputs));
}
