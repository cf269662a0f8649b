use std::error::Error as StdError;
use std::time::Duration;

use ringfence_core::{Disposition, Ending, Error, ErrorKind, Retry, SandboxId, SpecField, file_error};

use super::support::path;

fn all_kinds() -> Vec<(ErrorKind, Disposition)> {
    use Disposition::{Recoverable, Terminal};
    vec![
        (ErrorKind::Refused, Terminal),
        (ErrorKind::InvalidArgument, Recoverable),
        (ErrorKind::NotFound, Recoverable),
        (ErrorKind::IsADirectory, Recoverable),
        (ErrorKind::NotADirectory, Recoverable),
        (ErrorKind::NotARegularFile, Recoverable),
        (ErrorKind::PermissionDenied, Recoverable),
        (ErrorKind::FileTooLarge { size_bytes: 6 << 20, limit_bytes: 5 << 20 }, Recoverable),
        (ErrorKind::StorageFull, Recoverable),
        (ErrorKind::SandboxLost, Terminal),
        (ErrorKind::Unavailable, Recoverable),
        (ErrorKind::DeadlineExceeded, Recoverable),
        (ErrorKind::Unsupported, Terminal),
        (ErrorKind::Unexpected, Recoverable),
    ]
}

#[test]
fn er_01_the_disposition_follows_from_the_kind() {
    for (kind, disposition) in all_kinds() {
        let error = Error::new(kind.clone(), "rec", "read the file", "x");
        assert_eq!((error.disposition(), error.retry_policy()), (disposition, Retry::Never), "{kind:?}");
        assert_eq!(error.is_terminal(), disposition == Disposition::Terminal);
    }
}

#[test]
fn er_01_too_large_is_recoverable_and_carries_path_size_and_limit() {
    let sandbox = SandboxId::new("box-1").expect("an id");
    let kind = ErrorKind::FileTooLarge { size_bytes: 6 << 20, limit_bytes: 5 << 20 };
    let error = file_error(kind.clone(), "rec", "read the file", &sandbox, &path("/w/a.bin"));
    assert_eq!((error.kind(), error.is_terminal()), (&kind, false));
    assert_eq!((error.fact("path"), error.fact("sandbox")), (Some("/w/a.bin"), Some("box-1")));
    insta::assert_snapshot!(error, @"rec: read the file: the file has at least 6291456 bytes (6.0MB), over the limit of 5242880 bytes (5.0MB), path /w/a.bin, sandbox box-1; take a part of it with a shell command");
}

#[test]
fn both_axes_can_be_set() {
    let error = Error::new(ErrorKind::Unavailable, "rec", "create sandbox", "busy")
        .terminal()
        .retry(Retry::After(Duration::from_secs(2)));
    assert_eq!(
        (error.disposition(), error.retry_policy()),
        (Disposition::Terminal, Retry::After(Duration::from_secs(2)))
    );
    assert_eq!(error.recoverable().disposition(), Disposition::Recoverable);
}

#[test]
fn bk_02_a_refusal_is_terminal_and_names_the_field() {
    let error = Error::refused("rec", SpecField::Owner, "nobody can attach").hint("drop it");
    assert_eq!(error.kind(), &ErrorKind::Refused);
    assert!(error.is_terminal());
    assert_eq!(
        (error.backend(), error.operation(), error.message()),
        ("rec", "accept the spec", "nobody can attach")
    );
    assert_eq!(
        (error.fact("field"), error.fact("other"), error.hint_text()),
        (Some("owner"), None, Some("drop it"))
    );
    assert_eq!(error.to_string(), "rec: accept the spec: nobody can attach, field owner; drop it");
}

#[test]
fn an_error_shows_its_causes_once_and_passes_them_on() {
    let inner = std::io::Error::other("disk on fire");
    let error = Error::new(ErrorKind::Unexpected, "", "read the file", "it broke").source(inner);
    assert_eq!(error.to_string(), "read the file: it broke: disk on fire");
    assert_eq!(StdError::source(&error).map(ToString::to_string), Some("disk on fire".to_owned()));
}

/// What a sandbox wrote cannot forge a log line or drive a terminal through an error.
#[test]
fn an_error_is_one_printable_line() {
    let error = Error::new(ErrorKind::Unexpected, "rec", "run", "a\nforged: line\r\x1b[2J\u{2028}\u{202e}é")
        .context("stderr", "x\ty")
        .hint("b\0c");
    assert_eq!(
        error.to_string(),
        r"rec: run: a\nforged: line\r\u{1b}[2J\u{2028}\u{202e}é, stderr x\ty; b\u{0}c"
    );
}

/// The one wording of file errors, which models read on every backend.
#[test]
fn bd_03_the_wording_of_file_errors() {
    let sandbox = SandboxId::new("box-1").expect("an id");
    let texts: Vec<String> = all_kinds()
        .into_iter()
        .map(|(kind, _)| file_error(kind, "rec", "read the file", &sandbox, &path("a\nb")).to_string())
        .collect();
    insta::assert_snapshot!(texts.join("\n"));
}

/// Whoever shows the hint apart needs the rest without it, and a daemon's client makes the same error of its parts again.
#[test]
fn an_error_can_be_taken_apart_and_put_together_again() {
    let error = Error::refused("rec", SpecField::Memory, "it cannot")
        .context("path".to_owned(), "/w")
        .source(std::io::Error::other("no cgroup"))
        .hint("drop the limit");
    assert_eq!(
        error.summary().to_string(),
        "rec: accept the spec: it cannot, field limits.memory, path /w: no cgroup"
    );
    assert_eq!(error.to_string(), format!("{}; drop the limit", error.summary()));
    assert_eq!(error.facts().collect::<Vec<_>>(), [("field", "limits.memory"), ("path", "/w")]);
    assert_eq!(error.field(), Some(SpecField::Memory));

    let mut again =
        Error::new(error.kind().clone(), error.backend(), error.operation().to_owned(), error.message());
    for (name, value) in error.facts() {
        again = again.context(name.to_owned(), value);
    }
    let again = again.source(StdError::source(&error).expect("a cause").to_string()).hint("drop the limit");
    assert_eq!((again.to_string(), again.field()), (error.to_string(), error.field()));

    let invalid = Error::invalid("accept the size", "0 is no size");
    assert_eq!(
        (invalid.kind(), invalid.backend(), invalid.is_terminal(), invalid.field(), invalid.to_string()),
        (&ErrorKind::InvalidArgument, "", false, None, "accept the size: 0 is no size".to_owned())
    );
}

#[test]
fn kinds_and_endings_have_names_of_their_own() {
    let kinds: Vec<&str> = all_kinds().iter().map(|(kind, _)| kind.name()).collect();
    assert_eq!(
        kinds,
        [
            "refused",
            "invalid_argument",
            "not_found",
            "is_a_directory",
            "not_a_directory",
            "not_a_regular_file",
            "permission_denied",
            "file_too_large",
            "storage_full",
            "sandbox_lost",
            "unavailable",
            "deadline_exceeded",
            "unsupported",
            "unexpected",
        ]
    );
    let endings = [
        Ending::Exited(3),
        Ending::Signalled(9),
        Ending::TimedOut,
        Ending::MemoryExceeded,
        Ending::PidsExceeded,
        Ending::Unknown,
    ];
    assert_eq!(
        endings.map(Ending::name),
        ["exited", "signalled", "timed_out", "memory_exceeded", "pids_exceeded", "unknown"]
    );
}
