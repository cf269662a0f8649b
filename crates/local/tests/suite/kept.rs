//! Sandboxes that outlive who made them: found, used, marked, ended by their clocks, and nothing left behind.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ringfence_core::claim::{self, claim};
use ringfence_core::{
    Attachable, Backend, Claimant, CommandResult, ErrorKind, EventsFrom, Lease, ListRequest, Reach,
    SandboxId, SandboxSpec, SpecField, Tags, TreeLimits, tree,
};
use ringfence_local::{LocalBackend, LocalConfig};
use ringfence_testkit::TreeRecorder;
use serde_json::json;

use super::security_support::{SHOWN, directory_to_show};
use super::support::{children_of, has_program, is_alone, is_root, path, shell, skip, slowness, until};

/// A place of its own for records, so that tests do not meet.
pub(super) struct Place {
    pub(super) directory: tempfile::TempDir,
}

impl Place {
    pub(super) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(super) fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("ringfence")
    }

    /// Another process's view, as far as it can be had in one: nothing is shared but the directory.
    pub(super) fn backend(&self) -> LocalBackend {
        let mut config = LocalConfig::default();
        config.runtime_dir = Some(self.path());
        LocalBackend::new(config)
    }

    pub(super) async fn kept(&self, spec: SandboxSpec) -> SandboxId {
        self.backend().create_reachable(&spec, Reach::Kept).await.unwrap().id
    }

    /// What lies there besides the audit record.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).map(|entries| entries.flatten().collect::<Vec<_>>());
        let mut names: Vec<String> = entries
            .unwrap_or_default()
            .iter()
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("audit."))
            .collect();
        names.sort();
        names
    }

    /// Why the one sandbox of this place ended.
    pub(super) fn end_reason(&self) -> Option<String> {
        let ended = self.events().into_iter().find(|(event, _)| event == "ended")?;
        ended.1["reason"].as_str().map(str::to_owned)
    }

    pub(super) fn events(&self) -> Vec<(String, serde_json::Value)> {
        let lines = fs::read_to_string(self.path().join("audit.jsonl")).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|line| (line["event"].as_str().unwrap().to_owned(), line)).collect()
    }
}

pub(super) async fn run(
    backend: &LocalBackend,
    id: &SandboxId,
    command: &str,
) -> Result<CommandResult, ErrorKind> {
    let result = backend.run_command(id, shell(command, 20.0)).await;
    result.map_err(|error| error.kind().clone())
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[tokio::test]
async fn p_116_a_kept_sandbox_is_used_by_another_process_and_removed() {
    let place = Place::new();
    let id = place.kept(SandboxSpec::new().with_workdir("/srv/w").unwrap()).await;
    // Its creator is gone; somebody else finds it as it was left.
    let other = place.backend();
    assert_eq!(
        other.list().await.unwrap().sandboxes.into_iter().map(|info| info.id).collect::<Vec<_>>(),
        std::slice::from_ref(&id)
    );
    assert_eq!(run(&other, &id, "pwd; echo left > note").await, Ok(CommandResult::exited(0, "/srv/w\n", "")));
    let third = place.backend();
    assert_eq!(third.read_file(&id, &path("note"), 100).await.unwrap(), b"left\n");
    third.write_file(&id, &path("more"), b"x").await.unwrap();
    let listing = third.list_directory(&id, &path("."), ListRequest::default()).await.unwrap();
    assert_eq!(
        listing.entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>(),
        [b"more".to_vec(), b"note".to_vec()]
    );
    third.destroy(&id).await.unwrap();
    // It is gone for everybody, and said to be.
    assert_eq!(run(&other, &id, "true").await, Err(ErrorKind::SandboxLost));
    assert_eq!(place.backend().destroy(&id).await.map_err(|error| error.kind().clone()), Ok(()));
    assert_eq!(place.names(), Vec::<String>::new());
}

#[tokio::test]
async fn s_36_records_and_sockets_are_this_users_alone() {
    let place = Place::new();
    let id = place.kept(SandboxSpec::new()).await;
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&place.path()), 0o700);
    assert_eq!(place.names(), [format!("{id}.json"), format!("{id}.sock")]);
    for name in place.names() {
        assert_eq!(mode(&place.path().join(&name)), 0o600, "{name}");
        assert_eq!(
            fs::symlink_metadata(place.path().join(&name)).unwrap().uid(),
            rustix::process::geteuid().as_raw()
        );
    }
    // A directory that others may enter is not believed.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let error = place.backend().list().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied);
    let error = place.backend().create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap_err();
    assert_eq!((error.kind().clone(), error.is_terminal()), (ErrorKind::PermissionDenied, true));
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
    place.backend().destroy(&id).await.unwrap();
}

#[tokio::test]
async fn s_36_a_sandbox_is_never_shown_where_sandboxes_are_found() {
    let place = Place::new();
    let Some(shown) = directory_to_show() else {
        return skip("s_36_a_sandbox_is_never_shown_where_sandboxes_are_found", SHOWN);
    };
    for (read_only, runtime) in [
        (shown.path().to_owned(), shown.path().join("ringfence")),
        (shown.path().join("ringfence"), shown.path().join("ringfence")),
    ] {
        let mut config = LocalConfig::default();
        config.runtime_dir = Some(runtime);
        config.read_only_paths = vec![read_only];
        let backend = LocalBackend::new(config);
        for reach in [Reach::Private, Reach::Kept] {
            let error = backend.create_reachable(&SandboxSpec::new(), reach).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains("directory of sandboxes"), "{error}");
        }
    }
    drop(place);
}

#[tokio::test]
async fn a_listed_sandbox_dies_with_its_creator_and_a_private_one_is_not_found() {
    let place = Place::new();
    let creator = place.backend();
    let private = creator.create(&SandboxSpec::new()).await.unwrap().id;
    let listed = creator.create_reachable(&SandboxSpec::new(), Reach::Listed).await.unwrap().id;
    let other = place.backend();
    assert_eq!(run(&other, &listed, "echo found").await, Ok(CommandResult::exited(0, "found\n", "")));
    assert_eq!(run(&other, &private, "true").await, Err(ErrorKind::SandboxLost));
    drop(creator);
    assert!(until(20.0, || place.names().is_empty()).await, "the listed sandbox ends");
    assert_eq!(run(&other, &listed, "true").await, Err(ErrorKind::SandboxLost));
    assert_eq!(place.end_reason().as_deref(), Some("owner_gone"));
}

#[tokio::test]
async fn p_119_a_lifetime_is_neither_shorter_nor_longer_and_begins_anew() {
    let place = Place::new();
    let lifetime = seconds(2.0 * slowness());
    let started = Instant::now();
    let id = place.kept(SandboxSpec::new().with_lifetime(lifetime).unwrap()).await;
    let other = place.backend();
    tokio::time::sleep(lifetime / 2).await;
    let renewed = Instant::now();
    assert_eq!(other.renew(&id, None).await.unwrap(), lifetime);
    // At the moment of the first end it lives.
    tokio::time::sleep(lifetime.saturating_sub(started.elapsed()) + seconds(0.1)).await;
    assert_eq!(run(&other, &id, "echo alive").await, Ok(CommandResult::exited(0, "alive\n", "")));
    assert!(until(20.0, || place.names().is_empty()).await, "its lifetime ends it");
    assert!(renewed.elapsed() >= lifetime, "{:?}", renewed.elapsed());
    assert_eq!(run(&other, &id, "true").await, Err(ErrorKind::SandboxLost));
    assert_eq!(place.end_reason().as_deref(), Some("lifetime"));
}

#[tokio::test]
async fn idle_time_ends_a_sandbox_that_nobody_uses_and_no_other() {
    let place = Place::new();
    let idle = seconds(1.0 * slowness());
    let id = place.kept(SandboxSpec::new().with_idle(idle).unwrap()).await;
    let other = place.backend();
    // A command that takes longer is use, and so is each operation.
    let long = format!("sleep {}", idle.as_secs_f64() * 1.5);
    assert_eq!(run(&other, &id, &long).await, Ok(CommandResult::exited(0, "", "")));
    for _ in 0..4 {
        tokio::time::sleep(idle / 2).await;
        other.write_file(&id, &path("f"), b"x").await.unwrap();
    }
    // What was left in the background is not, and neither is somebody who looks.
    assert_eq!(run(&other, &id, "sleep 1000 >/dev/null 2>&1 &").await, Ok(CommandResult::exited(0, "", "")));
    let last = Instant::now();
    while !place.names().is_empty() {
        drop(other.inspect(&id).await);
        assert!(last.elapsed() < idle * 20, "nobody ended it");
        tokio::time::sleep(idle / 10).await;
    }
    assert!(last.elapsed() >= idle * 9 / 10, "{:?}", last.elapsed());
    assert_eq!(place.end_reason().as_deref(), Some("idle"));
}

#[tokio::test]
async fn clocks_of_a_parked_sandbox_stand_still_until_it_is_handed_out() {
    let place = Place::new();
    let backend = place.backend();
    let life = seconds(1.0 * slowness());
    let spec = SandboxSpec::new().with_lifetime(life).unwrap().with_idle(life).unwrap();
    let id = backend.create_parked(&spec).await.unwrap().id;
    tokio::time::sleep(life * 2).await;
    backend.unpark(&id).await.unwrap();
    assert_eq!(run(&backend, &id, "echo new").await, Ok(CommandResult::exited(0, "new\n", "")));
    tokio::time::sleep(life * 2).await;
    assert_eq!(backend.unpark(&id).await.unwrap_err().kind(), &ErrorKind::SandboxLost);
}

#[tokio::test]
async fn at_07_tags_are_written_on_condition_of_their_version() {
    let place = Place::new();
    let labels = Tags::from([("team".to_owned(), "data".to_owned())]);
    let spec = SandboxSpec::new().with_owner("o").unwrap().with_labels(labels).unwrap();
    let id = place.kept(spec).await;
    let (one, two) = (place.backend(), place.backend());
    let first = one.tags(&id).await.unwrap();
    let get = |name: &str| first.tags.get(name).map(String::as_str);
    assert_eq!(
        (first.version, get("team"), get(claim::OWNER), get(claim::WORKDIR)),
        (1, Some("data"), Some("o"), Some("/workspace"))
    );
    let remaining = claim::remaining(&first.tags, SystemTime::now()).unwrap();
    assert!(remaining > seconds(3500.0) && remaining <= seconds(3600.0), "{remaining:?}");
    let mut changed = first.tags.clone();
    changed.insert("more".to_owned(), "x".to_owned());
    assert_eq!(two.set_tags(&id, 1, &changed).await.unwrap(), 2);
    // Too late: nothing is changed.
    let error = one.set_tags(&id, 1, &first.tags).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Conflict);
    assert_eq!(one.tags(&id).await.unwrap().tags.get("more").map(String::as_str), Some("x"));
    let big = Tags::from([("big".to_owned(), "x".repeat(20_000))]);
    assert_eq!(*one.set_tags(&id, 2, &big).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    one.destroy(&id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s_54_of_many_who_claim_at_once_one_wins_and_a_stale_holder_is_refused() {
    let place = Arc::new(Place::new());
    let id = place.kept(SandboxSpec::new().with_owner("team").unwrap()).await;
    let lease = Lease::new(seconds(30.0)).unwrap();
    let mut claims = tokio::task::JoinSet::new();
    for holder in 0..100 {
        let (place, id) = (Arc::clone(&place), id.clone());
        claims.spawn(async move {
            let claimant = Claimant::new("team").unwrap().with_holder(format!("h{holder}")).unwrap();
            claim(&place.backend(), &id, &claimant, lease, SystemTime::now()).await
        });
    }
    let outcomes = claims.join_all().await;
    let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 99));
    for error in lost.into_iter().filter_map(Result::err) {
        assert_eq!((error.kind().clone(), error.is_terminal()), (ErrorKind::Conflict, true), "{error}");
    }
    let first = won.into_iter().find_map(Result::ok).unwrap();
    let stale = place.backend();
    assert_eq!(run(&stale, first.sandbox(), "echo mine").await, Ok(CommandResult::exited(0, "mine\n", "")));
    // The lease runs out, somebody else takes over: whatever the first one does next is refused, whatever it is.
    let later = SystemTime::now() + seconds(60.0);
    let claimant = Claimant::new("team").unwrap().with_holder("next").unwrap();
    let second = claim(&place.backend(), &id, &claimant, lease, later).await.unwrap();
    let old = first.sandbox();
    assert_eq!(run(&stale, old, "touch late").await, Err(ErrorKind::ClaimLost));
    let kind = |error: ringfence_core::Error| error.kind().clone();
    assert_eq!(stale.write_file(old, &path("late"), b"").await.map_err(kind), Err(ErrorKind::ClaimLost));
    assert_eq!(
        stale.write_file(old, &path("late"), &vec![0; 1 << 20]).await.map_err(kind),
        Err(ErrorKind::ClaimLost)
    );
    assert_eq!(
        stale.read_file(old, &path("/etc/passwd"), 1 << 20).await.map_err(kind),
        Err(ErrorKind::ClaimLost)
    );
    let listed = stale.list_directory(old, &path("."), ListRequest::default()).await;
    assert_eq!(listed.map_err(kind), Err(ErrorKind::ClaimLost));
    assert_eq!(stale.destroy(old).await.map_err(kind), Err(ErrorKind::ClaimLost));
    // Also by a process that knows nothing of it yet, which is told by the launcher.
    let unknowing = place.backend();
    assert_eq!(unknowing.destroy(old).await.map_err(kind), Err(ErrorKind::ClaimLost));
    assert_eq!(unknowing.renew(old, Some(seconds(1.0))).await.map_err(kind), Err(ErrorKind::ClaimLost));
    let tagged = unknowing.tags(&id).await.unwrap();
    let written = unknowing.set_tags(old, tagged.version, &tagged.tags).await;
    assert_eq!(written.map_err(kind), Err(ErrorKind::ClaimLost));
    let holder = place.backend();
    let listing = holder.list_directory(second.sandbox(), &path("."), ListRequest::default()).await.unwrap();
    assert_eq!(listing.entries, []);
    // Released, the second one's fence is over too. Without a claim the owner's other tools still work.
    second.release(&holder).await.unwrap();
    assert_eq!(run(&holder, second.sandbox(), "true").await, Err(ErrorKind::ClaimLost));
    assert_eq!(run(&holder, &id, "echo open").await, Ok(CommandResult::exited(0, "open\n", "")));
    holder.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn a_label_or_an_owner_makes_a_sandbox_that_can_be_found() {
    let place = Place::new();
    let backend = place.backend();
    let spec = SandboxSpec::new().with_owner("me").unwrap();
    let created = backend.create(&spec).await.unwrap();
    let found = place.backend().list().await.unwrap().sandboxes;
    assert_eq!(
        found.iter().map(|info| (info.id.clone(), info.reach)).collect::<Vec<_>>(),
        [(created.id.clone(), Reach::Listed)]
    );
    let row = created.statement.row(SpecField::Owner).unwrap();
    assert!(row.mechanism.starts_with("tag kept by the launcher"), "{row:?}");
}

#[tokio::test]
async fn inspect_tells_what_was_asked_what_holds_and_what_runs() {
    let place = Place::new();
    let spec = SandboxSpec::new().with_workdir("/srv/w").unwrap();
    let id = place.kept(spec.clone()).await;
    let other = place.backend();
    run(&other, &id, "head -c 1000000 /dev/zero > f; sleep 1000 > /dev/null 2>&1 &").await.unwrap();
    let mut seen = other.inspect(&id).await.unwrap();
    // Until the shell's child has become the program.
    let deadline = Instant::now() + seconds(20.0);
    while seen.processes.iter().any(|process| process.command.starts_with(b"bash"))
        && Instant::now() < deadline
    {
        seen = other.inspect(&id).await.unwrap();
    }
    assert_eq!(seen.spec.workdir(), spec.workdir());
    assert_eq!(seen.spec.lifetime(), Some(seconds(3600.0)));
    assert_eq!(
        seen.statement.row(SpecField::Lifetime).unwrap().mechanism,
        "timer of the launcher; whoever is left"
    );
    assert_eq!(seen.info.reach, Reach::Kept);
    let commands: Vec<_> = seen.processes.iter().map(|process| process.command.clone()).collect();
    assert_eq!(commands, [b"sleep\x001000\0".to_vec()]);
    assert!(
        seen.usage.disk_bytes.is_some_and(|bytes| (1_000_000..2_000_000).contains(&bytes)),
        "{:?}",
        seen.usage
    );
    other.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn s_54_a_creator_under_a_claim_that_is_over_ends_nothing_either() {
    let place = Place::new();
    let creator = place.backend();
    let spec = SandboxSpec::new().with_owner("team").unwrap();
    let id = creator.create_reachable(&spec, Reach::Listed).await.unwrap().id;
    let lease = Lease::new(seconds(30.0)).unwrap();
    let claimant = |holder: &str| Claimant::new("team").unwrap().with_holder(holder).unwrap();
    let first = claim(&creator, &id, &claimant("one"), lease, SystemTime::now()).await.unwrap();
    let later = SystemTime::now() + seconds(60.0);
    let second = claim(&place.backend(), &id, &claimant("two"), lease, later).await.unwrap();
    let error = creator.destroy(first.sandbox()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::ClaimLost);
    assert_eq!(
        run(&place.backend(), second.sandbox(), "echo mine").await,
        Ok(CommandResult::exited(0, "mine\n", ""))
    );
    creator.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn nothing_hides_from_inspect_behind_a_name() {
    let place = Place::new();
    let id = place.kept(SandboxSpec::new()).await;
    let other = place.backend();
    run(&other, &id, "exec -a ringfence sleep 1000 > /dev/null 2>&1 &").await.unwrap();
    let hidden = async || {
        let seen = other.inspect(&id).await.unwrap();
        seen.processes.iter().any(|process| process.command == b"ringfence\x001000\0")
    };
    let deadline = Instant::now() + seconds(20.0);
    while !hidden().await {
        assert!(Instant::now() < deadline, "{:?}", other.inspect(&id).await);
    }
    other.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn the_audit_record_has_a_line_for_each_thing_without_contents() {
    let place = Place::new();
    let id = place.kept(SandboxSpec::new()).await;
    let other = place.backend();
    run(&other, &id, "echo secret-word").await.unwrap();
    other.write_file(&id, &path("secret-name"), b"secret-content").await.unwrap();
    drop(other.read_file(&id, &path("nothing"), 10).await);
    other.destroy(&id).await.unwrap();
    assert!(until(20.0, || place.end_reason().is_some()).await, "its end is written down");
    let events = place.events();
    let names: Vec<&str> = events.iter().map(|(event, _)| event.as_str()).collect();
    assert_eq!(names, ["created", "command_began", "command", "write", "read", "ended", "destroy"]);
    assert!(events.iter().all(|(_, line)| line["sandbox"] == id.as_str()));
    assert_eq!(
        (&events[2].1["kind"], &events[2].1["status"], &events[2].1["stdout_bytes"]),
        (&"shell".into(), &0.into(), &12.into())
    );
    assert_eq!((&events[3].1["bytes"], &events[4].1["error"]), (&14.into(), &"not_found".into()));
    assert_eq!(place.end_reason().as_deref(), Some("destroyed"));
    assert!(!fs::read_to_string(place.path().join("audit.jsonl")).unwrap().contains("secret"));
    // Asked for, the words are there.
    let mut config = LocalConfig::default();
    config.runtime_dir = Some(place.path());
    config.audit_contents = true;
    let telling = LocalBackend::new(config);
    // Whoever reads it sees the same.
    let read = place.backend().events(&EventsFrom::Oldest).await.unwrap();
    let seen: Vec<_> = read.events.iter().map(|event| (event.event.as_str(), event.end_reason())).collect();
    assert_eq!((seen.len(), seen[0], seen[5]), (7, ("created", None), ("ended", Some("destroyed"))));
    assert!(read.events.iter().all(|event| event.sandbox == id) && !read.more && !read.missed);
    assert_eq!(read.events[3].facts, serde_json::Map::from_iter([("bytes".to_owned(), 14.into())]));
    let behind = EventsFrom::After(read.next);
    assert_eq!(place.backend().events(&behind).await.unwrap().events, []);
    let id = telling.create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap().id;
    run(&telling, &id, "echo secret-word").await.unwrap();
    telling.destroy(&id).await.unwrap();
    assert!(place.events().iter().any(|(_, line)| line["command"] == "echo secret-word"));
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_in_the_record_too_and_sizes_have_units() {
    let place = Place::new();
    let id = place.kept(SandboxSpec::new()).await;
    let other = place.backend();
    let abandoned = run(&other, &id, "touch there; sleep 1000");
    let begun = async {
        while other.read_file(&id, &path("there"), 1).await.is_err() {
            tokio::time::sleep(seconds(0.005)).await;
        }
    };
    tokio::select! {
        ended = abandoned => panic!("{ended:?}"),
        () = begun => {}
    }
    run(&other, &id, "mkdir -p d/e; printf 12345 > d/e/f; ln -s f d/e/l; mkfifo d/p").await.unwrap();
    other.list_directory(&id, &path("d"), ListRequest::default()).await.unwrap();
    let mut copied = Vec::new();
    assert_eq!(other.export_file(&id, &path("d/e/f"), 9, &mut copied).await.unwrap(), 5);
    let taken = tree::export(&other, &id, &path("d"), TreeLimits::default(), &mut TreeRecorder::default())
        .await
        .unwrap();
    assert_eq!((taken.files, taken.bytes), (1, 5));
    let small = TreeLimits { max_bytes: 4, ..TreeLimits::default() };
    tree::export(&other, &id, &path("d"), small, &mut TreeRecorder::default()).await.unwrap_err();
    other.destroy(&id).await.unwrap();
    let events = place.events();
    let lines = |event: &str| -> Vec<serde_json::Value> {
        let lines = events.iter().filter(|(name, _)| name == event).map(|(_, line)| line.clone());
        let mut lines: Vec<_> = lines.collect();
        for line in &mut lines {
            let line = line.as_object_mut().unwrap();
            for name in ["at_millis", "sandbox", "event", "call"] {
                line.remove(name);
            }
            line.entry("seconds").and_modify(|seconds| *seconds = seconds.is_f64().into());
        }
        lines
    };
    let began = json!({"kind": "shell"});
    assert_eq!(lines("command_began"), [began.clone(), began]);
    let calls = |event: &str| -> Vec<String> {
        let of = events.iter().filter(|(name, _)| name == event);
        of.map(|(_, line)| line["call"].as_str().unwrap().to_owned()).collect()
    };
    let (first, last) = (calls("command_began"), calls("command"));
    assert!(first == last && first[0] != first[1] && first[0].len() == 16, "{first:?} {last:?}");
    assert_eq!(lines("command")[0], json!({"kind": "shell", "seconds": true, "error": "interrupted"}));
    assert_eq!(lines("list"), [json!({"entries": 2})]);
    assert_eq!(
        (lines("export_began"), lines("export")),
        (vec![json!({})], vec![json!({"bytes": 5, "seconds": true})])
    );
    let counts = |directories, files, bytes, symlinks, skipped| json!({"directories": directories, "files": files, "bytes": bytes, "symlinks": symlinks, "skipped": skipped, "seconds": true});
    let trees = lines("export_tree");
    assert_eq!(trees[0], counts(2, 1, 5, 1, 1));
    // What came before the limit is told; in which order the rest would have come is nobody's choice.
    let cut = &trees[1];
    assert!(cut["directories"].as_u64() > Some(0), "{cut}");
    assert_eq!(
        ["files", "bytes", "error"].map(|name| &cut[name]),
        [&json!(0), &json!(0), &json!("file_too_large")]
    );
    assert_eq!(calls("export_tree_began"), calls("export_tree"));
}

#[test]
fn p_117_what_a_killed_launcher_leaves_is_removed_by_whoever_comes_next_and_nothing_else() {
    const TEST: &str =
        "p_117_what_a_killed_launcher_leaves_is_removed_by_whoever_comes_next_and_nothing_else";
    if is_alone(&format!("suite::kept::{TEST}")) {
        tokio::runtime::Runtime::new().unwrap().block_on(kill_a_launcher());
    }
}

async fn kill_a_launcher() {
    let place = Place::new();
    let neighbour = place.kept(SandboxSpec::new()).await;
    let before = children_of(std::process::id());
    let creator = place.backend();
    let id = creator.create_reachable(&SandboxSpec::new(), Reach::Kept).await.unwrap().id;
    let launchers = children_of(std::process::id());
    let launcher = *launchers.iter().find(|pid| !before.contains(pid)).unwrap();
    let user = place.backend();
    assert_eq!(run(&user, &id, "sleep 1000 >/dev/null 2>&1 &").await, Ok(CommandResult::exited(0, "", "")));
    let pid = rustix::process::Pid::from_raw(launcher.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
    assert!(until(20.0, || children_of(launcher).is_empty()).await);
    let next = place.backend();
    let what = |left: Vec<ringfence_core::Leftover>| -> Vec<_> {
        // Others on this machine may leave something too.
        let own = left.into_iter().filter(|left| left.id == id || left.id == neighbour);
        own.map(|left| (left.id, left.removed, left.fault)).collect()
    };
    assert_eq!(what(next.prune(true).await.unwrap()), [(id.clone(), false, None), (id.clone(), false, None)]);
    assert_eq!(place.names().len(), 4);
    assert_eq!(what(next.prune(false).await.unwrap()), [(id.clone(), true, None), (id.clone(), true, None)]);
    assert_eq!(place.names(), [format!("{neighbour}.json"), format!("{neighbour}.sock")]);
    // Nobody else could have written it down, and once is enough.
    assert_eq!(what(next.prune(false).await.unwrap()), []);
    let ended: Vec<_> = place.events().into_iter().filter(|(event, _)| event == "ended").collect();
    assert_eq!(
        ended.iter().map(|(_, line)| (&line["sandbox"], &line["reason"])).collect::<Vec<_>>(),
        [(&id.as_str().into(), &"launcher_gone".into())]
    );
    assert_eq!(run(&next, &neighbour, "echo fine").await, Ok(CommandResult::exited(0, "fine\n", "")));
    assert_eq!(run(&user, &id, "true").await, Err(ErrorKind::SandboxLost));
    next.destroy(&neighbour).await.unwrap();
}

/// Tells a process of [`s_54_of_a_hundred_processes_one_wins`] what to claim: directory, sandbox, its own name.
const CLAIM: &str = "RINGFENCE_TEST_CLAIM";

#[test]
fn s_54_of_a_hundred_processes_one_wins() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Ok(told) = std::env::var(CLAIM) {
        let mut told = told.split('\n');
        let (directory, id, holder) =
            (told.next().unwrap(), SandboxId::new(told.next().unwrap()).unwrap(), told.next().unwrap());
        let go = Path::new(directory).join("go");
        while !go.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut config = LocalConfig::default();
        config.runtime_dir = Some(Path::new(directory).join("ringfence"));
        let claimant = Claimant::new("team").unwrap().with_holder(holder).unwrap();
        let lease = Lease::new(seconds(60.0)).unwrap();
        let backend = LocalBackend::new(config);
        let claimed = runtime.block_on(claim(&backend, &id, &claimant, lease, SystemTime::now()));
        let told = match claimed {
            Ok(claim) => format!("won {}", claim.fence().get()),
            Err(error) => format!("{} {}", error.kind().name(), error.is_terminal()),
        };
        fs::write(Path::new(directory).join(format!("said-{holder}")), told).unwrap();
        return;
    }
    const TEST: &str = "suite::kept::s_54_of_a_hundred_processes_one_wins";
    let place = Place::new();
    let id = runtime.block_on(place.kept(SandboxSpec::new().with_owner("team").unwrap()));
    let directory = place.directory.path();
    let claimants: Vec<_> = (0..100)
        .map(|holder| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", TEST])
                .env(CLAIM, format!("{}\n{id}\nh{holder}", directory.display()))
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    fs::write(directory.join("go"), "").unwrap();
    for mut claimant in claimants {
        assert!(claimant.wait().unwrap().success());
    }
    let said = |holder| fs::read_to_string(directory.join(format!("said-h{holder}"))).unwrap();
    let (won, lost): (Vec<_>, Vec<_>) = (0..100).map(said).partition(|said| said.starts_with("won"));
    assert_eq!((won, lost.len()), (vec!["won 1".to_owned()], 99));
    assert!(lost.iter().all(|said| said == "conflict true"), "{lost:?}");
    runtime.block_on(place.backend().destroy(&id)).unwrap();
}

/// What a process hears that connects to a sandbox's launcher and asks nothing: its end, or nothing for a while.
const CONNECT: &str = "import socket,sys; s=socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); s.settimeout(1)\n\
                       try: print('closed' if s.recv(1) == b'' else 'data')\n\
                       except TimeoutError: print('open')";

#[tokio::test]
async fn s_36_the_launcher_asks_the_kernel_who_connects() {
    const TEST: &str = "s_36_the_launcher_asks_the_kernel_who_connects";
    if !is_root() {
        return skip(TEST, "another user");
    }
    if !has_program(TEST, "python3") {
        return;
    }
    let place = Place::new();
    let id = place.kept(SandboxSpec::new()).await;
    let socket = place.path().join(format!("{id}.sock"));
    // Everything that keeps others out is opened, so that only the question is left.
    for (path, mode) in
        [(place.directory.path(), 0o711), (place.path().as_path(), 0o711), (socket.as_path(), 0o666)]
    {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let heard_by = |user: &str| {
        let output = std::process::Command::new("setpriv")
            .args([&format!("--reuid={user}"), "--clear-groups", "/usr/bin/python3", "-c", CONNECT])
            .arg(&socket)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(heard_by("65534"), "closed");
    // Control: whoever made it is listened to.
    assert_eq!(heard_by("0"), "open");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
    place.backend().destroy(&id).await.unwrap();
}

#[tokio::test]
async fn s_36_a_launcher_that_does_not_listen_is_no_sandbox_that_is_gone() {
    let place = Place::new();
    let id = place.kept(SandboxSpec::new()).await;
    let socket = place.path().join(format!("{id}.sock"));
    // As many connections as the launcher takes.
    let connect = || {
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let socket_of = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            flags,
            None,
        )
        .unwrap();
        rustix::net::connect(&socket_of, &rustix::net::SocketAddrUnix::new(&socket).unwrap()).unwrap();
        socket_of
    };
    let held: Vec<_> = (0..256).map(|_| connect()).collect();
    let other = place.backend();
    let kind = |error: ringfence_core::Error| error.kind().clone();
    assert_eq!(run(&other, &id, "true").await, Err(ErrorKind::Unavailable));
    assert_eq!(other.destroy(&id).await.map_err(kind), Err(ErrorKind::Unavailable));
    drop(held);
    // Control: it was there all the time.
    let deadline = Instant::now() + seconds(20.0);
    while run(&place.backend(), &id, "true").await.is_err() && Instant::now() < deadline {}
    assert_eq!(run(&place.backend(), &id, "echo on").await, Ok(CommandResult::exited(0, "on\n", "")));
    place.backend().destroy(&id).await.unwrap();
}

#[tokio::test]
async fn one_entry_that_is_none_hides_no_sandbox() {
    let place = Place::new();
    let id = place.kept(SandboxSpec::new()).await;
    fs::write(place.path().join("sb-aaaa.json"), "{}").unwrap();
    let _other_kind = std::os::unix::net::UnixListener::bind(place.path().join("sb-aaaa.sock")).unwrap();
    let listed = place.backend().list().await.unwrap();
    assert_eq!(listed.silent, []);
    assert_eq!(
        listed.sandboxes.into_iter().map(|info| info.id).collect::<Vec<_>>(),
        std::slice::from_ref(&id)
    );
    place.backend().destroy(&id).await.unwrap();
}

#[tokio::test]
async fn the_audit_record_is_put_aside_while_it_grows() {
    let place = Place::new();
    let id = place.kept(SandboxSpec::new()).await;
    let record = place.path().join("audit.jsonl");
    let line = format!("{{\"at_millis\":0,\"sandbox\":\"{id}\",\"event\":\"x\"}}\n");
    fs::write(&record, line.repeat((8 << 20) / line.len() + 1)).unwrap();
    run(&place.backend(), &id, "true").await.unwrap();
    run(&place.backend(), &id, "true").await.unwrap();
    assert!(fs::metadata(&record).unwrap().len() < 4096);
    assert!(fs::metadata(place.path().join("audit.1.jsonl")).unwrap().len() > 8 << 20);
    place.backend().destroy(&id).await.unwrap();
}
