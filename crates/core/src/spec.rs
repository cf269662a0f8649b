//! What a caller demands of a sandbox.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::attach::{RESERVED_PREFIX, tag_bytes};
use crate::claim::MAX_NAME_BYTES;
use crate::env::{EnvMap, json_type};
use crate::error::{Error, Result};
use crate::file::MAX_PATH_BYTES;
use crate::limits::Limits;
use crate::network::{Allowlist, NetworkPolicy, NetworkStrength};
use crate::object_only;
use crate::output::Timeout;
use crate::statement::SpecField;

const ACCEPT: &str = "accept the spec";

/// The most bytes of all labels of a sandbox together, names and values.
pub const MAX_LABEL_BYTES: usize = 8 << 10;

/// The wall between sandbox and host, weakest first. A spec names the least it accepts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Namespaces and filters over the host's kernel.
    #[default]
    SharedKernel,
    /// A kernel in user space takes the system calls.
    UserSpaceKernel,
    /// A kernel of its own behind hardware virtualisation.
    OwnKernel,
}

impl fmt::Display for Isolation {
    /// Shows the outside name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SharedKernel => "shared-kernel",
            Self::UserSpaceKernel => "user-space-kernel",
            Self::OwnKernel => "own-kernel",
        })
    }
}

/// What a sandbox must guarantee. Immutable once built (SP-02); the default is closed (SP-01).
///
/// The outside form is JSON, see [`SpecDocument`].
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(into = "SpecDocument")]
pub struct SandboxSpec {
    env: EnvMap,
    network: NetworkPolicy,
    limits: Limits,
    isolation: Isolation,
    image: Option<String>,
    workdir: Option<String>,
    lifetime: Option<Duration>,
    idle: Option<Duration>,
    owner: Option<String>,
    labels: BTreeMap<String, String>,
}

impl SandboxSpec {
    /// Returns the closed spec to build upon.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the variables every command sees.
    #[must_use]
    pub fn with_env(mut self, env: EnvMap) -> Self {
        self.env = env;
        self
    }

    /// Sets the network policy. A list without entries blocks everything, however it was made (SP-07).
    #[must_use]
    pub fn with_network(mut self, network: NetworkPolicy) -> Self {
        self.network = match network {
            NetworkPolicy::Allow(list) => NetworkPolicy::allow(list),
            other @ (NetworkPolicy::Blocked | NetworkPolicy::Open) => other,
        };
        self
    }

    /// Sets the ceilings.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the weakest wall accepted.
    #[must_use]
    pub fn with_isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets the image reference.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for the empty text.
    pub fn with_image(mut self, image: impl Into<String>) -> Result<Self> {
        self.image = Some(filled("image", image.into())?);
        Ok(self)
    }

    /// Sets the working directory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) unless it is absolute, without NUL and of at most
    /// [`MAX_PATH_BYTES`] bytes. It is text: its JSON form, tags and vendors' requests carry nothing else, and a path that
    /// changed on the way would be another directory.
    pub fn with_workdir(mut self, workdir: impl Into<String>) -> Result<Self> {
        let workdir = workdir.into();
        let fault = if !workdir.starts_with('/') {
            format!("workdir must be absolute, not {workdir:?}")
        } else if workdir.contains('\0') {
            "workdir cannot contain a NUL byte".to_owned()
        } else if workdir.len() > MAX_PATH_BYTES {
            format!("workdir has {} bytes, at most {MAX_PATH_BYTES} are accepted", workdir.len())
        } else {
            self.workdir = Some(workdir);
            return Ok(self);
        };
        Err(Error::invalid(ACCEPT, fault))
    }

    /// Sets after which time the sandbox ends, whoever is left; kept in milliseconds, at least 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for zero or more than [`Timeout::MAX`].
    pub fn with_lifetime(mut self, lifetime: Duration) -> Result<Self> {
        self.lifetime = Some(positive("lifetime", lifetime)?);
        Ok(self)
    }

    /// Sets after which time without an operation the sandbox ends; kept in milliseconds, at least 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for zero or more than [`Timeout::MAX`].
    pub fn with_idle(mut self, idle: Duration) -> Result<Self> {
        self.idle = Some(positive("idle", idle)?);
        Ok(self)
    }

    /// Sets who may attach.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for the empty text and for more than
    /// [`MAX_NAME_BYTES`].
    pub fn with_owner(mut self, owner: impl Into<String>) -> Result<Self> {
        let owner = filled("owner", owner.into())?;
        if owner.len() > MAX_NAME_BYTES {
            let fault = format!("owner has {} bytes, at most {MAX_NAME_BYTES} are accepted", owner.len());
            return Err(Error::invalid(ACCEPT, fault));
        }
        self.owner = Some(owner);
        Ok(self)
    }

    /// Sets the labels for finding the sandbox again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for an empty name, for one that begins with
    /// [`RESERVED_PREFIX`], and for more than [`MAX_LABEL_BYTES`] of all names and values: labels share the tags of a sandbox with
    /// what Ringfence has to remember there, such as whose it is.
    pub fn with_labels(mut self, labels: BTreeMap<String, String>) -> Result<Self> {
        let mut faults: Vec<String> = Vec::new();
        for name in labels.keys() {
            if name.is_empty() {
                faults.push("the name of a label must not be empty".to_owned());
            } else if name.starts_with(RESERVED_PREFIX) {
                faults.push(format!("label {name:?} begins with {RESERVED_PREFIX}, which is reserved"));
            }
        }
        let bytes = tag_bytes(&labels);
        if bytes > MAX_LABEL_BYTES {
            faults.push(format!("labels have {bytes} bytes, at most {MAX_LABEL_BYTES} are accepted"));
        }
        if !faults.is_empty() {
            return Err(Error::invalid(ACCEPT, faults.join("; ")));
        }
        self.labels = labels;
        Ok(self)
    }

    /// Variables every command sees.
    #[must_use]
    pub fn env(&self) -> &EnvMap {
        &self.env
    }

    /// The network policy.
    #[must_use]
    pub fn network(&self) -> &NetworkPolicy {
        &self.network
    }

    /// The ceilings.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The weakest wall accepted.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The image reference.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }

    /// The working directory, absolute; the backend's own if absent.
    #[must_use]
    pub fn workdir(&self) -> Option<&str> {
        self.workdir.as_deref()
    }

    /// After which time the sandbox ends.
    #[must_use]
    pub fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// After which time without an operation the sandbox ends.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        self.idle
    }

    /// Who may attach.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Returns whether the spec demands something for a field; a network policy is always one.
    #[must_use]
    pub fn asks_for(&self, field: SpecField) -> bool {
        let list = match &self.network {
            NetworkPolicy::Allow(list) => Some(list),
            NetworkPolicy::Blocked | NetworkPolicy::Open => None,
        };
        match field {
            SpecField::Env => !self.env.is_empty(),
            SpecField::Network => true,
            SpecField::AllowEgressTo => list.is_some_and(|list| !list.hosts().is_empty()),
            SpecField::AllowEgressToCidrs => list.is_some_and(|list| !list.cidrs().is_empty()),
            SpecField::Memory => self.limits.memory.is_some(),
            SpecField::Cpus => self.limits.cpus.is_some(),
            SpecField::Pids => self.limits.pids.is_some(),
            SpecField::Disk => self.limits.disk.is_some(),
            SpecField::Isolation => self.isolation > Isolation::default(),
            SpecField::Image => self.image.is_some(),
            SpecField::Workdir => self.workdir.is_some(),
            SpecField::Lifetime => self.lifetime.is_some(),
            SpecField::Idle => self.idle.is_some(),
            SpecField::Owner => self.owner.is_some(),
            SpecField::Labels => !self.labels.is_empty(),
        }
    }

    /// Labels for finding the sandbox again.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }
}

fn filled(name: &str, value: String) -> Result<String> {
    if value.is_empty() {
        return Err(Error::invalid(ACCEPT, format!("{name} must not be empty; leave it out")));
    }
    Ok(value)
}

/// Checks a span of time and rounds it to milliseconds: those survive the way through JSON seconds exactly, nanoseconds
/// do not. The bound keeps `now + span` from overflowing any clock (P22).
fn positive(name: &str, duration: Duration) -> Result<Duration> {
    if duration.is_zero() || duration > Timeout::MAX {
        return Err(Error::invalid(
            ACCEPT,
            format!("{name} must be greater than 0 and at most 31536000 seconds, not {duration:?}"),
        ));
    }
    let nanos = duration.as_nanos();
    let millis = nanos / 1_000_000 + u128::from(nanos % 1_000_000 >= 500_000);
    Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX).max(1)))
}

/// The JSON form of a [`SandboxSpec`]. Unknown keys are refused; a field left out keeps its closed default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
#[schemars(
    title = "SandboxSpec",
    description = "What a sandbox must guarantee. Unknown keys are refused; a field left out keeps its closed default."
)]
pub struct SpecDocument {
    /// Variables every command sees; names of letters, digits and `_`.
    pub env: EnvMap,
    /// Whether egress is blocked but for the two lists. With `false` both lists must be empty.
    pub block_network: bool,
    /// Host names that may be reached, e.g. `api.example.org` or `*.example.org`.
    #[serde(deserialize_with = "hosts_of")]
    pub allow_egress_to: Vec<String>,
    /// IPv4 ranges that may be reached, e.g. `10.20.0.0/16`.
    #[serde(deserialize_with = "cidrs_of")]
    pub allow_egress_to_cidrs: Vec<String>,
    /// The weakest way of telling host names apart that is accepted.
    pub least_network_strength: NetworkStrength,
    /// Ceilings.
    pub limits: Limits,
    /// The weakest wall accepted.
    pub isolation: Isolation,
    /// Image reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image: Option<String>,
    /// Absolute working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^/"))]
    pub workdir: Option<String>,
    /// Seconds after which the sandbox ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 31_536_000))]
    pub lifetime_seconds: Option<f64>,
    /// Seconds without an operation after which the sandbox ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 31_536_000))]
    pub idle_seconds: Option<f64>,
    /// Who may attach.
    #[schemars(length(min = 1, max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Labels for finding the sandbox again. Names that begin with `ringfence_` are reserved.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = {"minLength": 1, "not": {"pattern": "^ringfence_"}}))]
    pub labels: BTreeMap<String, String>,
}

impl Default for SpecDocument {
    fn default() -> Self {
        SandboxSpec::default().into()
    }
}

impl From<SandboxSpec> for SpecDocument {
    fn from(spec: SandboxSpec) -> Self {
        let (hosts, cidrs, strength) = match &spec.network {
            NetworkPolicy::Allow(list) => (
                list.hosts().iter().map(ToString::to_string).collect(),
                list.cidrs().iter().map(ToString::to_string).collect(),
                list.least_strength(),
            ),
            NetworkPolicy::Blocked | NetworkPolicy::Open => {
                (Vec::new(), Vec::new(), NetworkStrength::default())
            }
        };
        Self {
            block_network: spec.network != NetworkPolicy::Open,
            allow_egress_to: hosts,
            allow_egress_to_cidrs: cidrs,
            least_network_strength: strength,
            env: spec.env,
            limits: spec.limits,
            isolation: spec.isolation,
            image: spec.image,
            workdir: spec.workdir,
            lifetime_seconds: spec.lifetime.map(|duration| duration.as_secs_f64()),
            idle_seconds: spec.idle.map(|duration| duration.as_secs_f64()),
            owner: spec.owner,
            labels: spec.labels,
        }
    }
}

impl TryFrom<SpecDocument> for SandboxSpec {
    type Error = Error;

    fn try_from(document: SpecDocument) -> Result<Self> {
        let network = network_of(
            document.block_network,
            &document.allow_egress_to,
            &document.allow_egress_to_cidrs,
            document.least_network_strength,
        )?;
        let mut spec = Self {
            env: document.env,
            network,
            limits: document.limits,
            isolation: document.isolation,
            ..Self::default()
        }
        .with_labels(document.labels)?;
        if let Some(image) = document.image {
            spec = spec.with_image(image)?;
        }
        if let Some(workdir) = document.workdir {
            spec = spec.with_workdir(workdir)?;
        }
        if let Some(seconds) = document.lifetime_seconds {
            spec = spec.with_lifetime(seconds_of("lifetime_seconds", seconds)?)?;
        }
        if let Some(seconds) = document.idle_seconds {
            spec = spec.with_idle(seconds_of("idle_seconds", seconds)?)?;
        }
        if let Some(owner) = document.owner {
            spec = spec.with_owner(owner)?;
        }
        Ok(spec)
    }
}

/// Builds the policy from the three outside fields.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for bad entries, and for a list beside an open
/// network, which contradict each other.
pub fn network_of<H: AsRef<str>, C: AsRef<str>>(
    block_network: bool,
    hosts: &[H],
    cidrs: &[C],
    least_strength: NetworkStrength,
) -> Result<NetworkPolicy> {
    let list = Allowlist::parse(hosts, cidrs, least_strength)?;
    let policy = NetworkPolicy::allow(list);
    if block_network {
        return Ok(policy);
    }
    if policy != NetworkPolicy::Blocked {
        return Err(Error::invalid(
            "accept the network policy",
            "an allowlist and an open network contradict each other",
        )
        .hint("set block_network or drop the list"));
    }
    Ok(NetworkPolicy::Open)
}

impl<'de> Deserialize<'de> for SandboxSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        <SpecDocument as Deserialize>::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}

object_only!(SpecDocument);

fn hosts_of<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    texts_of("allow_egress_to", deserializer)
}

fn cidrs_of<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    texts_of("allow_egress_to_cidrs", deserializer)
}

/// Reads a list of texts, and says which field it was and what to do when it is none (MO-08).
fn texts_of<'de, D: Deserializer<'de>>(
    field: &str,
    deserializer: D,
) -> std::result::Result<Vec<String>, D::Error> {
    use serde_json::Value;

    match Value::deserialize(deserializer)? {
        Value::Array(values) => values
            .into_iter()
            .map(|value| match value {
                Value::String(text) => Ok(text),
                other => Err(serde::de::Error::custom(format!(
                    "{field} must hold texts only, not {}",
                    json_type(&other)
                ))),
            })
            .collect(),
        Value::String(text) => Err(serde::de::Error::custom(format!(
            "{field} is the bare text {text:?}, which could be taken for a list of its characters; write it as a list"
        ))),
        other => Err(serde::de::Error::custom(format!(
            "{field} must be a list of texts, not {}",
            json_type(&other)
        ))),
    }
}

fn seconds_of(name: &'static str, seconds: f64) -> Result<Duration> {
    if seconds > 0.0
        && let Ok(duration) = Duration::try_from_secs_f64(seconds)
    {
        return Ok(duration);
    }
    Err(Error::invalid(ACCEPT, format!("{name} must be positive and finite, not {seconds}")))
}
