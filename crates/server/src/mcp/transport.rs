//! Messages of JSON, one a line, over a pair of byte streams.
//!
//! The SDK has a transport of its own. This one answers what it passes over, so that no client waits for ever, never waits for a
//! client that does not read, and forgives what clients are known to send.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod line;
mod outbox;

use std::borrow::Cow;
use std::io;

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorCode, ErrorData, GetMeta, JsonRpcMessage, ProtocolVersion, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use self::line::{Line, LineReader, MAX_MESSAGE_BYTES};
use self::outbox::Outbox;

/// The transport of one connection.
pub(super) struct Lines<R> {
    lines: LineReader<R>,
    outbox: Outbox,
    /// Whether the client has opened. What it says before and expects no answer to is passed over: the SDK would end the
    /// service, although clients do send it, such as one that gives up on its `server/discover` and cancels it.
    opened: bool,
    ended: watch::Sender<bool>,
}

impl<R: AsyncRead + Send + Unpin> Lines<R> {
    /// Starts to write to `writer`, which takes a tokio runtime. What is returned beside turns true when the client has closed
    /// its end.
    pub(super) fn new(
        reader: R,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> (Self, watch::Receiver<bool>) {
        let (ended, receiver) = watch::channel(false);
        (
            Self { lines: LineReader::new(reader), outbox: Outbox::start(writer), opened: false, ended },
            receiver,
        )
    }

    fn refuse(&mut self, id: Option<RequestId>, code: ErrorCode, message: impl Into<Cow<'static, str>>) {
        let error = ErrorData::new(code, message, None);
        tracing::debug!(?id, "refused: {}", error.message);
        // Nobody is left to be told when this fails, and reading will end as well.
        drop(self.outbox.put(&TxJsonRpcMessage::<RoleServer>::error(error, id)));
    }

    /// Returns the message of a line, or answers what is wrong with it.
    fn parse(&mut self, line: &[u8]) -> Option<RxJsonRpcMessage<RoleServer>> {
        let text = line::forgiven(line);
        let error = match serde_json::from_str::<RxJsonRpcMessage<RoleServer>>(&text) {
            Ok(message) => return Some(message),
            Err(error) => error,
        };
        let Ok(value) = serde_json::from_str::<Value>(&text) else {
            self.refuse(line::id_of(text.as_bytes()), ErrorCode::PARSE_ERROR, format!("not JSON: {error}"));
            return None;
        };
        if value.is_object() && value.get("id").is_none() {
            tracing::debug!("a notification that is not understood is passed over: {error}");
            return None;
        }
        let id = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
        self.refuse(
            id,
            ErrorCode::INVALID_REQUEST,
            "not a request as MCP has them: look at id, method, params and _meta",
        );
        None
    }

    /// Returns whether a message reaches the service.
    fn admit(&mut self, message: &RxJsonRpcMessage<RoleServer>) -> bool {
        if self.opened {
            return true;
        }
        if let JsonRpcMessage::Request(request) = message {
            self.opened = opens(&request.request);
            return true;
        }
        tracing::debug!("came before the client opened and is passed over");
        false
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for Lines<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        std::future::ready(self.outbox.put(&message))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let next = async {
                self.outbox.has_room().await;
                self.lines.next().await
            };
            let line = tokio::select! {
                biased;
                () = self.outbox.broken() => break,
                line = next => line,
            };
            let line = match line {
                Ok(Some(Line::Whole(line))) => line,
                Ok(Some(Line::TooLong { id })) => {
                    let message = format!("the message is longer than {} MiB", MAX_MESSAGE_BYTES >> 20);
                    self.refuse(id, ErrorCode::INVALID_REQUEST, message);
                    continue;
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("read from the client: {error}");
                    break;
                }
            };
            if let Some(message) = self.parse(&line)
                && self.admit(&message)
            {
                return Some(message);
            }
        }
        self.ended.send_replace(true);
        None
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.outbox.close().await;
        Ok(())
    }
}

/// Whether the SDK takes a request as the opening: the handshake, or one that says all of itself, except the question for
/// versions.
fn opens(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::DiscoverRequest(_) | ClientRequest::PingRequest(_) => false,
        other => {
            let meta = other.get_meta();
            meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
                && meta
                    .protocol_version()
                    .is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version))
        }
    }
}
