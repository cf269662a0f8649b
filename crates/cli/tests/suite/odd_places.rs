//! Runtime directories that lack something: clear errors, nothing half made, and what stands already goes on.

use std::os::unix::fs::PermissionsExt;

use super::driver::{Call, Done, skipped};
use super::odd_hosts::{can_make_hosts, on};
use super::place::{Place, handle_of};

/// Runs a script of sh in which `$1` is the program and `/mnt` the place of the login, on a file system with these options.
fn in_a_place(options: &str, script: &str) -> Done {
    let host = format!("mount -t tmpfs -o {options} none /mnt; rf=$1\n{script}\nexit 0");
    on(&host, &[]).env("XDG_RUNTIME_DIR", "/mnt").done()
}

/// Says the status of `create --keep` and what it left; removes what it made.
const CREATE: &str = "status=0; handle=$($rf create --keep) || status=$?; echo status $status
    if [ $status = 0 ]; then $rf exec $handle -- echo inside; $rf rm $handle; fi
    ls -A /mnt /mnt/ringfence 2>/dev/null | grep -v -e : -e '^$' -e '^ringfence$' -e '^audit.jsonl$' -e '^full$' || echo nothing else";

#[track_caller]
fn assert_refused(done: &Done, told: &str, remedy: &str) {
    assert_eq!((done.status, done.out()), (Some(0), "status 125\nnothing else\n"), "{done:?}");
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{done:?}");
    assert!(
        lines[0].starts_with("ringfence: local: create a sandbox: ") && lines[0].contains(told),
        "{done:?}"
    );
    assert!(lines[1].starts_with("  try: ") && lines[1].contains(remedy), "{done:?}");
}

const REMEDY: &str = "set XDG_RUNTIME_DIR, or runtime_dir of the local backend, to a directory";

#[test]
fn a_read_only_place_is_refused_and_nothing_is_made() {
    if !can_make_hosts("a_read_only_place_is_refused_and_nothing_is_made") {
        return;
    }
    // Control: the same place, when it can be written to.
    in_a_place("mode=700", CREATE).assert(0, "status 0\ninside\nnothing else\n", "");
    let told = "Read-only file system";
    for prepare in
        ["", "mkdir -m 700 /mnt/ringfence;", "mkdir -m 700 /mnt/ringfence; touch /mnt/ringfence/audit.jsonl;"]
    {
        let script = format!("{prepare} mount -o remount,bind,ro /mnt\n{CREATE}");
        assert_refused(&in_a_place("mode=700", &script), told, REMEDY);
    }
}

#[test]
fn a_full_place_is_refused_at_whatever_step_it_is_full_and_nothing_is_left() {
    if !can_make_hosts("a_full_place_is_refused_at_whatever_step_it_is_full_and_nothing_is_left") {
        return;
    }
    // Files are numbered: the directory, the record of what happened, and record and socket of the sandbox.
    let mut statuses = Vec::new();
    for inodes in 1..=6 {
        let done = in_a_place(&format!("mode=700,nr_inodes={inodes}"), CREATE);
        if done.out().starts_with("status 0") {
            done.assert(0, "status 0\ninside\nnothing else\n", "");
        } else {
            assert_refused(&done, "No space left on device", REMEDY);
        }
        statuses.push(done.out().starts_with("status 0"));
    }
    assert!(statuses.is_sorted() && !statuses[3] && statuses[5], "{statuses:?}");
    // No room for content.
    let script = format!("head -c 1M /dev/zero > /mnt/full 2>/dev/null || true\n{CREATE}");
    assert_refused(&in_a_place("mode=700,size=16k", &script), "No space left on device", REMEDY);
}

#[test]
fn what_stands_goes_on_when_its_place_is_full_or_read_only() {
    if !can_make_hosts("what_stands_goes_on_when_its_place_is_full_or_read_only") {
        return;
    }
    // The launcher keeps its record open, so the place cannot become read-only under it; a view of it can.
    let script = "handle=$($rf create --keep)
        head -c 1M /dev/zero > /mnt/full 2>/dev/null || true
        $rf exec $handle -- echo full; echo x | $rf write $handle f; $rf read $handle f
        mount --bind /mnt /srv; mount -o remount,bind,ro /srv; export XDG_RUNTIME_DIR=/srv
        $rf exec $handle -- echo read-only; $rf ps -q | grep -cx $handle; $rf renew $handle --lifetime 1h
        $rf rm $handle; $rf ps -q; $rf prune; ls -A /srv/ringfence; tail -c 30 /srv/ringfence/audit.jsonl";
    let done = in_a_place("mode=700,size=16k", script);
    let told = "full\nx\nread-only\n1\n1h\nnothing is left behind\naudit.jsonl\n\"ended\",\"reason\":\"destroyed\"}\n";
    done.assert(0, told, "");
}

#[test]
fn a_relative_place_is_refused_by_what_needs_one_and_by_nothing_else() {
    let call = |args: &[&str]| Call::new(args).env("XDG_RUNTIME_DIR", "run").done();
    for (args, doing) in [
        (&["create", "--keep"][..], "create a sandbox"),
        (&["ps"], "list the sandboxes"),
        (&["exec", "local:sb-000000000000", "--", "true"], "run the command"),
        (&["logs"], "read the audit record"),
        (&["prune"], "remove what is left over"),
    ] {
        let done = call(args);
        assert_eq!((done.status, done.out()), (Some(125), ""), "{args:?}: {done:?}");
        let told = "the directory of sandboxes is not an absolute path, directory run/ringfence\n  \
                    try: set XDG_RUNTIME_DIR, or runtime_dir of the local backend, to an absolute path, or unset it\n";
        assert!(
            done.stderr.starts_with("ringfence: local: ") && done.stderr.ends_with(told),
            "{doing}: {done:?}"
        );
    }
    call(&["run", "--", "echo", "works"]).assert(0, "works\n", "");
    // The user's file is stronger than the login.
    let place = Place::new();
    let settings = format!("[backends.local]\nruntime_dir = \"{}/ringfence\"\n", place.path());
    let done = Call::new(["ps", "-q"]).env("XDG_RUNTIME_DIR", "run").user_settings(&settings).done();
    done.assert(0, "", "");
}

#[test]
fn doctor_says_where_kept_sandboxes_are_found_and_what_to_do_where_they_cannot_be() {
    let place = Place::new();
    let check = |path: &str| {
        let done = Call::new(["doctor", "--json"]).env("XDG_RUNTIME_DIR", path).done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""), "no other sandbox needs it");
        let checks = done.json()["backends"][0]["checks"].clone();
        checks.as_array().unwrap().iter().find(|check| check["name"] == "kept sandboxes").unwrap().clone()
    };
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let works = check(place.path());
    let detail = format!("are found in {}/ringfence, which the first one makes", place.path());
    assert_eq!((&works["outcome"], text(&works["detail"])), (&"works".into(), detail));
    assert!(!std::path::Path::new(&format!("{}/ringfence", place.path())).exists(), "only looked at");
    place.keep(&[]);
    assert_eq!(text(&check(place.path())["detail"]), format!("are found in {}/ringfence", place.path()));
    let missing = format!("{}/missing", place.path());
    for (path, detail, remedy) in [
        (missing.as_str(), "cannot be used: create it: No such file or directory", REMEDY),
        ("run", "is not an absolute path", "to an absolute path, or unset it"),
        ("/run/user/4294967290", "No such file or directory", "is made by a login of this user"),
    ] {
        let check = check(path);
        assert_eq!(
            (&check["outcome"], &check["fields"]),
            (&"absent".into(), &serde_json::json!(["owner", "labels"]))
        );
        assert!(text(&check["detail"]).contains(detail) && text(&check["detail"]).contains(path), "{check}");
        assert!(text(&check["remedy"]).contains(remedy), "{check}");
    }
}

#[test]
fn root_makes_no_place_in_another_users_directory_and_nobody_is_told_to_take_one_away() {
    const TEST: &str = "root_makes_no_place_in_another_users_directory_and_nobody_is_told_to_take_one_away";
    if !rustix::process::geteuid().is_root() {
        return skipped(TEST, "root, to give a directory to another user");
    }
    if !can_make_hosts(TEST) {
        return;
    }
    // As after `sudo -E`: the directory of the login is another user's. It is root that asks.
    let told = "XDG_RUNTIME_DIR may be left over from another user, as `sudo -E` and `su` without `-` keep it: unset it";
    for prepare in ["", "mkdir -m 700 /mnt/ringfence; chown 1 /mnt/ringfence;"] {
        let script = format!("{prepare} chown 1 /mnt; $rf create --keep || echo status $?; ls -A /mnt");
        let done = in_a_place("mode=700", &script);
        let left = if prepare.is_empty() { "" } else { "ringfence\n" };
        assert_eq!((done.status, done.out()), (Some(0), format!("status 125\n{left}").as_str()), "{done:?}");
        assert!(
            done.stderr.contains("another") && done.stderr.contains("user 1") && done.stderr.contains(told),
            "{done:?}"
        );
        assert!(!done.stderr.contains("chown"), "{done:?}");
    }
}

#[test]
fn a_place_too_long_for_an_address_works_and_one_too_long_for_the_kernel_is_named() {
    let place = Place::new();
    let long = format!("{}/{}", place.path(), ["x".repeat(200), "y".repeat(200)].join("/"));
    std::fs::create_dir_all(&long).unwrap();
    let call = |args: &[&str]| Call::new(args).env("XDG_RUNTIME_DIR", &long);
    let handle = handle_of(&call(&["create", "--keep"]).done());
    assert_eq!(call(&["ps", "-q"]).done().out(), format!("{handle}\n"));
    call(&["exec", &handle, "--", "echo", "found"]).done().assert(0, "found\n", "");
    call(&["rm", &handle]).done().assert(0, "", "");
    call(&["prune"]).done().assert(0, "nothing is left behind\n", "");
    for (place, told) in
        [(format!("/{}", "x".repeat(300)), "File name too long"), ("/y".repeat(2500), "File name too long")]
    {
        let done = Call::new(["create", "--keep"]).env("XDG_RUNTIME_DIR", &place).done();
        assert_eq!((done.status, done.out()), (Some(125), ""), "{done:?}");
        assert!(done.stderr.contains(told) && done.stderr.contains(REMEDY), "{done:?}");
    }
}

#[test]
fn a_place_that_is_not_there_or_not_a_directory_is_named() {
    let place = Place::new();
    std::fs::write(format!("{}/file", place.path()), "").unwrap();
    for (name, told) in [("absent", "No such file or directory"), ("file", "Not a directory")] {
        let path = format!("{}/{name}", place.path());
        let call = |args: &[&str]| Call::new(args).env("XDG_RUNTIME_DIR", &path).done();
        let done = call(&["create", "--keep"]);
        assert_eq!((done.status, done.out()), (Some(125), ""), "{done:?}");
        assert!(done.stderr.contains(told) && done.stderr.contains(REMEDY), "{done:?}");
        // A sandbox that nobody is to find needs no place.
        call(&["run", "--", "echo", "works"]).assert(0, "works\n", "");
    }
    // The directory itself, if somebody else could write to it.
    std::fs::create_dir(format!("{}/ringfence", place.path())).unwrap();
    let open = |mode| {
        std::fs::set_permissions(format!("{}/ringfence", place.path()), PermissionsExt::from_mode(mode))
            .unwrap();
    };
    open(0o770);
    for args in
        [&["create", "--keep"][..], &["ps"], &["exec", "local:sb-000000000000", "--", "true"], &["logs"]]
    {
        let done = place.call(args.iter().copied()).done();
        assert_eq!((done.status, done.out()), (Some(125), ""), "{args:?}: {done:?}");
        assert!(
            done.stderr.contains("not this user's alone, so nothing in it is believed"),
            "{args:?}: {done:?}"
        );
    }
    open(0o700);
}
