//! RC and OT: how a command's result is shown.

use std::time::Duration;

use ringfence_core::{Captured, CommandResult, Ending, Limits, OutputLimit, SandboxSpec};
use ringfence_toolset::{ToolOutput, ToolsetConfig};
use serde_json::json;

use super::support::{cut, ended, ids, recording, session, text};

const LOST: &str =
    "[the sandbox was lost: its files and processes are gone, and the next call starts in a new one]";

async fn rendered(result: CommandResult, config: ToolsetConfig) -> ToolOutput {
    let backend = recording();
    backend.set_command_result(result);
    let run = session(&backend, config);
    let output = run.call("run_command", &json!({"command": "x"})).await.unwrap();
    run.close().await;
    output
}

async fn shown(result: CommandResult) -> String {
    rendered(result, ToolsetConfig::new()).await.text
}

#[tokio::test]
async fn rc_04_the_backend_is_asked_for_the_output_cap() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    text(&run, "run_command", json!({"command": "x"})).await;
    run.close().await;
    assert_eq!(backend.commands()[0].output_limit, OutputLimit::new(51200).unwrap());
}

#[tokio::test]
async fn rc_06_to_rc_11_streams_are_labelled_and_notes_share_the_last_line() {
    let lost = |result: CommandResult| CommandResult { sandbox_lost: true, ..result };
    let cases = [
        (ended(Ending::Exited(3), "hi\n", "bad\n"), "[stdout]\nhi\n[stderr]\nbad\n[exit code: 3]".to_owned()),
        (ended(Ending::Exited(0), "", "warn"), "[stderr]\nwarn".to_owned()),
        (ended(Ending::Exited(0), "", ""), "(no output)".to_owned()),
        (ended(Ending::Exited(7), "", ""), "(no output)\n[exit code: 7]".to_owned()),
        (ended(Ending::Exited(-1), "", ""), "(no output)\n[exit code: -1]".to_owned()),
        (ended(Ending::TimedOut, "part\n", ""), "[stdout]\npart\n[timed out after 60s]".to_owned()),
        (lost(ended(Ending::Exited(2), "", "")), format!("(no output)\n[exit code: 2] {LOST}")),
        (lost(ended(Ending::TimedOut, "", "")), format!("(no output)\n[timed out after 60s] {LOST}")),
        (lost(ended(Ending::Exited(0), "x", "")), format!("[stdout]\nx\n{LOST}")),
        (lost(ended(Ending::Unknown, "", "")), format!("(no output)\n{LOST}")),
        (ended(Ending::Unknown, "", ""), "(no output)\n[exit code: unknown]".to_owned()),
    ];
    for (result, expected) in cases {
        assert_eq!(shown(result).await, expected);
    }
}

#[tokio::test]
async fn p_48_every_ending_can_be_told_apart() {
    let cases = [
        (Ending::Exited(137), "[exit code: 137]"),
        (Ending::Signalled(9), "[ended by signal 9 (SIGKILL)]"),
        (Ending::Signalled(34), "[ended by signal 34]"),
        (Ending::MemoryExceeded, "[killed: out of memory]"),
        (Ending::PidsExceeded, "[failed: too many processes]"),
    ];
    for (ending, note) in cases {
        assert_eq!(shown(ended(ending, "", "")).await, format!("(no output)\n{note}"));
    }
    let limits = Limits {
        memory: Some("64MiB".parse().unwrap()),
        pids: Some(serde_json::from_value(json!(20)).unwrap()),
        ..Limits::default()
    };
    let config = ToolsetConfig::new().spec(SandboxSpec::new().with_limits(limits));
    for (ending, note) in [
        (Ending::MemoryExceeded, "[killed: out of memory, the sandbox may use 64MiB]"),
        (Ending::PidsExceeded, "[failed: too many processes, the sandbox may have 20]"),
    ] {
        let text = rendered(ended(ending, "", ""), config.clone()).await.text;
        assert_eq!(text, format!("(no output)\n{note}"));
    }
}

#[tokio::test]
async fn rc_12_rc_13_rc_14_the_timeout_shown_is_the_one_applied() {
    let applied = |ending, seconds| CommandResult {
        applied_timeout: Some(Duration::from_secs_f64(seconds)),
        ..ended(ending, "", "")
    };
    let cases = [
        (applied(Ending::TimedOut, 30.0), "(no output)\n[timed out after 30s]"),
        (applied(Ending::TimedOut, 2.5), "(no output)\n[timed out after 2.5s]"),
        (applied(Ending::TimedOut, 1e6), "(no output)\n[timed out after 1e+06s]"),
        (applied(Ending::Exited(0), 30.0), "(no output)"),
    ];
    for (result, expected) in cases {
        assert_eq!(shown(result).await, expected);
    }
}

#[tokio::test]
async fn rc_16_rc_18_line_ends_are_normalised_and_nothing_else_is() {
    let cases = [
        ("\n", "[stdout]\n"),
        ("\n\n", "[stdout]\n\n"),
        ("a\n\n", "[stdout]\na\n"),
        ("a\r\nb\r\n", "[stdout]\na\nb"),
        ("10%\r20%\n", "[stdout]\n10%\r20%"),
        ("a\u{c}b\u{2028}c\u{85}d\n", "[stdout]\na\u{c}b\u{2028}c\u{85}d"),
        ("\u{1b}[31mred\u{1b}[0m\n", "[stdout]\n\u{1b}[31mred\u{1b}[0m"),
        ("\u{fffd}\n", "[stdout]\n\u{fffd}"),
    ];
    for (output, expected) in cases {
        assert_eq!(shown(ended(Ending::Exited(0), output, "")).await, expected);
    }
    let undecodable = CommandResult::exited(0, &b"ok\xff\n"[..], "");
    assert_eq!(shown(undecodable).await, "[stdout]\nok\u{fffd}");
}

#[tokio::test]
async fn rc_17_a_truncated_stream_without_a_rest_is_not_silence() {
    let result = CommandResult { stdout: cut(b"", 0), ..ended(Ending::Exited(0), "", "") };
    assert_eq!(shown(result).await, "[stdout]\n[... earlier output truncated]");
    let result = CommandResult { stderr: cut(b"", 3_000_000), ..ended(Ending::Exited(0), "", "") };
    assert_eq!(shown(result).await, "[stderr]\n[... earlier output truncated] showing the last 0B of 2.9MB");
}

#[tokio::test]
async fn rc_19_a_cut_by_the_backend_is_marked_with_the_total_if_known() {
    let unknown = CommandResult { stdout: cut(b"tail", 4), ..ended(Ending::Exited(0), "", "") };
    assert_eq!(shown(unknown).await, "[stdout]\n[... earlier output truncated]\ntail");
    let known = CommandResult { stdout: cut(b"tail", 5_242_880), ..ended(Ending::Exited(0), "", "") };
    assert_eq!(
        shown(known).await,
        "[stdout]\n[... earlier output truncated] showing the last 4B of 5.0MB\ntail"
    );
    // The rest of a character that the cut split was never written.
    let split = CommandResult { stdout: cut(b"\xa9\xc3\xa9", 100), ..ended(Ending::Exited(0), "", "") };
    assert_eq!(
        shown(split).await,
        "[stdout]\n[... earlier output truncated] showing the last 2B of 100B\n\u{e9}"
    );
}

#[tokio::test]
async fn rc_20_ot_02_each_stream_is_cut_to_its_own_tail() {
    let lines: String = (1..=10).map(|line| format!("line{line}\n")).collect();
    let text = rendered(
        ended(Ending::Exited(1), &lines, "one\ntwo\nthree\n"),
        ToolsetConfig::new().max_output_lines(3),
    )
    .await
    .text;
    assert_eq!(
        text,
        "[stdout]\n[... earlier output truncated] showing the last 18B of 61B\nline8\nline9\nline10\n[stderr]\none\ntwo\n\
         three\n[exit code: 1]"
    );
    let bytes =
        rendered(ended(Ending::Exited(0), &lines, ""), ToolsetConfig::new().max_output_bytes(9)).await.text;
    assert_eq!(bytes, "[stdout]\n[... earlier output truncated] showing the last 6B of 61B\nline10");
}

#[tokio::test]
async fn ot_05_a_last_line_over_the_cap_is_shown_by_its_end() {
    let output = rendered(
        ended(Ending::Exited(0), &format!("{}end\n", "x".repeat(100)), ""),
        ToolsetConfig::new().max_output_bytes(5),
    )
    .await;
    assert_eq!(output.text, "[stdout]\n[... earlier output truncated] showing the last 5B of 104B\nxxend");
}

#[tokio::test]
async fn rc_output_that_only_looks_like_a_marker_is_not_one() {
    let output =
        rendered(ended(Ending::Exited(0), "[... earlier output truncated]\nx\n", ""), ToolsetConfig::new())
            .await;
    assert_eq!(output.text, "[stdout]\n[... earlier output truncated]\nx");
    assert_eq!(output.structured["stdout"], "[... earlier output truncated]\nx");
    assert_eq!(output.structured["stdout_truncated"], false);
}

#[tokio::test]
async fn structure_carries_everything_the_text_does() {
    let ordinary = rendered(ended(Ending::Exited(3), "hi\n", ""), ToolsetConfig::new()).await.structured;
    assert_eq!(
        ordinary,
        json!({
            "ending": "exited", "exit_code": 3, "signal": null, "timed_out": false, "timeout_seconds": 60.0,
            "stdout": "hi", "stdout_truncated": false, "stdout_total_bytes": 3,
            "stderr": "", "stderr_truncated": false, "stderr_total_bytes": 0,
            "sandbox_lost": false, "note": "exit code: 3",
        })
    );
    let result = CommandResult {
        ending: Ending::TimedOut,
        stdout: cut(b"b\nc\n", 4),
        stderr: Captured { bytes: "e\n".into(), truncated: true, total_bytes: 100 },
        applied_timeout: Some(Duration::from_secs(2)),
        sandbox_lost: true,
    };
    assert_eq!(
        rendered(result, ToolsetConfig::new()).await.structured,
        json!({
            "ending": "timed_out", "exit_code": null, "signal": null, "timed_out": true, "timeout_seconds": 2.0,
            "stdout": "b\nc", "stdout_truncated": true, "stdout_total_bytes": null,
            "stderr": "e", "stderr_truncated": true, "stderr_total_bytes": 100,
            "sandbox_lost": true, "note": "timed out after 2s",
        })
    );
    let killed = rendered(ended(Ending::Signalled(15), "", ""), ToolsetConfig::new()).await.structured;
    assert_eq!((&killed["ending"], &killed["signal"]), (&json!("signalled"), &json!(15)));
}

#[tokio::test]
async fn lc_19_after_a_lost_sandbox_the_next_command_runs_in_a_new_one() {
    let backend = recording();
    backend.set_command_result(CommandResult { sandbox_lost: true, ..ended(Ending::Exited(0), "", "") });
    let run = session(&backend, ToolsetConfig::new());
    text(&run, "run_command", json!({"command": "x"})).await;
    assert_eq!(run.sandbox(), None);
    backend.set_command_result(ended(Ending::Exited(0), "", ""));
    text(&run, "run_command", json!({"command": "x"})).await;
    run.close().await;
    let used: Vec<_> = backend.commands().into_iter().map(|command| command.sandbox).collect();
    assert_eq!(ids(&used), ["box-1", "box-2"]);
    assert_eq!(ids(&backend.destroyed()), ["box-2"]);
}

#[tokio::test(start_paused = true)]
async fn lc_19_a_sandbox_whose_lifetime_is_over_says_so_in_text_and_structure() {
    let backend = recording();
    let spec = SandboxSpec::new().with_lifetime(Duration::from_secs(10)).unwrap();
    let run = session(&backend, ToolsetConfig::new().spec(spec));
    text(&run, "run_command", json!({"command": "x"})).await;
    tokio::time::advance(Duration::from_secs(10)).await;
    backend.set_command_result(CommandResult { sandbox_lost: true, ..ended(Ending::Unknown, "", "") });
    let lost = run.call("run_command", &json!({"command": "x"})).await.unwrap();
    assert_eq!(
        lost.text,
        "(no output)\n[the sandbox's lifetime of 10s was over] [the sandbox was lost: its files and processes are gone, and the \
         next call starts in a new one]"
    );
    assert_eq!(lost.structured["note"], "the sandbox's lifetime of 10s was over");
}
