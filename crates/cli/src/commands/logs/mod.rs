//! `ringfence logs`: the audit record of sandboxes that others can find. What a command in the background printed is the business
//! of [`output`].

mod shown;

use std::sync::Arc;
use std::time::Duration;

use ringfence::{Attachable, Backend, ErrorKind, EventsFrom, Handle, StreamName};

use crate::args::LogsArgs;
use crate::commands::background::output::{self, Output};
use crate::commands::runtime;
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::parse::Logged;
use crate::reached::{Backends, attachable};
use crate::signals::Signals;

/// How often it is looked for something new.
const INTERVAL: Duration = Duration::from_millis(200);

/// Prints the record and returns the exit status.
pub(crate) fn run(args: LogsArgs, environment: &Environment) -> Result<u8> {
    let only = match (args.stdout, args.stderr) {
        (true, _) => Some(StreamName::Stdout),
        (_, true) => Some(StreamName::Stderr),
        _ => None,
    };
    let of = match args.of {
        Some(Logged::Command(_)) if args.json => {
            return Err(misused("--json is for what happened to sandboxes"));
        }
        Some(Logged::Command(command)) => {
            let wanted = Output { command, only, offset: args.offset, follow: args.follow };
            return output::print(wanted, environment);
        }
        _ if only.is_some() => return Err(misused("--stdout and --stderr are for a command, HANDLE/c1")),
        Some(Logged::Sandbox(handle)) => Some(handle),
        None => None,
    };
    let mut backends = Backends::load(args.backend.backend.as_deref(), environment)?;
    let (backend, handle) = match of {
        None => (backends.default()?, None),
        Some(handle) => (backends.of(&handle)?, Some(handle)),
    };
    let reader = Reader { backend, handle, follow: args.follow, json: args.json };
    runtime()?.block_on(async {
        let signals = Signals::new()?;
        tokio::select! {
            biased;
            signal = signals.next() => Ok(signal.status()),
            status = reader.read() => status,
        }
    })
}

fn misused(told: &str) -> Failure {
    Failure::new(told).with_status(exit::USAGE)
}

struct Reader {
    backend: Arc<dyn Backend>,
    handle: Option<Handle>,
    follow: bool,
    json: bool,
}

impl Reader {
    async fn read(&self) -> Result<u8> {
        let attachable = attachable(&*self.backend)?;
        let mut tick = tokio::time::interval(INTERVAL);
        let mut from = EventsFrom::Oldest;
        let mut found = false;
        loop {
            let page = attachable.events(&from).await?;
            if page.missed {
                console::notice("some of the record was dropped before it could be read");
            }
            let mut text = String::new();
            let mut ended = false;
            for event in &page.events {
                let handle = Handle::new(self.backend.name(), &event.sandbox)?;
                if self.handle.as_ref().is_some_and(|only| *only != handle) {
                    continue;
                }
                text.push_str(&if self.json {
                    shown::json(&handle, event)
                } else {
                    shown::text(&handle, event)
                });
                ended |= self.handle.is_some() && event.end_reason().is_some();
            }
            found |= !text.is_empty();
            if let Err(why) = console::stdout(text.as_bytes(), None) {
                return why.status();
            }
            from = EventsFrom::After(page.next);
            if page.more {
                // A signal in between is seen.
                tokio::task::yield_now().await;
                continue;
            }
            if !found && let Some(handle) = &self.handle {
                exists(attachable, handle).await?;
            }
            if ended || !self.follow {
                return Ok(exit::OK);
            }
            if console::nobody_reads() {
                return Ok(exit::READER_GONE);
            }
            tick.tick().await;
        }
    }
}

/// Makes sure that a sandbox of which nothing is recorded is there.
async fn exists(attachable: &dyn Attachable, handle: &Handle) -> Result<()> {
    match attachable.tags(handle.sandbox()).await {
        Err(error) if *error.kind() == ErrorKind::SandboxLost => {
            Err(Failure::new(format!("there is no sandbox {handle}, and nothing is recorded of one"))
                .with_kind(error.kind().name()))
        }
        other => other.map(drop).map_err(Failure::from),
    }
}
