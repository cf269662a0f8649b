//! ER: what an error does to the run.

use ringfence_core::memory::Operation;
use ringfence_core::{Ending, ErrorKind};
use ringfence_toolset::{CallOptions, Correction, Tool, ToolError, ToolsetConfig};
use serde_json::json;

use super::support::{correction, ended, error, ids, recording, session, terminal, text};

#[tokio::test]
async fn er_02_a_recoverable_error_goes_back_to_the_model_with_tool_and_cause() {
    let backend = recording();
    backend.fail(Operation::Command, || error(ErrorKind::Unexpected, "no such image").hint("pull it"));
    let run = session(&backend, ToolsetConfig::new().prefix("box"));
    assert_eq!(
        correction(run.call("box_run_command", &json!({"command": "ls"})).await),
        "box_run_command failed: rec: do the thing: no such image; pull it"
    );
    run.close().await;
}

#[tokio::test]
async fn er_03_a_terminal_error_ends_the_run_and_the_sandbox_is_destroyed() {
    let backend = recording();
    backend.fail_once(Operation::Command, error(ErrorKind::Unexpected, "broken").terminal());
    let run = session(&backend, ToolsetConfig::new());
    let ended = terminal(run.call("run_command", &json!({"command": "ls"})).await);
    assert_eq!(ended.to_string(), "rec: do the thing: broken");
    run.close().await;
    assert_eq!(ids(&backend.destroyed()), ["box-1"]);
}

#[tokio::test]
async fn er_04_an_unknown_tool_is_neither_a_correction_nor_terminal() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new().prefix("box"));
    for name in ["run_command", "box_rm", ""] {
        let unknown = run.call(name, &json!({"command": "ls"})).await.unwrap_err();
        assert!(matches!(&unknown, ToolError::UnknownTool { .. }));
        assert_eq!(
            unknown.to_string(),
            format!(
                "unknown tool {name:?}; there are box_run_command, box_read_file, box_write_file, box_list_directory"
            )
        );
    }
    assert_eq!(backend.created(), []);
}

#[tokio::test]
async fn er_06_the_third_failure_in_a_row_of_one_tool_ends_the_run() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    let failed = |failures| Correction {
        text: "run_command was not run: `command` is missing; it must be a string".to_owned(),
        failures,
    };
    for round in 0..2 {
        for failures in 1..=2 {
            match run.call("run_command", &json!({})).await {
                Err(ToolError::Correction(correction)) => assert_eq!(correction, failed(failures)),
                other => panic!("round {round}: {other:?}"),
            }
            // Another tool has a count of its own.
            text(&run, "list_directory", json!({})).await;
        }
        text(&run, "run_command", json!({"command": "ls"})).await;
        assert_eq!(run.failures(Tool::RunCommand), 0);
    }
    for _ in 0..2 {
        correction(run.call("run_command", &json!({})).await);
    }
    let ended = terminal(run.call("run_command", &json!({})).await);
    assert!(ended.is_terminal());
    assert_eq!(
        ended.to_string(),
        "rec: call a tool: run_command failed 3 times in a row, the last time: run_command was not run: `command` is \
         missing; it must be a string"
    );
    run.close().await;
}

#[tokio::test]
async fn er_06_within_one_turn_failures_count_once_and_only_a_later_success_clears_them() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    for _ in 0..5 {
        correction(run.call_with("run_command", &json!({}), CallOptions::default().turn(1)).await);
    }
    run.call_with("run_command", &json!({"command": "ls"}), CallOptions::default().turn(1)).await.unwrap();
    assert_eq!(run.failures(Tool::RunCommand), 1);
    run.call_with("run_command", &json!({"command": "ls"}), CallOptions::default().turn(2)).await.unwrap();
    assert_eq!(run.failures(Tool::RunCommand), 0);
    run.close().await;
}

#[tokio::test]
async fn er_08_a_file_operation_that_meets_a_lost_sandbox_says_so_and_the_next_call_gets_a_new_one() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    let calls = [
        (Operation::Read, "read_file", json!({"path": "f"})),
        (Operation::Write, "write_file", json!({"path": "f", "content": ""})),
        (Operation::List, "list_directory", json!({})),
        (Operation::Command, "run_command", json!({"command": "ls"})),
    ];
    for (operation, tool, arguments) in calls {
        backend.fail_once(operation, error(ErrorKind::SandboxLost, "it is gone").hint("create a new one"));
        assert_eq!(
            correction(run.call(tool, &arguments).await),
            format!(
                "{tool} failed: rec: do the thing: it is gone. The sandbox was lost: its files and processes are gone, \
                 and the next call starts in a new one"
            )
        );
    }
    run.prepare().await.unwrap();
    run.close().await;
    assert_eq!(backend.created().len(), 5);
    assert_eq!(ids(&backend.destroyed()), ["box-5"]);
}

#[tokio::test]
async fn rc_15_a_failing_command_is_a_result_and_counts_as_a_success() {
    let backend = recording();
    backend.set_command_result(ended(Ending::Exited(1), "", ""));
    let run = session(&backend, ToolsetConfig::new());
    for _ in 0..4 {
        assert_eq!(
            text(&run, "run_command", json!({"command": "false"})).await,
            "(no output)\n[exit code: 1]"
        );
    }
    backend.set_command_result(ended(Ending::TimedOut, "", ""));
    for _ in 0..4 {
        assert_eq!(
            text(&run, "run_command", json!({"command": "sleep 9"})).await,
            "(no output)\n[timed out after 60s]"
        );
    }
    run.close().await;
}
