//! What a shell in a sandbox answers, under the file operations that every backend inherits.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use ringfence_core::{
    Backend, Capabilities, CommandRequest, CommandResult, Created, Error, GuestPath, Invocation, ListRequest,
    Plan, Result, SandboxId, SandboxSpec, TreeLimits, tree,
};

use super::tree::Checked;

/// Stands for the nonce, which is another one in each command.
const NONCE: u8 = 0x01;
/// Ends an answer.
const END: u8 = 0x02;
/// Begins what is on standard error.
const STDERR: u8 = 0x03;

/// The most bytes that nonces add to an answer, of which a copy takes a few.
const NONCES: usize = 1 << 10;

const LIMIT_BYTES: u64 = 1 << 10;
const TREE_LIMITS: TreeLimits = TreeLimits { max_bytes: 1 << 16, max_entries: 1 << 8, max_depth: 8 };

/// The first byte says which operation, and how many entries a page has; then come the answers.
pub(super) fn target(bytes: &[u8]) {
    let Some((what, answers)) = bytes.split_first() else { return };
    let backend = Answering { answers: Mutex::new(answers.to_vec()) };
    let sandbox = SandboxId::new("sb-1").expect("an id");
    let path = GuestPath::new("/x").expect("a path");
    super::wait(async {
        match what % 4 {
            0 => {
                if let Ok(content) = backend.read_file(&sandbox, &path, LIMIT_BYTES).await {
                    assert!(content.len() as u64 <= LIMIT_BYTES && content.len() <= answers.len() + NONCES);
                }
            }
            1 => list(&backend, &sandbox, &path, usize::from(what >> 2)).await,
            2 => {
                let mut sink = Vec::new();
                if let Ok(count) = backend.export_file(&sandbox, &path, LIMIT_BYTES, &mut sink).await {
                    assert_eq!(sink.len() as u64, count);
                    assert!(count <= LIMIT_BYTES && sink.len() <= answers.len() + NONCES);
                }
            }
            _ => {
                let mut sink = Checked::default();
                let exported = tree::export(&backend, &sandbox, &path, TREE_LIMITS, &mut sink).await;
                if let Ok(summary) = exported {
                    sink.check(summary, TREE_LIMITS);
                }
            }
        }
    });
}

async fn list(backend: &Answering, sandbox: &SandboxId, path: &GuestPath, most: usize) {
    let request =
        ListRequest { max_entries: most.try_into().unwrap_or(std::num::NonZeroUsize::MIN), after: None };
    let Ok(listing) = backend.list_directory(sandbox, path, request.clone()).await else { return };
    assert!(listing.entries.len() <= request.max_entries.get());
    assert!(listing.remaining == 0 || listing.entries.len() == request.max_entries.get());
    for entry in &listing.entries {
        let name = entry.name.as_slice();
        assert!(
            !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0),
            "{name:?}"
        );
    }
    // In order, and each once, or a page could not be continued behind its last name.
    assert!(listing.entries.is_sorted_by(|one, other| one.name < other.name), "{:?}", listing.entries);
}

/// Runs nothing: the answer to each command is the next part of what the engine came up with.
#[derive(Debug)]
struct Answering {
    answers: Mutex<Vec<u8>>,
}

#[async_trait]
impl Backend for Answering {
    fn name(&self) -> &str {
        "fuzz"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn judge(&self, _spec: &SandboxSpec) -> Result<Plan> {
        Err(Error::invalid("judge", "there are no sandboxes"))
    }

    async fn create(&self, _spec: &SandboxSpec) -> Result<Created> {
        Err(Error::invalid("create", "there are no sandboxes"))
    }

    async fn run_command(&self, _sandbox: &SandboxId, request: CommandRequest) -> Result<CommandResult> {
        let Invocation::Shell(script) = &request.invocation else {
            return Ok(CommandResult::exited(127, "", ""));
        };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let end = answers.iter().position(|byte| *byte == END).unwrap_or(answers.len());
        let behind = answers.len().min(end + 1);
        let rest = answers.split_off(behind);
        let mut answer = std::mem::replace(&mut *answers, rest);
        answer.truncate(end);
        let nonce = nonce_of(script);
        let mut streams = answer.split(|byte| *byte == STDERR).map(|stream| with_nonce(stream, &nonce));
        let mut next = || streams.next().unwrap_or_default();
        Ok(CommandResult::exited(0, next(), next()))
    }

    async fn destroy(&self, _sandbox: &SandboxId) -> Result<()> {
        Ok(())
    }
}

fn with_nonce(stream: &[u8], nonce: &str) -> Vec<u8> {
    // Few, so that what is answered stays about as long as the input.
    let parts: Vec<&[u8]> = stream.splitn(4, |byte| *byte == NONCE).collect();
    parts.join(nonce.as_bytes())
}

/// The nonce of a script, which begins with it in two quoted halves.
fn nonce_of(script: &str) -> String {
    let (_, rest) = script.split_once("sh -c 'n=").expect("a script begins with its nonce");
    rest.chars().filter(char::is_ascii_hexdigit).take(32).collect()
}
