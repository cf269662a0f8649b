//! What becomes of a command's output between a backend and a model, piece by piece. `cargo xtask bench --inner`.

#![expect(clippy::unwrap_used, reason = "a bench that cannot start has nobody to tell")]

use std::sync::Arc;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use ringfence_core::clip::{self, ClipLimits};
use ringfence_core::memory::RecordingBackend;
use ringfence_core::{CommandResult, OutputLimit, TailBuffer};
use ringfence_toolset::{Toolset, ToolsetConfig};
use serde_json::json;

fn main() {
    divan::main();
}

/// Output as a build prints it.
fn output(bytes: usize) -> String {
    let line = "   Compiling something-with-a-name v0.1.20 (/workspace/crates/something), 17 of 400 units\n";
    line.repeat(bytes.div_ceil(line.len()))
}

/// Keeping the tail of a stream while it is read, in the chunks that a pipe gives.
#[divan::bench(args = [16 << 10, 1 << 20])]
fn tail_buffer(bencher: Bencher, limit: usize) {
    let text = output(16 << 20);
    bencher.counter(BytesCount::of_str(&text)).bench(|| {
        let mut tail = TailBuffer::new(OutputLimit::new(limit).unwrap());
        for chunk in text.as_bytes().chunks(64 << 10) {
            tail.push(black_box(chunk));
        }
        tail.finish()
    });
}

/// Cutting text to what a model may read.
#[divan::bench(args = [16 << 10, 1 << 20])]
fn clip_tail(bencher: Bencher, bytes: usize) {
    let text = output(bytes);
    let limits = ClipLimits::new(2000, 50 << 10).unwrap();
    bencher.bench(|| clip::tail(black_box(&text), limits, false));
}

/// A whole tool call whose backend answers at once: arguments, masking, decoding, cutting, rendering.
#[divan::bench(args = [0, 16 << 10, 1 << 20])]
fn tool_call(bencher: Bencher, bytes: usize) {
    call(bencher, bytes, ToolsetConfig::new());
}

/// The same with four secrets to look for.
#[divan::bench(args = [0, 16 << 10, 1 << 20])]
fn tool_call_masked(bencher: Bencher, bytes: usize) {
    let secrets =
        ["ghp_16C7e42F292c6912E7710c838347Ae178B4a", "sk-live-0123456789", "correct horse", "swordfish"];
    call(bencher, bytes, secrets.into_iter().fold(ToolsetConfig::new(), ToolsetConfig::secret));
}

fn call(bencher: Bencher, bytes: usize, config: ToolsetConfig) {
    let backend = RecordingBackend::new();
    backend.set_command_result(CommandResult::exited(0, output(bytes), String::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let session = Toolset::new(Arc::new(backend), config).unwrap().open();
    let arguments = json!({"command": "make"});
    bencher.bench_local(|| runtime.block_on(session.call("run_command", black_box(&arguments))).unwrap());
}
