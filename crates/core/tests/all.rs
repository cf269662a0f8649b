//! The contract's rules, each as a test named after it: `bd_04_…` proves rule BD-04.

// Always true here; it tells clippy that helpers outside test functions may unwrap as well.
#[cfg(test)]
mod suite;
