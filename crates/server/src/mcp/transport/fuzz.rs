//! What a client sends reaches the service, is answered, or is something that nobody waits for.

#![expect(clippy::expect_used, reason = "what does not hold is said by panicking")]

use rmcp::RoleServer;
use rmcp::model::RequestId;
use rmcp::service::RxJsonRpcMessage;
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::AsyncReadExt;

use super::Lines;
use super::line::fuzz::{Parts, lines_of};
use super::line::{MAX_MESSAGE_BYTES, forgiven};

/// The most lines at once, so that what is held for the client stays small beside what it sent.
const MAX_LINES: usize = 64;

/// What may lie unread between transport and client: more than all answers together.
const UNREAD_BYTES: usize = 64 << 10;

/// The first byte says how many follow that are sizes of parts; then come the lines.
pub(crate) fn target(bytes: &[u8]) {
    let Some((count, rest)) = bytes.split_first() else { return };
    let (parts, text) = rest.split_at(usize::from(*count).min(rest.len()));
    if text.split(|byte| *byte == b'\n').count() > MAX_LINES {
        return;
    }
    let whole = exchange(text, &[]);
    assert_eq!(exchange(text, parts), whole);

    let mut expected = Vec::new();
    let mut understood = 0;
    for line in lines_of(text, MAX_MESSAGE_BYTES).into_iter().flatten() {
        let line = forgiven(&line);
        if serde_json::from_str::<RxJsonRpcMessage<RoleServer>>(&line).is_ok() {
            understood += 1;
            continue;
        }
        match serde_json::from_str::<Value>(&line) {
            Err(_) => expected.push((-32700, None)),
            Ok(value) if value.is_object() && value.get("id").is_none() => {}
            Ok(value) => expected.push((-32600, value.get("id").and_then(id))),
        }
    }
    assert!(whole.0 <= understood, "{} messages of {understood}", whole.0);
    assert_eq!(whole.1.len(), expected.len(), "{:?}", whole.1);
    for ((code, told), (expected_code, expected)) in whole.1.iter().zip(&expected) {
        assert_eq!(code, expected_code);
        // Of a line that is no JSON an id is told where one can be found.
        assert!(expected.is_none() && *code == -32700 || told == expected, "{told:?} for {expected:?}");
    }
}

fn id(value: &Value) -> Option<RequestId> {
    serde_json::from_value(value.clone()).ok()
}

/// How many messages reach the service, and which code and id each answer has.
fn exchange(text: &[u8], parts: &[u8]) -> (usize, Vec<(i64, Option<RequestId>)>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        // Only the outbox outlives its caller, so only that end is a pipe.
        let (ours, mut theirs) = tokio::io::duplex(UNREAD_BYTES);
        let (mut lines, ended) = Lines::new(Parts::new(text, parts), ours);
        let mut received = 0;
        while lines.receive().await.is_some() {
            received += 1;
        }
        assert!(*ended.borrow());
        lines.close().await.expect("closing never fails");
        drop(lines);
        let mut answers = Vec::new();
        theirs.read_to_end(&mut answers).await.expect("memory can be read");
        assert!(answers.is_empty() || answers.ends_with(b"\n"));
        let answers = answers.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        (received, answers.map(answer).collect())
    })
}

/// An answer is one line of JSON, an error as JSON-RPC has them.
fn answer(line: &[u8]) -> (i64, Option<RequestId>) {
    let value: Value = serde_json::from_slice(line).expect("an answer is JSON");
    assert_eq!(value["jsonrpc"], "2.0");
    assert!(value["error"]["message"].is_string() && value.get("result").is_none(), "{value}");
    (value["error"]["code"].as_i64().expect("a code"), value.get("id").and_then(id))
}
