//! What is to be written. Whoever puts something in never waits: a client that does not read must not keep its own cancellation from
//! being heard, nor its sandbox from ending.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

/// From here on nothing more is read from a client that does not read. What it has asked for until then is held in memory.
const FULL_BYTES: usize = 16 << 20;
/// How long the last answers may take to be written when the connection ends.
const CLOSING: Duration = Duration::from_secs(1);

/// Messages on their way to the client.
#[derive(Debug)]
pub(super) struct Outbox {
    /// `None` once closed.
    sender: Option<mpsc::UnboundedSender<Vec<u8>>>,
    waiting: Arc<Waiting>,
    writing: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    less: Notify,
    broken: watch::Sender<bool>,
}

impl Outbox {
    pub(super) fn start(writer: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let waiting = Arc::new(Waiting::default());
        let writing = tokio::spawn(write(receiver, writer, Arc::clone(&waiting)));
        Self { sender: Some(sender), waiting, writing }
    }

    /// Queues a message.
    ///
    /// # Errors
    /// Nobody writes any more.
    pub(super) fn put(&self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let sender = self.sender.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        self.waiting.bytes.fetch_add(line.len(), Ordering::AcqRel);
        sender.send(line).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Waits until there is room for more answers.
    pub(super) async fn has_room(&self) {
        loop {
            let less = self.waiting.less.notified();
            if self.waiting.bytes.load(Ordering::Acquire) < FULL_BYTES {
                return;
            }
            less.await;
        }
    }

    /// Waits until the client cannot be written to any more.
    pub(super) async fn broken(&self) {
        // The sender lives as long as this.
        drop(self.waiting.broken.subscribe().wait_for(|broken| *broken).await);
    }

    /// Writes what is left, for as long as the client takes it.
    pub(super) async fn close(&mut self) {
        drop(self.sender.take());
        if tokio::time::timeout(CLOSING, &mut self.writing).await.is_err() {
            tracing::debug!("the client did not take its last answers");
            self.writing.abort();
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.writing.abort();
    }
}

async fn write(
    mut lines: mpsc::UnboundedReceiver<Vec<u8>>,
    mut writer: impl AsyncWrite + Unpin,
    waiting: Arc<Waiting>,
) {
    while let Some(line) = lines.recv().await {
        let written = async {
            writer.write_all(&line).await?;
            writer.flush().await
        };
        let written = written.await;
        waiting.bytes.fetch_sub(line.len(), Ordering::AcqRel);
        // There is one reader, and it may not be waiting yet.
        waiting.less.notify_one();
        if let Err(error) = written {
            tracing::debug!("write to the client: {error}");
            waiting.broken.send_replace(true);
            return;
        }
    }
}
