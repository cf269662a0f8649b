//! Why a sandbox ended under whoever used it.

use std::time::Duration;

use ringfence::ErrorKind;

use crate::exit;
use crate::failure::Failure;

/// The end of a sandbox as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its time was up.
    Lifetime(Duration),
    /// Nothing is known.
    Unknown,
}

impl Loss {
    /// Says it.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Lifetime(lifetime) => {
                format!("the sandbox ended with its lifetime of {}", humantime::format_duration(lifetime))
            }
            Self::Unknown => "the sandbox was lost".to_owned(),
        }
    }

    /// Returns the exit status of whoever used it.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Lifetime(_) => exit::TIMED_OUT,
            Self::Unknown => exit::OURS,
        }
    }

    /// Returns what is said instead of `failure`, where more is known than that.
    pub(crate) fn explain(self, failure: Failure) -> Failure {
        match self {
            Self::Unknown => failure,
            known => Failure::new(known.text())
                .with_kind(ErrorKind::SandboxLost.name())
                .with_status(known.status()),
        }
    }
}
