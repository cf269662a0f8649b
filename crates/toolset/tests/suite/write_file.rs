//! WF: confirmations of writes.

use ringfence_core::memory::{Operation, RecordedWrite};
use ringfence_core::{ErrorKind, GuestPath, SandboxId};
use ringfence_toolset::ToolsetConfig;
use serde_json::json;

use super::support::{correction, error, recording, session};

#[tokio::test]
async fn wf_01_wf_02_wf_03_bytes_and_quoted_path() {
    let backend = recording();
    let run = session(&backend, ToolsetConfig::new());
    let cases = [
        ("/w/a.txt", "hello", "Wrote 5 bytes to '/w/a.txt'.", 5),
        ("h", "h\u{e9}\u{e9}", "Wrote 5 bytes to 'h'.", 5),
        ("e", "", "Wrote 0 bytes to 'e'.", 0),
        ("o", "x", "Wrote 1 bytes to 'o'.", 1),
        ("a b'.txt", "", "Wrote 0 bytes to \"a b'.txt\".", 0),
        ("a\nb", "", "Wrote 0 bytes to 'a\\nb'.", 0),
    ];
    for (path, content, expected, bytes) in cases {
        let output = run.call("write_file", &json!({"path": path, "content": content})).await.unwrap();
        assert_eq!(output.text, expected);
        assert_eq!(output.structured, json!({"path": path, "bytes_written": bytes}));
    }
    run.close().await;
    assert_eq!(
        backend.writes()[1],
        RecordedWrite {
            sandbox: SandboxId::new("box-1").unwrap(),
            path: GuestPath::new("h").unwrap(),
            content: "h\u{e9}\u{e9}".into(),
        }
    );
}

#[tokio::test]
async fn wf_06_a_path_in_the_way_is_a_correction() {
    let backend = recording();
    backend.seed_file("f", "").unwrap();
    let run = session(&backend, ToolsetConfig::new());
    assert_eq!(
        correction(run.call("write_file", &json!({"path": "f/g", "content": ""})).await),
        "write_file failed: rec: write the file: the path, or a part of it, is not a directory, path f/g, sandbox box-1"
    );
    backend.fail_once(Operation::Write, error(ErrorKind::StorageFull, "no space left"));
    assert_eq!(
        correction(run.call("write_file", &json!({"path": "it's", "content": ""})).await),
        "write_file failed on \"it's\": rec: do the thing: no space left"
    );
    run.close().await;
}
