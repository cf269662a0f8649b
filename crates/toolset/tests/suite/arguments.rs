//! TD-03, TD-04, RC-05: arguments as models write them.

use ringfence_core::Timeout;
use ringfence_core::memory::RecordingBackend;
use ringfence_toolset::ToolsetConfig;
use serde_json::{Value, json};

use super::support::{correction, recording, session, text};

async fn rejected(tool: &str, arguments: Value) -> String {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    let text = correction(run.call(tool, &arguments).await);
    assert_eq!(backend.created(), [], "a bad call provisions nothing");
    text
}

fn asked(backend: &RecordingBackend) -> Vec<Timeout> {
    backend.commands().into_iter().map(|command| command.timeout).collect()
}

#[tokio::test]
async fn td_03_bad_arguments_are_corrections_that_name_what_was_expected() {
    let cases = [
        ("run_command", json!({}), "`command` is missing; it must be a string"),
        ("run_command", Value::Null, "`command` is missing; it must be a string"),
        ("run_command", json!({"command": 1}), "`command` must be a string, not the number 1"),
        ("run_command", json!({"command": null}), "`command` must be a string, not null"),
        ("run_command", json!({"command": true}), "`command` must be a string, not the boolean true"),
        ("run_command", json!({"command": ["ls", "-l"]}), "`command` must be a string, not an array"),
        (
            "run_command",
            json!({"command": "ls", "cwd": "/"}),
            "`cwd` is not an argument; there is only command, timeout_seconds",
        ),
        (
            "run_command",
            json!({"command": "ls", "timeout_seconds": "abc"}),
            "`timeout_seconds` must be a number or null, not the string \"abc\"",
        ),
        (
            "run_command",
            json!({"command": "ls", "timeout_seconds": {}}),
            "`timeout_seconds` must be a number or null, not an object",
        ),
        (
            "read_file",
            json!({"path": "f", "offset": 5.5}),
            "`offset` must be a whole number or null, not the number 5.5",
        ),
        (
            "read_file",
            json!({"path": "f", "limit": "many"}),
            "`limit` must be a whole number or null, not the string \"many\"",
        ),
        ("list_directory", json!({"path": null}), "`path` must be a string, not null"),
        ("write_file", json!({"path": "f"}), "`content` is missing; it must be a string"),
        (
            "write_file",
            json!("f"),
            "the arguments must be an object, not the string \"f\"; `path` is missing; it must be a string; `content` is missing; it must be a string",
        ),
        (
            "write_file",
            json!({"path": "f", "content": 5, "mode": "0644"}),
            "`content` must be a string, not the number 5; `mode` is not an argument; there is only path, content",
        ),
        ("run_command", json!({"command": "a\u{0}b"}), "`command` cannot contain a NUL character"),
        ("read_file", json!({"path": "a\u{0}b"}), "`path`: a path cannot contain a NUL byte"),
        ("read_file", json!({"path": ""}), "`path`: the empty path does not exist"),
    ];
    for (tool, arguments, faults) in cases {
        assert_eq!(rejected(tool, arguments).await, format!("{tool} was not run: {faults}"));
    }
}

#[tokio::test]
async fn td_03_a_fault_does_not_repeat_a_whole_file() {
    let long = "x".repeat(1 << 20);
    let text =
        rejected("run_command", json!({"command": "ls", "timeout_seconds": long, long.clone(): 1})).await;
    assert_eq!(
        text,
        format!(
            "run_command was not run: `timeout_seconds` must be a number or null, not the string \"{}...\"; a name of \
             1048576 characters is not an argument; there is only command, timeout_seconds",
            "x".repeat(40)
        )
    );
}

#[tokio::test]
async fn td_04_numbers_in_other_clothes_are_numbers() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    for given in [json!("30"), json!(" 30.0 "), json!(30), json!(30.0), json!(true), json!(null)] {
        text(&run, "run_command", json!({"command": "", "timeout_seconds": given})).await;
    }
    let expected =
        [30.0, 30.0, 30.0, 30.0, 1.0, 60.0].map(|seconds| Timeout::from_secs_f64(seconds).unwrap());
    assert_eq!(asked(&backend), expected);

    text(&run, "write_file", json!({"path": "f", "content": "1\n2\n3\n4\n5\n6\n"})).await;
    for given in [json!("5"), json!("5.0"), json!(5.0), json!(5)] {
        assert_eq!(text(&run, "read_file", json!({"path": "f", "offset": given})).await, "5\n6");
    }
    for given in [json!(1e300), json!("99999999999999999999"), json!(u64::MAX)] {
        assert_eq!(
            text(&run, "read_file", json!({"path": "f", "offset": given})).await,
            "(no lines at offset 9223372036854775807; file has 6 lines)"
        );
    }
    run.close().await;
}

#[tokio::test]
async fn rc_05_impossible_timeouts_are_corrections_and_infinity_has_its_own_words() {
    for (given, shown) in [(json!(0), "0"), (json!(-5), "-5"), (json!("NaN"), "NaN"), (json!("-inf"), "-inf")]
    {
        assert_eq!(
            rejected("run_command", json!({"command": "ls", "timeout_seconds": given})).await,
            format!(
                "run_command was not run: `timeout_seconds` must be greater than 0, not {shown}; leave it out for the \
                 default"
            )
        );
    }
    for given in [json!("inf"), json!("1e999"), json!("Infinity")] {
        assert_eq!(
            rejected("run_command", json!({"command": "ls", "timeout_seconds": given})).await,
            "run_command was not run: `timeout_seconds` must be finite: a command gets at most 300 s"
        );
    }
}

#[tokio::test]
async fn rc_01_rc_02_rc_03_the_timeout_is_defaulted_clamped_and_else_kept() {
    let backend = recording();
    let config = ToolsetConfig::new().default_command_timeout_seconds(42.0);
    let run = session(&backend, config);
    for given in [json!(null), json!(500), json!(0.01), json!(1e-300), json!(1e300)] {
        text(&run, "run_command", json!({"command": "ls", "timeout_seconds": given})).await;
    }
    let expected = [42.0, 300.0, 0.01, 1e-9, 300.0].map(|seconds| Timeout::from_secs_f64(seconds).unwrap());
    assert_eq!(asked(&backend), expected);
    run.close().await;
}
