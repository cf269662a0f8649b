//! Calls that take time: progress, cancellation, calls at once.

use std::time::Duration;

use ringfence::toolset::ToolsetConfig;
use serde_json::json;

use super::client::Client;

#[tokio::test(start_paused = true)]
async fn progress_is_told_once_a_second_and_rises() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    client.backend.set_create_delay(Duration::from_millis(1500));
    client.backend.set_command_delay(Duration::from_secs(2));
    let params =
        json!({"name": "run_command", "arguments": {"command": "x"}, "_meta": {"progressToken": "p"}});
    let id = client.ask("tools/call", params).await;
    for (second, what) in [
        (1, "waiting for the sandbox, or for an earlier call to end"),
        (2, "no output so far"),
        (3, "no output so far"),
    ] {
        let told = client.receive().await;
        let progress = told["params"]["progress"].as_f64().unwrap();
        assert!((progress - f64::from(second)).abs() < 0.1, "{told}");
        assert_eq!(told["method"], "notifications/progress");
        assert_eq!(told["params"]["progressToken"], "p");
        assert_eq!(told["params"]["message"], format!("{second} s, {what}"));
    }
    // Nothing is told after the answer.
    assert_eq!(client.receive().await["id"], id);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(client.leave().await.1, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn without_a_token_there_is_no_progress() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    client.backend.set_command_delay(Duration::from_secs(30));
    client.call("run_command", json!({"command": "x"})).await;
}

#[tokio::test(start_paused = true)]
async fn cm_02_a_cancelled_call_is_not_answered_and_gives_up_its_turn() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    client.backend.set_command_delay(Duration::from_secs(3600));
    let cancelled =
        client.ask("tools/call", json!({"name": "run_command", "arguments": {"command": "x"}})).await;
    let waiting = client.ask("tools/call", json!({"name": "list_directory", "arguments": {}})).await;
    client.notify("notifications/cancelled", json!({"requestId": cancelled, "reason": "enough"})).await;
    assert_eq!(client.receive().await["id"], waiting);
    client.backend.set_command_delay(Duration::ZERO);
    client.call("run_command", json!({"command": "x"})).await;
    assert_eq!(client.backend.created().len(), 1);
    assert_eq!(client.leave().await.1, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn calls_at_once_share_the_sandbox_and_take_turns() {
    let mut client = Client::modern(ToolsetConfig::new());
    client.backend.set_create_delay(Duration::from_secs(1));
    client.backend.set_command_delay(Duration::from_secs(1));
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.push(
            client.ask("tools/call", json!({"name": "run_command", "arguments": {"command": "x"}})).await,
        );
    }
    let mut answered = Vec::new();
    for _ in 0..3 {
        answered.push(client.receive().await["id"].as_u64().unwrap());
    }
    assert_eq!(answered, asked);
    assert_eq!(client.backend.created().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_in_the_middle_of_a_call_ends_it() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    client.backend.set_command_delay(Duration::from_secs(3600));
    client.ask("tools/call", json!({"name": "run_command", "arguments": {"command": "x"}})).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let (backend, server) = (client.backend.clone(), client.server.clone());
    assert_eq!(backend.commands().len(), 1);
    assert!(client.leave().await.0.is_ok());
    tokio::time::timeout(Duration::from_secs(60), server.close()).await.unwrap();
    assert_eq!(backend.alive(), []);
}
