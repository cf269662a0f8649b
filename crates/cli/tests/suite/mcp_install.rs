//! What `ringfence mcp install` refuses and what it says.

use super::driver::Call;

#[test]
fn install_takes_no_name_with_another_transport() {
    let call = Call::new(["mcp", "install", "codex", "--scope", "project"]);
    let path = call.cwd().join(".codex/config.toml");
    let before = "[mcp_servers.ringfence]\nurl = \"https://example.com\"\n";
    let mut running = call.file(".codex/config.toml", before).start();
    running.child.wait().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    let told = "an entry of this name exists with another transport, as its `url` says; nothing was changed";
    let hint = "choose another --name, or remove that entry";
    let stderr = format!("ringfence: {}: {told}\n  try: {hint}\n", path.display());
    running.done().assert(125, "", &stderr);
}
