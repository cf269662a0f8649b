//! Files that go in before the first call.

use ringfence_core::memory::Operation;
use ringfence_core::{CommandResult, Ending, ErrorKind, GuestPath};
use ringfence_toolset::{InputSource, ToolsetConfig};
use serde_json::json;

use super::support::{ended, error, ids, recording, session, terminal, text};

fn at(path: &str) -> GuestPath {
    GuestPath::new(path).unwrap()
}

#[tokio::test]
async fn inputs_are_there_before_the_first_call_and_in_a_replacement() {
    let directory = tempfile::tempdir().unwrap();
    let local = directory.path().join("data.csv");
    std::fs::write(&local, "1,2\n").unwrap();
    let backend = recording();
    let config = ToolsetConfig::new()
        .input(InputSource::Bytes("hello".into()), at("in/a.txt"))
        .input(InputSource::LocalFile(local), at("/data/d.csv"));
    let run = session(&backend, config);
    assert_eq!(text(&run, "read_file", json!({"path": "in/a.txt"})).await, "hello");
    backend.set_command_result(CommandResult { sandbox_lost: true, ..ended(Ending::Exited(0), "", "") });
    text(&run, "run_command", json!({"command": "x"})).await;
    assert_eq!(text(&run, "read_file", json!({"path": "/data/d.csv"})).await, "1,2");
    run.close().await;
    let written: Vec<_> = backend.writes().into_iter().map(|write| (write.sandbox, write.path)).collect();
    let shown: Vec<String> = written.iter().map(|(sandbox, path)| format!("{sandbox} {path}")).collect();
    assert_eq!(shown, ["box-1 in/a.txt", "box-1 /data/d.csv", "box-2 in/a.txt", "box-2 /data/d.csv"]);
}

#[tokio::test]
async fn an_input_that_cannot_be_staged_is_terminal_and_destroys_the_sandbox() {
    let backend = recording();
    backend.fail_once(Operation::Write, error(ErrorKind::StorageFull, "no space left"));
    let run = session(&backend, ToolsetConfig::new().input(InputSource::Bytes("x".into()), at("f")));
    let failed = terminal(run.call("run_command", &json!({"command": "x"})).await);
    assert_eq!(
        failed.to_string(),
        "rec: stage an input: could not write it into the sandbox, destination f: rec: do the thing: no space left"
    );
    assert_eq!((ids(&backend.destroyed()), backend.commands().len()), (vec!["box-1".to_owned()], 0));
    text(&run, "run_command", json!({"command": "x"})).await;
    run.close().await;
    assert_eq!(ids(&backend.destroyed()), ["box-1", "box-2"]);
}

#[tokio::test]
async fn a_local_input_must_be_a_regular_file() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    for (path, why) in [
        (directory.path().to_owned(), "is not a regular file; inputs are single files"),
        (missing, "cannot be read: No such file or directory (os error 2)"),
    ] {
        let backend = recording();
        let shown = path.display().to_string();
        let run = session(&backend, ToolsetConfig::new().input(InputSource::LocalFile(path), at("f")));
        let failed = terminal(run.call("list_directory", &json!({})).await);
        assert_eq!(failed.to_string(), format!("rec: stage an input: {shown} {why}, destination f"));
        assert_eq!(backend.alive(), []);
    }
}
