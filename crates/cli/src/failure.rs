//! What the person reads when something did not work: what failed, who asked for it, what to try.

use std::error::Error as StdError;
use std::fmt;

use ringfence::SpecField;
use serde_json::{Value, json};

use crate::exit;

/// What helps against `EFBIG`.
pub(crate) const FILE_SIZE_HINT: &str =
    "`ulimit -f unlimited` before: the limit on the size of files also holds for what ringfence writes";

/// What helps against `EMFILE`.
const OPEN_FILES_HINT: &str =
    "`ulimit -n 64` or more before: the limit on open files also holds for ringfence";

/// A failure on its way to standard error and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    kind: &'static str,
    field: Option<SpecField>,
    backend: Option<String>,
    status: u8,
}

/// The result of what the command line does itself.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Returns a failure of our own; its status is 125.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            kind: "failed",
            field: None,
            backend: None,
            status: exit::OURS,
        }
    }

    /// Returns the failure of a call to the operating system.
    pub(crate) fn io(what: &str, error: &std::io::Error) -> Self {
        let failure = Self::new(format!("{what}: {error}"));
        Self { hint: limit_hint(error).map(str::to_owned), ..failure }
    }

    /// Adds what the reader can try.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds where the refused value came from.
    pub(crate) fn asked_by(mut self, origin: &str) -> Self {
        self.message = format!("{}, asked for by {origin}", self.message);
        self
    }

    /// Sets the exit status.
    pub(crate) fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Returns the exit status.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }

    /// Sets the kind in the JSON form.
    pub(crate) fn with_kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    /// Returns the kind in the JSON form.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Puts what was being done in front.
    pub(crate) fn during(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Returns the spec field that was refused.
    pub(crate) fn field(&self) -> Option<SpecField> {
        self.field
    }

    /// Returns what the reader can try.
    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the JSON form.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "kind": self.kind,
            "message": self.message,
            "hint": self.hint,
            "field": self.field.map(SpecField::key),
            "backend": self.backend,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ringfence::Error> for Failure {
    fn from(error: ringfence::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&ringfence::Error> for Failure {
    fn from(error: &ringfence::Error) -> Self {
        let causes = std::iter::successors(StdError::source(error), |cause| (*cause).source());
        let limit = causes.filter_map(|cause| cause.downcast_ref()).find_map(limit_hint);
        let hint = limit.or_else(|| error.hint_text()).map(str::to_owned);
        Self {
            message: error.summary().to_string(),
            hint,
            kind: error.kind().name(),
            field: error.field(),
            backend: Some(error.backend().to_owned()).filter(|name| !name.is_empty()),
            status: exit::OURS,
        }
    }
}

/// What helps where a limit of our own process is behind an error.
fn limit_hint(error: &std::io::Error) -> Option<&'static str> {
    match rustix::io::Errno::from_io_error(error)? {
        rustix::io::Errno::FBIG => Some(FILE_SIZE_HINT),
        rustix::io::Errno::MFILE => Some(OPEN_FILES_HINT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ringfence::Error;

    use super::*;

    #[test]
    fn the_hint_is_said_once_and_apart() {
        let error = Error::refused("local", SpecField::Memory, "no memory controller here")
            .hint("delegate the controller");
        let failure = Failure::from(error).asked_by("--memory");
        assert_eq!(
            failure.to_string(),
            "local: accept the spec: no memory controller here, field limits.memory, asked for by --memory"
        );
        assert_eq!(failure.hint_text(), Some("delegate the controller"));
        assert_eq!(failure.field(), Some(SpecField::Memory));
        assert_eq!(failure.to_json()["kind"], "refused");
    }
}
