//! What a command in the background has printed, for `ringfence logs`.

use std::time::Duration;

use ringfence::{Background, CommandHandle, OutputObserver, StreamName};

use super::{Stop, Target, attend};
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::streamer::Streamer;

/// How long it takes at most to see that nobody reads us any more.
const LOOK: Duration = Duration::from_secs(1);

/// What is wanted of it.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) command: CommandHandle,
    /// One of the streams; otherwise both, each on ours of the same name.
    pub(crate) only: Option<StreamName>,
    /// How many bytes at its beginning are not wanted.
    pub(crate) offset: u64,
    /// Whether what has yet to come is waited for.
    pub(crate) follow: bool,
}

/// Prints it and returns the exit status.
pub(crate) fn print(output: Output, environment: &Environment) -> Result<u8> {
    let target = Target::open(output.command, environment)?;
    let streamer = Streamer::new(None);
    attend(&target, async |background, now| {
        let copy = |name, until| {
            let until = (!output.follow).then_some(until);
            let wanted = output.only.is_none_or(|only| only == name);
            Copy {
                background,
                target: &target,
                streamer: &streamer,
                name,
                offset: output.offset,
                until,
                wanted,
            }
        };
        let copied = async {
            let both = tokio::try_join!(
                copy(StreamName::Stdout, now.stdout_bytes).run(),
                copy(StreamName::Stderr, now.stderr_bytes).run()
            );
            both.map(|_| exit::OK)
        };
        let status = tokio::select! {
            biased;
            broken = streamer.broken() => return Err(Stop::Ours(broken)),
            status = copied => status?,
        };
        streamer.check_stored().map_err(|failure| Stop::Ours(Err(failure)))?;
        Ok(status)
    })
}

struct Copy<'a> {
    background: &'a dyn Background,
    target: &'a Target,
    streamer: &'a Streamer,
    name: StreamName,
    offset: u64,
    /// Where it ends though more may come.
    until: Option<u64>,
    wanted: bool,
}

impl Copy<'_> {
    async fn run(mut self) -> std::result::Result<(), Stop> {
        let patience = if self.until.is_some() { Duration::ZERO } else { LOOK };
        while self.wanted && self.until.is_none_or(|until| self.offset < until) {
            let (sandbox, command) = (self.target.sandbox(), self.target.command());
            let chunk =
                self.background.read_output(sandbox, command, self.name, self.offset, patience).await?;
            if chunk.offset > self.offset {
                let stream = match self.name {
                    StreamName::Stdout => "standard output",
                    StreamName::Stderr => "standard error",
                };
                let (from, dropped) = (self.offset, chunk.offset - self.offset);
                console::notice(&format!("{dropped} bytes of {stream} from {from} on have been dropped"));
            }
            self.streamer.output(self.name, chunk.offset, &chunk.bytes);
            self.offset = chunk.offset.saturating_add(chunk.bytes.len() as u64);
            if chunk.end {
                break;
            }
            if chunk.bytes.is_empty() && console::nobody_reads() {
                return Err(Stop::Ours(Ok(exit::READER_GONE)));
            }
        }
        Ok(())
    }
}
