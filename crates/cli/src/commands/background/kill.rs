//! `ringfence kill`.

use super::{Target, attend};
use crate::args::KillArgs;
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;

/// Signals the command, or ends it with all its descendants.
pub(crate) fn run(args: KillArgs, environment: &Environment) -> Result<u8> {
    let target = Target::open(args.command, environment)?;
    attend(&target, async |background, _| {
        background.signal_command(target.sandbox(), target.command(), args.signal).await?;
        Ok(exit::OK)
    })
}
