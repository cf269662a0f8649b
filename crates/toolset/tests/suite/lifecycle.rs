//! LC: one sandbox per session, whatever happens.

use std::sync::Arc;
use std::time::Duration;

use ringfence_core::memory::{Operation, RecordingBackend};
use ringfence_core::{Disposition, ErrorKind};
use ringfence_toolset::ToolsetConfig;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::support::{Log, correction, error, ids, recording, session, terminal, text, toolset};

const NOT_OPEN: &str = "rec: call a tool: the session is not open; open one with Toolset::open and call its tools before closing it";

fn ls() -> serde_json::Value {
    json!({"command": "ls"})
}

/// What was created and destroyed.
fn ledger(backend: &RecordingBackend) -> (usize, Vec<String>, Vec<String>) {
    (backend.created().len(), ids(&backend.destroyed()), ids(&backend.alive()))
}

#[tokio::test]
async fn lc_01_lc_03_the_first_call_provisions_and_closing_destroys() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    assert_eq!(ledger(&backend), (0, vec![], vec![]));
    text(&run, "list_directory", json!({})).await;
    text(&run, "run_command", ls()).await;
    text(&run, "write_file", json!({"path": "f", "content": "x"})).await;
    assert_eq!(ledger(&backend), (1, vec![], vec!["box-1".into()]));
    assert_eq!(run.sandbox().unwrap().as_str(), "box-1");
    assert!(run.statement().is_some());
    run.close().await;
    run.close().await;
    assert_eq!(ledger(&backend), (1, vec!["box-1".into()], vec![]));
    assert_eq!(run.sandbox(), None);
}

#[tokio::test]
async fn lc_02_a_run_without_calls_creates_and_destroys_nothing() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    run.close().await;
    drop(run);
    drop(session(&backend, ToolsetConfig::new()));
    assert_eq!(ledger(&backend), (0, vec![], vec![]));
}

#[tokio::test]
async fn lc_04_a_failing_destroy_fails_nothing_and_is_logged() {
    let (log, _guard) = Log::start();
    let backend = recording();
    backend.fail(Operation::Destroy, || error(ErrorKind::Unavailable, "cannot reach with tok-12345678"));
    let run = session(&backend, ToolsetConfig::new().secret("tok-12345678"));
    text(&run, "run_command", ls()).await;
    run.close().await;
    assert_eq!(
        log.lines(),
        [
            "WARN message=could not destroy sandbox box-1 of backend rec: rec: do the thing: cannot reach with ***; it may still \
          exist; remove it by hand with the backend's own tools sandbox=\"box-1\" backend=\"rec\" "
        ]
    );
}

#[tokio::test]
async fn lc_05_lc_06_every_run_has_a_sandbox_of_its_own() {
    let backend = recording();
    let toolset = toolset(&backend, ToolsetConfig::new().prefix("p"));
    for _ in 0..2 {
        let run = toolset.open();
        text(&run, "p_run_command", ls()).await;
        run.close().await;
    }
    let (one, other) = (toolset.open(), toolset.clone().open());
    text(&one, "p_run_command", ls()).await;
    text(&other, "p_run_command", ls()).await;
    one.close().await;
    other.close().await;
    assert_eq!(ids(&backend.destroyed()), ["box-1", "box-2", "box-3", "box-4"]);
}

#[tokio::test(start_paused = true)]
async fn lc_07_lc_21_simultaneous_first_calls_share_one_creation() {
    let backend = recording();
    backend.set_create_delay(Duration::from_secs(5));
    let run = session(&backend, ToolsetConfig::new());
    let (ls, here) = (ls(), json!({}));
    let (one, two, three) = tokio::join!(
        run.call("run_command", &ls),
        run.call("list_directory", &here),
        run.call("run_command", &ls)
    );
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    assert_eq!(backend.created().len(), 1);
    run.close().await;

    let backend = recording();
    backend.set_create_delay(Duration::from_secs(5));
    backend.fail_once(Operation::Create, error(ErrorKind::Unavailable, "no room"));
    let run = session(&backend, ToolsetConfig::new());
    let (one, two) = tokio::join!(run.call("run_command", &ls), run.call("run_command", &ls));
    let (one, two) = (terminal(one), terminal(two));
    assert_eq!(one.to_string(), two.to_string());
    assert_eq!((one.kind(), two.kind()), (&ErrorKind::Unavailable, &ErrorKind::Unavailable));
    assert_eq!(ledger(&backend), (1, vec![], vec![]));
}

#[test]
fn lc_07_also_from_two_threads_with_a_runtime_each() {
    let backend = recording();
    backend.set_create_delay(Duration::from_millis(50));
    let run = Arc::new(session(&backend, ToolsetConfig::new()));
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (run, barrier) = (Arc::clone(&run), Arc::clone(&barrier));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    barrier.wait();
                    run.call("run_command", &ls()).await.unwrap();
                    // The creation lives on one of the two runtimes; neither may end before both calls have.
                    barrier.wait();
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run.close());
    assert_eq!(ledger(&backend), (1, vec!["box-1".into()], vec![]));
}

#[tokio::test(start_paused = true)]
async fn lc_08_a_call_cancelled_while_creating_leaves_a_sandbox_that_is_still_destroyed() {
    let backend = recording();
    backend.set_create_delay(Duration::from_secs(5));
    let run = session(&backend, ToolsetConfig::new());
    assert!(timeout(Duration::from_secs(1), run.call("run_command", &ls())).await.is_err());
    assert_eq!(ledger(&backend), (1, vec![], vec![]));
    run.close().await;
    assert_eq!(ledger(&backend), (1, vec!["box-1".into()], vec![]));
    assert_eq!(backend.commands(), []);
}

#[tokio::test(start_paused = true)]
async fn lc_08_a_call_cancelled_while_creating_is_joined_by_the_next() {
    let backend = recording();
    backend.set_create_delay(Duration::from_secs(5));
    let run = session(&backend, ToolsetConfig::new());
    assert!(timeout(Duration::from_secs(1), run.call("run_command", &ls())).await.is_err());
    text(&run, "run_command", ls()).await;
    run.close().await;
    assert_eq!(ledger(&backend), (1, vec!["box-1".into()], vec![]));
}

#[tokio::test(start_paused = true)]
async fn lc_09_closing_while_creating_waits_and_destroys_and_the_waiting_call_fails() {
    let backend = recording();
    backend.set_create_delay(Duration::from_secs(5));
    let run = session(&backend, ToolsetConfig::new());
    let ls = ls();
    let (call, ()) = tokio::join!(run.call("run_command", &ls), async {
        sleep(Duration::from_secs(1)).await;
        run.close().await;
        assert_eq!(ledger(&backend), (1, vec!["box-1".into()], vec![]));
    });
    assert_eq!(terminal(call).to_string(), NOT_OPEN);
    assert_eq!(backend.commands(), []);
}

#[tokio::test(start_paused = true)]
async fn lc_09_closing_under_a_running_command_ends_it_terminally() {
    let backend = recording();
    backend.set_command_delay(Duration::from_secs(60));
    let run = session(&backend, ToolsetConfig::new());
    let ls = ls();
    let (running, waiting, ()) = tokio::join!(
        run.call("run_command", &ls),
        async {
            sleep(Duration::from_millis(500)).await;
            run.call("run_command", &ls).await
        },
        async {
            sleep(Duration::from_secs(1)).await;
            run.close().await;
        }
    );
    assert_eq!(terminal(running).to_string(), NOT_OPEN);
    assert_eq!(terminal(waiting).to_string(), NOT_OPEN);
    assert_eq!(backend.commands().len(), 1);
    assert_eq!(ledger(&backend), (1, vec!["box-1".into()], vec![]));
}

#[test]
fn lc_18_calls_can_be_spawned() {
    fn sendable<T: Send>(_: T) {}
    let run = session(&recording(), ToolsetConfig::new());
    let arguments = ls();
    sendable(run.call("run_command", &arguments));
    sendable(run.close());
    sendable(run.prepare());
}

#[tokio::test]
async fn lc_10_a_recoverable_error_from_create_is_terminal() {
    let backend = recording();
    backend.fail_once(Operation::Create, error(ErrorKind::Unavailable, "image pull timed out"));
    let run = session(&backend, ToolsetConfig::new());
    let failed = terminal(run.call("run_command", &ls()).await);
    assert_eq!(failed.disposition(), Disposition::Terminal);
    assert_eq!(
        failed.to_string(),
        "rec: provision a sandbox: could not provision a sandbox: rec: do the thing: image pull timed out"
    );
    run.close().await;
    assert_eq!(ledger(&backend), (1, vec![], vec![]));
}

#[tokio::test]
async fn lc_11_a_terminal_error_from_create_passes_unchanged() {
    let backend = recording();
    let original = error(ErrorKind::Refused, "no")
        .context("field", "network")
        .hint("open it")
        .source(std::io::Error::other("kernel"));
    let expected = format!("{original:?}");
    backend.fail_once(Operation::Create, original);
    let run = session(&backend, ToolsetConfig::new().secret("not in there"));
    assert_eq!(format!("{:?}", terminal(run.call("run_command", &ls()).await)), expected);
}

#[tokio::test]
async fn lc_12_a_failed_creation_is_not_remembered() {
    let backend = recording();
    backend.fail_once(Operation::Create, error(ErrorKind::Unavailable, "no room"));
    let run = session(&backend, ToolsetConfig::new());
    terminal(run.call("run_command", &ls()).await);
    text(&run, "run_command", ls()).await;
    run.close().await;
    assert_eq!(ledger(&backend), (2, vec!["box-2".into()], vec![]));
}

#[tokio::test]
async fn lc_13_a_panic_while_creating_is_terminal_and_not_remembered() {
    let backend = recording();
    backend.fail(Operation::Create, || panic!("a defect of the backend"));
    let run = session(&backend, ToolsetConfig::new());
    assert_eq!(
        terminal(run.call("run_command", &ls()).await).to_string(),
        "rec: provision a sandbox: could not provision a sandbox: its creation was given up half-way because the runtime \
         ended or the backend panicked"
    );
    backend.recover(Operation::Create);
    text(&run, "run_command", ls()).await;
    run.close().await;
    assert_eq!(ids(&backend.destroyed()), ["box-2"]);
}

#[tokio::test]
async fn lc_14_a_call_after_closing_is_terminal_and_provisions_nothing() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    run.close().await;
    assert_eq!(terminal(run.call("run_command", &ls()).await).to_string(), NOT_OPEN);
    assert_eq!(terminal(run.call("run_command", &json!({})).await).to_string(), NOT_OPEN);
    assert_eq!(run.prepare().await.unwrap_err().to_string(), NOT_OPEN);
    assert_eq!(ledger(&backend), (0, vec![], vec![]));
}

#[test]
fn lc_15_works_without_a_runtime_of_the_callers() {
    let backend = recording();
    backend.set_create_delay(Duration::from_millis(5));
    let toolset = toolset(&backend, ToolsetConfig::new());
    let run = toolset.open_blocking().unwrap();
    assert_eq!(run.prepare().unwrap().as_str(), "box-1");
    assert_eq!(run.call("run_command", &ls()).unwrap().text, "[stdout]\nout");
    correction(run.call("run_command", &json!({})));
    // Closed by a reference: whoever shares it finds it closed.
    for _ in 0..2 {
        run.close();
        assert_eq!(ledger(&backend), (1, vec!["box-1".into()], vec![]));
    }
    assert_eq!(terminal(run.call("run_command", &ls())).to_string(), NOT_OPEN);
    // Dropping is closing.
    let run = toolset.open_blocking().unwrap();
    run.prepare().unwrap();
    drop(run);
    assert_eq!(ids(&backend.destroyed()), ["box-1", "box-2"]);
}

#[tokio::test]
async fn lc_15_a_blocking_session_works_wherever_it_is_used() {
    let backend = recording();
    let toolset = toolset(&backend, ToolsetConfig::new());
    let elsewhere = toolset.clone();
    let blocking_thread = tokio::task::spawn_blocking(move || {
        let run = elsewhere.open_blocking().unwrap();
        run.call("run_command", &ls()).unwrap().text
    });
    assert_eq!(blocking_thread.await.unwrap(), "[stdout]\nout");
    // It stalls asynchronous code, but neither panics nor deadlocks there.
    let run = toolset.open_blocking().unwrap();
    run.prepare().unwrap();
    drop(run);
    assert_eq!(ledger(&backend), (2, vec!["box-1".into(), "box-2".into()], vec![]));
}

#[test]
fn lc_15_a_panicking_backend_ends_the_run_and_hangs_nobody() {
    let backend = recording();
    backend.answer_commands(|_| panic!("a defect of the backend"));
    let run = toolset(&backend, ToolsetConfig::new()).open_blocking().unwrap();
    assert_eq!(
        terminal(run.call("run_command", &ls())).to_string(),
        "rec: use a blocking session: the backend panicked"
    );
    run.close();
    assert_eq!(ids(&backend.destroyed()), ["box-1"]);
}

#[test]
fn lc_outside_a_runtime_a_session_says_so_and_provisions_nothing() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    let call = Box::pin(async { run.prepare().await });
    let polled = std::future::Future::poll(
        std::pin::pin!(call).as_mut(),
        &mut std::task::Context::from_waker(std::task::Waker::noop()),
    );
    match polled {
        std::task::Poll::Ready(Err(error)) => assert_eq!(
            error.to_string(),
            "rec: provision a sandbox: a session must be used inside a tokio runtime; use BlockingSession elsewhere"
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(ledger(&backend), (0, vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn lc_22_dropping_a_session_destroys_in_the_background() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    run.prepare().await.unwrap();
    drop(run);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ledger(&backend), (1, vec!["box-1".into()], vec![]));

    backend.set_create_delay(Duration::from_secs(5));
    let run = session(&backend, ToolsetConfig::new());
    assert!(timeout(Duration::from_secs(1), run.prepare()).await.is_err());
    drop(run);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(ledger(&backend), (2, vec!["box-1".into(), "box-2".into()], vec![]));
}

#[test]
fn lc_22_a_session_dropped_after_its_runtime_ended_warns() {
    let (log, _guard) = Log::start();
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run.prepare()).unwrap();
    drop(runtime);
    drop(run);
    assert_eq!(
        log.lines(),
        [
            "WARN message=could not destroy sandbox box-1 of backend rec: the runtime ended first; it may still exist; remove it \
          by hand with the backend's own tools sandbox=\"box-1\" backend=\"rec\" "
        ]
    );
}

#[test]
fn lc_22_a_runtime_that_ends_while_creating_strands_nobody() {
    let backend = recording();
    backend.set_create_delay(Duration::from_secs(3600));
    let run = session(&backend, ToolsetConfig::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(Duration::from_millis(1), run.prepare()).await.unwrap_err() });
    drop(runtime);
    backend.set_create_delay(Duration::ZERO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert_eq!(run.prepare().await.unwrap().as_str(), "box-2");
        run.close().await;
    });
}

#[tokio::test(start_paused = true)]
async fn lc_closing_is_not_undone_by_being_cancelled() {
    let backend = recording();
    backend.set_create_delay(Duration::from_secs(5));
    let run = session(&backend, ToolsetConfig::new());
    assert!(timeout(Duration::from_secs(1), run.prepare()).await.is_err());
    assert!(timeout(Duration::from_secs(1), run.close()).await.is_err());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(ledger(&backend), (1, vec!["box-1".into()], vec![]));
}

#[tokio::test(start_paused = true)]
async fn cm_02_calls_take_turns_in_order_and_a_cancelled_waiter_gives_up_its_turn() {
    let backend = recording();
    backend.set_command_delay(Duration::from_secs(10));
    let run = session(&backend, ToolsetConfig::new());
    let named = |name: &str| json!({"command": name});
    let (a, b, c) = (named("a"), named("b"), named("c"));
    let started = tokio::time::Instant::now();
    let (first, second, third) = tokio::join!(
        run.call("run_command", &a),
        timeout(Duration::from_secs(5), run.call("run_command", &b)),
        run.call("run_command", &c),
    );
    assert!(first.is_ok() && second.is_err() && third.is_ok());
    assert_eq!(started.elapsed(), Duration::from_secs(20));
    let order: Vec<_> = backend.commands().into_iter().map(|command| command.invocation).collect();
    let shell = |text: &str| ringfence_core::Invocation::Shell(text.to_owned());
    assert_eq!(order, [shell("a"), shell("c")]);
    run.close().await;
}
