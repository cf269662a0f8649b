//! What the tests share.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use ringfence_core::memory::RecordingBackend;
use ringfence_core::{Captured, CommandResult, Ending, Error, ErrorKind};
use ringfence_toolset::{Session, ToolError, ToolOutput, Toolset, ToolsetConfig};
use serde_json::Value;

pub(crate) fn recording() -> Arc<RecordingBackend> {
    Arc::new(RecordingBackend::new())
}

pub(crate) fn toolset(backend: &Arc<RecordingBackend>, config: ToolsetConfig) -> Toolset {
    Toolset::new(backend.clone(), config).unwrap()
}

pub(crate) fn session(backend: &Arc<RecordingBackend>, config: ToolsetConfig) -> Session {
    toolset(backend, config).open()
}

/// Calls a tool and returns its text.
pub(crate) async fn text(session: &Session, tool: &str, arguments: Value) -> String {
    session.call(tool, &arguments).await.unwrap().text
}

pub(crate) fn correction(result: Result<ToolOutput, ToolError>) -> String {
    match result {
        Err(ToolError::Correction(correction)) => correction.text,
        other => panic!("not a correction: {other:?}"),
    }
}

pub(crate) fn terminal(result: Result<ToolOutput, ToolError>) -> Error {
    match result {
        Err(ToolError::Terminal(error)) => error,
        other => panic!("not terminal: {other:?}"),
    }
}

pub(crate) fn error(kind: ErrorKind, message: &str) -> Error {
    Error::new(kind, "rec", "do the thing", message)
}

pub(crate) fn ended(ending: Ending, stdout: &str, stderr: &str) -> CommandResult {
    CommandResult { ending, ..CommandResult::exited(0, stdout.to_owned(), stderr.to_owned()) }
}

/// A stream of which the backend kept `tail` of `total_bytes`.
pub(crate) fn cut(tail: &[u8], total_bytes: u64) -> Captured {
    Captured { bytes: tail.to_vec().into(), truncated: true, total_bytes }
}

pub(crate) fn ids<T: ToString>(ids: &[T]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// Keeps the warnings logged on this thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.clone());
        (log, guard)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                write!(self.0, "{}={value:?} ", field.name()).unwrap();
            }
        }
        let mut fields = Fields(format!("{} ", event.metadata().level()));
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
