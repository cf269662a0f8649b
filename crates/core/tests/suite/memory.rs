use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::memory::{Operation, RecordedCommand, RecordedExport, RecordedWrite, RecordingBackend};
use ringfence_core::{
    Attachable, Backend, Capabilities, CommandRequest, CommandResult, DirectoryEntry, Ending, EntryKind,
    Error, ErrorKind, Evidence, Invocation, ListRequest, Listing, OutputLimit, SandboxId, SandboxSpec,
    SpecField, Stdin, Tags,
};
use tokio::time::Instant;

use super::support::{path, seconds, shown, spec};

fn id(text: &str) -> SandboxId {
    SandboxId::new(text).expect("an id")
}

fn request(command: &str) -> CommandRequest {
    CommandRequest::shell(command, seconds(5.0), OutputLimit::new(100).expect("a limit"))
}

fn failure() -> Error {
    Error::new(ErrorKind::Unavailable, "rec", "test", "told to fail")
}

async fn sandbox(backend: &RecordingBackend) -> SandboxId {
    backend.create(&SandboxSpec::default()).await.expect("a sandbox").id
}

#[tokio::test]
async fn sandboxes_are_numbered_and_everything_is_recorded() {
    let backend = RecordingBackend::new();
    let author = spec(r#"{"env": {"A": "1"}, "block_network": false}"#).expect("a spec");
    let first = backend.create(&author).await.expect("created").id;
    let second = sandbox(&backend).await;
    assert_eq!((first.as_str(), second.as_str()), ("box-1", "box-2"));
    assert_eq!(backend.created(), [author, SandboxSpec::default()]);

    let stdin = Stdin::Bytes(Bytes::from("in"));
    let result = backend.run_command(&second, request("ls").with_stdin(stdin)).await.expect("a result");
    assert_eq!(result, CommandResult::exited(0, "out\n", ""));
    assert_eq!(
        backend.commands(),
        [RecordedCommand {
            sandbox: id("box-2"),
            invocation: Invocation::Shell("ls".to_owned()),
            timeout: seconds(5.0),
            output_limit: OutputLimit::new(100).expect("a limit"),
            stdin: b"in".to_vec(),
            workdir: None,
            env: Default::default(),
        }]
    );
    assert_eq!(backend.alive(), [id("box-1"), id("box-2")]);
}

#[tokio::test]
async fn bk_04_destroying_twice_is_fine_and_a_lost_sandbox_is_said_to_be_lost() {
    let backend = RecordingBackend::new();
    let sandbox = sandbox(&backend).await;
    backend.destroy(&sandbox).await.expect("destroyed");
    backend.destroy(&sandbox).await.expect("already gone");
    assert_eq!(backend.destroyed(), [id("box-1"), id("box-1")]);
    let error = backend.run_command(&sandbox, request("ls")).await.expect_err("lost");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::SandboxLost, true));
    for kind in [
        backend.read_file(&sandbox, &path("a"), 1).await.map(drop).expect_err("lost"),
        backend.write_file(&sandbox, &path("a"), b"").await.expect_err("lost"),
        backend
            .list_directory(&sandbox, &path("a"), ListRequest::default())
            .await
            .map(drop)
            .expect_err("lost"),
        backend.export_file(&sandbox, &path("a"), 1, &mut Vec::new()).await.map(drop).expect_err("lost"),
    ] {
        assert_eq!(kind.kind(), &ErrorKind::SandboxLost, "ER-08: every operation says so");
    }
    assert!(backend.exports()[0].already_destroyed);
}

#[tokio::test]
async fn lc_12_a_failed_creation_counts() {
    let backend = RecordingBackend::new();
    backend.fail_once(Operation::Create, failure());
    assert!(shown(backend.create(&SandboxSpec::default()).await).contains("told to fail"));
    let second = sandbox(&backend).await;
    assert_eq!((second, backend.created().len(), backend.alive()), (id("box-2"), 2, vec![id("box-2")]));
}

#[tokio::test]
async fn every_operation_can_be_told_to_fail_until_it_may_recover() {
    let backend = RecordingBackend::new();
    let sandbox = sandbox(&backend).await;
    backend.write_file(&sandbox, &path("a"), b"xyz").await.expect("written");
    for operation in [
        Operation::Create,
        Operation::Command,
        Operation::Read,
        Operation::Write,
        Operation::List,
        Operation::Export,
        Operation::ExportAfterFirstByte,
        Operation::Destroy,
        Operation::Unpark,
        Operation::Inspect,
        Operation::Tags,
        Operation::SetTags,
    ] {
        backend.fail(operation, failure);
        for _ in 0..2 {
            let failed = match operation {
                Operation::Create => backend.create(&SandboxSpec::default()).await.is_err(),
                Operation::Command => backend.run_command(&sandbox, request("ls")).await.is_err(),
                Operation::Read => backend.read_file(&sandbox, &path("a"), 9).await.is_err(),
                Operation::Write => backend.write_file(&sandbox, &path("b"), b"").await.is_err(),
                Operation::List => {
                    backend.list_directory(&sandbox, &path("."), ListRequest::default()).await.is_err()
                }
                Operation::Export | Operation::ExportAfterFirstByte => {
                    let mut sink = Vec::new();
                    let failed = backend.export_file(&sandbox, &path("a"), 9, &mut sink).await.is_err();
                    let partial: &[u8] = if operation == Operation::Export { b"" } else { b"x" };
                    assert_eq!(sink, partial);
                    failed
                }
                Operation::Destroy => backend.destroy(&sandbox).await.is_err(),
                Operation::Unpark => backend.unpark(&sandbox).await.is_err(),
                Operation::Inspect => backend.inspect(&sandbox).await.is_err(),
                Operation::Tags => backend.tags(&sandbox).await.is_err(),
                Operation::SetTags => backend.set_tags(&sandbox, 1, &Tags::new()).await.is_err(),
            };
            assert!(failed, "{operation:?}");
        }
        backend.recover(operation);
    }
    assert_eq!(backend.alive(), [id("box-1")], "a failed destruction leaves the sandbox");
    assert_eq!(backend.read_file(&sandbox, &path("a"), 9).await.expect("recovered"), b"xyz");
}

#[tokio::test(start_paused = true)]
async fn creation_takes_the_time_it_is_told() {
    let backend = Arc::new(RecordingBackend::new());
    backend.set_create_delay(Duration::from_millis(250));
    let start = Instant::now();
    let (one, two) = tokio::join!(sandbox(&backend), sandbox(&backend));
    assert_eq!((one, two, start.elapsed()), (id("box-1"), id("box-2"), Duration::from_millis(250)));
    // Whoever stops waiting leaves nothing behind.
    let given_up = tokio::time::timeout(Duration::from_millis(100), sandbox(&backend)).await;
    assert!(given_up.is_err());
    assert_eq!((backend.created().len(), backend.alive()), (3, vec![id("box-1"), id("box-2")]));
}

#[tokio::test(start_paused = true)]
async fn commands_are_answered_as_told() {
    let backend = RecordingBackend::new();
    let sandbox = sandbox(&backend).await;
    backend.set_command_delay(Duration::from_secs(3));
    backend.set_command_result(CommandResult::exited(3, "hi\n", "bad\n"));
    let start = Instant::now();
    let result = backend.run_command(&sandbox, request("x")).await.expect("a result");
    assert_eq!(
        (result, start.elapsed()),
        (CommandResult::exited(3, "hi\n", "bad\n"), Duration::from_secs(3))
    );
    backend.set_command_delay(Duration::ZERO);
    backend.answer_commands(|command| match &command.invocation {
        Invocation::Shell(text) => Ok(CommandResult::exited(0, text.clone(), "")),
        Invocation::Program(_) => Err(failure()),
    });
    let echoed = backend.run_command(&sandbox, request("y")).await.expect("a result");
    assert_eq!(echoed, CommandResult::exited(0, "y", ""));
    // A result that reports the loss of the sandbox ends it.
    let lost =
        CommandResult { ending: Ending::Unknown, sandbox_lost: true, ..CommandResult::exited(0, "", "") };
    backend.set_command_result(lost.clone());
    assert_eq!(backend.run_command(&sandbox, request("z")).await.expect("a result"), lost);
    assert!(backend.alive().is_empty());
}

#[tokio::test]
async fn files_are_kept_per_sandbox() {
    let backend = RecordingBackend::new();
    backend.seed_file("/etc/motd", "hello").expect("seeded");
    backend.seed_directory("empty").expect("seeded");
    let (one, two) = (sandbox(&backend).await, sandbox(&backend).await);
    backend.write_file(&one, &path("sub/../sub/a"), b"1").await.expect("written");
    backend.write_file(&one, &path("b"), b"22").await.expect("written");
    assert_eq!(backend.read_file(&one, &path("/workspace/sub/a"), 1).await.expect("read"), b"1");
    assert_eq!(backend.read_file(&two, &path("/etc/motd"), 5).await.expect("read"), b"hello");
    assert_eq!(
        backend.writes()[0],
        RecordedWrite { sandbox: one.clone(), path: path("sub/../sub/a"), content: b"1".to_vec() }
    );
    let entry = |name: &str, kind, size_bytes| DirectoryEntry { name: name.into(), kind, size_bytes };
    assert_eq!(
        backend.list_directory(&one, &path("."), ListRequest::default()).await.expect("listed"),
        Listing {
            entries: vec![
                entry("b", EntryKind::File, Some(2)),
                entry("empty", EntryKind::Directory, None),
                entry("sub", EntryKind::Directory, None),
            ],
            remaining: 0,
        }
    );
    let page = ListRequest { max_entries: NonZeroUsize::MIN, after: Some(b"b".to_vec()) };
    assert_eq!(
        backend.list_directory(&one, &path("/workspace/"), page).await.expect("listed"),
        Listing { entries: vec![entry("empty", EntryKind::Directory, None)], remaining: 1 }
    );
    let mut sink = Vec::new();
    assert_eq!(backend.export_file(&one, &path("b"), 2, &mut sink).await.expect("exported"), 2);
    assert_eq!(sink, b"22");
    assert_eq!(
        backend.exports(),
        [RecordedExport { sandbox: one, path: path("b"), limit_bytes: 2, already_destroyed: false }]
    );
}

#[tokio::test]
async fn file_errors_have_the_kinds_of_a_real_file_system() {
    let backend = RecordingBackend::new();
    let sandbox = sandbox(&backend).await;
    backend.write_file(&sandbox, &path("d/f"), b"123").await.expect("written");
    let read =
        async |text: &str| backend.read_file(&sandbox, &path(text), 2).await.expect_err(text).kind().clone();
    assert_eq!(read("missing").await, ErrorKind::NotFound);
    assert_eq!(read("d").await, ErrorKind::IsADirectory);
    assert_eq!(read("/").await, ErrorKind::IsADirectory);
    assert_eq!(read("d/f/x").await, ErrorKind::NotADirectory);
    assert_eq!(read("d/f").await, ErrorKind::FileTooLarge { size_bytes: 3, limit_bytes: 2 });
    let write = async |text: &str| {
        backend.write_file(&sandbox, &path(text), b"").await.expect_err(text).kind().clone()
    };
    assert_eq!(write("d").await, ErrorKind::IsADirectory);
    assert_eq!(write("new/").await, ErrorKind::IsADirectory);
    assert_eq!(write("d/f/x").await, ErrorKind::NotADirectory);
    let list = async |text: &str| {
        let listed = backend.list_directory(&sandbox, &path(text), ListRequest::default()).await;
        listed.expect_err(text).kind().clone()
    };
    assert_eq!(list("missing").await, ErrorKind::NotFound);
    assert_eq!(list("d/f").await, ErrorKind::NotADirectory);
}

#[tokio::test]
async fn relative_paths_start_at_the_workdir_of_the_spec() {
    let backend = RecordingBackend::new();
    let spec = spec(r#"{"workdir": "/srv/app/"}"#).expect("a spec");
    let sandbox = backend.create(&spec).await.expect("created").id;
    backend.write_file(&sandbox, &path("a"), b"1").await.expect("written");
    assert_eq!(backend.read_file(&sandbox, &path("/srv/app/a"), 1).await.expect("read"), b"1");
}

#[tokio::test]
async fn sp_08_what_is_not_claimed_is_refused_before_anything_is_recorded() {
    let backend = RecordingBackend::new()
        .with_name("small")
        .with_capabilities(Capabilities { block_network: true, ..Capabilities::default() });
    let asked = spec(r#"{"limits": {"memory": 1}}"#).expect("a spec");
    let error = backend.create(&asked).await.expect_err("refused");
    assert_eq!(
        (error.kind(), error.backend(), error.fact("field")),
        (&ErrorKind::Refused, "small", Some("limits.memory"))
    );
    assert!(backend.created().is_empty() && backend.alive().is_empty());
}

#[tokio::test]
async fn the_statement_has_a_row_for_everything() {
    let backend = RecordingBackend::new();
    let created = backend.create(&SandboxSpec::default()).await.expect("created");
    assert_eq!(created.statement.rows.len(), SpecField::ALL.len());
    let evidence = |field| created.statement.row(field).map(|row| row.evidence);
    assert_eq!(evidence(SpecField::Network), Some(Evidence::Planned));
    assert_eq!(evidence(SpecField::Memory), Some(Evidence::NotAsked));
}

#[tokio::test]
async fn a_terminal_that_is_not_claimed_is_unsupported() {
    use ringfence_core::{TerminalRequest, TerminalSize};
    let backend = RecordingBackend::new();
    let sandbox = sandbox(&backend).await;
    let size = TerminalSize { rows: 24, columns: 80 };
    let request = TerminalRequest { invocation: None, size, workdir: None, env: Default::default() };
    let error = backend.open_terminal(&sandbox, request).await.expect_err("unsupported");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::Unsupported, true));
}
