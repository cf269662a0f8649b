//! A client that writes and reads lines, so that a test sees exactly what is on the wire.

use std::sync::Arc;

use ringfence::toolset::{AttachedToolset, Toolset, ToolsetConfig};
use ringfence::{Claimant, SandboxId};
use ringfence_core::memory::RecordingBackend;
use ringfence_server::mcp::{ServeError, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, duplex};
use tokio::task::JoinHandle;

pub(crate) const MODERN: &str = "2026-07-28";

pub(crate) struct Client {
    pub(crate) backend: Arc<RecordingBackend>,
    pub(crate) server: Arc<Server>,
    to_server: DuplexStream,
    from_server: Lines<BufReader<DuplexStream>>,
    serving: JoinHandle<Result<(), ServeError>>,
    next_id: u64,
    modern: bool,
}

impl Client {
    /// Returns a client that has not said anything yet.
    pub(crate) fn silent(config: ToolsetConfig) -> Self {
        let backend = Arc::new(RecordingBackend::new());
        let server = Server::new(Toolset::new(backend.clone(), config).unwrap());
        Self::over(backend, server)
    }

    /// Returns a client of a server that holds `sandbox` as `holder` of `dag/run`, and has not said anything yet.
    pub(crate) async fn attached(backend: &Arc<RecordingBackend>, sandbox: &SandboxId, holder: &str) -> Self {
        let claimant = Claimant::new("dag/run").unwrap().with_holder(holder).unwrap();
        let config = ToolsetConfig::attached(claimant).clock(backend.clock());
        let toolset = AttachedToolset::new(backend.clone(), config).unwrap();
        Self::over(backend.clone(), Server::attach(&toolset, sandbox.as_str()).await.unwrap())
    }

    fn over(backend: Arc<RecordingBackend>, server: Server) -> Self {
        let server = Arc::new(server);
        let (to_server, reader) = duplex(1 << 20);
        let (writer, from_server) = duplex(1 << 20);
        let serving = tokio::spawn({
            let server = Arc::clone(&server);
            async move { server.serve(reader, writer).await }
        });
        let from_server = BufReader::new(from_server).lines();
        Self { backend, server, to_server, from_server, serving, next_id: 0, modern: false }
    }

    /// Returns a client that has shaken hands as of 2025-11-25.
    pub(crate) async fn legacy(config: ToolsetConfig) -> Self {
        let mut client = Self::silent(config);
        client.shake_hands().await;
        client
    }

    /// Returns a client that says its version in every request.
    pub(crate) fn modern(config: ToolsetConfig) -> Self {
        let mut client = Self::silent(config);
        client.modern = true;
        client
    }

    /// Shakes hands and returns what the server says of itself.
    pub(crate) async fn shake_hands(&mut self) -> Value {
        let answer = self
            .request(
                "initialize",
                json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
            )
            .await;
        self.notify("notifications/initialized", json!({})).await;
        answer["result"].clone()
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.send_line(message.to_string().as_bytes()).await;
    }

    pub(crate) async fn send_line(&mut self, line: &[u8]) {
        self.to_server.write_all(&[line, b"\n"].concat()).await.unwrap();
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Sends a request and returns its id.
    pub(crate) async fn ask(&mut self, method: &str, mut params: Value) -> u64 {
        self.next_id += 1;
        if self.modern {
            let meta = params["_meta"].as_object().cloned().unwrap_or_default();
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            params["_meta"].as_object_mut().unwrap().extend(meta);
        }
        self.send(json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params})).await;
        self.next_id
    }

    /// Returns the next message.
    pub(crate) async fn receive(&mut self) -> Value {
        let line = self.from_server.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Sends a request and returns the next message, which must be its answer.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Calls a tool and returns the whole result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
        assert_eq!(answer.get("error"), None);
        answer["result"].clone()
    }

    /// Calls a tool and returns the text of a result that is an error and has nothing but this text.
    pub(crate) async fn error_text(&mut self, tool: &str, arguments: Value) -> String {
        text_of_error(&self.call(tool, arguments).await)
    }

    /// Closes the end that the server writes to, asks for something, and waits for the service to end. Returns the other end.
    pub(crate) async fn stop_reading_and_ask(mut self) -> DuplexStream {
        self.ask("tools/list", json!({})).await;
        drop(self.from_server);
        self.serving.await.unwrap().unwrap();
        self.to_server
    }

    /// Closes the client's end, reads nothing of what is still to come, and waits for the service to end.
    pub(crate) async fn close_unread(self) -> Result<(), ServeError> {
        drop(self.to_server);
        self.serving.await.unwrap()
    }

    /// Closes the client's end and waits for the service to end; returns what the client did not read.
    pub(crate) async fn leave(self) -> (Result<(), ServeError>, Vec<String>) {
        drop(self.to_server);
        let mut rest = Vec::new();
        let mut from_server = self.from_server;
        while let Some(line) = from_server.next_line().await.unwrap() {
            rest.push(line);
        }
        (self.serving.await.unwrap(), rest)
    }
}

pub(crate) fn text_of_error(result: &Value) -> String {
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(*result, json!({"content": [{"type": "text", "text": text}], "isError": true}));
    text
}
