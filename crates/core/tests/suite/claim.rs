//! Who may hold a sandbox (AT, S54).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringfence_core::claim::{self, claim};
use ringfence_core::memory::{Operation, RecordingBackend};
use ringfence_core::{
    Attachable, Backend, Claim, Claimant, CommandRequest, Error, ErrorKind, Lease, ListRequest,
    NetworkPolicy, OutputLimit, Release, Retry, SandboxId, SandboxSpec, Tags,
};
use tokio::time::advance;

use super::support::{owned, path, seconds, spec};

const MINUTE: Duration = Duration::from_secs(60);

fn by(holder: &str) -> Claimant {
    Claimant::new("dag/run").and_then(|claimant| claimant.with_holder(holder)).expect("a claimant")
}

async fn claimed(backend: &RecordingBackend, sandbox: &SandboxId, holder: &str) -> Result<Claim, Error> {
    claim(backend, sandbox, &by(holder), Lease::default(), backend.clock().now()).await
}

async fn tags(backend: &RecordingBackend, sandbox: &SandboxId) -> Tags {
    backend.tags(sandbox).await.expect("tags").tags
}

async fn put(backend: &RecordingBackend, sandbox: &SandboxId, name: &str, value: Option<&str>) {
    let mut found = backend.tags(sandbox).await.expect("tags");
    match value {
        Some(value) => found.tags.insert(name.to_owned(), value.to_owned()),
        None => found.tags.remove(name),
    };
    backend.set_tags(sandbox, found.version, &found.tags).await.expect("written");
}

/// Uses a sandbox in every way there is, and returns what came of each.
async fn every_operation(
    backend: &RecordingBackend,
    sandbox: &SandboxId,
) -> Vec<(&'static str, Option<ErrorKind>)> {
    fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind().clone())
    }
    let command = CommandRequest::shell("true", seconds(1.0), OutputLimit::new(10).expect("a limit"));
    let found = backend.tags(&sandbox.clone().unfenced()).await.expect("tags");
    vec![
        ("write", kind(backend.write_file(sandbox, &path("a"), b"x").await)),
        ("read", kind(backend.read_file(sandbox, &path("a"), 9).await)),
        ("list", kind(backend.list_directory(sandbox, &path("."), ListRequest::default()).await)),
        ("export", kind(backend.export_file(sandbox, &path("a"), 9, &mut Vec::new()).await)),
        ("command", kind(backend.run_command(sandbox, command).await)),
        ("unpark", kind(backend.unpark(sandbox).await)),
        ("tags", kind(backend.tags(sandbox).await)),
        ("set tags", kind(backend.set_tags(sandbox, found.version, &found.tags).await)),
        ("inspect", kind(backend.inspect(sandbox).await)),
        ("renew", kind(backend.renew(sandbox, Some(60 * MINUTE)).await)),
        ("destroy", kind(backend.destroy(sandbox).await)),
    ]
}

#[test]
fn at_11_a_claimant_needs_an_owner_and_holds_under_its_name_unless_told_otherwise() {
    let plain = Claimant::new("dag/run").expect("a claimant");
    assert_eq!((plain.owner(), plain.holder()), ("dag/run", "dag/run"));
    assert_eq!((by("d/r/t[3]").owner(), by("d/r/t[3]").holder()), ("dag/run", "d/r/t[3]"));
    let faults = [
        (Claimant::new(""), "claim the sandbox: attaching needs an owner, which must not be empty"),
        (
            plain.clone().with_holder(""),
            "claim the sandbox: attaching needs a holder, which must not be empty",
        ),
        (
            Claimant::new("x".repeat(1025)),
            "claim the sandbox: an owner of 1025 bytes is too long, at most 1024 are accepted",
        ),
    ];
    for (fault, expected) in faults {
        assert_eq!(fault.expect_err("refused").to_string(), expected);
    }
}

#[test]
fn a_lease_is_neither_too_short_to_be_renewed_nor_too_long_to_wait_for() {
    assert_eq!(Lease::default().get(), 5 * MINUTE);
    assert_eq!(Lease::default().renewal_interval(), Duration::from_secs(100));
    for bounds in [Lease::MIN, Lease::MAX] {
        assert_eq!(Lease::new(bounds).expect("accepted").get(), bounds);
    }
    for beyond in [Duration::from_millis(999), Lease::MAX + Duration::from_nanos(1), Duration::ZERO] {
        assert_eq!(
            Lease::new(beyond).expect_err("refused").kind(),
            &ErrorKind::InvalidArgument,
            "{beyond:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn at_01_at_07_a_claim_is_three_tags_and_all_others_stay() {
    let (backend, sandbox) = owned().await;
    let before = tags(&backend, &sandbox).await;
    let now = backend.clock().now();
    let held = claimed(&backend, &sandbox, "d/r/t").await.expect("claimed");
    let mut expected = before.clone();
    expected.extend([
        (claim::HOLDER.to_owned(), "d/r/t".to_owned()),
        (claim::LEASE_UNTIL.to_owned(), claim::time_text(now + 5 * MINUTE)),
        (claim::FENCE.to_owned(), "1".to_owned()),
    ]);
    assert_eq!(tags(&backend, &sandbox).await, expected);
    assert_eq!(held.tags(), &expected);
    assert_eq!(expected["team"], "data");
    assert_eq!(held.sandbox(), &sandbox);
    assert_eq!(held.sandbox().fence(), Some(held.fence()));
    assert_eq!((held.claimant(), held.lease(), held.fence().get()), (&by("d/r/t"), Lease::default(), 1));
    let through_the_claim = every_operation(&backend, held.sandbox()).await;
    assert!(through_the_claim.iter().all(|(_, fault)| fault.is_none()), "{through_the_claim:?}");
}

#[tokio::test(start_paused = true)]
async fn at_02_at_03_the_name_alone_or_another_owner_is_not_enough() {
    let (backend, sandbox) = owned().await;
    let before = tags(&backend, &sandbox).await;
    let other = Claimant::new("dag/other").expect("a claimant");
    let error = claim(&backend, &sandbox, &other, Lease::default(), backend.clock().now()).await;
    let error = error.expect_err("refused");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::PermissionDenied, true));
    assert_eq!(
        error.to_string(),
        r#"rec: claim the sandbox: the sandbox belongs to "dag/run", not to "dag/other", sandbox box-1"#
    );
    assert_eq!(tags(&backend, &sandbox).await, before, "no claim is left");

    put(&backend, &sandbox, claim::OWNER, None).await;
    let error = claimed(&backend, &sandbox, "me").await.expect_err("refused");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::PermissionDenied, true));
    assert_eq!(
        error.to_string(),
        "rec: claim the sandbox: the sandbox carries no owner, so nobody can attach to it, sandbox box-1; create it with an \
         owner in its spec"
    );
}

#[tokio::test(start_paused = true)]
async fn at_04_another_holder_is_named_until_its_lease_runs_out() {
    let (backend, sandbox) = owned().await;
    let first = claimed(&backend, &sandbox, "d/r/first").await.expect("claimed");
    advance(Duration::from_millis(298_500)).await;
    let error = claimed(&backend, &sandbox, "d/r/second").await.expect_err("refused");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::Conflict, true));
    assert_eq!(
        error.to_string(),
        r#"rec: claim the sandbox: the sandbox is held by "d/r/first", whose lease runs for another 2 s, sandbox box-1; wait until that releases it"#
    );
    advance(Duration::from_millis(1_499)).await;
    claimed(&backend, &sandbox, "d/r/second").await.expect_err("the lease runs to its last millisecond");
    advance(Duration::from_millis(1)).await;
    let second = claimed(&backend, &sandbox, "d/r/second").await.expect("taken over");
    assert_eq!((first.fence().get(), second.fence().get()), (1, 2));
    let stale = every_operation(&backend, first.sandbox()).await;
    assert!(stale.iter().all(|(_, fault)| *fault == Some(ErrorKind::ClaimLost)), "{stale:?}");
    assert_eq!(backend.alive(), std::slice::from_ref(&sandbox));
    let current = every_operation(&backend, second.sandbox()).await;
    assert!(current.iter().all(|(_, fault)| fault.is_none()), "{current:?}");
}

#[tokio::test(start_paused = true)]
async fn at_05_the_same_holder_comes_back_and_what_it_left_behind_is_kept_out() {
    let (backend, sandbox) = owned().await;
    let crashed = claimed(&backend, &sandbox, "d/r/t").await.expect("claimed");
    let back = claimed(&backend, &sandbox, "d/r/t").await.expect("claimed again, its lease still running");
    assert_eq!((crashed.fence().get(), back.fence().get()), (1, 2));
    let leftovers = every_operation(&backend, crashed.sandbox()).await;
    assert!(leftovers.iter().all(|(_, fault)| *fault == Some(ErrorKind::ClaimLost)), "{leftovers:?}");
    let error = backend.write_file(crashed.sandbox(), &path("a"), b"").await.expect_err("refused");
    assert_eq!(
        (error.is_terminal(), error.to_string()),
        (
            true,
            "rec: write the file: the claim on the sandbox is over, and somebody else may hold it by now, sandbox box-1; claim it \
             again"
                .to_owned()
        )
    );
    assert_eq!(crashed.release(&backend).await.expect("nothing to do"), Release::AlreadyOver);
    assert_eq!(tags(&backend, &sandbox).await[claim::HOLDER], "d/r/t");
}

#[tokio::test(start_paused = true)]
async fn a_claim_made_through_the_id_of_an_earlier_one_is_a_new_one() {
    let (backend, sandbox) = owned().await;
    let first = claimed(&backend, &sandbox, "me").await.expect("claimed");
    let second = claimed(&backend, first.sandbox(), "me").await.expect("claimed");
    assert_eq!(second.sandbox().fence(), Some(second.fence()));
    let third =
        claimed(&backend, first.sandbox(), "me").await.expect("also through an id that is fenced off");
    assert_eq!(third.fence().get(), 3);
}

#[tokio::test(start_paused = true)]
async fn at_06_whoever_writes_first_wins() {
    let (backend, sandbox) = owned().await;
    let (mut once, until) = (true, claim::time_text(backend.clock().now() + MINUTE));
    backend.race_tags(move |tags| {
        tags.insert(claim::HOLDER.to_owned(), "someone/faster".to_owned());
        tags.insert(claim::LEASE_UNTIL.to_owned(), until.clone());
        std::mem::take(&mut once)
    });
    let error = claimed(&backend, &sandbox, "me").await.expect_err("refused");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::Conflict, true));
    assert!(error.to_string().contains(r#"held by "someone/faster""#), "{error}");
    assert_eq!(tags(&backend, &sandbox).await[claim::HOLDER], "someone/faster");
}

#[tokio::test(start_paused = true)]
async fn at_07_what_others_write_meanwhile_stays() {
    let (backend, sandbox) = owned().await;
    let mut writes = 0;
    backend.race_tags(move |tags| {
        writes += 1;
        tags.insert("note".to_owned(), writes.to_string());
        writes <= 3
    });
    let held = claimed(&backend, &sandbox, "me").await.expect("claimed in the fourth round");
    assert_eq!(held.tags()["note"], "3");
    assert_eq!(tags(&backend, &sandbox).await, *held.tags());
}

#[tokio::test(start_paused = true)]
async fn whoever_never_gets_to_write_gives_up() {
    let (backend, sandbox) = owned().await;
    backend.race_tags(|_| true);
    let error = claimed(&backend, &sandbox, "me").await.expect_err("refused");
    assert_eq!(
        (error.kind(), error.is_terminal(), error.retry_policy()),
        (&ErrorKind::Conflict, true, Retry::Safe)
    );
    assert!(
        error.to_string().contains("others were faster with writing its tags 16 times in a row"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn at_12_what_keeps_a_sandbox_from_being_claimed_ends_the_run() {
    let (backend, sandbox) = owned().await;
    for operation in [Operation::Tags, Operation::SetTags] {
        let passing = Error::new(ErrorKind::Unavailable, "rec", "talk", "no answer").retry(Retry::Safe);
        backend.fail_once(operation, passing);
        let error = claimed(&backend, &sandbox, "me").await.expect_err("refused");
        assert_eq!(
            (error.kind(), error.is_terminal(), error.retry_policy()),
            (&ErrorKind::Unavailable, true, Retry::Safe)
        );
        assert_eq!(
            error.to_string(),
            "rec: claim the sandbox: the sandbox could not be claimed, sandbox box-1: rec: talk: no answer"
        );
    }
    backend.destroy(&sandbox).await.expect("destroyed");
    let error = claimed(&backend, &sandbox, "me").await.expect_err("refused");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::SandboxLost, true));
}

#[tokio::test(start_paused = true)]
async fn at_08_release_takes_only_our_own_claim_away_and_can_be_repeated() {
    let (backend, sandbox) = owned().await;
    let before = tags(&backend, &sandbox).await;
    let held = claimed(&backend, &sandbox, "me").await.expect("claimed");
    assert_eq!(held.release(&backend).await.expect("released"), Release::Done);
    let mut expected = before;
    expected.insert(claim::FENCE.to_owned(), "1".to_owned());
    assert_eq!(tags(&backend, &sandbox).await, expected, "the count of claims stays");
    assert_eq!(held.release(&backend).await.expect("released before"), Release::AlreadyOver);
    let stale = every_operation(&backend, held.sandbox()).await;
    assert!(
        stale.iter().all(|(_, fault)| *fault == Some(ErrorKind::ClaimLost)),
        "S54: also before the next: {stale:?}"
    );

    let next = claimed(&backend, &sandbox, "someone").await.expect("claimed");
    assert_eq!(next.fence().get(), 2, "a fence is never given twice");
    assert_eq!(held.release(&backend).await.expect("not ours"), Release::AlreadyOver);
    assert_eq!(tags(&backend, &sandbox).await, *next.tags());

    backend.destroy(&sandbox).await.expect("destroyed");
    let error = next.release(&backend).await.expect_err("gone");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::SandboxLost, true));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_as_long_as_the_claim_stands() {
    let (backend, sandbox) = owned().await;
    let held = claimed(&backend, &sandbox, "me").await.expect("claimed");
    let until = |tags: &Tags| claim::read_time(&tags[claim::LEASE_UNTIL]).expect("a time");
    advance(4 * MINUTE).await;
    held.renew(&backend, backend.clock().now()).await.expect("renewed");
    assert_eq!(until(&tags(&backend, &sandbox).await), backend.clock().now() + 5 * MINUTE);
    advance(4 * MINUTE).await;
    claimed(&backend, &sandbox, "someone").await.expect_err("held");
    // Nobody came after it had run out.
    advance(4 * MINUTE).await;
    held.renew(&backend, backend.clock().now()).await.expect("renewed");
    claimed(&backend, &sandbox, "someone").await.expect_err("held again");
    advance(5 * MINUTE).await;
    let next = claimed(&backend, &sandbox, "someone").await.expect("taken over");
    let error = held.renew(&backend, backend.clock().now()).await.expect_err("over");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::ClaimLost, true));
    assert_eq!(tags(&backend, &sandbox).await, *next.tags());
    assert_eq!(next.release(&backend).await.expect("released"), Release::Done);
    let error = next.renew(&backend, backend.clock().now()).await.expect_err("released");
    assert_eq!(error.kind(), &ErrorKind::ClaimLost, "a released claim does not come back to life");
    assert!(!tags(&backend, &sandbox).await.contains_key(claim::HOLDER));
}

#[tokio::test(start_paused = true)]
async fn tags_that_somebody_has_spoilt_are_read_the_safe_way() {
    let (backend, sandbox) = owned().await;
    let _first = claimed(&backend, &sandbox, "first").await.expect("claimed");
    advance(10 * MINUTE).await;
    for (until, text) in [(Some("soon"), "for a time that is not readable"), (None, "for an unknown time")] {
        put(&backend, &sandbox, claim::LEASE_UNTIL, until).await;
        let error = claimed(&backend, &sandbox, "second").await.expect_err("held as long as nobody knows");
        assert_eq!(error.message(), format!(r#"the sandbox is held by "first", {text}"#));
    }
    put(&backend, &sandbox, claim::HOLDER, None).await;
    for count in ["", "-1", "many", "18446744073709551615"] {
        put(&backend, &sandbox, claim::FENCE, Some(count)).await;
        let error = claimed(&backend, &sandbox, "second").await.expect_err("no fence can be told");
        assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::Unexpected, true));
        assert_eq!(error.message(), format!("its count of claims is {count:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s54_of_100_that_claim_at_once_exactly_one_holds() {
    let (backend, sandbox) = owned().await;
    let backend = Arc::new(backend);
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let (backend, sandbox) = (Arc::clone(&backend), sandbox.clone());
            tokio::spawn(async move { claimed(&backend, &sandbox, &format!("holder-{number}")).await })
        })
        .collect();
    let (mut held, mut refused) = (Vec::new(), Vec::new());
    for task in tasks {
        match task.await.expect("joined") {
            Ok(claim) => held.push(claim),
            Err(error) => refused.push(error),
        }
    }
    assert_eq!((held.len(), refused.len()), (1, 99));
    let winner = held[0].claimant().holder().to_owned();
    for error in refused {
        assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::Conflict, true));
        assert!(error.message().contains(&format!("held by {winner:?}")), "{error}");
    }
    assert_eq!(tags(&backend, &sandbox).await, *held[0].tags());
}

/// Those that share a name take it from each other; still only the last can use the sandbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s54_of_100_under_one_name_exactly_one_can_use_it() {
    let (backend, sandbox) = owned().await;
    let backend = Arc::new(backend);
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let (backend, sandbox) = (Arc::clone(&backend), sandbox.clone());
            tokio::spawn(async move { claimed(&backend, &sandbox, "me").await })
        })
        .collect();
    let mut fences = Vec::new();
    let mut usable = Vec::new();
    let mut claims = Vec::new();
    for task in tasks {
        claims.extend(task.await.expect("joined"));
    }
    for claim in &claims {
        fences.push(claim.fence().get());
        if backend.write_file(claim.sandbox(), &path("a"), b"").await.is_ok() {
            usable.push(claim.fence().get());
        }
    }
    fences.sort_unstable();
    let all = fences.clone();
    fences.dedup();
    assert_eq!(fences, all, "no fence is given twice");
    assert_eq!(usable, fences[fences.len() - 1..]);
}

#[test]
fn at_09_what_is_left_of_a_life() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
    let left = |stamp: Option<&str>| {
        let stamp = stamp.map(|stamp| (claim::EXPIRES_AT.to_owned(), stamp.to_owned()));
        claim::remaining(&stamp.into_iter().collect(), now)
    };
    let cases = [
        (Some("1700000600.25"), Some(600.0)),
        (Some("1700000001"), Some(0.75)),
        (Some("1700000000.2500001239"), Some(0.000_000_123)),
        (Some("1699999940.25"), Some(0.0)),
        (Some("0"), Some(0.0)),
        (Some("soon"), None),
        (Some(""), None),
        (Some("."), None),
        (Some("1700000600."), None),
        (Some("-1700000600"), None),
        (Some("+1700000600"), None),
        (Some("1e12"), None),
        (Some("inf"), None),
        (Some("99999999999999999999"), None),
        (Some("18446744073709551615"), None),
        (None, None),
    ];
    for (stamp, expected) in cases {
        assert_eq!(left(stamp).map(|left| left.as_secs_f64()), expected, "{stamp:?}");
    }
    for (millis, text) in [(0, "0"), (1_500, "1.5"), (1_005, "1.005"), (10_000, "10"), (90, "0.09")] {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        assert_eq!((claim::time_text(time), claim::read_time(text)), (text.to_owned(), Some(time)));
    }
    let finer = SystemTime::UNIX_EPOCH + Duration::from_micros(1_999_999);
    assert_eq!(claim::time_text(finer), "1.999", "never said to last longer than it does");
    assert_eq!(claim::time_text(SystemTime::UNIX_EPOCH - MINUTE), "0");
}

#[test]
fn at_10_the_network_stamp() {
    let read = |stamp: Option<&str>| {
        let stamp = stamp.map(|stamp| (claim::NETWORK.to_owned(), stamp.to_owned()));
        claim::network(&stamp.into_iter().collect())
    };
    assert!(read(None).is_none());
    let blocked = NetworkPolicy::Blocked.to_tag();
    assert_eq!(read(Some(&blocked)).expect("a stamp").expect("readable"), NetworkPolicy::Blocked);
    let error = read(Some("half a stamp")).expect("a stamp").expect_err("unreadable");
    assert!(error.to_string().contains("half a stamp"), "{error}");
}

#[test]
fn at_01_the_stamp_of_a_creation() {
    let made = spec(
        r#"{"owner": "dag/run", "labels": {"team": "data"}, "allow_egress_to": ["api.example.org"], "env": {"A": "1"}}"#,
    )
    .expect("a spec");
    let end = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_600_500);
    let expected = [
        ("ringfence_expires_at", "1700000600.5"),
        (
            "ringfence_network",
            r#"{"allow_egress_to":["api.example.org"],"allow_egress_to_cidrs":[],"block_network":true}"#,
        ),
        ("ringfence_owner", "dag/run"),
        ("ringfence_workdir", "/w"),
        ("team", "data"),
    ];
    let expected: Tags = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(claim::stamp(&made, Some("/w"), Some(end)), expected);
    let bare = claim::stamp(&SandboxSpec::default(), None, None);
    assert_eq!(bare.keys().collect::<Vec<_>>(), ["ringfence_network"]);
}

#[tokio::test(start_paused = true)]
async fn whatever_a_spec_holds_its_sandbox_can_be_claimed() {
    let hosts: Vec<String> = (0..500).map(|number| format!("\"host-{number}.example.org\"")).collect();
    let made = spec(&format!(
        r#"{{"owner": "{}", "labels": {{"l": "{}"}}, "workdir": "/{}", "allow_egress_to": [{}]}}"#,
        "o".repeat(claim::MAX_NAME_BYTES),
        "x".repeat(ringfence_core::spec::MAX_LABEL_BYTES - 1),
        "w".repeat(ringfence_core::file::MAX_PATH_BYTES - 1),
        hosts.join(",")
    ))
    .expect("a spec");
    let backend = RecordingBackend::new().with_attach();
    let sandbox = backend.create(&made).await.expect("a sandbox").id;
    let holder = "h".repeat(claim::MAX_NAME_BYTES);
    let claimant = Claimant::new(made.owner().expect("an owner")).and_then(|by| by.with_holder(holder));
    let (claimant, now) = (claimant.expect("a claimant"), backend.clock().now());
    let held = claim(&backend, &sandbox, &claimant, Lease::default(), now);
    let held = held.await.expect("claimed");
    assert!(!held.tags().contains_key(claim::NETWORK), "a list too long for the tags is not known (AT-10)");
}
