//! `cargo xtask test --machines`.

use anyhow::{Result, bail};

/// Boots each machine and runs the payload.
pub(crate) fn run() -> Result<()> {
    bail!("not built yet")
}
