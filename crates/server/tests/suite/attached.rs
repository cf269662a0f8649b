//! AT: a server over a sandbox that somebody else created.

use std::sync::Arc;

use ringfence::claim;
use ringfence::{Attachable, Backend, CommandResult, Ending, SandboxId};
use ringfence_core::memory::{Operation, RecordingBackend};
use serde_json::{Value, json};

use super::client::Client;

async fn owned(spec: &str) -> (Arc<RecordingBackend>, SandboxId) {
    let backend = Arc::new(RecordingBackend::new().with_attach());
    let sandbox = backend.create(&serde_json::from_str(spec).unwrap()).await.unwrap().id;
    (backend, sandbox)
}

const OWNED: &str = r#"{"owner": "dag/run", "lifetime_seconds": 3600}"#;

async fn holder(backend: &RecordingBackend, sandbox: &SandboxId) -> Option<String> {
    backend.tags(sandbox).await.unwrap().tags.get(claim::HOLDER).cloned()
}

fn description(tools: &Value) -> &str {
    tools["result"]["tools"][0]["description"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn at_12_to_at_20_it_is_claimed_before_a_client_is_served_and_given_back_at_the_end() {
    let (backend, sandbox) = owned(OWNED).await;
    let mut client = Client::attached(&backend, &sandbox, "dag/run/one").await;
    assert_eq!(holder(&backend, &sandbox).await.as_deref(), Some("dag/run/one"));
    let info = client.shake_hands().await;
    assert_eq!(
        info["instructions"],
        "These tools act in a sandbox, not on the machine of the person you talk to: use them to run code that nobody has read. It has \
         no network. It was set up by somebody else, and stays with all files when this connection ends: others may go on with what is \
         in it."
    );
    let tools = client.request("tools/list", json!({})).await;
    let told = description(&tools);
    assert!(told.contains("belongs to dag/run") && told.contains("about 60 minutes left"), "{told}");
    assert_eq!(tools["result"]["tools"][0]["annotations"]["openWorldHint"], false);
    let answer = client.call("run_command", json!({"command": "ls"})).await;
    assert_eq!((&answer["isError"], &answer["structuredContent"]["exit_code"]), (&json!(false), &json!(0)));
    // AT-19: the same bytes ten minutes later.
    tokio::time::advance(std::time::Duration::from_secs(600)).await;
    assert_eq!(client.request("tools/list", json!({})).await["result"], tools["result"]);
    let server = client.server.clone();
    client.leave().await.0.unwrap();
    server.close().await;
    assert_eq!(holder(&backend, &sandbox).await, None);
    assert_eq!((backend.created().len(), backend.alive()), (1, vec![sandbox.clone()]));
    // AT-20: the next one finds the same sandbox.
    Client::attached(&backend, &sandbox, "dag/run/two").await.server.close().await;
}

#[tokio::test(start_paused = true)]
async fn at_10_a_network_that_is_not_known_may_reach_out() {
    let (backend, sandbox) = owned(OWNED).await;
    let mut found = backend.tags(&sandbox).await.unwrap();
    found.tags.remove(claim::NETWORK);
    backend.set_tags(&sandbox, found.version, &found.tags).await.unwrap();
    let mut client = Client::attached(&backend, &sandbox, "x").await;
    let info = client.shake_hands().await;
    assert!(!info["instructions"].as_str().unwrap().contains("network"), "{info}");
    let tools = client.request("tools/list", json!({})).await;
    assert_eq!(tools["result"]["tools"][0]["annotations"]["openWorldHint"], true);
}

#[tokio::test(start_paused = true)]
async fn at_16_no_other_takes_the_place_of_one_that_ended() {
    let (backend, sandbox) = owned(OWNED).await;
    let mut client = Client::attached(&backend, &sandbox, "dag/run/one").await;
    client.shake_hands().await;
    backend.set_command_result(CommandResult {
        ending: Ending::Unknown,
        sandbox_lost: true,
        ..CommandResult::exited(0, "", "")
    });
    let why = format!(
        "rec: call a tool: the attached sandbox has ended, and what was in it is gone; no other takes its place, sandbox {sandbox}, \
         holder dag/run/one"
    );
    for (tool, arguments) in
        [("run_command", json!({"command": "true"})), ("write_file", json!({"path": "f", "content": "x"}))]
    {
        assert_eq!(
            client.error_text(tool, arguments).await,
            format!(
                "{tool} failed and the sandbox is unusable: {why}. No call of these tools can work any more."
            )
        );
    }
    assert_eq!((backend.created().len(), backend.destroyed()), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn at_14_a_failure_that_leaves_the_sandbox_does_not_give_it_up() {
    let (backend, sandbox) = owned(OWNED).await;
    let mut client = Client::attached(&backend, &sandbox, "dag/run/one").await;
    client.shake_hands().await;
    backend.fail(Operation::Command, || {
        ringfence::Error::new(ringfence::ErrorKind::Unexpected, "rec", "run the command", "it broke")
            .terminal()
    });
    assert_eq!(
        client.error_text("run_command", json!({"command": "true"})).await,
        "run_command failed: rec: run the command: it broke. The sandbox stands, and so do its files."
    );
    backend.recover(Operation::Command);
    assert_eq!(client.call("run_command", json!({"command": "true"})).await["isError"], false);
    assert_eq!(backend.destroyed(), []);
}
