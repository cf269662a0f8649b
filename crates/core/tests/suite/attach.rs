//! The recording backend as one whose sandboxes others find and hold.

use std::time::Duration;

use ringfence_core::attach::{DEFAULT_KEPT_LIFETIME, MAX_TAG_BYTES};
use ringfence_core::memory::RecordingBackend;
use ringfence_core::{
    Attachable, Backend, CommandRequest, ErrorKind, EventsFrom, Inspection, OutputLimit, Reach, Retry,
    SandboxId, SandboxInfo, SandboxList, SandboxSpec, Tagged, Tags, Usage, claim,
};
use tokio::time::{Instant, advance};

use super::support::{owned, seconds, shown, spec};

const MINUTE: Duration = Duration::from_secs(60);

fn one_tag(name: &str, value: &str) -> Tags {
    Tags::from([(name.to_owned(), value.to_owned())])
}

async fn made(backend: &RecordingBackend, json: &str) -> SandboxId {
    backend.create(&spec(json).expect("a spec")).await.expect("a sandbox").id
}

#[tokio::test]
async fn only_a_backend_that_says_so_can_be_attached_to() {
    let plain = RecordingBackend::new();
    assert!(plain.attachable().is_none() && !plain.capabilities().attach);
    let attachable = plain.with_attach();
    assert!(attachable.attachable().is_some() && attachable.capabilities().attach);
}

#[tokio::test]
async fn a_backend_that_keeps_no_record_says_so() {
    let backend = RecordingBackend::new().with_attach();
    let error = backend.events(&EventsFrom::Oldest).await.expect_err("none");
    assert_eq!((error.kind(), error.backend()), (&ErrorKind::Unsupported, backend.name()));
}

#[tokio::test]
async fn tags_are_written_only_over_the_version_that_was_read() {
    let (backend, sandbox) = owned().await;
    let first = backend.tags(&sandbox).await.expect("tags");
    let second = backend.set_tags(&sandbox, first.version, &one_tag("a", "1")).await.expect("written");
    assert!(second > first.version);
    let error = backend.set_tags(&sandbox, first.version, &one_tag("a", "2")).await.expect_err("too late");
    assert_eq!((error.kind(), error.retry_policy()), (&ErrorKind::Conflict, Retry::Safe));
    let found = backend.tags(&sandbox).await.expect("tags");
    let expires_at = found.tags[claim::EXPIRES_AT].clone();
    let mut expected = one_tag("a", "1");
    expected.insert(claim::EXPIRES_AT.to_owned(), expires_at);
    assert_eq!(found, Tagged { version: second, tags: expected }, "all were replaced, but for the clock");
    let too_much = one_tag("a", &"x".repeat(MAX_TAG_BYTES));
    let error = backend.set_tags(&sandbox, second, &too_much).await.expect_err("too much");
    assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
    let gone = SandboxId::new("box-9").expect("an id");
    for error in [
        backend.tags(&gone).await.map(drop).expect_err("gone"),
        backend.set_tags(&gone, 1, &Tags::new()).await.map(drop).expect_err("gone"),
        backend.inspect(&gone).await.map(drop).expect_err("gone"),
        backend.renew(&gone, None).await.map(drop).expect_err("gone"),
    ] {
        assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::SandboxLost, true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_what_others_can_reach_oldest_first() {
    let backend = RecordingBackend::new().with_attach();
    made(&backend, "{}").await;
    let labelled = made(&backend, r#"{"labels": {"a": "b"}}"#).await;
    advance(MINUTE).await;
    let kept = backend.create_reachable(&SandboxSpec::default(), Reach::Kept).await.expect("a sandbox").id;
    let now = backend.clock().now();
    let listed = backend.list().await.expect("a list");
    let info = |id: &SandboxId, created_at, reach, remaining, tagged| SandboxInfo {
        id: id.clone(),
        created_at,
        reach,
        remaining,
        remaining_idle: None,
        tagged,
    };
    let (first, second) = (backend.tags(&labelled).await, backend.tags(&kept).await);
    let expected = [
        info(&labelled, now - MINUTE, Reach::Listed, None, first.expect("tags")),
        info(&kept, now, Reach::Kept, Some(DEFAULT_KEPT_LIFETIME), second.expect("tags")),
    ];
    assert_eq!(listed, SandboxList { sandboxes: expected.to_vec(), silent: Vec::new() });
    assert_eq!(expected[1].tagged.tags[claim::EXPIRES_AT], claim::time_text(now + DEFAULT_KEPT_LIFETIME));
    let inspected = backend.inspect(&kept).await.expect("an inspection");
    assert_eq!(
        inspected,
        Inspection {
            info: expected[1].clone(),
            spec: SandboxSpec::default(),
            statement: backend.judge(&SandboxSpec::default()).expect("a plan").statement,
            usage: Usage::default(),
            processes: Vec::new(),
        }
    );
    assert_eq!(backend.prune(false).await.expect("nothing"), []);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_ends_with_its_lifetime_which_can_be_renewed() {
    let backend = RecordingBackend::new().with_attach();
    let sandbox = made(&backend, r#"{"lifetime_seconds": 60}"#).await;
    advance(Duration::from_secs(59)).await;
    let left = backend.renew(&sandbox, None).await.expect("renewed");
    assert_eq!(left, MINUTE);
    advance(Duration::from_secs(59)).await;
    assert_eq!(backend.renew(&sandbox, Some(2 * MINUTE)).await.expect("renewed"), 2 * MINUTE);
    advance(2 * MINUTE - Duration::from_millis(1)).await;
    assert_eq!(backend.alive(), std::slice::from_ref(&sandbox));
    advance(Duration::from_millis(1)).await;
    assert!(backend.alive().is_empty());
    assert!(shown(backend.tags(&sandbox).await).contains("no longer exists"));
    let endless = made(&backend, "{}").await;
    let error = backend.renew(&endless, None).await.expect_err("no lifetime");
    assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_ends_when_nobody_uses_it() {
    let backend = RecordingBackend::new().with_attach();
    let sandbox = made(&backend, r#"{"idle_seconds": 60}"#).await;
    let command = || CommandRequest::shell("x", seconds(900.0), OutputLimit::new(10).expect("a limit"));
    backend.set_command_delay(5 * MINUTE);
    backend.run_command(&sandbox, command()).await.expect("a command is a use as long as it runs");
    advance(Duration::from_secs(59)).await;
    let given_up = tokio::time::timeout(5 * MINUTE - MINUTE, backend.run_command(&sandbox, command())).await;
    assert!(given_up.is_err());
    advance(Duration::from_secs(59)).await;
    backend.tags(&sandbox).await.expect("used until the command was given up");
    advance(Duration::from_secs(1)).await;
    assert!(backend.alive().is_empty(), "a look at its tags is no use");
}

#[tokio::test(start_paused = true)]
async fn the_clocks_of_a_parked_sandbox_stand_still() {
    let backend = RecordingBackend::new().with_attach();
    let spec = spec(r#"{"lifetime_seconds": 60, "idle_seconds": 30}"#).expect("a spec");
    let parked = backend.create_parked(&spec).await.expect("a sandbox").id;
    advance(60 * MINUTE).await;
    let start = Instant::now();
    backend.unpark(&parked).await.expect("it stands");
    assert_eq!(
        claim::remaining(&backend.tags(&parked).await.expect("tags").tags, backend.clock().now()),
        Some(MINUTE)
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
    advance(Duration::from_secs(30)).await;
    let error = backend.unpark(&parked).await.expect_err("over");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::SandboxLost, true));
}
