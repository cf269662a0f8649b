//! What the person reads when something did not work: what failed, who asked for it, what to try.

use std::fmt;

use ringfence::ErrorKind;
use serde_json::{Value, json};

use crate::exit;

/// A failure on its way to standard error and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    kind: &'static str,
    field: Option<String>,
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

    /// Returns the spec field that was refused.
    pub(crate) fn field(&self) -> Option<&str> {
        self.field.as_deref()
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
            "field": self.field,
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
        let hint = error.hint_text().map(str::to_owned);
        let mut message = error.to_string();
        if let Some(hint) = &hint
            && let Some(without) = message.strip_suffix(&format!("; {hint}"))
        {
            message.truncate(without.len());
        }
        Self {
            message,
            hint,
            kind: kind_name(error.kind()),
            field: error.fact("field").map(str::to_owned),
            backend: Some(error.backend().to_owned()).filter(|name| !name.is_empty()),
            status: exit::OURS,
        }
    }
}

fn kind_name(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Refused => "refused",
        ErrorKind::InvalidArgument => "invalid_argument",
        ErrorKind::NotFound => "not_found",
        ErrorKind::IsADirectory => "is_a_directory",
        ErrorKind::NotADirectory => "not_a_directory",
        ErrorKind::NotARegularFile => "not_a_regular_file",
        ErrorKind::PermissionDenied => "permission_denied",
        ErrorKind::FileTooLarge { .. } => "file_too_large",
        ErrorKind::StorageFull => "storage_full",
        ErrorKind::SandboxLost => "sandbox_lost",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::DeadlineExceeded => "deadline_exceeded",
        ErrorKind::Unsupported => "unsupported",
        _ => "unexpected",
    }
}

#[cfg(test)]
mod tests {
    use ringfence::{Error, SpecField};

    use super::*;

    #[test]
    fn the_hint_is_said_once_and_apart() {
        let error = Error::refused("local", SpecField::Memory, "no memory controller here")
            .hint("delegate the controller");
        let failure = Failure::from(error).asked_by("--memory");
        assert_eq!(
            failure.to_string(),
            "local: accept the spec: no memory controller here, field memory, asked for by --memory"
        );
        assert_eq!(failure.hint_text(), Some("delegate the controller"));
        assert_eq!(failure.field(), Some("memory"));
        assert_eq!(failure.to_json()["kind"], "refused");
    }
}
