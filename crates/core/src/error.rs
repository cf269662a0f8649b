//! One error type with two axes: what the agent may do next, and what a transport may repeat.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::statement::SpecField;

/// The result of every fallible operation of the contract.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The name of the fact that says which field of the spec an error is about.
const FIELD: &str = "field";

/// What went wrong, in terms a caller can match on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The backend cannot enforce a field of the spec; nothing was provisioned (SP-08, BK-02).
    Refused,
    /// A value given by the caller is not acceptable in any state (BK-05).
    InvalidArgument,
    /// The path does not exist in the sandbox.
    NotFound,
    /// The path is a directory where a file was needed.
    IsADirectory,
    /// The path is not a directory where one was needed.
    NotADirectory,
    /// The path is a device, FIFO or socket, or a file that the kernel writes anew for each reader.
    NotARegularFile,
    /// The sandbox's own permissions forbid the access, or it belongs to another owner.
    PermissionDenied,
    /// The file is larger than the caller's bound.
    FileTooLarge {
        /// The size as far as known, in bytes; for endless sources what was read before giving up.
        size_bytes: u64,
        /// The bound that was exceeded, in bytes.
        limit_bytes: u64,
    },
    /// The sandbox's disk or memory limit is exhausted.
    StorageFull,
    /// The sandbox no longer exists or cannot be used any more.
    SandboxLost,
    /// Somebody else changed it or has it: a conditional write came too late, or another holder's claim stands.
    Conflict,
    /// The claim under which the operation was made is over; somebody else may hold the sandbox by now (S54).
    ClaimLost,
    /// The backend could not be reached or answered with a passing failure.
    Unavailable,
    /// An operation other than a command ran into its deadline.
    DeadlineExceeded,
    /// The backend does not offer the operation at all.
    Unsupported,
    /// Everything else.
    Unexpected,
}

impl ErrorKind {
    /// Returns the outside name, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::InvalidArgument => "invalid_argument",
            Self::NotFound => "not_found",
            Self::IsADirectory => "is_a_directory",
            Self::NotADirectory => "not_a_directory",
            Self::NotARegularFile => "not_a_regular_file",
            Self::PermissionDenied => "permission_denied",
            Self::FileTooLarge { .. } => "file_too_large",
            Self::StorageFull => "storage_full",
            Self::SandboxLost => "sandbox_lost",
            Self::Conflict => "conflict",
            Self::ClaimLost => "claim_lost",
            Self::Unavailable => "unavailable",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Unsupported => "unsupported",
            Self::Unexpected => "unexpected",
        }
    }

    /// Returns the disposition of an error of this kind, unless whoever made it knows better.
    fn disposition(&self) -> Disposition {
        match self {
            Self::Refused | Self::SandboxLost | Self::ClaimLost | Self::Unsupported => Disposition::Terminal,
            Self::InvalidArgument
            | Self::NotFound
            | Self::IsADirectory
            | Self::NotADirectory
            | Self::NotARegularFile
            | Self::PermissionDenied
            | Self::FileTooLarge { .. }
            | Self::StorageFull
            | Self::Conflict
            | Self::Unavailable
            | Self::DeadlineExceeded
            | Self::Unexpected => Disposition::Recoverable,
        }
    }
}

/// What the agent may do after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// Told to the model, which may correct itself and go on.
    Recoverable,
    /// Ends the run: the model cannot mend it.
    Terminal,
}

/// What a transport may do with the same request after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// It may have had an effect, or will fail again.
    Never,
    /// It had no effect.
    Safe,
    /// It had no effect and should not be repeated before this delay.
    After(Duration),
}

/// An error of the contract.
///
/// `Display` is one line that stands for itself, or behind `error: `: the backend if one was involved, the operation, the
/// message, the facts, the causes, and after a semicolon the hint. Whoever shows the hint apart shows [`Self::summary`],
/// which is all of it but the hint. The causes are in it: a reporter that walks the chain of sources says them twice.
/// `Debug` shows everything.
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    operation: Cow<'static, str>,
    backend: String,
    message: String,
    hint: Option<String>,
    context: Vec<(Cow<'static, str>, String)>,
    disposition: Disposition,
    retry: Retry,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error of `kind` met by `backend` during `operation` (a verb phrase such as `create sandbox`).
    /// The disposition follows from the kind and can be overridden with [`Self::terminal`] or [`Self::recoverable`].
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        backend: impl Into<String>,
        operation: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        let disposition = kind.disposition();
        Self {
            inner: Box::new(Inner {
                kind,
                operation: operation.into(),
                backend: backend.into(),
                message: message.into(),
                hint: None,
                context: Vec::new(),
                disposition,
                retry: Retry::Never,
                source: None,
            }),
        }
    }

    /// Creates the error of a value that is not acceptable in any state, found before any backend was involved.
    #[must_use]
    pub fn invalid(operation: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, "", operation, message)
    }

    /// Creates the refusal of a spec field: terminal, made before anything was provisioned, and with the fact `field`, which
    /// is [`SpecField::key`].
    #[must_use]
    pub fn refused(backend: impl Into<String>, field: SpecField, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, backend, "accept the spec", message).context(FIELD, field.key())
    }

    /// Adds what the reader can try; shown after the message.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.inner.hint = Some(hint.into());
        self
    }

    /// Adds a named fact such as `path` or `sandbox`.
    #[must_use]
    pub fn context(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.inner.context.push((name.into(), value.into()));
        self
    }

    /// Attaches the underlying error.
    #[must_use]
    pub fn source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// Marks the error as ending the run.
    #[must_use]
    pub fn terminal(mut self) -> Self {
        self.inner.disposition = Disposition::Terminal;
        self
    }

    /// Marks the error as one that the model may correct.
    #[must_use]
    pub fn recoverable(mut self) -> Self {
        self.inner.disposition = Disposition::Recoverable;
        self
    }

    /// Says what a transport may repeat; the default is [`Retry::Never`].
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.inner.retry = retry;
        self
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.inner.kind
    }

    /// Returns what the agent may do.
    #[must_use]
    pub fn disposition(&self) -> Disposition {
        self.inner.disposition
    }

    /// Returns whether the run ends here.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.inner.disposition == Disposition::Terminal
    }

    /// Returns what a transport may repeat.
    #[must_use]
    pub fn retry_policy(&self) -> Retry {
        self.inner.retry
    }

    /// Returns the verb phrase of the operation that failed.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.inner.operation
    }

    /// Returns the name of the backend; empty when no backend was involved.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.inner.backend
    }

    /// Returns the message without backend, facts and hint.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Returns what the reader can try.
    #[must_use]
    pub fn hint_text(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }

    /// Returns the value of a named fact.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Iterates over the named facts in the order in which they were added.
    pub fn facts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.inner.context.iter().map(|(name, value)| (name.as_ref(), value.as_str()))
    }

    /// Returns the spec field that the error is about: the fact `field`.
    #[must_use]
    pub fn field(&self) -> Option<SpecField> {
        self.fact(FIELD).and_then(SpecField::from_key)
    }

    /// Shows everything but the hint, on one line.
    #[must_use]
    pub fn summary(&self) -> impl fmt::Display {
        Summary(self)
    }
}

/// Whether a character can break a line apart or rearrange it when shown.
pub(crate) fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Keeps what passes through it on one line. Messages quote what a sandbox wrote, which must not be able to forge log
/// lines or drive a terminal.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_unprintable) {
            match part.chars().next_back().filter(|last| is_unprintable(*last)) {
                Some(last) => {
                    self.0.write_str(&part[..part.len() - last.len_utf8()])?;
                    write!(self.0, "{}", last.escape_default())?;
                }
                None => self.0.write_str(part)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Summary(self).fmt(f)?;
        match &self.inner.hint {
            Some(hint) => write!(OneLine(f), "; {hint}"),
            None => Ok(()),
        }
    }
}

struct Summary<'a>(&'a Error);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0.inner;
        let mut f = OneLine(f);
        if !inner.backend.is_empty() {
            write!(f, "{}: ", inner.backend)?;
        }
        write!(f, "{}: {}", inner.operation, inner.message)?;
        for (name, value) in &inner.context {
            write!(f, ", {name} {value}")?;
        }
        let mut cause = inner.source.as_deref().map(|source| source as &dyn StdError);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.inner;
        f.debug_struct("Error")
            .field("kind", &inner.kind)
            .field("operation", &inner.operation)
            .field("backend", &inner.backend)
            .field("message", &inner.message)
            .field("hint", &inner.hint)
            .field("context", &inner.context)
            .field("disposition", &inner.disposition)
            .field("retry", &inner.retry)
            .field("source", &inner.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
