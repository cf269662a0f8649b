//! An interactive command: its terminal lies in the sandbox, its other end here.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use ringfence_core::{
    Ending, Error, ErrorKind, GuestPath, Invocation, Result, Terminal, TerminalControl, TerminalRequest,
    TerminalSize, claim,
};
use rustix::io::Errno;
use rustix::termios::Winsize;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::sync::OwnedRwLockReadGuard;

use crate::SCHEME;
use crate::access::Access;
use crate::error::{lost, unexpected};
use crate::run::{Struck, run_request, shown_workdir, workdir_failed};
use crate::transport::{Channel, watch_nonblocking};
use crate::wire::{AgentRequest, NotStarted, Reply};

const OPERATION: &str = "open a terminal";

/// How long the sandbox may take to make one.
const OPEN_DEADLINE: Duration = Duration::from_secs(30);

/// Starts an interactive command.
pub(crate) async fn open(sandbox: &Access, request: TerminalRequest) -> Result<Terminal> {
    let shell = || Invocation::Program(vec![sandbox.shell.as_bytes().to_vec(), b"-i".to_vec()]);
    let invocation = request.invocation.unwrap_or_else(shell);
    let workdir = request.workdir.as_ref().map(GuestPath::as_bytes).unwrap_or_default();
    let mut run = run_request(OPERATION, sandbox, &invocation, &request.env, workdir)?;
    run.terminal = Some((u32::from(request.size.rows), u32::from(request.size.columns)));
    let request_inside = Arc::clone(&sandbox.requests).read_owned().await;
    let limits = Struck::so_far(sandbox);
    let asked_inside = AgentRequest::Run(run);
    let asking = async {
        let channel = sandbox.ask(OPERATION, asked_inside, &[]).await?;
        let reply = channel.receive::<Reply>().await;
        Ok::<_, Error>((channel, reply))
    };
    let Ok(asked) = tokio::time::timeout(OPEN_DEADLINE, asking).await else {
        let message = format!("no answer within {} s", OPEN_DEADLINE.as_secs());
        return Err(Error::new(ErrorKind::DeadlineExceeded, SCHEME, OPERATION, message));
    };
    let (channel, reply) = asked?;
    let master = match reply {
        Ok(Some((Reply::Terminal, fds))) => fds.into_iter().next(),
        Ok(Some((Reply::Fenced, _))) => return Err(claim::lost(SCHEME, OPERATION, &sandbox.id)),
        Ok(Some((Reply::NotStarted(_, errno), _))) => {
            let cause = io::Error::from_raw_os_error(errno);
            return Err(unexpected(OPERATION, "make one in the sandbox", cause));
        }
        Ok(None) if !sandbox.survives().await => return Err(lost(OPERATION, &sandbox.id)),
        Ok(_) => None,
        Err(error) => return Err(unexpected(OPERATION, "hear from the sandbox", error)),
    };
    let Some(master) = master else {
        return Err(unexpected(OPERATION, "understand the sandbox", io::ErrorKind::InvalidData.into()));
    };
    if !rustix::termios::isatty(&master) {
        return Err(unexpected(
            OPERATION,
            "accept the sandbox's terminal",
            io::ErrorKind::InvalidData.into(),
        ));
    }
    let copy =
        |fd: &OwnedFd| fd.try_clone().map_err(|error| unexpected(OPERATION, "copy a descriptor", error));
    let (input, output) = (copy(&master)?, copy(&master)?);
    Ok(Terminal {
        input: Box::new(Master(watched(input, Interest::WRITABLE)?)),
        output: Box::new(Master(watched(output, Interest::READABLE)?)),
        control: Arc::new(Control {
            sandbox: sandbox.clone(),
            workdir: shown_workdir(request.workdir.as_ref()),
            channel,
            master,
            limits,
            _request: request_inside,
        }),
    })
}

#[derive(Debug)]
struct Control {
    sandbox: Access,
    workdir: String,
    /// Its closing ends the command.
    channel: Channel,
    master: OwnedFd,
    limits: Struck,
    _request: OwnedRwLockReadGuard<()>,
}

#[async_trait]
impl TerminalControl for Control {
    fn resize(&self, size: TerminalSize) -> Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.master, size)
            .map_err(|error| unexpected("resize the terminal", "set its size", error.into()))
    }

    async fn wait(&self) -> Result<Ending> {
        const OPERATION: &str = "wait for the command";
        match self.channel.receive::<Reply>().await {
            Ok(Some((Reply::Signalled(signal), _))) => {
                Ok(self.limits.explain(&self.sandbox, Ending::Signalled(signal)))
            }
            Ok(Some((Reply::Exited(status), _))) => {
                Ok(self.limits.explain(&self.sandbox, Ending::Exited(status)))
            }
            Ok(Some((Reply::NotStarted(NotStarted::NotFound, _), _))) => Ok(Ending::Exited(127)),
            Ok(Some((Reply::NotStarted(NotStarted::Exec, _), _))) => Ok(Ending::Exited(126)),
            Ok(Some((Reply::NotStarted(NotStarted::Workdir, errno), _))) => {
                Err(workdir_failed(OPERATION, &self.workdir, io::Error::from_raw_os_error(errno)))
            }
            Ok(Some((Reply::NotStarted(_, errno), _))) => {
                Err(unexpected(OPERATION, "start it", io::Error::from_raw_os_error(errno)))
            }
            Ok(None) if self.sandbox.survives().await => Ok(Ending::Signalled(9)),
            Ok(None) => Err(lost(OPERATION, &self.sandbox.id)),
            Ok(Some(_)) => Err(Error::new(
                ErrorKind::Unexpected,
                SCHEME,
                OPERATION,
                "the sandbox's answer makes no sense",
            )),
            Err(error) => Err(unexpected(OPERATION, "hear from the sandbox", error)),
        }
    }
}

/// One direction of the owner's end.
struct Master(AsyncFd<OwnedFd>);

impl AsyncRead for Master {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref().as_fd(), unfilled)?)) {
                Ok(Ok(length)) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                // EIO: no process has the terminal open any more.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for Master {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            if let Ok(result) = ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref().as_fd(), bytes)?)) {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn watched(master: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>> {
    watch_nonblocking(master, interest).map_err(|error| unexpected(OPERATION, "wait for a descriptor", error))
}
