//! MK: no secret reaches the model, whole or in part.

use std::sync::Arc;

use ringfence_core::memory::{Operation, RecordingBackend};
use ringfence_core::{
    Captured, CommandResult, Ending, EnvMap, ErrorKind, OutputLimit, SandboxSpec, TailBuffer,
};
use ringfence_toolset::{CallOptions, Session, ToolsetConfig};
use serde_json::json;

use super::support::{correction, cut, ended, error, recording, session, terminal, text};

const SECRET: &str = "s3cr3t-Tok3n";

fn with_env(variables: &[(&str, &str)]) -> ToolsetConfig {
    let env = EnvMap::new(variables.iter().copied()).unwrap();
    ToolsetConfig::new().spec(SandboxSpec::new().with_env(env))
}

fn hiding() -> ToolsetConfig {
    with_env(&[("TOKEN", SECRET)])
}

async fn run_output(config: ToolsetConfig, result: CommandResult) -> String {
    let backend = recording();
    backend.set_command_result(result);
    let run = session(&backend, config);
    let shown = text(&run, "run_command", json!({"command": "x"})).await;
    run.close().await;
    shown
}

fn printed(output: &str) -> CommandResult {
    ended(Ending::Exited(0), output, "")
}

#[tokio::test]
async fn mk_01_output_is_masked_before_it_is_cut() {
    let output = format!("{}{SECRET}{}\n", "x".repeat(40), "y".repeat(40));
    let shown = run_output(hiding().max_output_bytes(60), printed(&output)).await;
    assert_eq!(
        shown,
        format!(
            "[stdout]\n[... earlier output truncated] showing the last 60B of 93B\n{}***{}",
            "x".repeat(17),
            "y".repeat(40)
        )
    );
}

/// A backend keeps only a tail, which may begin inside a secret. Whatever the position, no part of it may be shown.
#[tokio::test]
async fn mk_01_a_tail_that_begins_inside_a_secret_shows_none_of_it() {
    const CAP: usize = 20;
    for after in 0..60 {
        for (before, joint) in [("x".repeat(50), ""), ("x\n".repeat(25), ""), ("x".repeat(50), "\n")] {
            let output = format!("{before}{SECRET}{joint}{}", "y".repeat(after));
            let backend = recording();
            let written = output.clone();
            backend.answer_commands(move |command| {
                let mut tail = TailBuffer::new(command.output_limit);
                tail.push(written.as_bytes());
                let stdout = tail.finish();
                Ok(CommandResult { stdout, ..ended(Ending::Exited(0), "", "") })
            });
            let run = session(&backend, hiding().max_output_bytes(CAP));
            let shown = text(&run, "run_command", json!({"command": "x"})).await;
            run.close().await;
            let asked = backend.commands()[0].output_limit;
            assert_eq!(asked, OutputLimit::new(CAP + SECRET.len() - 1).unwrap());
            let shown: Vec<&str> = shown.lines().skip(1).filter(|line| !line.starts_with("[...")).collect();
            // The mask itself may be cut.
            let shown = shown.join("\n").replace('*', "");
            assert!(
                shown.chars().all(|character| "xy\n".contains(character)),
                "after {after}: {shown:?} of {output:?}"
            );
        }
    }
}

#[tokio::test]
async fn mk_01_the_end_of_a_secret_at_the_head_is_masked_even_if_the_backend_gave_no_slack() {
    let result = CommandResult { stdout: cut(b"Tok3n and more", 100), ..printed("") };
    let shown = run_output(hiding(), result).await;
    assert_eq!(shown, "[stdout]\n[... earlier output truncated] showing the last 12B of 100B\n*** and more");
    // Of a complete stream the same bytes are just output.
    let shown = run_output(hiding(), printed("Tok3n and more")).await;
    assert_eq!(shown, "[stdout]\nTok3n and more");
}

#[tokio::test]
async fn mk_02_file_content_is_masked_as_bytes_before_it_is_windowed() {
    let backend = recording();
    let mut content = format!("k={SECRET}\nline2\n").into_bytes();
    content.extend_from_slice(b"\xff\n");
    backend.seed_file("f", content).unwrap();
    let run = session(&backend, hiding());
    let output = run.call("read_file", &json!({"path": "f"})).await.unwrap();
    assert_eq!(output.text, "k=***\nline2\n\u{fffd}");
    assert_eq!(output.structured["content"], "k=***\nline2\n\u{fffd}");
    run.close().await;
    // The mask decides what fits, not the secret.
    let run = session(&backend, hiding().max_output_bytes(6));
    assert_eq!(
        text(&run, "read_file", json!({"path": "f"})).await,
        "k=***\n[... 2 more lines; read on with offset=2]"
    );
    run.close().await;
}

#[tokio::test]
async fn mk_03_confirmations_listings_corrections_and_errors_are_masked() {
    let backend = recording();
    let run = session(&backend, hiding());
    let path = format!("{SECRET}/{SECRET}.txt");
    let written = run.call("write_file", &json!({"path": path, "content": ""})).await.unwrap();
    assert_eq!(written.text, "Wrote 0 bytes to '***/***.txt'.");
    assert_eq!(written.structured, json!({"path": "***/***.txt", "bytes_written": 0}));

    let listed = run.call("list_directory", &json!({"path": SECRET})).await.unwrap();
    assert_eq!((listed.text.as_str(), &listed.structured["entries"]), ("***.txt", &json!(["***.txt"])));

    assert_eq!(
        correction(run.call("read_file", &json!({"path": format!("no-{SECRET}")})).await),
        "read_file failed: rec: read the file: the path does not exist, path no-***, sandbox box-1"
    );
    assert_eq!(
        correction(run.call("read_file", &json!({"path": "f", "offset": SECRET})).await),
        "read_file was not run: `offset` must be a whole number or null, not the string \"***\""
    );

    let cause = std::io::Error::other(format!("cause {SECRET}"));
    let failure = error(ErrorKind::Unavailable, &format!("message {SECRET}"))
        .context("path", SECRET)
        .hint(format!("hint {SECRET}"))
        .source(cause)
        .terminal();
    backend.fail_once(Operation::Read, failure);
    let failed = terminal(run.call("read_file", &json!({"path": "f"})).await);
    assert_eq!(
        format!("{failed:?}"),
        "Error { kind: Unavailable, operation: \"do the thing\", backend: \"rec\", message: \"message ***\", hint: \
         Some(\"hint ***\"), context: [(\"path\", \"***\")], disposition: Terminal, retry: Never, source: Some(\"cause ***\") }"
    );
    assert_eq!(failed.to_string(), "rec: do the thing: message ***, path ***: cause ***; hint ***");
    run.close().await;
}

#[tokio::test]
async fn mk_03_a_bad_value_is_masked_before_it_is_shortened() {
    let run = session(&recording(), hiding());
    for padding in 20..45 {
        let value = format!("{}{SECRET}", "x".repeat(padding));
        let shown = correction(
            run.call_with("read_file", &json!({"path": "f", "limit": value}), CallOptions::default().turn(1))
                .await,
        );
        assert!(!shown.contains("xs3"), "{shown}");
    }
}

#[tokio::test]
async fn mk_03_a_failed_creation_is_masked() {
    let backend = recording();
    backend.fail(Operation::Create, || error(ErrorKind::Unavailable, &format!("bad token {SECRET}")));
    let run = session(&backend, hiding());
    assert_eq!(
        terminal(run.call("run_command", &json!({"command": "x"})).await).to_string(),
        "rec: provision a sandbox: could not provision a sandbox: rec: do the thing: bad token ***"
    );
    assert_eq!(
        run.prepare().await.unwrap_err().to_string(),
        "rec: provision a sandbox: could not provision a sandbox: rec: do the thing: bad token ***"
    );
}

#[tokio::test]
async fn mk_04_only_secrets_are_masked_and_short_or_public_values_are_none() {
    let config = with_env(&[
        ("DEBUG", "1"),
        ("STAGE", "prod"),
        ("PASSWORD", "short77"),
        ("PATH", "/usr/local/bin:/usr/bin"),
        ("LC_ALL", "en_US.UTF-8"),
        ("REGION", "eu-central-1"),
        ("TOKEN", SECRET),
    ])
    .public_env("REGION")
    .secret("pin")
    .secret("");
    let output = format!(
        "1 prod short77 /usr/local/bin:/usr/bin en_US.UTF-8 eu-central-1 password=hunter2 pin {SECRET}"
    );
    assert_eq!(
        run_output(config, printed(&output)).await,
        "[stdout]\n1 prod short77 /usr/local/bin:/usr/bin en_US.UTF-8 eu-central-1 password=hunter2 *** ***"
    );
}

#[tokio::test]
async fn mk_overlapping_secrets_leave_nothing_of_each_other() {
    let config = || ToolsetConfig::new().secret("abcdef").secret("abc").secret("defghi").secret("xx");
    for (output, expected) in [
        ("-abcdef-", "-***-"),
        ("-abc-", "-***-"),
        ("-abcdefghi-", "-***-"),
        ("-abcabc-", "-******-"),
        ("-xxx-", "-***-"),
        ("-xxxx-", "-***-"),
        ("-ab-def-", "-ab-def-"),
    ] {
        assert_eq!(run_output(config(), printed(output)).await, format!("[stdout]\n{expected}"), "{output}");
    }
}

#[tokio::test]
async fn mk_secrets_with_newlines_are_found_in_every_shape() {
    let key = "-----BEGIN KEY-----\nabc\"def\n-----END KEY-----\n";
    let config = with_env(&[("KEY", key)]);
    for (output, expected) in [
        (format!("before\n{key}after"), "before\n***after"),
        (format!("before\n{}", key.trim_end()), "before\n***"),
        (format!("x{}x", key.replace('\n', "\r\n")), "x***x"),
        (serde_json::to_string(key).unwrap(), "\"***\""),
    ] {
        assert_eq!(run_output(config.clone(), printed(&output)).await, format!("[stdout]\n{expected}"));
    }
    let backend = recording();
    let shown = key.trim_end().to_owned();
    backend.fail_once(Operation::Command, error(ErrorKind::Unexpected, &shown));
    let run = session(&backend, config);
    assert_eq!(
        correction(run.call("run_command", &json!({"command": "x"})).await),
        "run_command failed: rec: do the thing: ***"
    );
    run.close().await;
}

#[tokio::test]
async fn mk_names_are_masked_before_they_are_escaped() {
    let backend = recording();
    backend.seed_file("tok\nen-tok\nen", "").unwrap();
    let run: Session = session(&backend, ToolsetConfig::new().secret("tok\nen"));
    assert_eq!(text(&run, "list_directory", json!({})).await, "***-***");
    run.close().await;
}

#[tokio::test]
async fn mk_both_streams_and_the_structure_are_masked() {
    let backend: Arc<RecordingBackend> = recording();
    backend.set_command_result(CommandResult {
        stderr: Captured::complete(format!("err {SECRET}\n")),
        ..printed(&format!("out {SECRET}\n"))
    });
    let run = session(&backend, hiding());
    let output = run.call("run_command", &json!({"command": "x"})).await.unwrap();
    assert_eq!(output.text, "[stdout]\nout ***\n[stderr]\nerr ***");
    assert_eq!(
        (&output.structured["stdout"], &output.structured["stderr"]),
        (&json!("out ***"), &json!("err ***"))
    );
    run.close().await;
}
