//! Runs in a sandbox of somebody else, over the backend of this machine (AT, S54).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringfence::claim::claim;
use ringfence::toolset::{AttachedToolset, Session, ToolError, ToolsetConfig};
use ringfence::{
    Backend, BackendSettings, Claimant, Error, ErrorKind, GuestPath, Lease, Reach, Registry, SandboxId,
    SandboxSpec,
};
use serde_json::{Value, json};

/// Long enough that a busy machine renews it in time.
const LEASE: Duration = Duration::from_secs(3);

fn claimant() -> Claimant {
    Claimant::new("dag/run").and_then(|claimant| claimant.with_holder("dag/run/task")).unwrap()
}

async fn local() -> (Arc<dyn Backend>, SandboxId) {
    let backend = Registry::new(BackendSettings::default()).open("local").unwrap();
    let spec: SandboxSpec = serde_json::from_str(
        r#"{"owner": "dag/run", "lifetime_seconds": 600, "env": {"TOKEN": "tok-12345678"}}"#,
    )
    .unwrap();
    let attachable = backend.attachable().unwrap();
    let sandbox = attachable.create_reachable(&spec, Reach::Listed).await.unwrap().id;
    (backend, sandbox)
}

async fn attached(backend: &Arc<dyn Backend>, sandbox: &SandboxId, lease: Duration) -> Session {
    let config = ToolsetConfig::attached(claimant()).lease(Lease::new(lease).unwrap());
    AttachedToolset::new(Arc::clone(backend), config).unwrap().attach(sandbox.as_str()).await.unwrap()
}

async fn run(session: &Session, command: &str) -> Value {
    session.call("run_command", &json!({"command": command})).await.unwrap().structured
}

fn terminal(error: ToolError) -> Error {
    match error {
        ToolError::Terminal(error) => error,
        other => panic!("not terminal: {other}"),
    }
}

#[tokio::test]
async fn at_12_to_at_21_a_run_in_a_sandbox_of_somebody_else() {
    let (backend, sandbox) = local().await;
    let first = attached(&backend, &sandbox, LEASE).await;
    let told = &first.definitions()[0].description;
    for words in [
        "belongs to dag/run",
        "There is NO network access, including DNS",
        "/workspace",
        "about 10 minutes left",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(first.statement().is_some());
    run(&first, "echo kept > f").await;
    // Longer than the lease: it is renewed.
    tokio::time::sleep(LEASE + LEASE / 4).await;
    let stranger = Claimant::new("dag/run").unwrap();
    let refused =
        claim(backend.attachable().unwrap(), &sandbox, &stranger, Lease::default(), SystemTime::now());
    assert_eq!(refused.await.unwrap_err().kind(), &ErrorKind::Conflict);
    first.close().await;

    let second = attached(&backend, &sandbox, LEASE).await;
    assert_eq!(run(&second, "cat f; echo; env | grep TOKEN").await["stdout"], "kept\n\nTOKEN=***");
    second.close().await;
    backend.destroy(&sandbox).await.unwrap();
}

#[tokio::test]
async fn s54_a_command_of_a_stale_holder_is_ended_and_its_next_call_refused() {
    let (backend, sandbox) = local().await;
    let stale = attached(&backend, &sandbox, Lease::MIN).await;
    let ticks = json!({"command": "while :; do date +%N > tick; sleep 0.02; done"});
    let path = GuestPath::new("tick").unwrap();
    let tick = async || backend.read_file(&sandbox, &path, 100).await.ok();
    // Whoever comes back under the same name takes the claim over (AT-05).
    let (ended, next) = tokio::join!(stale.call("run_command", &ticks), async {
        while tick().await.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        claim(backend.attachable().unwrap(), &sandbox, &claimant(), Lease::default(), SystemTime::now()).await
    });
    assert_eq!(terminal(ended.unwrap_err()).kind(), &ErrorKind::ClaimLost);
    let next = next.unwrap();
    // The end of the command is not waited for by its caller.
    let mut last = tick().await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = tick().await;
        if now == last {
            break;
        }
        last = now;
    }
    assert_eq!(tick().await, last, "it runs on beside the next holder");
    let late = stale.call("write_file", &json!({"path": "late", "content": "x"})).await;
    assert_eq!(terminal(late.unwrap_err()).kind(), &ErrorKind::ClaimLost);
    let direct = backend.write_file(&stale_id(&next), &GuestPath::new("late").unwrap(), b"x").await;
    assert_eq!(direct.unwrap_err().kind(), &ErrorKind::ClaimLost, "not by the toolset alone");
    backend.write_file(next.sandbox(), &GuestPath::new("mine").unwrap(), b"x").await.unwrap();
    stale.close().await;
    backend.write_file(next.sandbox(), &GuestPath::new("mine").unwrap(), b"y").await.unwrap();
    backend.destroy(next.sandbox()).await.unwrap();
}

/// The sandbox as the holder before named it.
fn stale_id(next: &ringfence::Claim) -> SandboxId {
    let before = ringfence::Fence::new(next.fence().get() - 1).unwrap();
    next.sandbox().clone().fenced(before)
}
