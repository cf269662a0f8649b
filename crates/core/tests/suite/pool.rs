//! Sandboxes made in advance.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_core::memory::{Operation, RecordingBackend};
use ringfence_core::pool::{MAX_FAILURES, MAX_SIZE};
use ringfence_core::{Backend, Error, ErrorKind, Pool, SandboxId, SandboxSpec, SpecField};
use tokio::time::{Instant, advance, sleep, timeout};

use super::support::{shown, spec};

const MINUTE: Duration = Duration::from_secs(60);

fn pool_of(backend: &Arc<RecordingBackend>, size: usize) -> Pool {
    let size = NonZeroUsize::new(size).expect("a size");
    Pool::new(backend.clone(), SandboxSpec::default(), size).expect("a pool")
}

/// Lets the background get on until nothing more can be done without time passing.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn taken(pool: &Pool) -> SandboxId {
    pool.create(&SandboxSpec::default()).await.expect("a sandbox").id
}

fn ids(ids: &[SandboxId]) -> Vec<&str> {
    ids.iter().map(SandboxId::as_str).collect()
}

fn no_room() -> Error {
    Error::new(ErrorKind::Unavailable, "rec", "create", "no room")
}

#[tokio::test(start_paused = true)]
async fn bk_01_a_pool_makes_nothing_before_it_is_told_to() {
    let backend = Arc::new(RecordingBackend::new());
    let pool = pool_of(&backend, 3);
    settle().await;
    assert_eq!((backend.created().len(), pool.ready()), (0, 0));
    pool.fill();
    pool.fill();
    settle().await;
    assert_eq!((backend.created().len(), pool.ready()), (3, 3));
    advance(60 * MINUTE).await;
    settle().await;
    assert_eq!(backend.created().len(), 3, "and no more than fit");
    pool.close().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_is_handed_out_at_once_and_replaced() {
    let backend = Arc::new(RecordingBackend::new());
    backend.set_create_delay(Duration::from_secs(10));
    let pool = pool_of(&backend, 2);
    pool.fill();
    sleep(Duration::from_secs(20)).await;
    settle().await;
    assert_eq!(pool.ready(), 2);
    let start = Instant::now();
    let created = pool.create(&SandboxSpec::default()).await.expect("a sandbox");
    assert_eq!((created.id.as_str(), start.elapsed()), ("box-1", Duration::ZERO), "the oldest first");
    let direct = backend.judge(&SandboxSpec::default()).expect("a plan").statement;
    assert_eq!(created.statement, direct);
    assert_eq!(taken(&pool).await.as_str(), "box-2");
    assert_eq!(start.elapsed(), Duration::ZERO);
    sleep(Duration::from_secs(20)).await;
    settle().await;
    assert_eq!((pool.ready(), backend.created().len()), (2, 4));
    pool.close().await;
    assert_eq!(ids(&backend.alive()), ["box-1", "box-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_empty_is_not_waited_for() {
    let backend = Arc::new(RecordingBackend::new());
    backend.set_create_delay(Duration::from_secs(10));
    let pool = pool_of(&backend, 1);
    pool.fill();
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    assert_eq!(taken(&pool).await.as_str(), "box-2", "not the one that is being made");
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    pool.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_gets_what_is_ready_and_the_rest_is_made() {
    let backend = Arc::new(RecordingBackend::new());
    let pool = pool_of(&backend, 3);
    pool.fill();
    settle().await;
    backend.set_create_delay(Duration::from_secs(10));
    let start = Instant::now();
    let one = || async {
        let id = taken(&pool).await;
        (id, start.elapsed().as_secs())
    };
    let got = tokio::join!(one(), one(), one(), one(), one());
    let got = [got.0, got.1, got.2, got.3, got.4];
    let mut names: Vec<&str> = got.iter().map(|(id, _)| id.as_str()).collect();
    let waited: Vec<u64> = got.iter().map(|(_, waited)| *waited).collect();
    assert_eq!(waited, [0, 0, 0, 10, 10]);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 5, "each is handed out once");
    pool.close().await;
}

#[tokio::test(start_paused = true)]
async fn another_spec_goes_past_the_pool() {
    let backend = Arc::new(RecordingBackend::new());
    let pool = pool_of(&backend, 1);
    pool.fill();
    settle().await;
    let other = spec(r#"{"block_network": false}"#).expect("a spec");
    assert_eq!(pool.create(&other).await.expect("a sandbox").id.as_str(), "box-2");
    assert_eq!((pool.ready(), backend.created().last()), (1, Some(&other)));
    pool.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_clocks_of_what_waits_stand_still() {
    let backend = Arc::new(RecordingBackend::new().with_attach());
    let spec = spec(r#"{"lifetime_seconds": 60, "idle_seconds": 30}"#).expect("a spec");
    let pool = Pool::new(backend.clone(), spec.clone(), NonZeroUsize::MIN).expect("a pool");
    pool.fill();
    settle().await;
    advance(60 * MINUTE).await;
    let id = pool.create(&spec).await.expect("a sandbox").id;
    assert_eq!(id.as_str(), "box-1");
    let info = pool.attachable().expect("attachable").inspect(&id).await.expect("it stands").info;
    assert_eq!((info.remaining, info.remaining_idle), (Some(MINUTE), Some(MINUTE / 2)));
    pool.close().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_gone_is_passed_over_and_one_that_is_doubtful_destroyed() {
    let backend = Arc::new(RecordingBackend::new());
    let reported = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&reported);
    let pool =
        pool_of(&backend, 3).reporting_to(move |error| log.lock().expect("a log").push(error.to_string()));
    pool.fill();
    settle().await;
    backend.destroy(&SandboxId::new("box-1").expect("an id")).await.expect("destroyed");
    assert_eq!(taken(&pool).await.as_str(), "box-2");
    settle().await;
    assert_eq!(ids(&backend.destroyed()), ["box-1"], "what is gone needs no destruction");
    assert_eq!(reported.lock().expect("a log").len(), 0);

    backend.fail_once(Operation::Unpark, Error::new(ErrorKind::Unavailable, "rec", "unpark", "no answer"));
    assert_eq!(taken(&pool).await.as_str(), "box-4");
    settle().await;
    assert_eq!(ids(&backend.destroyed()), ["box-1", "box-3"]);
    assert_eq!(*reported.lock().expect("a log"), ["rec: unpark: no answer"]);
    assert_eq!(pool.ready(), 3);
    pool.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_stops_waiting_leaves_nothing_behind() {
    let backend = Arc::new(RecordingBackend::new());
    let pool = pool_of(&backend, 1);
    pool.fill();
    settle().await;
    backend.set_unpark_delay(Duration::from_secs(5));
    assert!(timeout(Duration::from_secs(1), taken(&pool)).await.is_err());
    settle().await;
    assert_eq!(ids(&backend.destroyed()), ["box-1"]);
    pool.close().await;
    assert!(backend.alive().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_fails_is_tried_less_and_less_and_the_caller_is_told() {
    let backend = Arc::new(RecordingBackend::new());
    let start = Instant::now();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&reported);
    let pool = pool_of(&backend, 2).reporting_to(move |error| {
        log.lock().expect("a log").push((start.elapsed().as_secs(), error.to_string()));
    });
    backend.fail(Operation::Create, no_room);
    pool.fill();
    sleep(60 * MINUTE).await;
    let seconds = [0, 1, 3, 7, 15, 31, 63, 123];
    assert_eq!(seconds.len(), MAX_FAILURES as usize);
    let expected = seconds.map(|second| (second, "rec: create: no room".to_owned()));
    assert_eq!(*reported.lock().expect("a log"), expected, "and not any more when nobody asks");
    assert_eq!(shown(pool.create(&SandboxSpec::default()).await), "rec: create: no room");
    // Somebody asked, so it is tried again, but not at once.
    sleep(10 * MINUTE).await;
    assert_eq!(reported.lock().expect("a log").len(), expected.len() + 1);
    backend.recover(Operation::Create);
    let id = taken(&pool).await;
    sleep(MINUTE).await;
    settle().await;
    assert_eq!((pool.ready(), backend.alive().contains(&id)), (2, true));
    pool.close().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_made_in_advance_is_said_once() {
    let backend = Arc::new(RecordingBackend::new());
    let reported = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&reported);
    let pool =
        pool_of(&backend, 2).reporting_to(move |error| log.lock().expect("a log").push(error.to_string()));
    let refusal = Error::refused("rec", SpecField::Lifetime, "its clock cannot be stopped");
    backend.fail_once(Operation::Create, refusal);
    pool.fill();
    sleep(60 * MINUTE).await;
    taken(&pool).await;
    sleep(60 * MINUTE).await;
    assert_eq!((reported.lock().expect("a log").len(), pool.ready(), backend.created().len()), (1, 0, 2));
    pool.close().await;
}

#[tokio::test(start_paused = true)]
async fn closing_destroys_what_waits_and_what_is_being_made() {
    let backend = Arc::new(RecordingBackend::new());
    let pool = pool_of(&backend, 3);
    pool.fill();
    settle().await;
    let mine = taken(&pool).await;
    settle().await;
    backend.set_create_delay(Duration::from_secs(10));
    let also_mine = taken(&pool).await;
    settle().await;
    let start = Instant::now();
    pool.close().await;
    assert_eq!(start.elapsed(), Duration::from_secs(10), "a creation in flight is waited for");
    assert_eq!(backend.alive(), [mine, also_mine]);
    pool.close().await;
    pool.fill();
    backend.set_create_delay(Duration::ZERO);
    taken(&pool).await;
    settle().await;
    assert_eq!((pool.ready(), backend.alive().len()), (0, 3), "only the backend is left of it");
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_pause() {
    let backend = Arc::new(RecordingBackend::new());
    let pool = pool_of(&backend, 1);
    backend.fail(Operation::Create, no_room);
    pool.fill();
    sleep(MINUTE).await;
    let start = Instant::now();
    pool.close().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_destroyed_is_reported() {
    let backend = Arc::new(RecordingBackend::new());
    let reported = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&reported);
    let pool =
        pool_of(&backend, 1).reporting_to(move |error| log.lock().expect("a log").push(error.to_string()));
    pool.fill();
    settle().await;
    backend.fail(Operation::Destroy, || Error::new(ErrorKind::Unavailable, "rec", "destroy", "no answer"));
    pool.close().await;
    assert_eq!(*reported.lock().expect("a log"), ["rec: destroy: no answer, sandbox box-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_dropped_destroys_in_the_background() {
    let backend = Arc::new(RecordingBackend::new());
    let pool = pool_of(&backend, 2);
    pool.fill();
    settle().await;
    drop(pool);
    settle().await;
    assert!(backend.alive().is_empty());
}

#[test]
fn a_runtime_that_ends_lets_another_one_refill() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let backend = Arc::new(RecordingBackend::new());
    let pool = pool_of(&backend, 1);
    pool.fill();
    backend.set_create_delay(Duration::from_secs(3600));
    runtime().block_on(async {
        pool.fill();
        settle().await;
    });
    assert_eq!((backend.created().len(), pool.ready()), (1, 0));
    backend.set_create_delay(Duration::ZERO);
    runtime().block_on(async {
        pool.fill();
        settle().await;
        assert_eq!((backend.created().len(), pool.ready()), (2, 1));
        pool.close().await;
    });
    assert!(backend.alive().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_take_is_forgotten_by_the_refill() {
    let backend = Arc::new(RecordingBackend::new());
    let pool = Arc::new(pool_of(&backend, 4));
    pool.fill();
    let takers: Vec<_> = (0..8)
        .map(|_| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..200 {
                    ids.push(taken(&pool).await);
                    tokio::task::yield_now().await;
                }
                ids
            })
        })
        .collect();
    let mut all = Vec::new();
    for taker in takers {
        all.extend(taker.await.expect("joined"));
    }
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!((count, all.len()), (1600, 1600), "each is handed out once");
    let full = async {
        while pool.ready() < 4 {
            tokio::task::yield_now().await;
        }
    };
    timeout(MINUTE, full).await.expect("full again");
    pool.close().await;
    assert_eq!(backend.alive().len(), 1600);
}

#[test]
fn what_a_pool_cannot_hold_is_refused() {
    let refused = |backend: RecordingBackend, json: &str, size: usize| {
        let size = NonZeroUsize::new(size).expect("a size");
        Pool::new(Arc::new(backend), spec(json).expect("a spec"), size).expect_err("refused")
    };
    let owner = refused(RecordingBackend::new().with_attach(), r#"{"owner": "me"}"#, 1);
    assert_eq!((owner.kind(), owner.field()), (&ErrorKind::Refused, Some(SpecField::Owner)));
    let labels = refused(RecordingBackend::new().with_attach(), r#"{"labels": {"a": "b"}}"#, 1);
    assert_eq!((labels.kind(), labels.field()), (&ErrorKind::Refused, Some(SpecField::Labels)));
    let too_many = refused(RecordingBackend::new(), "{}", MAX_SIZE + 1);
    assert_eq!(too_many.to_string(), "make a pool: a pool holds at most 256 sandboxes, not 257");
    let incapable = RecordingBackend::new().with_capabilities(Default::default());
    assert_eq!(refused(incapable, "{}", 1).field(), Some(SpecField::Network));
}

#[tokio::test]
async fn everything_else_is_the_backends() {
    let backend = Arc::new(RecordingBackend::new().with_name("inner").with_attach());
    let pool = pool_of(&backend, 1);
    assert_eq!((pool.name(), pool.capabilities()), ("inner", backend.capabilities()));
    assert!(pool.attachable().is_some() && pool.background().is_none());
    assert_eq!(pool.probe().await.expect("a report"), backend.probe().await.expect("a report"));
    let parked = pool.create_parked(&SandboxSpec::default()).await.expect("a sandbox").id;
    pool.unpark(&parked).await.expect("it stands");
    pool.destroy(&parked).await.expect("destroyed");
    assert_eq!(ids(&backend.destroyed()), ["box-1"]);
}
