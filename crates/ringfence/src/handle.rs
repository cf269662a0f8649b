//! The names under which people and programs pass sandboxes on.

use std::fmt;
use std::str::FromStr;

use ringfence_core::{CommandId, Error, Result, SandboxId};

use crate::registry::DEFAULT_SCHEME;

const NAME: &str = "name a sandbox";

/// A sandbox and the backend that has it, as text `local:sb-0123456789ab`: what is printed, passed on and read again.
///
/// The backend is always said. Several use ids that look alike, and the wrong one of them would answer that there is no such sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle {
    scheme: String,
    sandbox: SandboxId,
}

impl Handle {
    /// Returns the handle of a backend's sandbox. A fence does not go into it: a claim cannot be passed on as text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ringfence_core::ErrorKind::InvalidArgument) for what could not be read again: a scheme of
    /// anything but small letters, digits and `-`, an id with white space, control characters or a `/`.
    pub fn new(scheme: impl Into<String>, sandbox: &SandboxId) -> Result<Self> {
        let scheme = scheme.into();
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if scheme.is_empty() || !scheme.bytes().all(fits) {
            return Err(Error::invalid(NAME, format!("{scheme:?} is not the name of a backend")));
        }
        let id = sandbox.as_str();
        if let Some(bad) = id.chars().find(|bad| bad.is_whitespace() || bad.is_control() || *bad == '/') {
            return Err(Error::invalid(NAME, format!("an id has no {bad:?}, this one does: {id:?}")));
        }
        let sandbox = SandboxId::new(id).ok_or_else(|| unusable(id))?;
        Ok(Self { scheme, sandbox })
    }

    /// Returns which backend has it.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns how the backend names it.
    #[must_use]
    pub fn sandbox(&self) -> &SandboxId {
        &self.sandbox
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scheme, self.sandbox)
    }
}

impl FromStr for Handle {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes. What a variable that was not set leaves behind is no handle (SP-14).
    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() || text == "None" {
            return Err(unusable(text));
        }
        let Some((scheme, id)) = text.split_once(':') else {
            let hint = format!("{DEFAULT_SCHEME}:{text}");
            let message = format!("{text:?} does not say which backend has it");
            return Err(Error::invalid(NAME, message).hint(hint));
        };
        if let Some((sandbox, command)) = text.split_once('/')
            && command.parse::<CommandId>().is_ok()
        {
            let message = format!("{text:?} names a command in a sandbox");
            return Err(Error::invalid(NAME, message).hint(sandbox));
        }
        let sandbox = SandboxId::new(id).ok_or_else(|| unusable(text))?;
        Self::new(scheme, &sandbox)
    }
}

fn unusable(text: &str) -> Error {
    let message = match text {
        "" => "it is empty".to_owned(),
        text => format!("{text:?} is not a sandbox"),
    };
    Error::invalid(NAME, message).hint(format!("a handle such as {DEFAULT_SCHEME}:sb-0123456789ab"))
}

/// A background command of a sandbox, as text `local:sb-0123456789ab/c1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandHandle {
    /// The sandbox.
    pub sandbox: Handle,
    /// Its command.
    pub command: CommandId,
}

impl fmt::Display for CommandHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.sandbox, self.command)
    }
}

impl FromStr for CommandHandle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((sandbox, command)) = text.split_once('/') else {
            // Whatever is wrong with the sandbox is said first.
            let sandbox: Handle = text.parse()?;
            let message = format!("{sandbox} is a sandbox, not a command in it");
            return Err(Error::invalid("name a background command", message).hint(format!("{sandbox}/c1")));
        };
        Ok(Self { sandbox: sandbox.parse()?, command: command.parse()? })
    }
}
