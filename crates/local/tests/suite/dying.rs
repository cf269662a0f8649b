//! Sandboxes that die, or whose launcher is stopped: what is granted, listed and recorded of them; and one that nobody else finds.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use ringfence_core::claim::claim;
use ringfence_core::{
    Attachable, Backend, Claimant, CommandResult, ErrorKind, EventsFrom, Lease, Reach, SandboxId,
    SandboxSpec, Tags,
};
use rustix::process::{Pid, Signal, kill_process};

use super::kept::{Place, run};
use super::support::{children_of, is_alone, slowness, until};

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// The launcher of this process that is none of `before`, and the first process of its one sandbox.
fn launcher_and_first(before: &[u32]) -> (u32, u32) {
    let own = children_of(std::process::id());
    let launcher = *own.iter().find(|pid| !before.contains(pid)).unwrap();
    let [first] = children_of(launcher)[..] else { panic!("one sandbox") };
    (launcher, first)
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

#[test]
fn p_116_what_is_granted_is_granted_of_a_living_sandbox_and_nothing_else_is_recorded() {
    const TEST: &str = "p_116_what_is_granted_is_granted_of_a_living_sandbox_and_nothing_else_is_recorded";
    if is_alone(&format!("suite::dying::{TEST}")) {
        tokio::runtime::Runtime::new().unwrap().block_on(ask_of_the_dying());
    }
}

async fn ask_of_the_dying() {
    for round in 0..24 {
        let place = Place::new();
        let before = children_of(std::process::id());
        let creator = place.backend();
        let spec = SandboxSpec::new().with_owner("team").unwrap();
        let id = creator.create_reachable(&spec, Reach::Kept).await.unwrap().id;
        // With more to put away it takes longer.
        run(
            &creator,
            &id,
            "head -c 60M /dev/zero > /tmp/x; for i in $(seq 100); do sleep 1000 >/dev/null 2>&1 & done",
        )
        .await
        .unwrap();
        let other = place.backend();
        let version = other.tags(&id).await.unwrap().version;
        // Control: granted while it lives, and said once.
        assert_eq!(other.renew(&id, Some(seconds(600.0))).await.unwrap(), seconds(600.0));
        let (launcher, first) = launcher_and_first(&before);
        signal(if round % 3 == 2 { launcher } else { first }, Signal::KILL);
        let lost = |error: ringfence_core::Error| error.kind().clone();
        let claimant = Claimant::new("team").unwrap();
        let lease = Lease::new(seconds(60.0)).unwrap();
        match round % 2 {
            0 => {
                let renewed = other.renew(&id, Some(seconds(900.0))).await.map_err(lost);
                assert_eq!(renewed, Err(ErrorKind::SandboxLost), "{round}");
            }
            _ => {
                let claimed = claim(&other, &id, &claimant, lease, SystemTime::now()).await.map(drop);
                assert_eq!(claimed.map_err(lost), Err(ErrorKind::SandboxLost), "{round}");
            }
        }
        assert_eq!(
            other.set_tags(&id, version, &Tags::new()).await.map_err(lost),
            Err(ErrorKind::SandboxLost)
        );
        assert_eq!(other.tags(&id).await.map(drop).map_err(lost), Err(ErrorKind::SandboxLost));
        let names: Vec<String> = place.events().into_iter().map(|(event, _)| event).collect();
        let granted: Vec<&String> =
            names.iter().filter(|name| ["renewed", "tags"].contains(&name.as_str())).collect();
        assert_eq!(granted, ["renewed"], "{round}");
    }
}

#[tokio::test]
async fn a_renewal_that_fails_is_not_recorded() {
    let place = Place::new();
    let creator = place.backend();
    let id = creator.create_reachable(&SandboxSpec::new(), Reach::Listed).await.unwrap().id;
    let error = creator.renew(&id, None).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
    assert_eq!(place.events().iter().filter(|(event, _)| event == "renewed").count(), 0);
    creator.destroy(&id).await.unwrap();
}

#[test]
fn p_117_a_sandbox_has_one_end_in_the_record() {
    const TEST: &str = "p_117_a_sandbox_has_one_end_in_the_record";
    if is_alone(&format!("suite::dying::{TEST}")) {
        tokio::runtime::Runtime::new().unwrap().block_on(end_twice());
    }
}

async fn end_twice() {
    let place = Place::new();
    let creator = place.backend();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(creator.create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap().id);
    }
    let [launcher] = children_of(std::process::id())[..] else { panic!("one launcher") };
    signal(launcher, Signal::STOP);
    // As a launcher leaves it that is killed between the line and the removal of the record; one line is old.
    let record = place.path().join("audit.jsonl");
    let line = |id: &SandboxId, reason: &str| {
        format!("{{\"at_millis\":1,\"sandbox\":\"{id}\",\"event\":\"ended\",\"reason\":\"{reason}\"}}\n")
    };
    let old = fs::read_to_string(&record).unwrap() + &line(&ids[0], "idle");
    fs::write(place.path().join("audit.1.jsonl"), old).unwrap();
    fs::write(&record, line(&ids[1], "lifetime")).unwrap();
    signal(launcher, Signal::KILL);
    assert!(until(20.0, || children_of(launcher).is_empty()).await);
    let (one, two) = (place.backend(), place.backend());
    let (left, _) = tokio::join!(one.prune(false), two.prune(false));
    left.unwrap();
    assert!(until(20.0, || place.names().is_empty()).await, "{:?}", place.names());
    let events = place.backend().events(&EventsFrom::Oldest).await.unwrap().events;
    let mut ends: Vec<_> =
        events.iter().filter_map(|event| Some((event.sandbox.clone(), event.end_reason()?))).collect();
    ends.sort_unstable_by_key(|(id, _)| ids.iter().position(|other| other == id));
    let expected: Vec<_> = ids.iter().cloned().zip(["idle", "lifetime", "launcher_gone"]).collect();
    assert_eq!(ends, expected);
}

#[test]
fn p_116_a_sandbox_whose_launcher_is_stopped_is_named_and_no_leftover() {
    const TEST: &str = "p_116_a_sandbox_whose_launcher_is_stopped_is_named_and_no_leftover";
    if is_alone(&format!("suite::dying::{TEST}")) {
        tokio::runtime::Runtime::new().unwrap().block_on(stop_a_launcher());
    }
}

async fn stop_a_launcher() {
    let place = Place::new();
    let awake = place.backend().create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap().id;
    let before = children_of(std::process::id());
    let creator = place.backend();
    let mut asleep = Vec::new();
    for _ in 0..3 {
        asleep.push(creator.create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap().id);
    }
    let own = children_of(std::process::id());
    let launcher = *own.iter().find(|pid| !before.contains(pid)).unwrap();
    signal(launcher, Signal::STOP);
    let started = Instant::now();
    let listed = place.backend().list().await.unwrap();
    // One launcher is waited for once.
    assert!(started.elapsed() < seconds(4.0).mul_f64(slowness()), "{:?}", started.elapsed());
    let ids = |list: &ringfence_core::SandboxList| {
        list.sandboxes.iter().map(|info| info.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&listed), std::slice::from_ref(&awake));
    asleep.sort();
    assert_eq!(listed.silent.iter().map(|silent| silent.id.clone()).collect::<Vec<_>>(), asleep);
    let told = format!(
        "its launcher, process {launcher}, does not answer within 2 s; if it was stopped, `kill -CONT` lets it go on"
    );
    assert!(listed.silent.iter().all(|silent| silent.fault == told), "{:?}", listed.silent);
    let own = |left: Vec<ringfence_core::Leftover>| left.into_iter().any(|left| asleep.contains(&left.id));
    assert!(!own(place.backend().prune(false).await.unwrap()));
    assert_eq!(place.names().len(), 8);
    signal(launcher, Signal::CONT);
    let listed = place.backend().list().await.unwrap();
    assert_eq!((listed.sandboxes.len(), listed.silent), (4, Vec::new()));
    for id in asleep.iter().chain([&awake]) {
        assert_eq!(run(&place.backend(), id, "echo fine").await, Ok(CommandResult::exited(0, "fine\n", "")));
        place.backend().destroy(id).await.unwrap();
    }
}

#[tokio::test]
async fn a_private_sandbox_is_inspected_by_whoever_made_it() {
    let place = Place::new();
    let backend = place.backend();
    let spec = SandboxSpec::new().with_workdir("/srv/w").unwrap();
    let created = backend.create(&spec).await.unwrap();
    let found = backend.inspect(&created.id).await.unwrap();
    assert_eq!((&found.info.id, found.info.reach, &found.spec), (&created.id, Reach::Private, &spec));
    assert_eq!((found.statement, found.processes), (created.statement, Vec::new()));
    // Nobody else can.
    let kind = |error: ringfence_core::Error| error.kind().clone();
    assert_eq!(
        place.backend().inspect(&created.id).await.map(drop).map_err(kind),
        Err(ErrorKind::SandboxLost)
    );
    backend.destroy(&created.id).await.unwrap();
    assert_eq!(backend.inspect(&created.id).await.map(drop).map_err(kind), Err(ErrorKind::SandboxLost));
}
