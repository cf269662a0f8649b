//! Both eras of the protocol, and the end of a connection.

use std::time::Duration;

use ringfence::toolset::ToolsetConfig;
use ringfence_core::CommandResult;
use serde_json::{Value, json};

use super::client::{Client, MODERN};

#[tokio::test]
async fn the_handshake_tells_who_serves_and_creates_nothing() {
    let mut client = Client::silent(ToolsetConfig::new());
    let info = client.shake_hands().await;
    assert_eq!(info["protocolVersion"], "2025-11-25");
    assert_eq!(info["capabilities"], json!({"tools": {}}));
    assert_eq!(info["serverInfo"]["name"], "ringfence");
    assert_eq!(info["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
    // True whether the sandbox waits in a pool or is made by the first call.
    assert_eq!(
        info["instructions"],
        "These tools act in a disposable sandbox, not on the machine of the person you talk to: use them to run code that nobody has \
         read. It has no network. It is new at the first call, is the same for all calls, and is destroyed with everything in it when \
         this connection ends."
    );
    client.request("tools/list", json!({})).await;
    assert_eq!(client.backend.created(), []);
}

#[tokio::test]
async fn an_older_client_is_answered_in_its_own_version() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::silent(ToolsetConfig::new());
        let client_info = json!({"name": "old", "version": "0"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client_info});
        let answer = client.request("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], version);
    }
}

#[tokio::test]
async fn without_a_handshake_every_request_says_its_version() {
    let mut client = Client::modern(ToolsetConfig::new());
    let discovered = client.request("server/discover", json!({})).await;
    let versions = discovered["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!(MODERN)), "{discovered}");
    let result = client.call("run_command", json!({"command": "x"})).await;
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["structuredContent"]["stdout"], "out");
    assert_eq!(client.backend.created().len(), 1);
}

#[tokio::test]
async fn an_unknown_version_is_answered_with_those_that_are_known() {
    let mut client = Client::silent(ToolsetConfig::new());
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let answer = client.request("tools/list", json!({"_meta": meta})).await;
    assert_eq!(answer["error"]["code"], -32022);
    let supported = answer["error"]["data"]["supported"].as_array().unwrap();
    assert!(supported.contains(&json!(MODERN)), "{answer}");
}

#[tokio::test]
async fn ping_is_answered_where_the_protocol_still_has_it() {
    let mut legacy = Client::legacy(ToolsetConfig::new()).await;
    assert_eq!(legacy.request("ping", json!({})).await["result"], json!({}));
    let mut modern = Client::modern(ToolsetConfig::new());
    modern.request("tools/list", json!({})).await;
    assert_eq!(modern.request("ping", json!({})).await["error"], json!({"code": -32601, "message": "ping"}));
}

#[tokio::test]
async fn a_client_may_ask_for_versions_and_then_shake_hands() {
    let mut client = Client::modern(ToolsetConfig::new());
    client.request("server/discover", json!({})).await;
    // It gave up on its question before the answer came, and says so before it opens.
    client.notify("notifications/cancelled", json!({"requestId": 1})).await;
    client.shake_hands().await;
    assert_eq!(
        client.call("run_command", json!({"command": "x"})).await["structuredContent"]["exit_code"],
        0
    );
}

#[tokio::test]
async fn td_18_the_definitions_are_the_same_bytes_every_time() {
    let mut client = Client::legacy(ToolsetConfig::new().prefix("box")).await;
    let first = client.request("tools/list", json!({})).await["result"].to_string();
    client.call("box_run_command", json!({"command": "x"})).await;
    assert_eq!(client.request("tools/list", json!({})).await["result"].to_string(), first);
    let mut other = Client::legacy(ToolsetConfig::new().prefix("box")).await;
    assert_eq!(other.request("tools/list", json!({})).await["result"].to_string(), first);
}

#[tokio::test]
async fn td_01_four_tools_with_schemas_and_annotations() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    let list = client.request("tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().unwrap();
    let shown: Vec<(Value, Value)> =
        tools.iter().map(|tool| (tool["name"].clone(), tool["annotations"].clone())).collect();
    let hints = |title: &str, read_only: bool, idempotent: bool| {
        json!({
            "title": title, "readOnlyHint": read_only, "destructiveHint": false, "idempotentHint": idempotent,
            "openWorldHint": false,
        })
    };
    let expected = [
        (json!("run_command"), hints("Run a shell command", false, false)),
        (json!("read_file"), hints("Read a file", true, true)),
        (json!("write_file"), hints("Write a file", false, true)),
        (json!("list_directory"), hints("List a directory", true, true)),
    ];
    assert_eq!(shown, expected);
    for tool in tools {
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert_eq!(tool["outputSchema"]["type"], "object");
        assert!(tool["description"].as_str().unwrap().len() > 40);
    }
}

#[tokio::test]
async fn a_subscription_is_taken_and_ends_with_the_connection() {
    let mut client = Client::modern(ToolsetConfig::new());
    client.call("run_command", json!({"command": "x"})).await;
    client.ask("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})).await;
    let acknowledged = client.receive().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(client.call("run_command", json!({"command": "x"})).await["isError"], false);
    // The clock stands still, so nothing may wait for it.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    assert!(client.leave().await.0.is_ok());
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn lc_03_the_sandbox_ends_with_the_connection() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    client.call("run_command", json!({"command": "x"})).await;
    client.call("list_directory", json!({})).await;
    let (backend, server) = (client.backend.clone(), client.server.clone());
    assert_eq!((backend.created().len(), backend.alive().len()), (1, 1));
    let (ended, rest) = client.leave().await;
    assert!(ended.is_ok() && rest.is_empty(), "{ended:?} {rest:?}");
    server.close().await;
    assert_eq!(backend.alive(), []);
}

#[tokio::test]
async fn a_client_that_says_nothing_at_all_is_no_error() {
    let client = Client::silent(ToolsetConfig::new());
    let (ended, rest) = client.leave().await;
    assert!(ended.is_ok() && rest.is_empty(), "{ended:?} {rest:?}");
}

#[tokio::test]
async fn what_cannot_be_read_is_answered_with_its_id() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    for (line, code, id) in [
        (r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":NaN}"#, -32700, json!(5)),
        (r#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"_meta":1}}"#, -32600, json!("a")),
        (r#"{"jsonrpc":"2.0","id":6,"method":"tools/list","params":[]}"#, -32600, json!(6)),
        (r#"{"id":7,"method":"tools/list"}"#, -32600, json!(7)),
        (r#"[{"jsonrpc":"2.0","id":8,"method":"tools/list"}]"#, -32600, json!(null)),
        ("garbage", -32700, json!(null)),
    ] {
        client.send_line(line.as_bytes()).await;
        let answer = client.receive().await;
        let shown = (answer["error"]["code"].clone(), answer.get("id").cloned().unwrap_or_default());
        assert_eq!(shown, (json!(code), id), "{line}: {answer}");
    }
    // Without an id there is nobody to answer.
    client.send_line(br#"{"jsonrpc":"2.0","method":5}"#).await;
    assert_eq!(client.call("run_command", json!({"command": "x"})).await["isError"], false);
}

#[tokio::test]
async fn half_an_emoji_is_replaced_as_text_encoders_do() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    let arguments = r#"{"name":"write_file","arguments":{"path":"f","content":"\ud83d\ude00\ud83d"}}"#;
    client
        .send_line(
            format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{arguments}}}"#).as_bytes(),
        )
        .await;
    assert_eq!(client.receive().await["result"]["structuredContent"]["bytes_written"], 7);
    assert_eq!(client.backend.writes()[0].content, "\u{1f600}\u{fffd}".as_bytes());
}

#[tokio::test]
async fn an_opening_that_is_refused_is_not_the_end() {
    for meta in [json!({"io.modelcontextprotocol/protocolVersion": MODERN}), json!({})] {
        let mut client = Client::silent(ToolsetConfig::new());
        let refused = client.request("tools/list", json!({"_meta": meta})).await;
        assert_eq!(refused["error"]["code"], -32602);
        client.notify("notifications/cancelled", json!({"requestId": 1})).await;
        client.shake_hands().await;
    }
}

#[tokio::test(start_paused = true)]
async fn lc_03_a_client_that_does_not_read_holds_nothing_up() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    client.backend.set_command_result(CommandResult::exited(0, "x".repeat(40_000), ""));
    // More than the stream between takes, and none of it is read.
    for _ in 0..40 {
        client.ask("tools/call", json!({"name": "run_command", "arguments": {"command": "x"}})).await;
    }
    let backend = client.backend.clone();
    while backend.commands().len() < 40 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    backend.set_command_delay(Duration::from_secs(3600));
    let last =
        client.ask("tools/call", json!({"name": "run_command", "arguments": {"command": "last"}})).await;
    while backend.commands().len() < 41 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.send_line(b"[]").await;
    client.notify("notifications/cancelled", json!({"requestId": last})).await;
    backend.set_command_delay(Duration::ZERO);
    client.ask("tools/call", json!({"name": "list_directory", "arguments": {}})).await;
    let server = client.server.clone();
    client.close_unread().await.unwrap();
    server.close().await;
    assert_eq!(backend.alive(), []);
}

#[tokio::test]
async fn there_is_one_page_of_tools() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    let answer = client.request("tools/list", json!({"cursor": "x"})).await;
    let told = "all tools are on one page; no cursor was given out";
    assert_eq!(answer["error"], json!({"code": -32602, "message": told}));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_cannot_be_written_to_is_gone() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    client.call("run_command", json!({"command": "x"})).await;
    let (backend, server) = (client.backend.clone(), client.server.clone());
    // Its own end stays open, as when another process has inherited it.
    let _kept = client.stop_reading_and_ask().await;
    server.close().await;
    assert_eq!(backend.alive(), []);
}
