//! The server: one toolset, one client, one sandbox at a time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence::toolset::{AttachedToolset, CallOptions, Session, ToolError, ToolOutput, Toolset, Watch};
use ringfence::{Error, NetworkPolicy};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult, ConstString,
    ContentBlock, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, PingRequestMethod, ProtocolVersion, ServerCapabilities, ServerConfig,
    SubscriptionFilter, Tool,
};
use rmcp::service::{
    QuitReason, RequestContext, RoleServer, ServerInitializeError, ServiceExt, SubscriptionContext,
};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::transport::Lines;
use super::{definitions, progress};

/// Offers the tools of one toolset to one client, over one sandbox: its own, or one that somebody else created. A server for several
/// clients makes one of these for each.
///
/// Needs a tokio runtime with time enabled, and whatever the toolset's backend needs.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    place: Place,
    tools: Vec<Tool>,
    info: ServerConfig,
    /// `None` once closed.
    session: Mutex<Option<Arc<Session>>>,
}

/// Where calls go when a session cannot go on.
#[derive(Debug)]
enum Place {
    /// Into a new sandbox.
    Own(Toolset),
    /// Nowhere: no other takes the place of somebody else's (AT-16).
    Attached,
}

/// The server as the SDK sees it, for one connection.
struct Handler {
    shared: Arc<Shared>,
    /// Turns true when the client has closed its end.
    ended: watch::Receiver<bool>,
}

/// What ended a client's service before it closed its streams.
#[derive(Debug)]
pub struct ServeError(String);

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "serve MCP: {}", self.0)
    }
}

impl std::error::Error for ServeError {}

impl Server {
    /// Returns a server. Creates no sandbox and touches nothing outside this process.
    #[must_use]
    pub fn new(toolset: Toolset) -> Self {
        let session = toolset.open();
        Self::over(session, Place::Own(toolset))
    }

    /// Claims a sandbox that somebody else created and returns a server over it (AT-12). What a client is told about it is read now and
    /// stays the same (AT-19). Nothing is created or destroyed, and [`Self::close`] gives it back (AT-14, AT-15).
    ///
    /// # Errors
    /// As [`AttachedToolset::attach`].
    pub async fn attach(toolset: &AttachedToolset, handle: &str) -> ringfence::Result<Self> {
        Ok(Self::over(toolset.attach(handle).await?, Place::Attached))
    }

    fn over(session: Session, place: Place) -> Self {
        let tools = definitions::tools(&session);
        let info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(
                Implementation::new("ringfence", env!("CARGO_PKG_VERSION")).with_title("Ringfence sandbox"),
            )
            .with_instructions(instructions(&session, &place));
        let session = Mutex::new(Some(Arc::new(session)));
        Self { shared: Arc::new(Shared { place, tools, info, session }) }
    }

    /// Serves a client until it closes `reader`. Calls that still run then have five seconds to be answered, and answers one to be
    /// read; what is left is ended. Dropping the future ends everything at once. The sandbox is left to [`Self::close`].
    ///
    /// # Errors
    /// The client opened with something that is not MCP, or could not be written to.
    pub async fn serve<R, W>(&self, reader: R, writer: W) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (lines, ended) = Lines::new(reader, writer);
        let handler = Handler { shared: Arc::clone(&self.shared), ended };
        let running = match handler.serve(lines).await {
            Ok(running) => running,
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            // The SDK's own text repeats the whole message.
            Err(ServerInitializeError::ExpectedInitializeRequest(_)) => {
                return Err(ServeError(
                    "the client opened with neither initialize nor a request of 2026-07-28".to_owned(),
                ));
            }
            Err(error) => return Err(ServeError(error.to_string())),
        };
        match running.waiting().await {
            Ok(QuitReason::Closed | QuitReason::Cancelled) => Ok(()),
            Ok(reason) => Err(ServeError(format!("{reason:?}"))),
            Err(error) => Err(ServeError(error.to_string())),
        }
    }

    /// Destroys the sandbox, if there is one, or gives it back where it is somebody else's, and ends the calls in it. Later calls fail.
    pub async fn close(&self) {
        let session = self.shared.session().take();
        if let Some(session) = session {
            session.close().await;
        }
    }
}

impl Shared {
    fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an end of a session that cannot go on, and returns what the model is told of it. In a sandbox of our own the next call gets a
    /// new session, and with it a new sandbox; in somebody else's it meets what became of that.
    async fn retire(&self, name: &str, error: &Error, session: &Arc<Session>) -> String {
        let stood = session.sandbox().is_some();
        let next = match &self.place {
            Place::Own(toolset) => {
                {
                    let mut current = self.session();
                    if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
                        *current = Some(Arc::new(toolset.open()));
                    }
                }
                session.close().await;
                if stood {
                    "It was destroyed with its files and processes; the next call starts in a new one."
                } else {
                    "The next call tries to create one again."
                }
            }
            Place::Attached if stood => {
                return format!("{name} failed: {error}. The sandbox stands, and so do its files.");
            }
            Place::Attached => "No call of these tools can work any more.",
        };
        format!("{name} failed and the sandbox is unusable: {error}. {next}")
    }

    async fn call(
        &self,
        name: &str,
        arguments: &Value,
        watch: Option<Watch>,
    ) -> Result<CallToolResult, ErrorData> {
        let Some(session) = self.session().clone() else {
            return Ok(failure(format!("{name} failed: the server has ended")));
        };
        let mut options = CallOptions::default().uncounted();
        options.watch = watch;
        match session.call_with(name, arguments, options).await {
            Ok(output) => Ok(result(output)),
            Err(ToolError::Correction(correction)) => Ok(failure(correction.text)),
            Err(ToolError::Terminal(error)) => Ok(failure(self.retire(name, &error, &session).await)),
            Err(error @ ToolError::UnknownTool { .. }) => {
                Err(ErrorData::invalid_params(error.to_string(), None))
            }
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        self.shared.info.clone()
    }

    /// Answers where the protocol has it: it was dropped from revision 2026-07-28.
    async fn ping(&self, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        if context.meta.protocol_version().is_some() {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, PingRequestMethod::VALUE, None));
        }
        Ok(())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(ErrorData::invalid_params(
                "all tools are on one page; no cursor was given out",
                None,
            ));
        }
        Ok(ListToolsResult::with_all_items(self.shared.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.map_or(Value::Null, Value::Object);
        // Output is looked at only where somebody is told of it.
        let watched = context.meta.get_progress_token().map(|token| (token, Watch::default()));
        let watch = watched.as_ref().map(|(_, watch)| watch.clone());
        let reporting = async {
            match watched {
                Some((token, watch)) => progress::report(&context.peer, token, &watch).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // Dropping the call ends its command and nothing else. The answer reaches nobody.
            () = context.ct.cancelled() => Err(ErrorData::internal_error("the request was cancelled", None)),
            result = self.shared.call(&request.name, &arguments, watch) => result.map(Into::into),
            never = reporting => match never {},
        }
    }

    /// Answers what the SDK could not read as a request: a call whose arguments are no object, as some models write them, is
    /// corrected like any other wrong type (TD-03).
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        if method != CallToolRequestMethod::VALUE {
            return Err(ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                format!("there is no method {method:?}"),
                None,
            ));
        }
        let params = params.unwrap_or_default();
        let Some(name) = params["name"].as_str() else {
            return Err(ErrorData::invalid_params("`name` must be a string", None));
        };
        let mut result = self.shared.call(name, &params["arguments"], None).await?;
        // The SDK adapts its own results to the peer's era, but not these.
        if context.protocol_version().is_none_or(|version| version < ProtocolVersion::V_2026_07_28) {
            result.result_type = None;
        }
        serde_json::to_value(result)
            .map(CustomResult::new)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// Takes every subscription: nothing that is offered ever changes, so there is nothing to send.
    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    /// Lasts as long as the client listens. The SDK would hold the end of the connection up for it.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut ended = self.ended.clone();
        tokio::select! {
            () = context.cancelled() => {}
            _ = ended.wait_for(|ended| *ended) => {}
        }
        Ok(())
    }
}

fn result(output: ToolOutput) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(output.text)]);
    result.structured_content = Some(output.structured);
    result
}

fn failure(text: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// Says what the client's model should know before it sees a tool.
fn instructions(session: &Session, place: &Place) -> String {
    let network = match session.network() {
        Some(NetworkPolicy::Blocked) => " It has no network.",
        _ => "",
    };
    let (kind, life) = match place {
        // Also where it waits in a pool before anybody calls.
        Place::Own(_) => (
            "a disposable sandbox",
            "It is new at the first call, is the same for all calls, and is destroyed with everything in it when this connection ends.",
        ),
        Place::Attached => (
            "a sandbox",
            "It was set up by somebody else, and stays with all files when this connection ends: others may go on with what is in it.",
        ),
    };
    format!(
        "These tools act in {kind}, not on the machine of the person you talk to: use them to run code that nobody has \
         read.{network} {life}"
    )
}
