//! Lines of JSON over a pair of byte streams, and what has to be forgiven at their beginning.

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, GetMeta, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};

/// The longest message that is read, in bytes; a longer one is dropped with a warning in the log. Four times the SDK's own
/// bound, because a file that is written arrives in one message.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Passes messages on, but for notifications that come before anything they could be about. The SDK ends the service at those,
/// although clients do send them: one that gives up on its `server/discover` cancels it and then opens with `initialize`.
pub(super) struct Patient<T> {
    inner: T,
    opened: bool,
}

/// Returns the transport over two streams.
pub(super) fn lines<R, W>(reader: R, writer: W) -> Patient<AsyncRwTransport<RoleServer, R, W>>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let inner = AsyncRwTransport::new(reader, writer).with_max_line_length(MAX_MESSAGE_BYTES);
    Patient { inner, opened: false }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Patient<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let message = self.inner.receive().await?;
            match &message {
                _ if self.opened => {}
                JsonRpcMessage::Request(request) => self.opened = opens(&request.request),
                other => {
                    tracing::debug!(?other, "came before the client opened, ignored");
                    continue;
                }
            }
            return Some(message);
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

/// Whether the SDK takes a request as the opening: the handshake, or any that says its version, except the question for versions.
fn opens(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::DiscoverRequest(_) | ClientRequest::PingRequest(_) => false,
        other => other.get_meta().protocol_version().is_some(),
    }
}
