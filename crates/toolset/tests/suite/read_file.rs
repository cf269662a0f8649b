//! RF: windows of files.

use ringfence_core::memory::RecordingBackend;
use ringfence_toolset::{Session, ToolsetConfig};
use serde_json::{Value, json};
use std::sync::Arc;

use super::support::{correction, recording, session, text};

fn with_file(content: impl Into<Vec<u8>>, config: ToolsetConfig) -> (Arc<RecordingBackend>, Session) {
    let backend = recording();
    backend.seed_file("f", content.into()).unwrap();
    let run = session(&backend, config);
    (backend, run)
}

async fn read(content: impl Into<Vec<u8>>, config: ToolsetConfig, arguments: Value) -> String {
    let (_, run) = with_file(content, config);
    let mut with_path = json!({"path": "f"});
    with_path.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
    let shown = text(&run, "read_file", with_path).await;
    run.close().await;
    shown
}

fn numbered(lines: usize) -> String {
    (1..=lines).map(|line| format!("line{line}\n")).collect()
}

#[tokio::test]
async fn rf_01_to_rf_06_windows() {
    let three = || ToolsetConfig::new().max_output_lines(3);
    let all = ToolsetConfig::new;
    let cases = [
        ("a\nb\nc\n".to_owned(), all(), json!({}), "a\nb\nc"),
        ("a\n\n".to_owned(), all(), json!({}), "a\n"),
        (String::new(), all(), json!({}), "(no lines at offset 1; file has 0 lines)"),
        (numbered(10), three(), json!({}), "line1\nline2\nline3\n[... 7 more lines; read on with offset=4]"),
        (
            numbered(10),
            all(),
            json!({"offset": 3, "limit": 2}),
            "line3\nline4\n[... 6 more lines; read on with offset=5]",
        ),
        (numbered(4), three(), json!({}), "line1\nline2\nline3\n[... 1 more line; read on with offset=4]"),
        (numbered(10), three(), json!({"offset": 8}), "line8\nline9\nline10"),
        ("a\nb\n".to_owned(), all(), json!({"offset": 99}), "(no lines at offset 99; file has 2 lines)"),
        ("a".to_owned(), all(), json!({"offset": 2}), "(no lines at offset 2; file has 1 line)"),
    ];
    for (content, config, arguments, expected) in cases {
        assert_eq!(read(content, config, arguments).await, expected);
    }
}

#[tokio::test]
async fn rf_07_rf_08_a_line_over_the_cap_is_named_and_paging_goes_on() {
    let small = || ToolsetConfig::new().max_output_bytes(10).prefix("box");
    let content = format!("short\n{}\nlast\n", "y".repeat(11));
    let (_, run) = with_file(content, small());
    let pages = [
        (1, "short\n[... 2 more lines; read on with offset=2]"),
        (
            2,
            "[line 2 is longer than 10B; use box_run_command to see a part of it, such as sed -n 2p FILE | cut -c 1-1000; \
             read on with offset=3]",
        ),
        (3, "last"),
    ];
    for (offset, expected) in pages {
        assert_eq!(text(&run, "box_read_file", json!({"path": "f", "offset": offset})).await, expected);
    }
    run.close().await;
    let (_, run) = with_file("y".repeat(11), small());
    let output = run.call("box_read_file", &json!({"path": "f"})).await.unwrap();
    assert_eq!(
        output.text,
        "[line 1 is longer than 10B; use box_run_command to see a part of it, such as sed -n 1p FILE | cut -c 1-1000; it is \
         the last line]"
    );
    assert_eq!(
        output.structured,
        json!({
            "content": "", "offset": 1, "lines": 0, "total_lines": 1, "next_offset": null, "lossy": false,
            "note": "line 1 is longer than 10B; use box_run_command to see a part of it, such as sed -n 1p FILE | cut -c \
                     1-1000; it is the last line",
        })
    );
    run.close().await;
}

#[tokio::test]
async fn rf_08_paging_by_the_offsets_given_visits_every_line_once() {
    let long = "z".repeat(40);
    let content = format!("{}{long}\n{}{long}\n", numbered(7), numbered(5));
    let (_, run) = with_file(content, ToolsetConfig::new().max_output_bytes(20).max_output_lines(3));
    let mut offset = Some(1);
    let (mut seen, mut pages) = (0, 0);
    while let Some(at) = offset {
        let page = run.call("read_file", &json!({"path": "f", "offset": at})).await.unwrap().structured;
        let next = page["next_offset"].as_u64();
        let skipped = u64::from(page["lines"] == 0);
        seen += page["lines"].as_u64().unwrap() + skipped;
        if let Some(next) = next {
            assert_eq!(next, at + page["lines"].as_u64().unwrap() + skipped);
        }
        offset = next;
        pages += 1;
        assert!(pages < 20, "paging does not end");
    }
    assert_eq!(seen, 14);
    run.close().await;
}

#[tokio::test]
async fn rf_09_zero_and_less_mean_the_beginning_and_everything() {
    let first_three = "line1\nline2\nline3\n[... 2 more lines; read on with offset=4]";
    for arguments in [
        json!({"offset": 0, "limit": 0}),
        json!({"offset": -7, "limit": -1}),
        json!({"offset": null, "limit": null}),
        json!({"limit": 100}),
    ] {
        assert_eq!(read(numbered(5), ToolsetConfig::new().max_output_lines(3), arguments).await, first_three);
    }
}

#[tokio::test]
async fn rf_10_rf_11_bytes_that_are_no_text_are_replaced_and_the_rest_is_left_alone() {
    let cases: [(&[u8], &str); 4] = [
        (b"ok\n\xff\xfe", "ok\n\u{fffd}\u{fffd}"),
        (b"\xef\xbb\xbfa\0b\r\nc\r\n", "\u{feff}a\0b\nc"),
        ("a\u{c}b\u{2028}c\rd\n".as_bytes(), "a\u{c}b\u{2028}c\rd"),
        (b"\n", ""),
    ];
    for (content, expected) in cases {
        assert_eq!(read(content, ToolsetConfig::new(), json!({})).await, expected);
    }
    // The cap counts what is shown, so replacement cannot exceed it.
    let binary = read(vec![0xff; 8], ToolsetConfig::new().max_output_bytes(10), json!({})).await;
    assert!(binary.starts_with("[line 1 is longer than 10B"), "{binary}");
}

#[tokio::test]
async fn rf_12_a_file_over_the_read_limit_is_a_correction() {
    let (_, run) = with_file(vec![b'x'; 6 << 20], ToolsetConfig::new().prefix("box"));
    assert_eq!(
        correction(run.call("box_read_file", &json!({"path": "f"})).await),
        "box_read_file failed: 'f' is 6.0MB, over the 5.0MB read limit; use box_run_command to read a part of it, such as \
         head, tail, sed -n or grep"
    );
    run.close().await;
}

#[tokio::test]
async fn bd_03_a_missing_file_and_a_directory_are_corrections() {
    let backend = recording();
    backend.seed_directory("d").unwrap();
    let run = session(&backend, ToolsetConfig::new().prefix("box"));
    assert_eq!(
        correction(run.call("box_read_file", &json!({"path": "nope"})).await),
        "box_read_file failed: rec: read the file: the path does not exist, path nope, sandbox box-1"
    );
    assert_eq!(
        correction(run.call("box_read_file", &json!({"path": "d"})).await),
        "box_read_file failed: rec: read the file: the path is a directory, not a file, path d, sandbox box-1; list it with \
         box_list_directory"
    );
    run.close().await;
}

#[tokio::test]
async fn structure_carries_everything_the_text_does() {
    let (_, run) = with_file(b"a\n\xff\nc\n".to_vec(), ToolsetConfig::new());
    let output = run.call("read_file", &json!({"path": "f", "offset": 2, "limit": 1})).await.unwrap();
    assert_eq!(
        output.structured,
        json!({
            "content": "\u{fffd}", "offset": 2, "lines": 1, "total_lines": 3, "next_offset": 3, "lossy": true, "note": null,
        })
    );
    let output = run.call("read_file", &json!({"path": "f", "offset": 9})).await.unwrap();
    assert_eq!(
        output.structured,
        json!({
            "content": "", "offset": 9, "lines": 0, "total_lines": 3, "next_offset": null, "lossy": true,
            "note": "no lines at offset 9; file has 3 lines",
        })
    );
    run.close().await;
}
