use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use super::clients::{Entry, next_step};
use super::edit::{Change, Place, with_entry};
use super::write;
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
    let refused = |text: &str, place: Place| with_entry(text, &place, &fields, "box").unwrap_err();
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

#[test]
fn a_server_of_the_user_needs_no_approval() {
    assert!(next_step(Client::Claude, None).contains("approve"));
    assert_eq!(next_step(Client::Claude, Some(Scope::User)), "`claude mcp list` shows whether it connects.");
}
