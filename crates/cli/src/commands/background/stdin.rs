//! `ringfence stdin`.

use ringfence::{Background, ErrorKind};
use tokio::io::AsyncReadExt;

use super::{NOBODY_READS, STEP, Stop, Target, attend};
use crate::args::StdinArgs;
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::stdin::StdinReader;

/// What is read and written at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Copies our standard input to the command's.
pub(crate) fn run(args: StdinArgs, environment: &Environment) -> Result<u8> {
    let target = Target::open(args.command, environment)?;
    attend(&target, async |background, _| {
        // Told now, and not when the first piece comes: whether there is anybody to write to.
        let mut copy = Copy { background, target: &target, taken: false };
        copy.write(b"", false).await?;
        let copied = async {
            let mut stdin = StdinReader::default();
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                let read = stdin.read(&mut chunk).await;
                let length =
                    read.map_err(|error| Stop::Ours(Err(Failure::io("read standard input", &error))))?;
                copy.write(&chunk[..length], length == 0 && !args.keep_open).await?;
                if length == 0 {
                    return Ok(exit::OK);
                }
            }
        };
        // Where nothing comes on our side, its end is seen here alone.
        let ended = async {
            while background
                .wait_command(target.sandbox(), target.command(), STEP)
                .await
                .is_ok_and(|status| status.state == ringfence::CommandState::Running)
            {}
        };
        tokio::select! {
            biased;
            copied = copied => copied,
            () = ended => Err(gone(&target)),
        }
    })
}

struct Copy<'a> {
    background: &'a dyn Background,
    target: &'a Target,
    /// Whether its input was open once.
    taken: bool,
}

impl Copy<'_> {
    async fn write(&mut self, mut bytes: &[u8], end: bool) -> std::result::Result<(), Stop> {
        let (sandbox, command) = (self.target.sandbox(), self.target.command());
        loop {
            match self.background.write_stdin(sandbox, command, bytes, end, STEP).await {
                Ok(count) => {
                    self.taken = true;
                    bytes = bytes.get(count..).unwrap_or_default();
                    if bytes.is_empty() {
                        return Ok(());
                    }
                }
                Err(error) if *error.kind() == ErrorKind::InvalidArgument && self.taken => {
                    return Err(gone(self.target));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn gone(target: &Target) -> Stop {
    console::notice(&format!("{} does not read any more", target.handle));
    Stop::Ours(Ok(NOBODY_READS))
}
