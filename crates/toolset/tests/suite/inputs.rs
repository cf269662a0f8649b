//! Files that go in before the first call.

use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence_core::memory::{Operation, RecordedCommand, RecordingBackend};
use ringfence_core::{
    Backend, CommandResult, Ending, Error, ErrorKind, GuestPath, Invocation, Result, SandboxSpec,
};
use ringfence_toolset::{Input, InputSource, MAX_INPUT_BYTES, ToolsetConfig, stage};
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
async fn a_local_input_must_be_a_regular_file_and_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let here = |name: &str| directory.path().join(name);
    assert!(Command::new("mkfifo").arg(here("fifo")).status().unwrap().success());
    File::create(here("huge")).unwrap().set_len(MAX_INPUT_BYTES + 1).unwrap();
    for (path, why) in [
        (here("."), "not a regular file"),
        (here("fifo"), "not a regular file"),
        (here("missing"), "No such file or directory (os error 2)"),
        (here("huge"), "the file is larger than 1 GiB"),
    ] {
        let backend = recording();
        let shown = path.display().to_string();
        let run = session(&backend, ToolsetConfig::new().input(InputSource::LocalFile(path), at("f")));
        let failed = terminal(run.call("list_directory", &json!({})).await);
        assert_eq!(
            failed.to_string(),
            format!("rec: stage an input: could not read it, source {shown}, destination f: {why}")
        );
        assert_eq!(failed.kind(), &ErrorKind::InvalidArgument);
        assert_eq!(backend.alive(), []);
    }
}

#[tokio::test]
async fn a_local_input_that_cannot_be_written_is_named_at_both_ends() {
    let directory = tempfile::tempdir().unwrap();
    let local = directory.path().join("data.csv");
    std::fs::write(&local, "1,2\n").unwrap();
    let backend = recording();
    let shown = local.display().to_string();
    backend.seed_directory("d").unwrap();
    let run = session(&backend, ToolsetConfig::new().input(InputSource::LocalFile(local), at("d")));
    let failed = terminal(run.call("list_directory", &json!({})).await);
    let facts: Vec<_> = failed.facts().collect();
    assert_eq!(
        (failed.kind(), facts),
        (&ErrorKind::IsADirectory, vec![("source", &*shown), ("destination", "d")])
    );
}

#[tokio::test]
async fn inputs_can_be_programs_and_empty_directories_also_in_a_replacement() {
    let backend = recording();
    let config = ToolsetConfig::new().inputs([
        program("-b"),
        empty("e/-2"),
        file("data"),
        program("/opt/a"),
        empty("e/1"),
    ]);
    let run = session(&backend, config.input(InputSource::EmptyDirectory, at("e/3")));
    backend.answer_commands(|command| {
        let lost = command.invocation == Invocation::Shell("lose it".into());
        Ok(CommandResult { sandbox_lost: lost, ..ended(Ending::Exited(0), "", "") })
    });
    text(&run, "run_command", json!({"command": "lose it"})).await;
    text(&run, "list_directory", json!({})).await;
    run.close().await;
    let written = |sandbox| {
        backend
            .writes()
            .into_iter()
            .filter(move |write| write.sandbox.as_str() == sandbox)
            .map(|write| write.path)
    };
    for sandbox in ["box-1", "box-2"] {
        assert_eq!(ids(&written(sandbox).collect::<Vec<_>>()), ["-b", "data", "/opt/a"], "{sandbox}");
    }
    let helpers = ["/bin/mkdir -p -- e/-2 e/1 e/3".to_owned(), "/bin/chmod +x -- -b /opt/a".to_owned()];
    assert_eq!(programs(&backend, "box-1"), helpers);
    assert_eq!(programs(&backend, "box-2"), helpers);
    let bounds: Vec<_> = backend.commands().iter().map(|command| command.timeout.get().as_secs()).collect();
    assert_eq!(bounds, [30, 30, 60, 30, 30]);
}

#[tokio::test]
async fn inputs_that_need_no_program_of_the_sandbox_run_none() {
    let backend = recording();
    let created = backend.create(&SandboxSpec::new()).await.unwrap();
    stage(&[], &*backend, &created.id).await.unwrap();
    stage(&[file("a"), file("b")], &*backend, &created.id).await.unwrap();
    assert_eq!(backend.writes().len(), 2);
    assert_eq!(backend.commands(), []);
}

#[tokio::test]
async fn many_inputs_go_to_a_program_in_batches() {
    let backend = recording();
    let created = backend.create(&SandboxSpec::new()).await.unwrap();
    let directories: Vec<String> = (0..200).map(|number| format!("d{number}")).collect();
    let files: Vec<String> = (0..401).map(|number| format!("f{number}")).collect();
    let inputs = directories.iter().map(|name| empty(name)).chain(files.iter().map(|name| program(name)));
    stage(&inputs.collect::<Vec<_>>(), &*backend, &created.id).await.unwrap();
    let told = [
        format!("/bin/mkdir -p -- {}", directories.join(" ")),
        format!("/bin/chmod +x -- {}", files[..200].join(" ")),
        format!("/bin/chmod +x -- {}", files[200..400].join(" ")),
        "/bin/chmod +x -- f400".to_owned(),
    ];
    assert_eq!(programs(&backend, "box-1"), told);
}

#[tokio::test]
async fn a_program_of_the_sandbox_that_fails_is_terminal_and_destroys_the_sandbox() {
    let answer = |ending, stderr| Ok(ended(ending, "", stderr));
    let lost = CommandResult { sandbox_lost: true, ..ended(Ending::Unknown, "", "") };
    let cases: [(Result<CommandResult, Error>, &str, ErrorKind); 4] = [
        (
            answer(Ending::Exited(1), "mkdir: cannot create directory 'e': Not a directory\n"),
            "mkdir: cannot create directory 'e': Not a directory",
            ErrorKind::Unexpected,
        ),
        (answer(Ending::TimedOut, ""), "/bin/mkdir timed_out", ErrorKind::Unexpected),
        (Ok(lost), "the sandbox was lost", ErrorKind::SandboxLost),
        (
            Err(error(ErrorKind::Unavailable, "no line")),
            "could not run /bin/mkdir in the sandbox: rec: do the thing: no line",
            ErrorKind::Unavailable,
        ),
    ];
    for (answer, why, kind) in cases {
        let backend = recording();
        let mut answer = Some(answer);
        backend.answer_commands(move |_| answer.take().unwrap());
        let run = session(&backend, ToolsetConfig::new().inputs([empty("e"), program("p")]));
        let failed = terminal(run.call("list_directory", &json!({})).await);
        assert_eq!(failed.to_string(), format!("rec: make the empty directories of the inputs: {why}"));
        assert_eq!(failed.kind(), &kind);
        assert_eq!((backend.commands().len(), ids(&backend.destroyed())), (1, vec!["box-1".to_owned()]));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn s_37_a_found_file_is_not_read_through_a_link_that_came_since() {
    let directory = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(directory.path()).unwrap();
    for folder in ["found", "home"] {
        std::fs::create_dir(root.join(folder)).unwrap();
        std::fs::write(root.join(folder).join("f"), folder).unwrap();
    }
    let path = root.join("found/f");
    let backend = recording();
    let sandbox = backend.create(&SandboxSpec::new()).await.unwrap().id;
    let staged = async |source| stage(&[input(source, "f", false)], &*backend, &sandbox).await;
    let found = || staged(InputSource::FoundFile(path.clone()));
    let named = || staged(InputSource::LocalFile(path.clone()));
    let refused = format!(
        "rec: stage an input: could not read it, source {}, destination f: a symbolic link is on the path",
        path.display()
    );
    found().await.unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("../home/f", &path).unwrap();
    assert_eq!(found().await.unwrap_err().to_string(), refused);
    named().await.unwrap();
    std::fs::rename(root.join("found"), root.join("gone")).unwrap();
    std::os::unix::fs::symlink("home", root.join("found")).unwrap();
    assert_eq!(found().await.unwrap_err().to_string(), refused);
    named().await.unwrap();
    let contents: Vec<_> = backend.writes().into_iter().map(|write| write.content).collect();
    assert_eq!(contents, [b"found".to_vec(), b"home".to_vec(), b"home".to_vec()]);
}

fn input(source: InputSource, destination: &str, executable: bool) -> Input {
    Input { source, destination: at(destination), executable }
}

fn file(destination: &str) -> Input {
    input(InputSource::Bytes("x".into()), destination, false)
}

fn program(destination: &str) -> Input {
    input(InputSource::Bytes("x".into()), destination, true)
}

fn empty(destination: &str) -> Input {
    input(InputSource::EmptyDirectory, destination, false)
}

/// The programs that were run by their path in a sandbox, with their arguments.
fn programs(backend: &RecordingBackend, sandbox: &str) -> Vec<String> {
    let of_sandbox = |command: &RecordedCommand| command.sandbox.as_str() == sandbox;
    let words = |command: RecordedCommand| match command.invocation {
        Invocation::Program(words) => Some(String::from_utf8(words.join(&b' ')).unwrap()),
        Invocation::Shell(_) => None,
    };
    backend.commands().into_iter().filter(of_sandbox).filter_map(words).collect()
}

#[tokio::test(start_paused = true)]
async fn lc_09_closing_does_not_wait_for_inputs_that_take_long() {
    let backend = recording();
    // Setting the executable bit is a command, and this backend takes an hour for one.
    backend.set_command_delay(Duration::from_secs(3600));
    let program = Input { source: InputSource::Bytes("x".into()), destination: at("x"), executable: true };
    let run = Arc::new(session(&backend, ToolsetConfig::new().inputs([program])));
    let call = tokio::spawn({
        let run = Arc::clone(&run);
        async move { run.call("list_directory", &json!({})).await }
    });
    while backend.commands().is_empty() {
        tokio::task::yield_now().await;
    }
    tokio::time::timeout(Duration::from_secs(1), run.close()).await.unwrap();
    assert_eq!(terminal(call.await.unwrap()).message(), "the session is not open");
    assert_eq!((ids(&backend.destroyed()), backend.alive()), (vec!["box-1".to_owned()], vec![]));
}

#[tokio::test]
async fn inputs_are_found_anew_for_every_sandbox() {
    let backend = recording();
    let found = Arc::new(AtomicUsize::new(0));
    let finder = {
        let found = Arc::clone(&found);
        move || match found.fetch_add(1, Ordering::Relaxed) {
            1 => Err(Error::invalid("find the inputs", "gone")),
            n => Ok(vec![Input {
                source: InputSource::Bytes("x".into()),
                destination: at(&format!("f{n}")),
                executable: false,
            }]),
        }
    };
    let run = session(&backend, ToolsetConfig::new().inputs_found_by(finder));
    let lose = || {
        backend.set_command_result(CommandResult { sandbox_lost: true, ..ended(Ending::Exited(0), "", "") })
    };
    lose();
    text(&run, "run_command", json!({"command": "x"})).await;
    // Nothing is created for inputs that cannot be found.
    let failed = terminal(run.call("run_command", &json!({"command": "x"})).await);
    assert_eq!(
        failed.to_string(),
        "rec: provision a sandbox: could not provision a sandbox: find the inputs: gone"
    );
    assert_eq!(backend.created().len(), 1);
    text(&run, "run_command", json!({"command": "x"})).await;
    let written: Vec<String> = backend.writes().iter().map(|write| write.path.to_string()).collect();
    assert_eq!(written, ["f0", "f2"]);
}
