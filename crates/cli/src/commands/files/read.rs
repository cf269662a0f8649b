//! `ringfence read`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use super::{DEFAULT_LIMIT_BYTES, drive, failed};
use crate::args::ReadArgs;
use crate::console::{self, Unwritten};
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::reached::backend_of;

/// Copies the file to standard output.
pub(crate) fn run(args: &ReadArgs, environment: &Environment) -> Result<u8> {
    let backend = backend_of(&args.handle, environment)?;
    let limit_bytes = args.limit.map_or(DEFAULT_LIMIT_BYTES, |limit| limit.get());
    drive(async {
        let mut sink = StdoutSink::default();
        let copied = backend.export_file(args.handle.sandbox(), &args.path, limit_bytes, &mut sink).await;
        match (sink.unwritten, copied) {
            (Some(why), _) => why.status(),
            (None, Ok(_)) => Ok(exit::OK),
            (None, Err(error)) => Err(failed(&args.handle, &args.path, &error)),
        }
    })
}

/// Standard output, which a reader that has stalled holds up, and a signal frees again.
#[derive(Debug, Default)]
struct StdoutSink {
    unwritten: Option<Unwritten>,
}

impl AsyncWrite for StdoutSink {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(match console::stdout(bytes, None) {
            Ok(()) => Ok(bytes.len()),
            Err(why) => {
                self.unwritten = Some(why);
                Err(io::Error::other("standard output takes no more"))
            }
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
