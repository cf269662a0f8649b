//! The engine's calls, and the targets of all crates.

use std::path::PathBuf;
use std::sync::OnceLock;

use ringfence_testkit::seeds::{Target, try_bytes};

use crate::open;

/// Which target is wanted.
const TARGET: &str = "RINGFENCE_FUZZ_TARGET";

/// Where to put the input that is not a file but made from values of ours.
const SAMPLES: &str = "RINGFENCE_FUZZ_SAMPLES";

static CHOSEN: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: choose(),
    |bytes: &[u8]| try_bytes(*CHOSEN.get().expect("init is called first"), bytes)
);

fn choose() {
    let wanted = std::env::var(TARGET).expect("run by `cargo xtask fuzz`, which says which target");
    let all = [
        open::TARGETS,
        ringfence_local::fuzz::TARGETS,
        ringfence_server::fuzz::TARGETS,
        ringfence_cli::fuzz::TARGETS,
    ];
    let found = all.concat().into_iter().find(|(name, _)| *name == wanted);
    CHOSEN.get_or_init(|| found.expect("a folder of seeds has a target").1);
    if let Some(folder) = std::env::var_os(SAMPLES).map(PathBuf::from) {
        let samples = ringfence_local::fuzz::samples(&wanted);
        for (number, bytes) in samples.iter().enumerate() {
            std::fs::write(folder.join(number.to_string()), bytes).expect("write a sample");
        }
    }
}
