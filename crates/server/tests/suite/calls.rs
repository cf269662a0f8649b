//! What a call is answered.

use ringfence::toolset::ToolsetConfig;
use ringfence_core::memory::Operation;
use ringfence_core::{CommandResult, Ending, Error, ErrorKind};
use serde_json::json;

use super::client::{Client, text_of_error};

#[tokio::test]
async fn er_01_a_non_zero_exit_is_a_result_in_text_and_structure() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    client.backend.set_command_result(CommandResult::exited(3, "some\n", "oops\n"));
    let result = client.call("run_command", json!({"command": "x", "timeout_seconds": 5})).await;
    let expected = json!({
        "content": [{"type": "text", "text": "[stdout]\nsome\n[stderr]\noops\n[exit code: 3]"}],
        "structuredContent": {
            "ending": "exited", "exit_code": 3, "signal": null, "timed_out": false, "timeout_seconds": 5.0,
            "stdout": "some", "stdout_truncated": false, "stdout_total_bytes": 5,
            "stderr": "oops", "stderr_truncated": false, "stderr_total_bytes": 5,
            "sandbox_lost": false, "note": "exit code: 3",
        },
        "isError": false,
    });
    assert_eq!(result, expected);
}

#[tokio::test]
async fn the_four_tools_work() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    let written = client.call("write_file", json!({"path": "a/b.txt", "content": "one\ntwo\n"})).await;
    assert_eq!(written["structuredContent"], json!({"path": "a/b.txt", "bytes_written": 8}));
    let read = client.call("read_file", json!({"path": "a/b.txt", "offset": 2})).await;
    assert_eq!(read["structuredContent"]["content"], "two");
    let listed = client.call("list_directory", json!({"path": "a"})).await;
    assert_eq!(listed["structuredContent"], json!({"entries": ["b.txt"], "remaining": 0}));
    assert_eq!(client.backend.created().len(), 1);
}

#[tokio::test]
async fn td_03_wrong_types_are_corrected_by_the_type_expected() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    assert_eq!(
        client.error_text("run_command", json!({"command": true})).await,
        "run_command was not run: `command` must be a string, not the boolean true"
    );
    // As one text, or as a list, although the protocol has objects only.
    assert_eq!(
        client.error_text("run_command", json!("{\"command\": \"ls\"}")).await,
        "run_command was not run: the arguments must be an object, not the string \"{\\\"command\\\": \\\"ls\\\"}\"; `command` is \
         missing; it must be a string"
    );
    assert_eq!(
        client.error_text("list_directory", json!(["src"])).await,
        "list_directory was not run: the arguments must be an object, not an array"
    );
    assert_eq!(client.backend.created(), []);
}

#[tokio::test]
async fn er_06_corrections_never_end_a_server_that_has_no_run() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    for _ in 0..5 {
        assert_eq!(
            client.error_text("read_file", json!({"path": "missing"})).await,
            "read_file failed: rec: read the file: the path does not exist, path missing, sandbox box-1"
        );
    }
    assert_eq!((client.backend.created().len(), client.backend.destroyed().len()), (1, 0));
}

#[tokio::test]
async fn er_03_a_terminal_error_says_that_the_sandbox_is_unusable_and_the_next_call_gets_a_new_one() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    let broken = Error::new(ErrorKind::Unexpected, "rec", "do the thing", "broken").terminal();
    client.backend.fail_once(Operation::Command, broken);
    assert_eq!(
        client.error_text("run_command", json!({"command": "x"})).await,
        "run_command failed and the sandbox is unusable: rec: do the thing: broken. It was destroyed with its files and \
         processes; the next call starts in a new one."
    );
    assert_eq!(client.backend.alive(), []);
    assert_eq!(client.call("run_command", json!({"command": "x"})).await["isError"], false);
    assert_eq!((client.backend.created().len(), client.backend.alive().len()), (2, 1));
}

#[tokio::test]
async fn lc_10_a_sandbox_that_cannot_be_created_is_told_and_tried_again() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    let full = Error::new(ErrorKind::Unexpected, "rec", "create", "no room").hint("make some").terminal();
    client.backend.fail_once(Operation::Create, full);
    assert_eq!(
        client.error_text("list_directory", json!({})).await,
        "list_directory failed and the sandbox is unusable: rec: create: no room; make some. The next call tries to create one \
         again."
    );
    assert_eq!(client.call("list_directory", json!({})).await["isError"], false);
}

#[tokio::test]
async fn lc_19_a_lost_sandbox_is_in_the_structure_too() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    let lost =
        CommandResult { ending: Ending::Unknown, sandbox_lost: true, ..CommandResult::exited(0, "", "") };
    client.backend.set_command_result(lost);
    let result = client.call("run_command", json!({"command": "x"})).await;
    assert_eq!(result["structuredContent"]["sandbox_lost"], true);
    assert_eq!(result["isError"], false);
}

#[tokio::test]
async fn er_04_an_unknown_tool_is_an_error_of_the_protocol() {
    let mut client = Client::legacy(ToolsetConfig::new()).await;
    let answer = client.request("tools/call", json!({"name": "rm", "arguments": {}})).await;
    let told = "unknown tool \"rm\"; there are run_command, read_file, write_file, list_directory";
    assert_eq!(answer["error"], json!({"code": -32602, "message": told}));
    let answer = client.request("tools/call", json!({"name": 5})).await;
    assert_eq!(answer["error"], json!({"code": -32602, "message": "`name` must be a string"}));
    let answer = client.request("tools/remove", json!({})).await;
    assert_eq!(answer["error"], json!({"code": -32601, "message": "there is no method \"tools/remove\""}));
}

#[tokio::test]
async fn mk_01_no_answer_shows_a_secret() {
    let mut client = Client::legacy(ToolsetConfig::new().secret("hunter2-hunter2")).await;
    client.backend.set_command_result(CommandResult::exited(0, "key hunter2-hunter2\n", ""));
    let result = client.call("run_command", json!({"command": "x"})).await.to_string();
    assert!(result.contains("key ***") && !result.contains("hunter2"), "{result}");
    let wrong = client.call("write_file", json!({"path": "hunter2-hunter2", "content": 1})).await;
    assert!(!text_of_error(&wrong).contains("hunter2"), "{wrong}");
}
