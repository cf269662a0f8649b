//! What a model writes as the arguments of a tool, and what the sandbox then says, on its way to the model.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ringfence::memory::RecordingBackend;
use ringfence::toolset::{CallOptions, ToolError, Toolset, ToolsetConfig, Watch};
use ringfence::{
    Backend, Capabilities, CommandRequest, CommandResult, Created, DirectoryEntry, EntryKind, EnvMap, Error,
    GuestPath, ListRequest, Listing, Plan, Result, SandboxId, SandboxSpec, StreamName, TailBuffer,
};
use serde_json::{Value, json};

/// Known from the environment of the sandbox, and told to the toolset.
const SECRETS: [&str; 2] = ["s3cr3t-value", "q7Z"];

const MAX_BYTES: usize = 512;
const MAX_LINES: usize = 16;
const MAX_READ_BYTES: u64 = 4 << 10;
/// What a result says besides what it shows.
const WORDS_BYTES: usize = 1 << 10;

/// A command writes in no more parts than this, since each is looked at.
const MAX_PARTS: usize = 16;

/// Ends the arguments.
const END: u8 = 0;
/// Between the two streams of a command.
const STDERR: u8 = 0x03;

/// The first byte says which tool, the second in what parts a command writes; then come arguments, none for those that always do, and
/// what the sandbox says.
pub(super) fn target(bytes: &[u8]) {
    let [tool, part, rest @ ..] = bytes else { return };
    let end = rest.iter().position(|byte| *byte == END).unwrap_or(rest.len());
    let (arguments, said) = rest.split_at(end);
    let said = said.get(1..).unwrap_or_default();
    let (name, usual) = match tool % 4 {
        0 => ("run_command", json!({"command": "x"})),
        1 => ("read_file", json!({"path": "x"})),
        2 => ("write_file", json!({"path": "x", "content": String::from_utf8_lossy(said)})),
        _ => ("list_directory", json!({})),
    };
    let arguments = if arguments.is_empty() {
        usual
    } else {
        let Ok(arguments) = serde_json::from_slice(arguments) else { return };
        arguments
    };
    super::wait(call(name, &arguments, end, said, usize::from(*part) + 1));
}

thread_local! {
    /// Made once: most of the time would go into the definitions of the tools.
    static TOOLSET: (Inside, Toolset) = toolset();
}

fn toolset() -> (Inside, Toolset) {
    let inside = Inside::default();
    let env = EnvMap::new([("TOKEN", SECRETS[0])]).expect("an environment");
    let config = ToolsetConfig::new()
        .spec(SandboxSpec::new().with_env(env))
        .secret(SECRETS[1])
        .max_output_bytes(MAX_BYTES)
        .max_output_lines(MAX_LINES)
        .max_read_bytes(MAX_READ_BYTES);
    let toolset = Toolset::new(Arc::new(inside.clone()), config).expect("a toolset");
    (inside, toolset)
}

async fn call(name: &str, arguments: &Value, length: usize, said: &[u8], part: usize) {
    let watch = Watch::default();
    let session = TOOLSET.with(|(inside, toolset)| {
        *inside.lock() = Said { bytes: said.to_vec(), part, watch: watch.clone() };
        toolset.open()
    });
    match session.call_with(name, arguments, CallOptions::default().watch(watch)).await {
        Ok(output) => {
            hides_secrets(&output.text);
            hides_secrets_in(&output.structured);
            // Two streams; and a path may be repeated, with what does not print in it escaped.
            assert!(output.text.len() <= 2 * MAX_BYTES + WORDS_BYTES + 8 * length, "{}", output.text);
        }
        Err(ToolError::Correction(correction)) => hides_secrets(&correction.text),
        Err(error) => hides_secrets(&error.to_string()),
    }
    session.close().await;
}

fn hides_secrets(text: &str) {
    assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text:?}");
}

fn hides_secrets_in(value: &Value) {
    match value {
        Value::String(text) => hides_secrets(text),
        Value::Array(values) => values.iter().for_each(hides_secrets_in),
        Value::Object(fields) => fields.values().for_each(hides_secrets_in),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A sandbox that says what the engine came up with, whatever it is asked.
#[derive(Debug, Clone, Default)]
struct Inside(Arc<Mutex<Said>>);

/// What it says, in what parts a command writes that, and who looks at it meanwhile.
#[derive(Debug, Clone, Default)]
struct Said {
    bytes: Vec<u8>,
    part: usize,
    watch: Watch,
}

impl Inside {
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    /// Writes one stream in parts, and looks at it meanwhile as a client would.
    fn write(&self, bytes: &[u8], stream: StreamName, request: &CommandRequest) -> TailBuffer {
        let mut tail = TailBuffer::new(request.output_limit);
        for part in bytes.chunks(self.part.max(bytes.len() / MAX_PARTS + 1)) {
            if let Some(observer) = &request.observer {
                observer.output(stream, tail.total_bytes(), part);
            }
            tail.push(part);
            if let Some(line) = self.watch.glimpse().last_line {
                hides_secrets(&line);
                assert!(line.chars().count() <= 203 && !line.chars().any(char::is_control), "{line:?}");
            }
        }
        tail
    }
}

#[async_trait]
impl Backend for Inside {
    fn name(&self) -> &str {
        "fuzz"
    }

    fn capabilities(&self) -> Capabilities {
        RecordingBackend::new().capabilities()
    }

    fn judge(&self, spec: &SandboxSpec) -> Result<Plan> {
        RecordingBackend::new().judge(spec)
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Created> {
        RecordingBackend::new().create(spec).await
    }

    async fn run_command(&self, _: &SandboxId, request: CommandRequest) -> Result<CommandResult> {
        let said = self.lock().clone();
        let mut streams = said.bytes.splitn(2, |byte| *byte == STDERR);
        let mut result = CommandResult::exited(0, "", "");
        result.stdout = said.write(streams.next().unwrap_or_default(), StreamName::Stdout, &request).finish();
        result.stderr = said.write(streams.next().unwrap_or_default(), StreamName::Stderr, &request).finish();
        Ok(result)
    }

    async fn destroy(&self, _: &SandboxId) -> Result<()> {
        Ok(())
    }

    async fn read_file(&self, _: &SandboxId, _: &GuestPath, limit_bytes: u64) -> Result<Vec<u8>> {
        let bytes = self.lock().bytes.clone();
        match bytes.len() as u64 <= limit_bytes {
            true => Ok(bytes),
            false => Err(Error::invalid("read the file", String::from_utf8_lossy(&bytes))),
        }
    }

    async fn write_file(&self, _: &SandboxId, _: &GuestPath, _: &[u8]) -> Result<()> {
        Ok(())
    }

    async fn list_directory(&self, _: &SandboxId, _: &GuestPath, request: ListRequest) -> Result<Listing> {
        let bytes = self.lock().bytes.clone();
        let names = bytes.split(|byte| matches!(byte, 0 | b'/')).filter(|name| !name.is_empty());
        let entry = |name: &[u8]| DirectoryEntry {
            name: name.to_vec(),
            kind: if name.len().is_multiple_of(2) { EntryKind::Directory } else { EntryKind::File },
            size_bytes: None,
        };
        Ok(Listing::page(names.map(entry).collect(), &request))
    }
}
