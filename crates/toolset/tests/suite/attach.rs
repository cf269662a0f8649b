//! AT, TC-06 to TC-11, S54: runs in a sandbox that somebody else created.

use std::sync::Arc;
use std::time::Duration;

use ringfence_core::claim::{self, claim};
use ringfence_core::memory::{Operation, RecordingBackend};
use ringfence_core::{
    Attachable, Backend, Claim, Claimant, CommandResult, Ending, Error, ErrorKind, GuestPath, Lease, Retry,
    SandboxId, SandboxSpec, Tags,
};
use ringfence_toolset::{AttachedSandbox, AttachedToolset, Session, ToolsetConfig};
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep, timeout};

use super::support::{Log, correction, error, ids, recording, terminal, text};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: &str = r#"{"owner": "dag/run", "labels": {"team": "data"}, "lifetime_seconds": 3600}"#;

fn attachable() -> Arc<RecordingBackend> {
    Arc::new(RecordingBackend::new().with_attach())
}

async fn made(backend: &RecordingBackend, spec: &str) -> SandboxId {
    backend.create(&serde_json::from_str(spec).unwrap()).await.unwrap().id
}

async fn owned() -> (Arc<RecordingBackend>, SandboxId) {
    let backend = attachable();
    let sandbox = made(&backend, HOUR).await;
    (backend, sandbox)
}

fn by(holder: &str) -> Claimant {
    Claimant::new("dag/run").and_then(|claimant| claimant.with_holder(holder)).unwrap()
}

fn config(backend: &RecordingBackend) -> ToolsetConfig<AttachedSandbox> {
    ToolsetConfig::attached(by("dag/run/task")).clock(backend.clock())
}

fn toolset(backend: &Arc<RecordingBackend>) -> AttachedToolset {
    AttachedToolset::new(backend.clone(), config(backend)).unwrap()
}

async fn attached(backend: &Arc<RecordingBackend>, sandbox: &SandboxId) -> Session {
    toolset(backend).attach(sandbox.as_str()).await.unwrap()
}

async fn refusal(backend: &Arc<RecordingBackend>, handle: &str) -> Error {
    let error = toolset(backend).attach(handle).await.unwrap_err();
    assert!(error.is_terminal(), "{error}");
    error
}

async fn tags(backend: &RecordingBackend, sandbox: &SandboxId) -> Tags {
    backend.tags(sandbox).await.unwrap().tags
}

async fn put(backend: &RecordingBackend, sandbox: &SandboxId, name: &str, value: Option<&str>) {
    let mut found = backend.tags(sandbox).await.unwrap();
    match value {
        Some(value) => found.tags.insert(name.to_owned(), value.to_owned()),
        None => found.tags.remove(name),
    };
    backend.set_tags(sandbox, found.version, &found.tags).await.unwrap();
}

async fn rival(backend: &RecordingBackend, sandbox: &SandboxId, holder: &str) -> Result<Claim, Error> {
    claim(backend, sandbox, &by(holder), Lease::default(), backend.clock().now()).await
}

fn ls() -> Value {
    json!({"command": "ls"})
}

fn told(session: &Session) -> String {
    session.definitions()[0].description.clone()
}

fn lost() -> CommandResult {
    CommandResult { ending: Ending::Unknown, sandbox_lost: true, ..CommandResult::exited(0, "", "") }
}

fn no_answer() -> Error {
    error(ErrorKind::Unavailable, "no answer").retry(Retry::Safe)
}

#[test]
fn tc_06_a_backend_that_cannot_be_attached_to_is_named() {
    let error = AttachedToolset::new(recording(), config(&recording())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "build the toolset: backend rec is not attachable: no other process can use its sandboxes; use a backend that can be attached \
         to, such as local, or let the toolset create a sandbox of its own"
    );
}

#[test]
fn tc_14_the_bounds_are_checked_before_the_backend() {
    let all_wrong = config(&recording()).prefix("a-b").max_read_bytes(0);
    let steps = [
        (all_wrong.clone(), "max_read_bytes"),
        (all_wrong.clone().max_read_bytes(1), "tool prefix"),
        (all_wrong.max_read_bytes(1).prefix("ok"), "is not attachable"),
    ];
    for (config, named) in steps {
        let refused = AttachedToolset::new(recording(), config).unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn tc_16_tc_17_tc_18_construction_touches_nothing_and_copies_carry_everything() {
    let (backend, sandbox) = owned().await;
    for operation in [Operation::Tags, Operation::SetTags, Operation::Inspect] {
        backend.fail(operation, no_answer);
    }
    let config = config(&backend).prefix("box").max_command_timeout_seconds(30.0);
    let copy = AttachedToolset::new(backend.clone(), config).unwrap().clone();
    assert_eq!(copy.identity(), "sandbox-rec-box");
    assert_eq!(copy.bounds().max_timeout.get(), Duration::from_secs(30));
    assert_eq!(copy.backend().name(), "rec");
    for operation in [Operation::Tags, Operation::SetTags, Operation::Inspect] {
        backend.recover(operation);
    }
    let run = copy.attach(sandbox.as_str()).await.unwrap();
    assert_eq!(
        text(&run, "box_run_command", json!({"command": "ls", "timeout_seconds": 300})).await,
        "[stdout]\nout"
    );
    assert_eq!(backend.commands()[0].timeout.get(), Duration::from_secs(30));
    run.close().await;
}

#[tokio::test(start_paused = true)]
async fn at_12_claimed_on_open_before_anything_else() {
    let (backend, sandbox) = owned().await;
    let before = tags(&backend, &sandbox).await;
    let run = attached(&backend, &sandbox).await;
    let claimed = tags(&backend, &sandbox).await;
    assert_eq!(claimed[claim::HOLDER], "dag/run/task");
    assert_eq!(
        claim::read_time(&claimed[claim::LEASE_UNTIL]),
        Some(backend.clock().now() + 5 * MINUTE),
        "5 minutes unless told otherwise"
    );
    assert_eq!(run.sandbox().unwrap().fence().map(ringfence_core::Fence::get), Some(1));
    assert_eq!(run.prepare().await.unwrap(), sandbox);
    assert_eq!(run.statement(), Some(backend.inspect(&sandbox).await.unwrap().statement));
    assert_eq!(backend.commands(), []);
    run.close().await;
    let mut released = before;
    released.insert(claim::FENCE.to_owned(), "1".to_owned());
    assert_eq!(tags(&backend, &sandbox).await, released);
}

#[tokio::test(start_paused = true)]
async fn at_12_whatever_keeps_it_from_being_claimed_ends_the_run() {
    let (backend, sandbox) = owned().await;
    let held = rival(&backend, &sandbox, "dag/run/other").await.unwrap();
    let error = refusal(&backend, "box-1").await;
    assert_eq!(error.kind(), &ErrorKind::Conflict);
    assert!(error.to_string().contains(r#"held by "dag/run/other""#), "{error}");
    held.release(&*backend).await.unwrap();

    let stranger = ToolsetConfig::attached(Claimant::new("dag/else").unwrap());
    let stranger =
        AttachedToolset::new(backend.clone(), stranger).unwrap().attach("box-1").await.unwrap_err();
    assert_eq!((stranger.kind(), stranger.is_terminal()), (&ErrorKind::PermissionDenied, true));

    for operation in [Operation::Inspect, Operation::Tags, Operation::SetTags] {
        backend.fail_once(operation, no_answer());
        let error = refusal(&backend, "box-1").await;
        assert_eq!(
            (error.kind(), error.fact("sandbox"), error.retry_policy()),
            (&ErrorKind::Unavailable, Some("box-1"), Retry::Safe),
            "{operation:?}"
        );
    }
    assert_eq!(refusal(&backend, "box-9").await.kind(), &ErrorKind::SandboxLost);
    assert!(!tags(&backend, &sandbox).await.contains_key(claim::HOLDER), "no claim is left");
    assert_eq!((backend.created().len(), backend.destroyed()), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn at_12_a_backend_that_cannot_be_looked_into_can_be_attached_to() {
    let (backend, sandbox) = owned().await;
    backend.fail(Operation::Inspect, || error(ErrorKind::Unsupported, "not offered"));
    let run = attached(&backend, &sandbox).await;
    assert_eq!(run.statement(), None);
    assert_eq!(text(&run, "run_command", ls()).await, "[stdout]\nout");
    run.close().await;
}

#[tokio::test(start_paused = true)]
async fn tc_08_at_13_a_handle_that_nobody_set_fails_and_provisions_nothing() {
    let backend = attachable();
    for (handle, shown) in [("", "\"\""), ("None", "\"None\"")] {
        let error = refusal(&backend, handle).await;
        assert_eq!(
            error.to_string(),
            format!(
                "rec: attach to a sandbox: its name is {shown}, which is what an unset value is rendered to; pass the name of a \
                 sandbox that stands; none is created here"
            )
        );
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
    }
    assert_eq!(backend.created(), []);
}

#[test]
fn attaching_needs_a_runtime_or_the_blocking_form() {
    let backend = attachable();
    let mut future = Box::pin(async { toolset(&backend).attach("box-1").await });
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = future.as_mut().poll(&mut context) else {
        panic!("not refused");
    };
    assert!(error.to_string().contains("use attach_blocking elsewhere"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn at_14_only_the_given_handle_is_used_and_always_released() {
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    text(&run, "write_file", json!({"path": "f", "content": "x"})).await;
    text(&run, "read_file", json!({"path": "f"})).await;
    text(&run, "list_directory", json!({})).await;
    text(&run, "run_command", ls()).await;
    backend.fail_once(Operation::Command, error(ErrorKind::Unexpected, "broken").terminal());
    assert!(terminal(run.call("run_command", &ls()).await).to_string().contains("broken"));
    assert!(correction(run.call("read_file", &json!({"path": "g"})).await).contains("does not exist"));
    run.close().await;
    let used: Vec<String> = backend.commands().iter().map(|command| command.sandbox.to_string()).collect();
    assert_eq!(used, ["box-1", "box-1"]);
    assert_eq!(
        (backend.created().len(), backend.destroyed(), ids(&backend.alive())),
        (1, vec![], vec!["box-1".to_owned()])
    );
    assert!(!tags(&backend, &sandbox).await.contains_key(claim::HOLDER));
    let error = terminal(run.call("run_command", &ls()).await);
    assert_eq!(
        error.to_string(),
        "rec: call a tool: the session is not open; attach again, and call its tools before closing it"
    );
    run.close().await;
    assert_eq!(run.sandbox(), None);
}

#[tokio::test(start_paused = true)]
async fn at_14_a_session_that_is_dropped_gives_it_back_in_the_background() {
    let (log, _guard) = Log::start();
    let (backend, sandbox) = owned().await;
    drop(attached(&backend, &sandbox).await);
    sleep(Duration::from_millis(1)).await;
    let left = tags(&backend, &sandbox).await;
    assert_eq!((left.contains_key(claim::HOLDER), left[claim::FENCE].as_str()), (false, "1"));
    assert_eq!(log.lines(), <[String; 0]>::default());
}

#[tokio::test(start_paused = true)]
async fn at_14_a_caller_that_stops_waiting_leaves_no_claim_behind() {
    let (backend, sandbox) = owned().await;
    let toolset = toolset(&backend);
    assert!(timeout(Duration::ZERO, toolset.attach("box-1")).await.is_err());
    sleep(Duration::from_millis(1)).await;
    let left = tags(&backend, &sandbox).await;
    assert_eq!(
        (left.contains_key(claim::HOLDER), left[claim::FENCE].as_str()),
        (false, "1"),
        "claimed, and given back"
    );
}

#[tokio::test(start_paused = true)]
async fn at_15_a_release_that_fails_twice_comes_to_a_clean_end() {
    let (log, _guard) = Log::start();
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    backend.fail(Operation::SetTags, no_answer);
    let start = Instant::now();
    tokio::join!(run.close(), async {
        sleep(Duration::from_millis(1500)).await;
        backend.recover(Operation::SetTags);
    });
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert!(!tags(&backend, &sandbox).await.contains_key(claim::HOLDER));
    assert_eq!(log.lines(), <[String; 0]>::default());
}

#[tokio::test(start_paused = true)]
async fn at_15_a_release_that_fails_three_times_is_a_warning_and_fails_nothing() {
    let (log, _guard) = Log::start();
    let (backend, sandbox) = owned().await;
    let config = config(&backend).secret("tok-12345678");
    let run = AttachedToolset::new(backend.clone(), config).unwrap().attach("box-1").await.unwrap();
    backend.fail(Operation::Tags, || error(ErrorKind::Unavailable, "no answer to tok-12345678"));
    let start = Instant::now();
    run.close().await;
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert_eq!(
        log.lines(),
        [
            "WARN message=could not release sandbox box-1 of backend rec: rec: do the thing: no answer to ***; it stays claimed until \
             the lease runs out sandbox=\"box-1\" backend=\"rec\" attempts=3 holder=\"dag/run/task\" "
        ]
    );
    backend.recover(Operation::Tags);
    assert_eq!(tags(&backend, &sandbox).await[claim::HOLDER], "dag/run/task", "the claim stays");
}

#[tokio::test(start_paused = true)]
async fn at_15_a_sandbox_that_is_gone_needs_no_release() {
    let (log, _guard) = Log::start();
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    backend.destroy(&sandbox).await.unwrap();
    let start = Instant::now();
    run.close().await;
    assert_eq!((start.elapsed(), log.lines()), (Duration::ZERO, vec![]));
}

#[test]
fn at_15_a_runtime_that_ends_first_is_said() {
    let (log, _guard) = Log::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = runtime.block_on(async {
        let (backend, sandbox) = owned().await;
        attached(&backend, &sandbox).await
    });
    drop(runtime);
    drop(run);
    assert_eq!(
        log.lines(),
        [
            "WARN message=could not release sandbox box-1 of backend rec: the runtime ended first; it stays claimed until the lease \
             runs out sandbox=\"box-1\" backend=\"rec\" attempts=0 holder=\"dag/run/task\" "
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn at_16_the_end_of_the_sandbox_is_the_end_of_the_run() {
    const ENDED: &str = "rec: call a tool: the attached sandbox has ended, and what was in it is gone; no other takes its place, sandbox \
                         box-1, holder dag/run/task";
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    backend.set_command_result(lost());
    for arguments in [ls(), ls(), json!({"no": "command"})] {
        let error = terminal(run.call("run_command", &arguments).await);
        assert_eq!((error.kind(), error.to_string()), (&ErrorKind::SandboxLost, ENDED.to_owned()));
    }
    assert_eq!(run.sandbox(), None);
    assert_eq!(run.prepare().await.unwrap_err().to_string(), ENDED);
    assert_eq!(backend.commands().len(), 1, "nothing is asked of it any more");
    run.close().await;

    let sandbox = made(&backend, HOUR).await;
    let run = attached(&backend, &sandbox).await;
    backend.destroy(&sandbox).await.unwrap();
    let error = terminal(run.call("read_file", &json!({"path": "f"})).await);
    assert_eq!(error.kind(), &ErrorKind::SandboxLost);
    assert!(error.to_string().contains("the attached sandbox has ended"), "{error}");
    run.close().await;
    assert_eq!(backend.created().len(), 2, "nothing was provisioned");
}

#[tokio::test(start_paused = true)]
async fn at_16_the_end_is_noticed_under_a_command_too() {
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    backend.set_command_delay(10 * MINUTE);
    let start = Instant::now();
    let ls = ls();
    let (result, ()) = tokio::join!(run.call("run_command", &ls), async {
        sleep(MINUTE).await;
        backend.destroy(&sandbox).await.unwrap();
    });
    assert_eq!(terminal(result).kind(), &ErrorKind::SandboxLost);
    assert_eq!(start.elapsed(), Duration::from_secs(100), "when its claim was to be renewed");
}

#[tokio::test(start_paused = true)]
async fn at_17_at_19_what_the_model_is_told_is_read_once_and_stays() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    let _bound = settings.bind_to_scope();
    let backend = attachable();
    let spec = r#"{"owner": "dag/run", "lifetime_seconds": 3630, "workdir": "/data", "env": {"TOKEN": "tok-12345678"},
                   "allow_egress_to": ["api.example.org"]}"#;
    let sandbox = made(&backend, spec).await;
    let run = attached(&backend, &sandbox).await;
    let at_first = serde_json::to_string(run.definitions()).unwrap();
    insta::assert_snapshot!("description_attached", told(&run));
    advance(10 * MINUTE).await;
    text(&run, "run_command", ls()).await;
    put(&backend, &sandbox, claim::NETWORK, None).await;
    assert_eq!(serde_json::to_string(run.definitions()).unwrap(), at_first);
    run.close().await;
    let others: Vec<bool> =
        run.definitions()[1..].iter().map(|tool| tool.description.contains("network")).collect();
    assert_eq!(others, [false; 3], "TD-08");

    let next = attached(&backend, &sandbox).await;
    insta::assert_snapshot!("description_attached_later", told(&next));
    next.close().await;
}

#[tokio::test(start_paused = true)]
async fn at_10_at_17_a_network_that_is_not_known_is_to_be_tested() {
    const UNKNOWN: &str =
        "Its network is whatever the creator allowed; test what you need before relying on it.";
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    assert!(told(&run).contains("There is NO network access, including DNS"));
    run.close().await;
    put(&backend, &sandbox, claim::NETWORK, None).await;
    let (log, _guard) = Log::start();
    let run = attached(&backend, &sandbox).await;
    assert!(told(&run).contains(UNKNOWN));
    run.close().await;
    assert_eq!(log.lines(), <[String; 0]>::default());

    put(&backend, &sandbox, claim::NETWORK, Some("[1, 2]")).await;
    let run = attached(&backend, &sandbox).await;
    assert!(told(&run).contains(UNKNOWN));
    run.close().await;
    assert_eq!(
        log.lines(),
        [
            "WARN message=the network policy on sandbox box-1 is not readable: decode the network policy: \"[1, 2]\" is not one: it is \
             not a JSON object sandbox=\"box-1\" "
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn at_18_the_clock_is_in_minutes_half_to_even() {
    let cases = [
        (None, "It is not known when the sandbox ends."),
        (Some(59.999), "had under a minute left"),
        (Some(60.0), "had about 1 minute left"),
        (Some(89.999), "had about 1 minute left"),
        (Some(90.0), "had about 2 minutes left"),
        (Some(150.0), "had about 2 minutes left"),
        (Some(150.001), "had about 3 minutes left"),
        (Some(210.0), "had about 4 minutes left"),
        (Some(3600.0), "had about 60 minutes left"),
    ];
    for (lifetime, words) in cases {
        let backend = attachable();
        let mut spec = json!({"owner": "dag/run"});
        if let Some(seconds) = lifetime {
            spec["lifetime_seconds"] = json!(seconds);
        }
        let sandbox = made(&backend, &spec.to_string()).await;
        let run = attached(&backend, &sandbox).await;
        assert!(told(&run).contains(words), "{lifetime:?}: {}", told(&run));
        run.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn at_20_two_runs_in_turn_find_the_same_sandbox() {
    let (backend, sandbox) = owned().await;
    let first = attached(&backend, &sandbox).await;
    text(&first, "write_file", json!({"path": "f", "content": "kept"})).await;
    first.close().await;
    let second = attached(&backend, &sandbox).await;
    assert_eq!(text(&second, "read_file", json!({"path": "f"})).await, "kept");
    second.close().await;
    let left = tags(&backend, &sandbox).await;
    assert_eq!((left.contains_key(claim::HOLDER), left[claim::FENCE].as_str()), (false, "2"));
}

#[tokio::test(start_paused = true)]
async fn at_21_rc_21_commands_are_shortened_to_what_is_left() {
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    let ask = |seconds: f64| json!({"command": "x", "timeout_seconds": seconds});
    let mut expected = Vec::new();
    // What is left of the hour, what is asked for, what it gets.
    for (left, asked, given) in [
        (3600.0, 300.0, 300.0),
        (30.0, 300.0, 30.0),
        (30.0, 2.5, 2.5),
        (1.25, 300.0, 1.25),
        (0.5, 300.0, 1.0),
        (0.25, 0.01, 0.01),
    ] {
        let elapsed = backend.inspect(&sandbox).await.unwrap().info.remaining.unwrap();
        advance(elapsed - Duration::from_secs_f64(left)).await;
        let output = run.call("run_command", &ask(asked)).await.unwrap();
        assert_eq!(output.structured["timeout_seconds"], json!(given), "{left} s left");
        expected.push(Duration::from_secs_f64(given));
    }
    let given: Vec<Duration> = backend.commands().iter().map(|command| command.timeout.get()).collect();
    assert_eq!(given, expected);
    run.close().await;

    let endless = made(&backend, r#"{"owner": "dag/run"}"#).await;
    let run = attached(&backend, &endless).await;
    text(&run, "run_command", ask(300.0)).await;
    assert_eq!(backend.commands().last().unwrap().timeout.get(), Duration::from_secs(300));
    run.close().await;
}

#[tokio::test(start_paused = true)]
async fn at_21_a_life_that_somebody_renews_is_noticed_with_the_next_renewal_of_the_claim() {
    let backend = attachable();
    let sandbox = made(&backend, r#"{"owner": "dag/run", "lifetime_seconds": 120}"#).await;
    let run = attached(&backend, &sandbox).await;
    backend.renew(&sandbox, Some(60 * MINUTE)).await.unwrap();
    sleep(Duration::from_secs(101)).await;
    let output = run.call("run_command", &json!({"command": "x", "timeout_seconds": 300})).await.unwrap();
    assert_eq!(output.structured["timeout_seconds"], json!(300.0));
    run.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_open_keeps_its_claim() {
    let (log, _guard) = Log::start();
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    for minute in 0..40 {
        sleep(MINUTE).await;
        let error = rival(&backend, &sandbox, "someone").await.expect_err("held");
        assert_eq!(error.kind(), &ErrorKind::Conflict, "minute {minute}");
    }
    assert_eq!(text(&run, "run_command", ls()).await, "[stdout]\nout");
    assert_eq!(log.lines(), <[String; 0]>::default());
    run.close().await;
    let _taken = rival(&backend, &sandbox, "someone").await.unwrap();
    sleep(10 * MINUTE).await;
    assert_eq!(tags(&backend, &sandbox).await[claim::FENCE], "2", "a closed session renews nothing");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_repeated_in_time() {
    let (log, _guard) = Log::start();
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    backend.fail(Operation::Tags, no_answer);
    sleep(4 * MINUTE).await;
    backend.recover(Operation::Tags);
    sleep(MINUTE).await;
    // Its first lease is over by now.
    rival(&backend, &sandbox, "someone").await.expect_err("held");
    assert_eq!(text(&run, "run_command", ls()).await, "[stdout]\nout");
    let warning = "WARN message=could not renew the claim on sandbox box-1: rec: do the thing: no answer sandbox=\"box-1\" ";
    assert_eq!(log.lines(), [warning; 6], "after 100 s, and every 25 s from then on");
    run.close().await;
}

#[tokio::test(start_paused = true)]
async fn s54_a_claim_that_is_lost_ends_the_run() {
    const OVER: &str = "the claim on the attached sandbox is over and somebody else may hold it by now, so nothing more is done in it, \
                        sandbox box-1, holder dag/run/task";
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    // Asleep for longer than its lease.
    backend.fail(Operation::SetTags, no_answer);
    sleep(6 * MINUTE).await;
    backend.recover(Operation::SetTags);
    let next = rival(&backend, &sandbox, "someone").await.unwrap();
    let error = terminal(run.call("write_file", &json!({"path": "f", "content": "late"})).await);
    assert_eq!(
        (error.kind(), error.to_string()),
        (
            &ErrorKind::ClaimLost,
            format!(
                "rec: call a tool: {OVER}: rec: write the file: the claim on the sandbox is over, and somebody else may hold it by now, \
                 sandbox box-1; claim it again"
            )
        )
    );
    let read = backend.read_file(next.sandbox(), &GuestPath::new("f").unwrap(), 9).await;
    assert_eq!(read.unwrap_err().kind(), &ErrorKind::NotFound, "nothing was written");
    let error = terminal(run.call("run_command", &ls()).await);
    assert_eq!(error.to_string(), format!("rec: call a tool: {OVER}"));
    assert_eq!(backend.commands(), []);
    run.close().await;
    assert_eq!(tags(&backend, &sandbox).await, *next.tags(), "somebody else's claim is left alone");
}

#[tokio::test(start_paused = true)]
async fn s54_a_command_does_not_run_on_beside_another_holders() {
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    backend.set_command_delay(10 * MINUTE);
    let start = Instant::now();
    let ls = ls();
    let (result, next) = tokio::join!(run.call("run_command", &ls), async {
        sleep(MINUTE).await;
        // Under the same name, as after a crash, it can be taken over at any time (AT-05).
        rival(&backend, &sandbox, "dag/run/task").await.unwrap()
    });
    assert_eq!(terminal(result).kind(), &ErrorKind::ClaimLost);
    assert_eq!(start.elapsed(), Duration::from_secs(100), "when its claim was to be renewed");
    run.close().await;
    assert_eq!(tags(&backend, &sandbox).await, *next.tags());
}

#[tokio::test(start_paused = true)]
async fn lc_09_closing_ends_the_command_that_runs_before_it_gives_the_sandbox_back() {
    let (backend, sandbox) = owned().await;
    let run = Arc::new(attached(&backend, &sandbox).await);
    backend.set_command_delay(10 * MINUTE);
    let call = tokio::spawn({
        let run = Arc::clone(&run);
        async move { (run.call("run_command", &ls()).await, Instant::now()) }
    });
    sleep(MINUTE).await;
    let start = Instant::now();
    run.close().await;
    let (result, ended) = call.await.unwrap();
    assert!(terminal(result).to_string().contains("the session is not open"));
    assert_eq!((ended, start.elapsed()), (start, Duration::ZERO));
    assert!(!tags(&backend, &sandbox).await.contains_key(claim::HOLDER));
}

#[tokio::test(start_paused = true)]
async fn lc_09_a_call_that_nobody_polls_any_more_does_not_hold_up_closing() {
    let (backend, sandbox) = owned().await;
    let run = attached(&backend, &sandbox).await;
    backend.set_command_delay(10 * MINUTE);
    let arguments = ls();
    let mut call = Box::pin(run.call("run_command", &arguments));
    assert!(timeout(MINUTE, call.as_mut()).await.is_err());
    let start = Instant::now();
    run.close().await;
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    assert!(!tags(&backend, &sandbox).await.contains_key(claim::HOLDER));
    assert!(terminal(call.await).to_string().contains("the session is not open"));
}

#[tokio::test(start_paused = true)]
async fn mk_04_what_its_creator_put_into_the_environment_is_hidden_too() {
    let backend = attachable();
    let spec = r#"{"owner": "dag/run", "env": {"TOKEN": "tok-12345678", "STAGE": "production"}}"#;
    let sandbox = made(&backend, spec).await;
    backend.set_command_result(CommandResult::exited(0, "tok-12345678 production mine-1\n", ""));
    let config = config(&backend).public_env("STAGE").secret("mine-1");
    let run = AttachedToolset::new(backend.clone(), config).unwrap().attach(sandbox.as_str()).await.unwrap();
    assert_eq!(text(&run, "run_command", ls()).await, "[stdout]\n*** production ***");
    assert!(told(&run).contains("Secret values are shown as ***."));
    run.close().await;
}

#[test]
fn lc_15_for_code_that_is_not_asynchronous() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (backend, sandbox) = runtime.block_on(owned());
    let toolset = toolset(&backend);
    let run = toolset.attach_blocking("box-1").unwrap();
    assert!(run.definitions()[0].description.contains("belongs to dag/run"));
    assert_eq!(run.call("run_command", &ls()).unwrap().text, "[stdout]\nout");
    run.close();
    assert!(!runtime.block_on(tags(&backend, &sandbox)).contains_key(claim::HOLDER));
    let error = toolset.attach_blocking("None").unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s54_of_many_toolsets_that_attach_at_once_one_does() {
    let backend = attachable();
    backend.create(&SandboxSpec::new().with_owner("dag/run").unwrap()).await.unwrap();
    let attempts: Vec<_> = (0..50)
        .map(|number| {
            let config = ToolsetConfig::attached(by(&format!("holder-{number}")));
            let toolset = AttachedToolset::new(backend.clone(), config).unwrap();
            tokio::spawn(async move { toolset.attach("box-1").await })
        })
        .collect();
    let mut open = Vec::new();
    for attempt in attempts {
        match attempt.await.unwrap() {
            Ok(session) => open.push(session),
            Err(error) => assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::Conflict, true)),
        }
    }
    assert_eq!(open.len(), 1);
    open[0].close().await;
}
