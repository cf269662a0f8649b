//! What a toolset is built from, and the checks on it (TC). What can be set depends on whose sandbox it uses, so that a
//! contradiction does not compile (TC-07, TC-09 to TC-11).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::{
    Backend, Claimant, Clock, Error, GuestPath, Lease, OutputLimit, Result, SandboxSpec, SpecField, Timeout,
};

use crate::inputs::{Input, InputList, InputSource};

/// Seconds a command gets when the model asks for none (TC-19).
pub const DEFAULT_COMMAND_TIMEOUT_SECONDS: f64 = 60.0;
/// Most seconds a command gets, whatever the model asks (TC-19).
pub const DEFAULT_MAX_COMMAND_TIMEOUT_SECONDS: f64 = 300.0;
/// Most lines of one output stream, file window or listing shown to the model (TC-19).
pub const DEFAULT_MAX_OUTPUT_LINES: usize = 2000;
/// Most bytes of one output stream, file window or listing shown to the model (TC-19).
pub const DEFAULT_MAX_OUTPUT_BYTES: usize = 50 << 10;
/// Largest file `read_file` opens, in bytes (TC-19).
pub const DEFAULT_MAX_READ_BYTES: u64 = 5 << 20;
/// Largest file that is exported, in bytes (TC-19).
pub const DEFAULT_MAX_EXPORT_BYTES: u64 = 1 << 30;

/// The longest prefix: with `_list_directory` a tool name has at most 64 characters, which is what model interfaces take.
pub const MAX_PREFIX_BYTES: usize = 64 - "_list_directory".len();

/// How to build a [`Toolset`](crate::Toolset), or with [`Self::attached`] an [`AttachedToolset`](crate::AttachedToolset). Setters
/// only collect; building checks.
///
/// Line and byte caps are whole numbers by type, so that no fraction can round to a cap of 0 (TC-15 done right).
#[derive(Clone, Default)]
pub struct ToolsetConfig<M = OwnSandbox> {
    pub(crate) mode: M,
    pub(crate) prefix: String,
    default_command_timeout_seconds: Option<f64>,
    max_command_timeout_seconds: Option<f64>,
    max_output_lines: Option<usize>,
    max_output_bytes: Option<usize>,
    max_read_bytes: Option<u64>,
    max_export_bytes: Option<u64>,
    pub(crate) secrets: Vec<Vec<u8>>,
    pub(crate) public_env: Vec<String>,
}

/// The part of a [`ToolsetConfig`] for runs that create and destroy a sandbox of their own.
#[derive(Debug, Clone, Default)]
pub struct OwnSandbox {
    pub(crate) spec: SandboxSpec,
    pub(crate) inputs: InputList,
}

/// The part of a [`ToolsetConfig`] for runs in a sandbox of someone else, who decided what it guarantees, put in what it needs and
/// takes out what is wanted: there is no spec, there are no inputs and no exports.
#[derive(Debug, Clone)]
pub struct AttachedSandbox {
    pub(crate) claimant: Claimant,
    pub(crate) lease: Lease,
    pub(crate) clock: Clock,
}

impl ToolsetConfig {
    /// Returns the configuration with all defaults: a closed sandbox and the bounds of TC-19.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the configuration with all defaults for a sandbox of someone else, claimed by `claimant`.
    #[must_use]
    pub fn attached(claimant: Claimant) -> ToolsetConfig<AttachedSandbox> {
        let mode = AttachedSandbox { claimant, lease: Lease::default(), clock: Clock::default() };
        ToolsetConfig::with_mode(mode)
    }

    /// Sets what the sandbox must guarantee. Always a concrete spec: the default is the closed one (SP-05).
    #[must_use]
    pub fn spec(mut self, spec: SandboxSpec) -> Self {
        self.mode.spec = spec;
        self
    }

    /// Adds a file, which is no program, or an empty directory that every sandbox gets before the first call reaches it, also one
    /// that replaces a lost sandbox.
    #[must_use]
    pub fn input(self, source: InputSource, destination: GuestPath) -> Self {
        self.inputs([Input { source, destination, executable: false }])
    }

    /// Adds inputs as [`Self::input`] does, programs included. They are staged as [`stage`](crate::stage) says.
    #[must_use]
    pub fn inputs(mut self, inputs: impl IntoIterator<Item = Input>) -> Self {
        self.mode.inputs.fixed.extend(inputs);
        self
    }

    /// Adds the inputs that `find` returns when a sandbox is created, each time anew: files come and go while a server lives.
    /// Called where it may block. An error keeps the sandbox from being created.
    #[must_use]
    pub fn inputs_found_by(mut self, find: impl Fn() -> Result<Vec<Input>> + Send + Sync + 'static) -> Self {
        self.mode.inputs.finders.push(Arc::new(find));
        self
    }

    /// Checks everything in the order of TC-14.
    pub(crate) fn bounds(&self) -> Result<Bounds> {
        let bounds = self.shared_bounds()?;
        if self.mode.spec.owner().is_some() {
            return Err(Error::refused(
                "",
                SpecField::Owner,
                "a toolset that provisions its own sandbox destroys it before anyone could attach",
            )
            .hint("drop the owner, or create the sandbox outside and attach to it"));
        }
        Ok(bounds)
    }
}

impl ToolsetConfig<AttachedSandbox> {
    /// Sets for how long a claim keeps others out when its holder is not heard of; it is renewed every third of that while a session
    /// is open. Unset, it is 5 minutes.
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.mode.lease = lease;
        self
    }

    /// Sets where the time of day comes from, by which leases run out and sandboxes end. Unset, it is the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.mode.clock = clock;
        self
    }

    /// Checks everything in the order of TC-14.
    pub(crate) fn bounds(&self, backend: &dyn Backend) -> Result<Bounds> {
        let bounds = self.shared_bounds()?;
        if backend.attachable().is_none() {
            return Err(refused(
                "backend",
                format!("{} is not attachable: no other process can use its sandboxes", backend.name()),
            )
            .hint("use a backend that can be attached to, such as local, or let the toolset create a sandbox of its own"));
        }
        Ok(bounds)
    }
}

impl<M> ToolsetConfig<M> {
    fn with_mode(mode: M) -> Self {
        Self {
            mode,
            prefix: String::new(),
            default_command_timeout_seconds: None,
            max_command_timeout_seconds: None,
            max_output_lines: None,
            max_output_bytes: None,
            max_read_bytes: None,
            max_export_bytes: None,
            secrets: Vec::new(),
            public_env: Vec::new(),
        }
    }

    /// Sets the prefix of all four tool names, joined by `_` (TP-01). Empty means none.
    ///
    /// An ASCII identifier of at most [`MAX_PREFIX_BYTES`]. Other letters are refused although they are identifiers in
    /// some languages, because model interfaces take only ASCII in tool names.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the seconds a command gets when the model asks for none. Unset, it is 60 or the maximum, whichever is less, so
    /// that lowering only the maximum works (TC-03 done right).
    #[must_use]
    pub fn default_command_timeout_seconds(mut self, seconds: f64) -> Self {
        self.default_command_timeout_seconds = Some(seconds);
        self
    }

    /// Sets the most seconds a command gets; more is clamped (RC-02). Unset, it is 300.
    #[must_use]
    pub fn max_command_timeout_seconds(mut self, seconds: f64) -> Self {
        self.max_command_timeout_seconds = Some(seconds);
        self
    }

    /// Sets the most lines of one stream, file window or listing. Unset, it is 2000.
    #[must_use]
    pub fn max_output_lines(mut self, lines: usize) -> Self {
        self.max_output_lines = Some(lines);
        self
    }

    /// Sets the most bytes of one stream, file window or listing; at most [`OutputLimit::MAX_BYTES`]. Unset, it is 50 KiB.
    #[must_use]
    pub fn max_output_bytes(mut self, bytes: usize) -> Self {
        self.max_output_bytes = Some(bytes);
        self
    }

    /// Sets the size in bytes of the largest file that `read_file` opens. Unset, it is 5 MiB.
    #[must_use]
    pub fn max_read_bytes(mut self, bytes: u64) -> Self {
        self.max_read_bytes = Some(bytes);
        self
    }

    /// Sets the size in bytes of the largest file that is exported. Unset, it is 1 GiB.
    #[must_use]
    pub fn max_export_bytes(mut self, bytes: u64) -> Self {
        self.max_export_bytes = Some(bytes);
        self
    }

    /// Registers a secret of any length that the model must not read, besides the values of the spec's environment: of an attached
    /// sandbox, the one it was created with.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secrets.push(secret.into());
        self
    }

    /// Says that the value of a variable of the spec's environment is no secret and may be shown.
    #[must_use]
    pub fn public_env(mut self, name: impl Into<String>) -> Self {
        self.public_env.push(name.into());
        self
    }

    /// Checks what does not depend on whose sandbox it is.
    fn shared_bounds(&self) -> Result<Bounds> {
        // An explicit default is checked before it is compared; an unset one follows the maximum (TC-03).
        let default = self
            .default_command_timeout_seconds
            .map(|seconds| timeout("default_command_timeout", seconds))
            .transpose()?;
        let maximum = timeout(
            "max_command_timeout",
            self.max_command_timeout_seconds.unwrap_or(DEFAULT_MAX_COMMAND_TIMEOUT_SECONDS),
        )?;
        let max_output_lines = self.max_output_lines.unwrap_or(DEFAULT_MAX_OUTPUT_LINES);
        at_least_one("max_output_lines", max_output_lines as u64)?;
        let max_output_bytes = self.max_output_bytes.unwrap_or(DEFAULT_MAX_OUTPUT_BYTES);
        at_least_one("max_output_bytes", max_output_bytes as u64)?;
        OutputLimit::new(max_output_bytes).map_err(|error| refused("max_output_bytes", error.message()))?;
        let max_read_bytes = self.max_read_bytes.unwrap_or(DEFAULT_MAX_READ_BYTES);
        at_least_one("max_read_bytes", max_read_bytes)?;
        let max_export_bytes = self.max_export_bytes.unwrap_or(DEFAULT_MAX_EXPORT_BYTES);
        at_least_one("max_export_bytes", max_export_bytes)?;
        let default = match default {
            Some(default) => default,
            None => {
                Timeout::new(maximum.get().min(Duration::from_secs_f64(DEFAULT_COMMAND_TIMEOUT_SECONDS)))?
            }
        };
        if default > maximum {
            return Err(refused(
                "default_command_timeout",
                format!(
                    "is {} s, which exceeds max_command_timeout, {} s",
                    default.get().as_secs_f64(),
                    maximum.get().as_secs_f64()
                ),
            ));
        }
        check_prefix(&self.prefix)?;
        Ok(Bounds {
            default_timeout: default,
            max_timeout: maximum,
            max_output_lines,
            max_output_bytes,
            max_read_bytes,
            max_export_bytes,
        })
    }
}

/// Shows what is set, but no secret.
impl<M: fmt::Debug> fmt::Debug for ToolsetConfig<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolsetConfig")
            .field("mode", &self.mode)
            .field("prefix", &self.prefix)
            .field("default_command_timeout_seconds", &self.default_command_timeout_seconds)
            .field("max_command_timeout_seconds", &self.max_command_timeout_seconds)
            .field("max_output_lines", &self.max_output_lines)
            .field("max_output_bytes", &self.max_output_bytes)
            .field("max_read_bytes", &self.max_read_bytes)
            .field("max_export_bytes", &self.max_export_bytes)
            .field("secrets", &self.secrets.len())
            .field("public_env", &self.public_env)
            .finish()
    }
}

/// The checked bounds of a toolset.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// What a command gets when the model asks for nothing.
    pub default_timeout: Timeout,
    /// The most a command gets.
    pub max_timeout: Timeout,
    /// The most lines of one stream, window or listing.
    pub max_output_lines: usize,
    /// The most bytes of one stream, window or listing.
    pub max_output_bytes: usize,
    /// The largest file read, in bytes.
    pub max_read_bytes: u64,
    /// The largest file exported, in bytes.
    pub max_export_bytes: u64,
}

fn refused(parameter: &str, why: impl fmt::Display) -> Error {
    Error::invalid("build the toolset", format!("{parameter} {why}"))
}

fn timeout(parameter: &str, seconds: f64) -> Result<Timeout> {
    Timeout::from_secs_f64(seconds).map_err(|_| {
        refused(parameter, format!("must be a positive number of seconds, at most 31536000, not {seconds}"))
    })
}

fn at_least_one(parameter: &str, value: u64) -> Result<()> {
    if value == 0 {
        return Err(refused(parameter, "must be at least 1, not 0"));
    }
    Ok(())
}

fn check_prefix(prefix: &str) -> Result<()> {
    let mut bytes = prefix.bytes();
    let starts_well = bytes.next().is_none_or(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !starts_well || !bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(refused(
            "tool prefix",
            format!(
                "must be an ASCII identifier (letters, digits and _, not starting with a digit), not {prefix:?}"
            ),
        ));
    }
    if prefix.len() > MAX_PREFIX_BYTES {
        return Err(refused(
            "tool prefix",
            format!("must have at most {MAX_PREFIX_BYTES} characters, not {}", prefix.len()),
        ));
    }
    Ok(())
}
