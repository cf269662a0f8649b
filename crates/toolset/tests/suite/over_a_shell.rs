//! The whole way down to a real shell, through the file operations that a backend inherits.

use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{EnvMap, SandboxSpec};
use ringfence_testkit::LocalShellBackend;
use ringfence_toolset::{Session, Toolset, ToolsetConfig};
use serde_json::{Value, json};

use super::support::{correction, text};

fn open(config: ToolsetConfig) -> (Arc<LocalShellBackend>, Session) {
    let backend = Arc::new(LocalShellBackend::new());
    let session = Toolset::new(backend.clone(), config).unwrap().open();
    (backend, session)
}

fn command(text: &str) -> Value {
    json!({"command": text})
}

#[tokio::test]
async fn an_agent_writes_runs_reads_and_lists() {
    let (_, run) = open(ToolsetConfig::new());
    assert_eq!(
        text(
            &run,
            "write_file",
            json!({"path": "src/it's.sh", "content": "echo hi\necho bad >&2\nexit 3\n"})
        )
        .await,
        "Wrote 28 bytes to \"src/it's.sh\"."
    );
    assert_eq!(
        text(&run, "run_command", command("sh \"src/it's.sh\"")).await,
        "[stdout]\nhi\n[stderr]\nbad\n[exit code: 3]"
    );
    assert_eq!(
        text(&run, "read_file", json!({"path": "src/it's.sh", "offset": 2, "limit": 1})).await,
        "echo bad >&2\n[... 1 more line; read on with offset=3]"
    );
    text(
        &run,
        "run_command",
        command("cd src && mkdir sub && ln -s sub link && touch ./-dash .h \"$(printf 'a\\nb')\""),
    )
    .await;
    assert_eq!(
        text(&run, "list_directory", json!({"path": "src"})).await,
        "-dash\n.h\n\"a\\nb\"\nit's.sh\nlink\nsub/"
    );
    run.close().await;
}

#[tokio::test]
async fn rc_endings_come_from_the_kernel() {
    let (_, run) = open(ToolsetConfig::new().max_command_timeout_seconds(0.3));
    assert_eq!(text(&run, "run_command", command("true")).await, "(no output)");
    assert_eq!(
        text(&run, "run_command", command("kill -9 $$")).await,
        "(no output)\n[ended by signal 9 (SIGKILL)]"
    );
    assert_eq!(text(&run, "run_command", command("exit 137")).await, "(no output)\n[exit code: 137]");
    assert_eq!(
        text(&run, "run_command", command("echo part; sleep 60")).await,
        "[stdout]\npart\n[timed out after 0.3s]"
    );
    run.close().await;
}

#[tokio::test]
async fn rc_20_floods_are_cut_and_counted() {
    let (_, run) = open(ToolsetConfig::new().max_output_bytes(20));
    assert_eq!(
        text(&run, "run_command", command("seq 1 100000; echo fine >&2")).await,
        "[stdout]\n[... earlier output truncated] showing the last 18B of 575.1KB\n99998\n99999\n100000\n[stderr]\nfine"
    );
    run.close().await;
}

#[tokio::test]
async fn mk_a_secret_of_the_environment_stays_out_of_sight() {
    let env = EnvMap::new([("TOKEN", "s3cr3t-Tok3n")]).unwrap();
    let (_, run) = open(ToolsetConfig::new().spec(SandboxSpec::new().with_env(env)).max_output_bytes(16));
    assert_eq!(text(&run, "run_command", command("echo \"<$TOKEN>\"")).await, "[stdout]\n<***>");
    for padding in 0..30 {
        let flood = format!(
            "head -c 3000 /dev/zero | tr '\\0' x; printf %s \"$TOKEN\"; head -c {padding} /dev/zero | tr '\\0' y"
        );
        let shown = text(&run, "run_command", command(&flood)).await;
        let last = shown.lines().last().unwrap();
        assert!(last.chars().all(|character| "xy*".contains(character)), "{padding}: {shown}");
    }
    text(&run, "run_command", command("echo \"k=$TOKEN\" > \"$TOKEN.txt\"")).await;
    assert_eq!(text(&run, "list_directory", json!({})).await, "***.txt");
    run.close().await;
}

#[tokio::test]
async fn er_08_a_sandbox_lost_under_a_file_operation_is_noticed() {
    let (backend, run) = open(ToolsetConfig::new());
    let lost = run.prepare().await.unwrap();
    backend.lose(&lost);
    let told = correction(run.call("list_directory", &json!({})).await);
    assert!(told.ends_with(
        "The sandbox was lost: its files and processes are gone, and the next call starts in a new one"
    ));
    assert_eq!(text(&run, "list_directory", json!({})).await, "(empty)");
    assert_eq!(run.sandbox().unwrap().as_str(), "shell-2");
    run.close().await;
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_command() {
    let (backend, run) = open(ToolsetConfig::new());
    let sandbox = run.prepare().await.unwrap();
    let root = backend.root(&sandbox).unwrap();
    let slow = command("touch started; sleep 1; touch finished");
    let call = tokio::time::timeout(Duration::from_millis(300), run.call("run_command", &slow)).await;
    assert!(call.is_err());
    // The next call gets its turn at once.
    text(&run, "run_command", command("sleep 1.2")).await;
    assert_eq!((root.join("started").exists(), root.join("finished").exists()), (true, false));
    run.close().await;
}

#[test]
fn lc_15_the_blocking_session_reaches_a_real_shell() {
    let toolset = Toolset::new(Arc::new(LocalShellBackend::new()), ToolsetConfig::new()).unwrap();
    let run = toolset.open_blocking().unwrap();
    assert_eq!(run.call("run_command", &command("echo $((6 * 7))")).unwrap().text, "[stdout]\n42");
    run.close();
}
