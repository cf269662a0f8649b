//! What the operator decides for all sandboxes of this backend.

use std::path::PathBuf;

use ringfence_core::{ByteSize, object_only};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the local backend; every field has a default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LocalConfig {
    /// Which shell runs commands. Default: bash where the host has it, else sh.
    pub shell: Option<Shell>,
    /// Host files and directories shown read-only at the same path, on top of the system directories. Absolute. The folders
    /// above stay hidden and may be closed to the sandbox's user, as root's home is. As root, code inside reads there
    /// what permissions for others allow; run by an ordinary user, what that user may read, private files included.
    /// Sockets that lie there can be connected to with the same permissions: read-only does not apply to them. Default:
    /// none.
    pub read_only_paths: Vec<PathBuf>,
    /// Size of all writable places together where the spec has no disk limit. They lie in memory. Default: 1 GiB, and
    /// no more than half the spec's memory limit, so that a full disk is an error and not the end of a process (P70).
    pub default_disk: Option<ByteSize>,
    /// Where sandboxes that other processes shall find have their records and sockets: a directory of this user's alone, made
    /// where it is missing. Not one that a sandbox is shown. Default: `/run/ringfence` for root, `/run/user/UID/ringfence` for
    /// others.
    pub runtime_dir: Option<PathBuf>,
    /// Whether the audit record of listed and kept sandboxes has the text of commands and the paths of files too, cut to 8 KiB each.
    /// Never what files contain or commands print. Default: no.
    pub audit_contents: bool,
}

impl LocalConfig {
    /// The directory that [`Self::runtime_dir`] stands for.
    pub(crate) fn runtime_directory(&self) -> PathBuf {
        self.runtime_dir.clone().unwrap_or_else(|| match rustix::process::geteuid() {
            user if user.is_root() => PathBuf::from("/run/ringfence"),
            user => PathBuf::from(format!("/run/user/{}/ringfence", user.as_raw())),
        })
    }
}

// A list is not read by position.
object_only!(LocalConfig);

/// A shell of the host's system directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shell {
    /// `bash`.
    Bash,
    /// `sh`.
    Sh,
}

impl Shell {
    /// The program's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Sh => "sh",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_no_configuration() {
        let read = |text| serde_json::from_str::<LocalConfig>(text);
        assert_eq!(read(r#"{"shell": "sh"}"#).unwrap().shell, Some(Shell::Sh));
        assert!(read(r#"["sh"]"#).is_err());
        assert!(read(r#"{"shel": "sh"}"#).is_err());
    }
}
