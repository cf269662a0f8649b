//! What is enforced, by what, and how that is known.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object_only;

/// The version of the JSON form of [`EnforcementStatement`].
pub const STATEMENT_VERSION: u32 = 1;

/// A field of the spec that a statement row or a refusal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpecField {
    /// Environment variables.
    Env,
    /// Blocked or open network.
    Network,
    /// Host allowlist.
    AllowEgressTo,
    /// Range allowlist.
    AllowEgressToCidrs,
    /// Memory ceiling.
    Memory,
    /// CPU ceiling.
    Cpus,
    /// Process ceiling.
    Pids,
    /// Storage ceiling.
    Disk,
    /// The wall.
    Isolation,
    /// Image.
    Image,
    /// Working directory.
    Workdir,
    /// Lifetime.
    Lifetime,
    /// Idle time.
    Idle,
    /// Owner.
    Owner,
    /// Labels.
    Labels,
}

impl SpecField {
    /// Every field, in the order in which statements list them.
    pub const ALL: &'static [Self] = &[
        Self::Env,
        Self::Network,
        Self::AllowEgressTo,
        Self::AllowEgressToCidrs,
        Self::Memory,
        Self::Cpus,
        Self::Pids,
        Self::Disk,
        Self::Isolation,
        Self::Image,
        Self::Workdir,
        Self::Lifetime,
        Self::Idle,
        Self::Owner,
        Self::Labels,
    ];

    /// Returns the name in statements.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Env => "env",
            Self::Network => "network",
            Self::AllowEgressTo => "allow_egress_to",
            Self::AllowEgressToCidrs => "allow_egress_to_cidrs",
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Isolation => "isolation",
            Self::Image => "image",
            Self::Workdir => "workdir",
            Self::Lifetime => "lifetime",
            Self::Idle => "idle",
            Self::Owner => "owner",
            Self::Labels => "labels",
        }
    }

    /// Returns the key in the JSON form of a spec, which is what somebody must edit after a refusal; for the network the one
    /// that blocks or opens it.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Env => "env",
            Self::Network => "block_network",
            Self::AllowEgressTo => "allow_egress_to",
            Self::AllowEgressToCidrs => "allow_egress_to_cidrs",
            Self::Memory => "limits.memory",
            Self::Cpus => "limits.cpus",
            Self::Pids => "limits.pids",
            Self::Disk => "limits.disk",
            Self::Isolation => "isolation",
            Self::Image => "image",
            Self::Workdir => "workdir",
            Self::Lifetime => "lifetime_seconds",
            Self::Idle => "idle_seconds",
            Self::Owner => "owner",
            Self::Labels => "labels",
        }
    }

    /// Returns the field with this [`Self::key`].
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|field| field.key() == key)
    }
}

impl fmt::Display for SpecField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a row is known to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The setting was read back from the enforcing system after it was made.
    ReadBack,
    /// The kernel or system accepted the request for exactly this sandbox; a failure would have ended creation.
    Applied,
    /// It was tried on this machine before.
    Probed,
    /// The operator says so.
    DeclaredByOperator,
    /// The vendor's documentation says so.
    VendorDocumentation,
    /// Decided from the spec alone, before creation.
    Planned,
    /// The spec asks for nothing here.
    NotAsked,
}

/// One spec field and what is done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct EnforcementRow {
    /// The field.
    pub field: SpecField,
    /// What enforces it, such as `cgroup v1 memory.limit_in_bytes = 67108864`.
    pub mechanism: String,
    /// How strong it is or at which layer it acts, where that can differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<String>,
    /// How that is known.
    pub evidence: Evidence,
}

/// One row per spec field, in the order of [`SpecField::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct EnforcementStatement {
    /// Version of this form.
    pub version: u32,
    /// When the rows were gathered, RFC 3339 in UTC; absent for a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The rows.
    pub rows: Vec<EnforcementRow>,
}

object_only!(EnforcementRow);
object_only!(EnforcementStatement);

impl EnforcementStatement {
    /// Builds a statement: `row` is asked for every field, so none can be forgotten.
    pub fn build(at: Option<String>, mut row: impl FnMut(SpecField) -> EnforcementRow) -> Self {
        Self {
            version: STATEMENT_VERSION,
            at,
            rows: SpecField::ALL
                .iter()
                .map(|field| EnforcementRow { field: *field, ..row(*field) })
                .collect(),
        }
    }

    /// Returns the row of a field.
    #[must_use]
    pub fn row(&self, field: SpecField) -> Option<&EnforcementRow> {
        self.rows.iter().find(|row| row.field == field)
    }
}

impl EnforcementRow {
    /// Returns a row without a strength.
    pub fn new(field: SpecField, mechanism: impl Into<String>, evidence: Evidence) -> Self {
        Self { field, mechanism: mechanism.into(), strength: None, evidence }
    }

    /// Returns the row of a field the spec does not use.
    #[must_use]
    pub fn not_asked(field: SpecField) -> Self {
        Self::new(field, "not asked", Evidence::NotAsked)
    }
}
