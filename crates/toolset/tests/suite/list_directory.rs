//! LD: listings.

use ringfence_core::memory::RecordingBackend;
use ringfence_toolset::{Session, ToolsetConfig};
use serde_json::json;
use std::sync::Arc;

use super::support::{correction, recording, session, text};

fn with_names(
    files: &[&str],
    directories: &[&str],
    config: ToolsetConfig,
) -> (Arc<RecordingBackend>, Session) {
    let backend = recording();
    for file in files {
        backend.seed_file(file, "").unwrap();
    }
    for directory in directories {
        backend.seed_directory(directory).unwrap();
    }
    let run = session(&backend, config);
    (backend, run)
}

#[tokio::test]
async fn ld_01_ld_02_ld_08_sorted_by_code_point_with_a_slash_on_directories() {
    let (_, run) =
        with_names(&["B", "b", ".h", "sub-1", "\u{e9}", "\u{1f600}"], &["sub", "z"], ToolsetConfig::new());
    let output = run.call("list_directory", &json!({"path": "."})).await.unwrap();
    assert_eq!(output.text, ".h\nB\nb\nsub/\nsub-1\nz/\n\u{e9}\n\u{1f600}");
    assert_eq!(
        output.structured,
        json!({
            "entries": [".h", "B", "b", "sub/", "sub-1", "z/", "\u{e9}", "\u{1f600}"], "remaining": 0,
        })
    );
    run.close().await;
}

#[tokio::test]
async fn ld_03_ld_04_an_empty_directory_and_a_path_left_out() {
    let (_, run) = with_names(&[], &["d"], ToolsetConfig::new());
    assert_eq!(text(&run, "list_directory", json!({"path": "d"})).await, "(empty)");
    for arguments in [json!({}), json!({"path": ""}), json!(null)] {
        assert_eq!(text(&run, "list_directory", arguments).await, "d/");
    }
    run.close().await;
}

#[tokio::test]
async fn ld_05_ld_06_the_head_is_kept_and_the_rest_counted() {
    let names: Vec<String> = (0..5000).map(|number| format!("f{number:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let more = |count: &str| format!("[... {count}; use run_command to see them, such as ls with a pattern]");
    let (_, run) = with_names(&names, &[], ToolsetConfig::new().max_output_lines(3));
    let output = run.call("list_directory", &json!({})).await.unwrap();
    assert_eq!(output.text, format!("f0000\nf0001\nf0002\n{}", more("4997 more entries")));
    assert_eq!(output.structured, json!({"entries": ["f0000", "f0001", "f0002"], "remaining": 4997}));
    run.close().await;

    let (_, run) = with_names(&names[..4], &[], ToolsetConfig::new().max_output_bytes(17));
    assert_eq!(
        text(&run, "list_directory", json!({})).await,
        format!("f0000\nf0001\nf0002\n{}", more("1 more entry"))
    );
    run.close().await;

    let (_, run) = with_names(&names[..2], &[], ToolsetConfig::new().max_output_bytes(3));
    assert_eq!(text(&run, "list_directory", json!({})).await, more("2 more entries"));
    run.close().await;
}

#[tokio::test]
async fn ld_07_one_entry_is_one_line() {
    let (_, run) =
        with_names(&["new\nline.txt", "plain", "esc\u{1b}[2J"], &["tab\tdir"], ToolsetConfig::new());
    let output = run.call("list_directory", &json!({})).await.unwrap();
    assert_eq!(output.text, "\"esc\\x1b[2J\"\n\"new\\nline.txt\"\nplain\n\"tab\\tdir\"/");
    assert_eq!(
        output.structured["entries"],
        json!(["\"esc\\x1b[2J\"", "\"new\\nline.txt\"", "plain", "\"tab\\tdir\"/"])
    );
    run.close().await;
}

#[tokio::test]
async fn ld_10_a_file_is_not_an_empty_directory() {
    let (_, run) = with_names(&["f"], &[], ToolsetConfig::new());
    assert_eq!(
        correction(run.call("list_directory", &json!({"path": "f"})).await),
        "list_directory failed: rec: list the directory: the path, or a part of it, is not a directory, path f, sandbox \
         box-1; read a file with read_file"
    );
    run.close().await;
}
