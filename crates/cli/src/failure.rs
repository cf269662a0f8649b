//! What the person reads when something did not work: what failed, who asked for it, what to try.

use std::fmt;

use ringfence::SpecField;
use serde_json::{Value, json};

use crate::exit;

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
        Self {
            message: error.summary().to_string(),
            hint: error.hint_text().map(str::to_owned),
            kind: error.kind().name(),
            field: error.field(),
            backend: Some(error.backend().to_owned()).filter(|name| !name.is_empty()),
            status: exit::OURS,
        }
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
