//! `cargo xtask bench`.

use anyhow::{Result, bail};

/// Measures, and writes the table.
pub(crate) fn bench(_quick: bool) -> Result<()> {
    bail!("not built yet")
}
