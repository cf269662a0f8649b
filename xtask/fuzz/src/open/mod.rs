//! Targets whose parsers are public.

mod answers;
mod handle;
mod output;
mod policy;
mod spec;
mod tags;
mod tools;
mod tree;

use ringfence_testkit::seeds::Target;

/// The name of each, which is its folder of seeds.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("answers", answers::target),
    ("handle", handle::target),
    ("output", output::target),
    ("policy", policy::target),
    ("spec", spec::target),
    ("tags", tags::target),
    ("tools", tools::target),
    ("tree", tree::target),
];

/// Waits for something that waits for nothing but itself.
fn wait<F: Future>(future: F) -> F::Output {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

#[test]
fn all_seeds_and_past_findings() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    ringfence_testkit::seeds::replay(&root, TARGETS);
}
