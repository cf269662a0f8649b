use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

use super::clients::{Entry, next_step};
use super::edit::{Change, Place, Refusal, with_entry};
use super::replace::{Target, swap};
use super::{standing, write};
use crate::args::{Client, Scope};

fn entry(arguments: &[&str]) -> Entry {
    Entry {
        name: "box".to_owned(),
        command: "/bin/ringfence".to_owned(),
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        longest: Duration::from_secs(300),
    }
}

fn added(client: Client, place: Place, text: &str, arguments: &[&str]) -> (String, Change) {
    with_entry(text, &place, &entry(arguments).fields(client), "box").unwrap()
}

#[test]
fn each_client_gets_its_own_form() {
    let json = |client, section| added(client, Place::Json(section), "", &["--memory", "1GiB"]).0;
    let stdio = |section: &str| {
        format!(
            "{{\n  \"{section}\": {{\n    \"box\": {{\n      \"type\": \"stdio\",\n      \"command\": \"/bin/ringfence\",\n      \
             \"args\": [\"mcp\", \"--memory\", \"1GiB\"]\n    }}\n  }}\n}}\n"
        )
    };
    assert_eq!(json(Client::Claude, "mcpServers"), stdio("mcpServers"));
    assert_eq!(json(Client::Vscode, "servers"), stdio("servers"));
    assert_eq!(json(Client::Cursor, "mcpServers"), stdio("mcpServers"));
    assert_eq!(
        json(Client::Opencode, "mcp"),
        "{\n  \"mcp\": {\n    \"box\": {\n      \"type\": \"local\",\n      \"command\": [\"/bin/ringfence\", \"mcp\", \"--memory\", \
         \"1GiB\"],\n      \"enabled\": true\n    }\n  }\n}\n"
    );
    assert_eq!(
        added(Client::Codex, Place::Toml("mcp_servers"), "", &[]).0,
        "[mcp_servers.box]\ncommand = \"/bin/ringfence\"\nargs = [\"mcp\"]\ntool_timeout_sec = 330\n"
    );
}

#[test]
fn what_is_there_is_kept_comments_included() {
    let before = "// mine\n{\n  \"mcpServers\": {\n    // the other one\n    \"other\": {\"command\": \"x\"}, // here\n  },\n  \"theme\": \"dark\" \
                  /* ! */\n}\n";
    let (after, change) = added(Client::Claude, Place::Json("mcpServers"), before, &[]);
    assert_eq!(change, Change::Added);
    for kept in [
        "// mine\n",
        "// the other one\n",
        "\"other\": {\"command\": \"x\"}, // here",
        "\"theme\": \"dark\" /* ! */",
    ] {
        assert!(after.contains(kept), "{kept:?} is not in {after}");
    }
    assert_eq!(added(Client::Claude, Place::Json("mcpServers"), &after, &[]), (after, Change::None));

    let before =
        "# mine\nmodel = \"o\"  # here\n\n[mcp_servers.other]\ncommand = \"x\"\n\n[tools]\nweb = true\n";
    let (after, change) = added(Client::Codex, Place::Toml("mcp_servers"), before, &[]);
    assert_eq!(change, Change::Added);
    assert!(
        after.starts_with("# mine\nmodel = \"o\"  # here\n\n[mcp_servers.other]\ncommand = \"x\"\n"),
        "{after}"
    );
    assert!(after.contains("[tools]\nweb = true\n"), "{after}");
    assert!(after.contains("[mcp_servers.box]\ncommand = \"/bin/ringfence\"\nargs = [\"mcp\"]\n"), "{after}");
    assert_eq!(added(Client::Codex, Place::Toml("mcp_servers"), &after, &[]), (after, Change::None));
}

#[test]
fn an_entry_of_the_same_name_gets_the_command_and_keeps_its_other_keys() {
    let before = "{\"mcpServers\": {\"box\": {\"command\": \"old\", \"args\": [], \"env\": {\"A\": \"1\"}}}}";
    let (after, change) = added(Client::Claude, Place::Json("mcpServers"), before, &["--pids", "9"]);
    assert_eq!(change, Change::Updated);
    let value: serde_json::Value = serde_json::from_str(&after).unwrap();
    let expected = serde_json::json!({
        "type": "stdio", "command": "/bin/ringfence", "args": ["mcp", "--pids", "9"], "env": {"A": "1"},
    });
    assert_eq!(value["mcpServers"]["box"], expected);

    let before = "[mcp_servers.box]\ncommand = \"old\" # mine\nstartup_timeout_sec = 20\n";
    let (after, change) = added(Client::Codex, Place::Toml("mcp_servers"), before, &[]);
    assert_eq!(change, Change::Updated);
    assert_eq!(
        after,
        "[mcp_servers.box]\ncommand = \"/bin/ringfence\" # mine\nstartup_timeout_sec = 20\nargs = [\"mcp\"]\n\
         tool_timeout_sec = 330\n"
    );
}

#[test]
fn a_longer_time_that_is_there_is_kept() {
    let entry = |seconds: &str| {
        format!(
            "[mcp_servers.box]\ncommand = \"/bin/ringfence\"\nargs = [\"mcp\"]\ntool_timeout_sec = {seconds} # mine\n"
        )
    };
    let after = |before: &str| added(Client::Codex, Place::Toml("mcp_servers"), &entry(before), &[]);
    assert_eq!(after("600"), (entry("600"), Change::None));
    assert_eq!(after("60"), (entry("330"), Change::Updated));
}

#[test]
fn what_is_not_understood_is_not_touched() {
    let fields = entry(&[]).fields(Client::Claude);
    let refused =
        |text: &str, place: Place| with_entry(text, &place, &fields, "box").unwrap_err().to_string();
    let json = Place::Json("mcpServers");
    assert!(refused("{\"mcpServers\": ", json).starts_with("not JSON: "));
    assert_eq!(refused("[]", json), "the document is not an object");
    assert_eq!(refused("{\"mcpServers\": []}", json), "\"mcpServers\" is not an object");
    assert_eq!(refused("{\"mcpServers\": {\"box\": 1}}", json), "\"box\" is not an object");
    let toml = Place::Toml("mcp_servers");
    assert!(refused("mcp_servers = ", toml).starts_with("not TOML: "));
    assert_eq!(refused("mcp_servers = 1", toml), "mcp_servers is not a table");
    assert_eq!(refused("mcp_servers.box = 1", toml), "mcp_servers.box is not a table");
}

#[test]
fn of_two_keys_of_one_name_neither_is_guessed_at() {
    let fields = entry(&[]).fields(Client::Claude);
    let twice = |text: &str, name: &str| {
        let refused = with_entry(text, &Place::Json("mcpServers"), &fields, "box").unwrap_err();
        assert_eq!(refused, Refusal::Faulty(format!("\"{name}\" is there twice")));
    };
    twice(r#"{"mcpServers": {}, "mcpServers": {}}"#, "mcpServers");
    twice(r#"{"mcpServers": {"box": {}, "b\u006fx": {}}}"#, "box");
    twice(r#"{"mcpServers": {"box": {"command": "a", "args": [], "command": "b"}}}"#, "command");
    // What is none of ours is left to whoever reads it.
    let elsewhere = r#"{"a": 1, "a": 2, "mcpServers": {"other": {}, "other": {}}}"#;
    assert_eq!(added(Client::Claude, Place::Json("mcpServers"), elsewhere, &[]).1, Change::Added);
}

#[test]
fn an_entry_with_another_transport_is_not_made_into_one_of_both() {
    let refused = |client, place: Place, text: &str| {
        with_entry(text, &place, &entry(&[]).fields(client), "box").unwrap_err()
    };
    for (client, section, keys) in [
        (Client::Claude, "mcpServers", &["url", "serverUrl", "headers", "headersHelper", "oauth"][..]),
        (Client::Vscode, "servers", &["url", "serverUrl", "headers", "oauth"]),
        (Client::Cursor, "mcpServers", &["url", "serverUrl", "headers", "auth"]),
        (Client::Opencode, "mcp", &["url", "headers", "oauth"]),
    ] {
        let place = Place::Json(section);
        for key in keys {
            let text = format!("{{\"{section}\": {{\"box\": {{\"{key}\": \"x\"}}}}}}");
            assert_eq!(refused(client, place, &text), Refusal::Taken(key), "{client:?}");
        }
        for kind in ["http", "sse", "remote"] {
            let text = format!("{{\"{section}\": {{\"box\": {{\"type\": \"{kind}\"}}}}}}");
            assert_eq!(refused(client, place, &text), Refusal::Taken("type"), "{client:?}");
        }
    }
    for key in [
        "url",
        "bearer_token",
        "bearer_token_env_var",
        "http_headers",
        "env_http_headers",
        "oauth",
        "oauth_resource",
    ] {
        let table = format!("[mcp_servers.box]\n{key} = \"x\"\n");
        let dotted = format!("mcp_servers.box.{key}.a = \"x\"\n");
        for text in [table, dotted] {
            assert_eq!(refused(Client::Codex, Place::Toml("mcp_servers"), &text), Refusal::Taken(key));
        }
    }
    let told = "an entry of this name exists with another transport, as its `url` says";
    assert_eq!(Refusal::Taken("url").to_string(), told);
    assert_eq!(Refusal::Taken("url").hint(), "choose another --name, or remove that entry");
}

#[test]
fn line_ends_and_the_byte_order_mark_stay() {
    let json = "{\n  // mine\n  \"mcpServers\": {\n    \"x\": {\"command\": \"y\"}\n    // last\n  }\n}\n";
    let toml = "# mine\nmodel = \"o\" # here\n[mcp_servers.x]\ncommand = \"y\"\nargs = [\n  \"a\", # one\n]\n# end\n";
    let old = "[mcp_servers.box]\ncommand = \"old\" # mine\nargs = []\n\n# theirs\n[z]\nq = '''\na\nb'''\n";
    let braces = "mcp_servers = { x = { command = \"y\" } } # in\n[z]\nq = 1\n";
    for (client, place, before) in [
        (Client::Claude, Place::Json("mcpServers"), json),
        (Client::Claude, Place::Json("mcpServers"), "{\n}\n"),
        (Client::Claude, Place::Json("mcpServers"), "{}\n"),
        (Client::Claude, Place::Json("mcpServers"), "{\n  \"a\": 1\n}"),
        (Client::Codex, Place::Toml("mcp_servers"), toml),
        (Client::Codex, Place::Toml("mcp_servers"), old),
        (Client::Codex, Place::Toml("mcp_servers"), braces),
    ] {
        let (plain, change) = added(client, place, before, &[]);
        assert_ne!(change, Change::None);
        let dos = added(client, place, &before.replace('\n', "\r\n"), &[]);
        assert_eq!(dos, (plain.replace('\n', "\r\n"), change), "{before}");
        let marked = added(client, place, &format!("\u{feff}{before}"), &[]);
        assert_eq!(marked, (format!("\u{feff}{plain}"), change), "{before}");
    }
    assert_eq!(added(Client::Claude, Place::Json("mcpServers"), "\u{feff}", &[]).1, Change::Added);
    // Of line ends that differ each stays.
    let (after, _) = added(Client::Codex, Place::Toml("mcp_servers"), "a = 1\r\nb = 2\nc = 3\r\n", &[]);
    assert!(after.starts_with("a = 1\r\nb = 2\nc = 3\r\n\r\n[mcp_servers.box]\r\n"), "{after:?}");
}

#[test]
fn a_new_entry_moves_no_comment() {
    let entry = "[mcp_servers.box]\ncommand = \"/bin/ringfence\"\nargs = [\"mcp\"]\ntool_timeout_sec = 330\n";
    let toml = |before| added(Client::Codex, Place::Toml("mcp_servers"), before, &[]);
    for (before, gap) in [
        ("# only a comment", "\n\n"),
        ("a = 1\n# end\n", "\n"),
        ("a = 1\n\n# end\n\n", ""),
        ("[mcp_servers]\n# nothing\n\n[profiles.x]\na = 1\n", "\n"),
        ("[mcp_servers.x]\ncommand = \"y\"\n# of x\n\n# end\n", "\n"),
        ("mcp_servers.x.command = \"y\" # dotted\n", "\n"),
    ] {
        assert_eq!(toml(before), (format!("{before}{gap}{entry}"), Change::Added));
    }
    // A table in braces is closed, so the entry goes inside.
    let (after, _) = toml("mcp_servers = { x.command = \"y\" } # in\n");
    assert!(
        after.starts_with("mcp_servers = { x.command = \"y\"") && after.ends_with(" } # in\n"),
        "{after}"
    );
    let value: toml::Table = after.parse().unwrap();
    assert_eq!(value["mcp_servers"]["box"]["command"].as_str(), Some("/bin/ringfence"));

    let json = |before: &str| {
        let (after, _) = added(Client::Claude, Place::Json("mcpServers"), before, &[]);
        let (head, rest) = after.split_once("    \"box\": {\n").unwrap();
        let tail = rest.split_once("\n    }").unwrap().1;
        (head.to_owned(), tail.to_owned())
    };
    let text =
        |comma: &str, last: &str| format!("{{\n  \"mcpServers\": {{\n    \"x\": {{}}{comma} // of x\n{last}");
    let after = "  } // end\n}\n// after\n";
    for last in ["    // last\n", "    // last\n\n    /* and\n    more */\n", "\n    // last\n", ""] {
        let added = json(&(text("", last) + after));
        assert_eq!(added, (text(",", last), format!("\n{after}")));
        let added = json(&(text(",", last) + after));
        assert_eq!(added, (text(",", last), format!(",\n{after}")));
    }
    let nothing = "{\n  \"mcpServers\": {\n    // nothing\n";
    assert_eq!(json(&format!("{nothing}{after}")), (nothing.to_owned(), format!("\n{after}")));
}

#[test]
fn a_file_is_replaced_as_a_whole_and_a_link_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real.json");
    std::fs::write(&real, "{}").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o600)).unwrap();
    let link = folder.path().join("link.json");
    symlink("real.json", &link).unwrap();
    let change = write(&link, |text| Ok((format!("{text}!"), Change::Added))).unwrap();
    assert_eq!(change, Change::Added);
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "{}!");
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let new = folder.path().join("a/b/new.json");
    write(&new, |text| Ok((format!("{text}new"), Change::Added))).unwrap();
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "new");
}

#[test]
fn a_file_that_somebody_else_changes_meanwhile_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.json");
    std::fs::write(&path, "old").unwrap();
    let failed = write(&path, |_| {
        std::fs::write(&path, "theirs").unwrap();
        Ok(("ours".to_owned(), Change::Added))
    })
    .unwrap_err();
    assert_eq!(
        failed.to_string(),
        format!(
            "write {}: it was changed by somebody else in this moment; try again; nothing was changed",
            path.display()
        )
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

fn more(text: &str) -> Result<(String, Change), Refusal> {
    Ok((format!("{text}!"), Change::Added))
}

/// Returns what keeps the file from being written, having seen that it and its folder are as before.
fn unwritten(path: &Path) -> String {
    let of = |path: &Path| {
        let meta = path.metadata().unwrap();
        (std::fs::read(path).unwrap(), meta.ino(), meta.mode(), meta.uid(), meta.gid(), meta.nlink())
    };
    let names = || std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    let before = (of(path), names());
    let failed = write(path, more).unwrap_err().to_string();
    assert_eq!((of(path), names()), before);
    let told = failed.strip_prefix(&format!("write {}: ", path.display())).unwrap();
    told.strip_suffix("; nothing was changed").unwrap().to_owned()
}

#[test]
fn what_a_dangling_link_points_to_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    symlink("second.json", at("first.json")).unwrap();
    symlink(at("deep/real.json"), at("second.json")).unwrap();
    symlink("elsewhere", at("folder")).unwrap();
    symlink("loop", at("loop")).unwrap();
    write(&at("first.json"), more).unwrap();
    assert_eq!(std::fs::read_to_string(at("deep/real.json")).unwrap(), "!");
    write(&at("folder/../folder/mcp.json"), more).unwrap();
    assert_eq!(std::fs::read_to_string(at("elsewhere/mcp.json")).unwrap(), "!");
    for link in ["first.json", "second.json", "folder"] {
        assert!(at(link).symlink_metadata().unwrap().is_symlink(), "{link}");
    }
    let looped = write(&at("loop"), more).unwrap_err().to_string();
    assert!(looped.contains(&std::io::Error::from(Errno::LOOP).to_string()), "{looped}");
}

#[test]
fn a_file_that_would_not_be_the_same_afterwards_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.json");
    std::fs::write(&path, "{}").unwrap();
    // The control: nothing else keeps it from being written.
    write(&path, more).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}!");

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(unwritten(&path), "it is write-protected");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::fs::hard_link(&path, folder.path().join("other.json")).unwrap();
    assert_eq!(unwritten(&path), "it has another name too, a hard link, which would be cut off");
    std::fs::remove_file(folder.path().join("other.json")).unwrap();
    write(&path, more).unwrap();
}

#[test]
fn owner_permissions_and_attributes_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.json");
    std::fs::write(&path, "{}").unwrap();
    // Only root can give a file away; to everybody else it is their own already.
    let owner = match chown(&path, Some(1234), Some(1235)) {
        Ok(()) => (1234, 1235),
        Err(_) => (path.metadata().unwrap().uid(), path.metadata().unwrap().gid()),
    };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4620)).unwrap();
    let attribute = setxattr(&path, "user.mine", b"kept", XattrFlags::empty());
    write(&path, more).unwrap();
    let meta = path.metadata().unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (owner.0, owner.1, 0o4620));
    let mut value = [0; 8];
    // A file system that takes no attribute gives none.
    let kept = getxattr(&path, "user.mine", &mut value[..]);
    assert_eq!(kept, attribute.map(|()| 4));
    assert!(kept.is_err() || value.starts_with(b"kept"));
}

#[test]
fn of_many_at_once_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.json");
    std::fs::write(&path, "-").unwrap();
    let child = |name: String| {
        let path = &path;
        move || write(path, |text| Ok((format!("{text}{name}"), Change::Added))).unwrap()
    };
    std::thread::scope(|scope| {
        for name in 0..8 {
            scope.spawn(child(name.to_string()));
        }
    });
    let mut names: Vec<char> = std::fs::read_to_string(&path).unwrap().chars().collect();
    names.sort_unstable();
    assert_eq!(names, "-01234567".chars().collect::<Vec<_>>());
}

#[test]
fn who_holds_the_lock_for_too_long_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.json");
    let held = Target::hold(&path, Duration::ZERO).unwrap();
    let refused = Target::hold(&path, Duration::ZERO).unwrap_err();
    assert_eq!(refused.to_string(), "another program has its folder locked for 0 s");
    drop(held);
    Target::hold(&path, Duration::ZERO).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_a_client_puts_there_in_the_last_moment_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    std::fs::write(&ours, "ours").unwrap();
    std::fs::write(&theirs, "theirs").unwrap();
    let told = "it was changed by somebody else in this moment; try again";
    for before in [Some(&b"before"[..]), None] {
        assert_eq!(swap(&ours, &theirs, before).unwrap_err().to_string(), told);
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
        assert_eq!(std::fs::read_to_string(&ours).unwrap(), "ours");
    }
    swap(&ours, &theirs, Some(b"theirs")).unwrap();
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "ours");
    assert!(!ours.exists());
}

#[test]
fn a_program_that_was_replaced_is_found_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, odd) = (folder.path().join("ringfence"), folder.path().join("ringfence (deleted)"));
    assert_eq!(standing(plain.clone(), None).unwrap(), plain);
    let refused = standing(odd.clone(), None).unwrap_err().to_string();
    assert_eq!(refused, format!("{}, the file of this program, was deleted while it ran", plain.display()));
    std::fs::write(&odd, "").unwrap();
    let running = odd.metadata().unwrap();
    assert_eq!(standing(odd.clone(), Some(&running)).unwrap(), odd);
    std::fs::write(&plain, "").unwrap();
    let running = folder.path().metadata().unwrap();
    assert_eq!(standing(odd, Some(&running)).unwrap(), plain);
}

#[test]
fn a_server_of_the_user_needs_no_approval() {
    assert!(next_step(Client::Claude, None).contains("approve"));
    assert_eq!(next_step(Client::Claude, Some(Scope::User)), "`claude mcp list` shows whether it connects.");
}
