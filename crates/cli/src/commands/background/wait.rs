//! `ringfence wait`.

use ringfence::CommandState;
use tokio::time::Instant;

use super::{STEP, Target, attend};
use crate::args::WaitArgs;
use crate::commands::ending_notice;
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;

/// Waits for the command and returns its exit status.
pub(crate) fn run(args: WaitArgs, environment: &Environment) -> Result<u8> {
    let target = Target::open(args.command, environment)?;
    attend(&target, async |background, _| {
        let started = Instant::now();
        loop {
            let left = args.timeout.map_or(STEP, |timeout| timeout.saturating_sub(started.elapsed()));
            let waited = background.wait_command(target.sandbox(), target.command(), left.min(STEP)).await?;
            if let CommandState::Ended(ending) = waited.state {
                if let Some(text) = ending_notice(ending, None, "the command") {
                    console::notice(&text);
                }
                return Ok(exit::status_of(ending));
            }
            if args.timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
                console::notice(&format!("{} still runs", target.handle));
                return Ok(exit::TIMED_OUT);
            }
        }
    })
}
