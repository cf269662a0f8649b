//! The door for `cargo xtask fuzz` to what reads files, trees and archives that somebody else made. Compiled for tests and for the engine
//! only.

use crate::commands::cp::fuzz as cp;

/// A name, and a function that panics where something does not hold for the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// The name of each is its folder of seeds.
pub const TARGETS: &[Target] =
    &[("host", cp::host::target), ("settings", crate::settings::fuzz::target), ("tar", cp::archive::target)];

#[test]
fn all_seeds_and_past_findings() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    ringfence_testkit::seeds::replay(&root, TARGETS);
}
