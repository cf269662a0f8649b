use serde_json::{Value, json};

use super::driver::Call;

/// Returns value, source and place of a key; the place without its folder.
#[track_caller]
fn setting(call: Call, key: &str) -> Value {
    let done = call.done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
    let document = done.json();
    assert_eq!(document["version"], 1);
    let settings = document["settings"].as_array().unwrap();
    let row = settings.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key}: {settings:?}"));
    let place = row["place"].as_str().unwrap().rsplit('/').next().unwrap();
    json!([row["value"], row["source"], place])
}

#[track_caller]
fn refused(call: Call, needles: &[&str]) {
    let done = call.done();
    assert_eq!((done.status, done.out()), (Some(125), ""), "{}", done.stderr);
    for needle in needles {
        assert!(done.stderr.contains(needle), "{needle} is not in {}", done.stderr);
    }
}

fn config() -> Call {
    Call::new(["config", "--json"])
}

#[test]
fn flags_win_over_variables_over_the_project_over_the_user() {
    let user = "[spec.limits]\nmemory = \"4GiB\"\n";
    let project = "[spec]\nworkdir = \"/w\"\n[spec.limits]\nmemory = \"3GiB\"\n";
    let key = "spec.limits.memory";
    let call = || config().user_settings(user);
    assert_eq!(setting(config(), key), json!([null, "default", "default"]));
    assert_eq!(setting(call(), key), json!(["4GiB", "user_file", "config.toml:2"]));
    assert_eq!(
        setting(call().file("ringfence.toml", project), key),
        json!(["3GiB", "project_file", "ringfence.toml:4"])
    );
    assert_eq!(
        setting(call().file("ringfence.toml", project).env("RINGFENCE_MEMORY", "8g"), key),
        json!(["8GiB", "environment", "RINGFENCE_MEMORY"])
    );
    let flags = Call::new(["config", "--json", "--memory", "16g"]).env("RINGFENCE_MEMORY", "8g");
    assert_eq!(setting(flags, key), json!(["16GiB", "flag", "--memory"]));
    let spec = Call::new(["config", "--json", "--spec", r#"{"limits": {"memory": 1024}}"#]);
    assert_eq!(setting(spec.env("RINGFENCE_MEMORY", "8g"), key), json!(["1KiB", "spec", "--spec"]));
}

#[test]
fn every_variable_reaches_its_setting() {
    for (name, value, key, shown) in [
        ("RINGFENCE_BACKEND", "local", "backend", json!("local")),
        ("RINGFENCE_TIMEOUT", "90", "timeout", json!("1m 30s")),
        ("RINGFENCE_OUTPUT_LIMIT", "2k", "output_limit", json!("2KiB")),
        ("RINGFENCE_POOL", "2", "pool", json!(2)),
        ("RINGFENCE_MEMORY", "1g", "spec.limits.memory", json!("1GiB")),
        ("RINGFENCE_CPUS", "0.5", "spec.limits.cpus", json!(0.5)),
        ("RINGFENCE_PIDS", "64", "spec.limits.pids", json!(64)),
        ("RINGFENCE_DISK", "1m", "spec.limits.disk", json!("1MiB")),
        ("RINGFENCE_WORKDIR", "/w", "spec.workdir", json!("/w")),
        ("RINGFENCE_LIFETIME", "2m", "spec.lifetime_seconds", json!(120.0)),
        ("RINGFENCE_IDLE", "90s", "spec.idle_seconds", json!(90.0)),
        ("RINGFENCE_ALLOW_HOST", "a.org, b.org", "spec.allow_egress_to", json!(["a.org", "b.org"])),
        ("RINGFENCE_ALLOW_CIDR", "10.0.0.0/8", "spec.allow_egress_to_cidrs", json!(["10.0.0.0/8"])),
        ("RINGFENCE_OPEN_NETWORK", "1", "spec.block_network", json!(false)),
        ("RINGFENCE_SHELL", "sh", "backends.local.shell", json!("sh")),
        ("RINGFENCE_READ_ONLY_PATHS", "/a:/b", "backends.local.read_only_paths", json!(["/a", "/b"])),
    ] {
        assert_eq!(setting(config().env(name, value), key), json!([shown, "environment", name]));
    }
    refused(
        config().env("RINGFENCE_TIMEOUT", "0"),
        &["RINGFENCE_TIMEOUT: a time is longer than 0 and at most 365d"],
    );
    for pool in ["-1", "1.5", "257", "two"] {
        let needle = format!("RINGFENCE_POOL: {pool:?} is not a number of sandboxes from 0 to 256");
        refused(config().env("RINGFENCE_POOL", pool), &[&needle]);
    }
    refused(config().env("RINGFENCE_OPEN_NETWORK", "maybe"), &["RINGFENCE_OPEN_NETWORK"]);
}

#[test]
fn the_runtime_folder_of_the_login_is_weaker_than_a_file() {
    let key = "backends.local.runtime_dir";
    assert_eq!(setting(config(), key), json!([null, "default", "default"]));
    let call = || config().env("XDG_RUNTIME_DIR", "/run/user/7");
    assert_eq!(setting(call(), key), json!(["/run/user/7/ringfence", "environment", "XDG_RUNTIME_DIR"]));
    let file = call().user_settings("[backends.local]\nruntime_dir = \"/srv/r\"\n");
    assert_eq!(setting(file, key), json!(["/srv/r", "user_file", "config.toml:2"]));
    // Refused where it is needed, and shown here.
    let relative = config().env("XDG_RUNTIME_DIR", "run");
    assert_eq!(setting(relative, key), json!(["run/ringfence", "environment", "XDG_RUNTIME_DIR"]));
    let planted = call().file("ringfence.toml", "[backends.local]\nruntime_dir = \"/srv/r\"\n");
    refused(planted, &["cannot set backends.local.runtime_dir"]);
}

#[test]
fn unknown_keys_are_refused_with_their_line() {
    let table = [
        ("timeout = 5\n\nmemroy = 1\n", "config.toml:3: unknown field `memroy`"),
        ("[spec.limits]\nmemory = 5\nmemroy = 1\n", "config.toml:3: unknown field `memroy`"),
        ("[backends.local]\nshel = \"sh\"\n", "config.toml:2: unknown field `shel`"),
        ("\npool = 257\n", "config.toml:2: pool: \"257\" is not a number of sandboxes from 0 to 256"),
        ("\npool = -1\n", "config.toml:2: "),
        ("timeout = \"0s\"\n", "config.toml:1: a time is longer than 0 and at most 365d"),
        ("timeout = [\n", "config.toml:"),
        ("[spec.env]\n\"A B\" = \"x\"\n", "is not a variable name"),
    ];
    for (content, needle) in table {
        refused(config().user_settings(content), &[needle]);
    }
}

#[test]
fn sp_12_no_list_is_read_as_a_table_by_the_position_of_its_entries() {
    let sequence = "invalid type: sequence, expected an object";
    let limits = "[spec]\nlimits = [1048576]\n";
    for (content, place) in [
        ("spec = [{}, false]\n", "config.toml:1: "),
        (limits, "config.toml:2: "),
        ("backends = [[]]\n", "config.toml:1: "),
        ("[backends]\nlocal = [\"sh\"]\n", "config.toml:2: "),
    ] {
        refused(config().user_settings(content), &[place, sequence]);
        refused(config().file("ringfence.toml", content), &[&place.replace("config", "ringfence"), sequence]);
    }
    for spec in ["[{}, false]", r#"{"limits": [1048576]}"#] {
        let call = Call::new(["config", "--json", "--spec", "spec.json"]).file("spec.json", spec);
        refused(call, &["spec.json: ", sequence]);
    }
}

#[test]
fn mo_08_a_bare_text_is_not_a_list_and_the_way_out_is_named() {
    for field in ["allow_egress_to", "allow_egress_to_cidrs"] {
        let json = format!(r#"{{"{field}": "abc"}}"#);
        refused(Call::new(["config", "--spec", &json]), &["--spec: ", field, "write it as a list"]);
        let toml = format!("[spec]\n{field} = \"abc\"\n");
        refused(config().user_settings(&toml), &["config.toml:2: ", field, "write it as a list"]);
    }
}

#[test]
fn s_45_a_project_file_can_only_narrow() {
    let user = "timeout = \"10m\"\n[spec]\nallow_egress_to = [\"pypi.org\"]\n[spec.limits]\npids = 100\nmemory = \"1GiB\"\n";
    let call = |project: &str| config().user_settings(user).file("ringfence.toml", project);
    // More than the user allows does not count, less does.
    let project = "timeout = \"1h\"\n[spec.limits]\npids = 200\nmemory = \"512MiB\"\ndisk = \"1GiB\"\n";
    assert_eq!(setting(call(project), "timeout"), json!(["10m", "user_file", "config.toml:1"]));
    assert_eq!(setting(call(project), "spec.limits.pids"), json!([100, "user_file", "config.toml:5"]));
    assert_eq!(
        setting(call(project), "spec.limits.memory"),
        json!(["512MiB", "project_file", "ringfence.toml:4"])
    );
    assert_eq!(
        setting(call(project), "spec.limits.disk"),
        json!(["1GiB", "project_file", "ringfence.toml:5"])
    );
    // The default timeout is the user's too.
    let longer = config().file("ringfence.toml", "timeout = \"2h\"\n");
    assert_eq!(setting(longer, "timeout"), json!(["1h", "default", "default"]));
    // It can close the network ...
    let closing = call("[spec]\nblock_network = true\n");
    assert_eq!(setting(closing, "spec.allow_egress_to"), json!([[], "project_file", "ringfence.toml:2"]));
    // ... and demand a stronger wall.
    let stronger = call("[spec]\nisolation = \"own-kernel\"\n");
    assert_eq!(
        setting(stronger, "spec.isolation"),
        json!(["own-kernel", "project_file", "ringfence.toml:2"])
    );
    let weaker = config()
        .user_settings("[spec]\nisolation = \"own-kernel\"\n")
        .file("ringfence.toml", "[spec]\nisolation = \"shared-kernel\"\n");
    assert_eq!(setting(weaker, "spec.isolation"), json!(["own-kernel", "user_file", "config.toml:2"]));
}

#[test]
fn s_45_s_46_a_project_file_that_would_widen_is_refused_with_the_place_for_it() {
    let table = [
        (
            "[spec]\nblock_network = false\n",
            "ringfence.toml:2: a project file cannot set anything of the network",
        ),
        ("[spec]\nallow_egress_to = [\"evil.org\"]\n", "ringfence.toml:2"),
        ("[spec]\nallow_egress_to_cidrs = [\"10.0.0.0/8\"]\n", "ringfence.toml:2"),
        ("[spec]\nleast_network_strength = \"dns\"\n", "ringfence.toml:2"),
        ("\nbackend = \"other\"\n", "ringfence.toml:2: a project file cannot set backend"),
        ("pool = 200\n", "ringfence.toml:1: a project file cannot set pool"),
        ("[spec]\nimage = \"evil\"\n", "cannot set spec.image"),
        ("[spec]\nowner = \"me\"\n", "cannot set spec.owner"),
        ("[spec.labels]\na = \"b\"\n", "cannot set spec.labels"),
        (
            "[backends.local]\nshell = \"sh\"\n",
            "ringfence.toml:2: a project file cannot set backends.local.shell",
        ),
        ("[backends.local]\nread_only_paths = [\"/home\"]\n", "cannot set backends.local.read_only_paths"),
    ];
    for (project, needle) in table {
        refused(
            config().file("ringfence.toml", project),
            &[needle, "ringfence/config.toml", "--ignore-project-file"],
        );
        let ignored = Call::new(["config", "--ignore-project-file"]).file("ringfence.toml", project).done();
        assert_eq!(ignored.status, Some(0), "{}", ignored.stderr);
    }
}

#[test]
fn the_project_file_is_the_nearest_one_inside_the_repository() {
    let key = "spec.workdir";
    let project = |dir: &str| format!("[spec]\nworkdir = \"{dir}\"\n");
    let found = |call: Call| setting(call, key)[0].clone();
    // Inside of a repository, up to its root.
    let repository = || config().file("repo/.git/HEAD", "").file("repo/ringfence.toml", project("/root"));
    assert_eq!(found(repository().in_folder("repo/a/b")), "/root");
    assert_eq!(
        found(repository().file("repo/a/ringfence.toml", project("/near")).in_folder("repo/a/b")),
        "/near"
    );
    // Not beyond it.
    let beyond = config().file("repo/.git/HEAD", "").file("ringfence.toml", project("/outer"));
    assert_eq!(found(beyond.in_folder("repo/a")), Value::Null);
    // Without a repository only here.
    assert_eq!(found(config().file("ringfence.toml", project("/outer")).in_folder("a")), Value::Null);
    assert_eq!(found(config().file("a/ringfence.toml", project("/here")).in_folder("a")), "/here");
}

#[test]
fn a_project_file_that_is_a_fifo_is_refused_and_not_waited_for() {
    let call = config();
    let path = call.cwd().join("ringfence.toml");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    refused(call, &["ringfence.toml is not a regular file"]);
}

#[test]
fn a_spec_that_is_silent_about_the_network_closes_it() {
    let user = "[spec]\nallow_egress_to = [\"pypi.org\"]\n[spec.limits]\npids = 100\n";
    let spec = || Call::new(["config", "--json", "--spec", "{}"]).user_settings(user);
    assert_eq!(setting(spec(), "spec.allow_egress_to"), json!([[], "spec", "--spec"]));
    assert_eq!(setting(spec(), "spec.limits.pids"), json!([100, "user_file", "config.toml:4"]));
    let file = Call::new(["config", "--json", "--spec", "spec.json"])
        .file("spec.json", r#"{"allow_egress_to": ["a.org"], "workdir": "/w"}"#);
    assert_eq!(setting(file, "spec.allow_egress_to"), json!([["a.org"], "spec", "spec.json"]));
    refused(Call::new(["config", "--spec", r#"{"memroy": 1}"#]), &["--spec: unknown field `memroy`"]);
    refused(Call::new(["config", "--spec", "absent.json"]), &["read absent.json: "]);
}

#[test]
fn a_flag_about_the_network_replaces_what_weaker_layers_say_about_it() {
    let user = "[spec]\nallow_egress_to = [\"pypi.org\"]\n";
    let call = |args: &[&str]| Call::new([&["config", "--json"], args].concat()).user_settings(user);
    assert_eq!(
        setting(call(&["--allow-cidr", "10.0.0.0/8"]), "spec.allow_egress_to"),
        json!([[], "flag", "--allow-cidr"])
    );
    assert_eq!(
        setting(call(&["--block-network"]), "spec.allow_egress_to"),
        json!([[], "flag", "--block-network"])
    );
    assert_eq!(
        setting(call(&["--open-network"]), "spec.block_network"),
        json!([false, "flag", "--open-network"])
    );
}

#[test]
fn values_of_variables_are_not_shown() {
    let done = Call::new(["config", "--env", "TOKEN=hunter2", "--env", "MINE", "--env-file", "vars"])
        .env("MINE", "hunter3")
        .file("vars", "# comment\n\nFROM_FILE=hunter4\n")
        .done();
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    for name in ["spec.env.TOKEN", "spec.env.MINE", "spec.env.FROM_FILE"] {
        assert!(done.out().contains(name), "{}", done.out());
    }
    assert!(done.out().contains("vars:3") && !done.out().contains("hunter"), "{}", done.out());
}

#[test]
fn a_home_that_cannot_be_searched_is_no_home_but_an_unreadable_file_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let user = "[spec.limits]\npids = 100\n";
    let closed = |path: &str| {
        let call = config().user_settings(user);
        let path = call.cwd().join("../home").join(path);
        let set_mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o000);
        let mut running = call.start();
        running.child.wait().unwrap();
        // Or the folder could not be removed.
        set_mode(0o700);
        let done = running.done();
        (done.status, done.stderr.contains("Permission denied"), done.out().contains("config.toml:2"))
    };
    // Nothing is closed to root.
    let root = rustix::process::geteuid().is_root();
    assert_eq!(closed(".config"), (Some(0), false, root));
    let unreadable = if root { (Some(0), false, true) } else { (Some(125), true, false) };
    assert_eq!(closed(".config/ringfence/config.toml"), unreadable);
}

#[test]
fn a_project_file_of_very_many_entries_is_refused_soon() {
    let entries: String = (0..60_000).map(|i| format!("A{i} = \"\"\n")).collect();
    let done = config().file("ringfence.toml", format!("[spec.env]\n{entries}")).done();
    assert_eq!(done.status, Some(125), "{}", done.stderr);
    assert!(done.stderr.contains("60002 entries, at most 4096 are accepted"), "{}", done.stderr);
    // An emulated machine is about fifteen times slower.
    assert!(done.elapsed < std::time::Duration::from_secs(30), "{:?}", done.elapsed);
}

#[test]
fn a_relative_workdir_is_refused_with_its_line() {
    let call = config().file("ringfence.toml", "[spec]\nworkdir = \"w\"\n");
    refused(call, &["ringfence.toml:2: workdir must be absolute, not \"w\""]);
}
