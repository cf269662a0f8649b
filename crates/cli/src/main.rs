//! The ringfence command line.

fn main() {}
