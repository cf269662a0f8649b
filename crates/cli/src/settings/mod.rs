//! Settings in layers: flag, `--spec`, environment, project file, user's file, default.
//!
//! Every value knows where it came from, for `ringfence config` and for telling who asked for what was refused.

mod file;
mod flags;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod project;
mod show;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use ringfence::document::object;
use ringfence::spec::SpecDocument;
use ringfence::{
    BackendSettings, ByteSize, Cpus, DEFAULT_SCHEME, EnvMap, Isolation, Limits, NetworkStrength, OutputLimit,
    Pids, SandboxSpec, SpecField, Timeout,
};

use crate::args::SpecArgs;
use crate::environment::{self, Environment};
use crate::failure::{Failure, Result};
use crate::parse;

pub(crate) use flags::variables;
pub(crate) use show::Row;

/// The timeout of `run` where nobody gives one: long enough for a build, short enough that nothing is forgotten (P19).
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3600);
/// What `run --json` keeps of each stream where nobody says.
const DEFAULT_OUTPUT_LIMIT_BYTES: u64 = 1 << 20;

/// The layer a value came from, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Spec,
    Environment,
    ProjectFile,
    UserFile,
    Default,
}

impl Source {
    /// Returns the name in `config --json`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Spec => "spec",
            Self::Environment => "environment",
            Self::ProjectFile => "project_file",
            Self::UserFile => "user_file",
            Self::Default => "default",
        }
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) source: Source,
    /// The flag, the variable, or the file with its line.
    pub(crate) place: String,
}

impl Origin {
    pub(crate) fn new(source: Source, place: impl Into<String>) -> Self {
        Self { source, place: place.into() }
    }

    fn default_value() -> Self {
        Self::new(Source::Default, "default")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

/// A value with its origin.
#[derive(Debug, Clone)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

type Field<T> = Option<Sourced<T>>;

/// The network as one setting: whoever says anything about it says everything, so that one layer's list
/// is never mixed with another layer's.
#[derive(Debug, Clone, PartialEq)]
struct Network {
    block: bool,
    hosts: Vec<String>,
    cidrs: Vec<String>,
    least_strength: NetworkStrength,
}

impl Default for Network {
    fn default() -> Self {
        Self { block: true, hosts: Vec::new(), cidrs: Vec::new(), least_strength: NetworkStrength::default() }
    }
}

/// What one layer says, or several after merging.
#[derive(Debug, Default)]
struct Layer {
    backend: Field<String>,
    timeout: Field<Timeout>,
    output_limit: Field<ByteSize>,
    pool: Field<usize>,
    env: BTreeMap<String, Sourced<String>>,
    network: Field<Network>,
    memory: Field<ByteSize>,
    cpus: Field<Cpus>,
    pids: Field<Pids>,
    disk: Field<ByteSize>,
    isolation: Field<Isolation>,
    image: Field<String>,
    workdir: Field<String>,
    lifetime: Field<Duration>,
    idle: Field<Duration>,
    owner: Field<String>,
    labels: BTreeMap<String, Sourced<String>>,
    /// By scheme and key.
    backends: BTreeMap<(String, String), Sourced<serde_json::Value>>,
}

impl Layer {
    /// Returns this layer on top of a weaker one.
    fn over(mut self, weaker: Self) -> Self {
        fn merged<K: Ord, V>(mut weaker: BTreeMap<K, V>, stronger: BTreeMap<K, V>) -> BTreeMap<K, V> {
            weaker.extend(stronger);
            weaker
        }
        self.env = merged(weaker.env, self.env);
        self.labels = merged(weaker.labels, self.labels);
        self.backends = merged(weaker.backends, self.backends);
        Self {
            backend: self.backend.or(weaker.backend),
            timeout: self.timeout.or(weaker.timeout),
            output_limit: self.output_limit.or(weaker.output_limit),
            pool: self.pool.or(weaker.pool),
            network: self.network.or(weaker.network),
            memory: self.memory.or(weaker.memory),
            cpus: self.cpus.or(weaker.cpus),
            pids: self.pids.or(weaker.pids),
            disk: self.disk.or(weaker.disk),
            isolation: self.isolation.or(weaker.isolation),
            image: self.image.or(weaker.image),
            workdir: self.workdir.or(weaker.workdir),
            lifetime: self.lifetime.or(weaker.lifetime),
            idle: self.idle.or(weaker.idle),
            owner: self.owner.or(weaker.owner),
            ..self
        }
    }
}

/// Flags that are not about the spec.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RunFlags {
    pub(crate) timeout: Option<Timeout>,
    pub(crate) output_limit: Option<ByteSize>,
    pub(crate) pool: Option<usize>,
}

/// All layers merged.
#[derive(Debug)]
pub(crate) struct Settings {
    layer: Layer,
}

impl Settings {
    /// Reads all layers.
    pub(crate) fn load(args: &SpecArgs, run: RunFlags, environment: &Environment) -> Result<Self> {
        let user = file::user_layer(environment)?;
        let ignore_project = match environment.get(environment::IGNORE_PROJECT_FILE) {
            Some(text) => flags::switch(environment::IGNORE_PROJECT_FILE, text)?,
            None => args.ignore_project_file,
        };
        let files = match file::project_layer(environment, args.ignore_project_file || ignore_project)? {
            Some(project) => project::narrow(project, user)?,
            None => user,
        };
        let layer = flags::flag_layer(args, run)?
            .over(flags::spec_layer(args)?)
            .over(flags::environment_layer(environment)?)
            .over(files)
            .over(flags::login_layer(environment));
        Ok(Self { layer })
    }

    /// Returns the scheme of the backend.
    pub(crate) fn backend(&self) -> &str {
        self.layer.backend.as_ref().map_or(DEFAULT_SCHEME, |backend| backend.value.as_str())
    }

    /// Returns the timeout of `run`.
    pub(crate) fn timeout(&self) -> Result<Sourced<Timeout>> {
        match &self.layer.timeout {
            Some(timeout) => Ok(timeout.clone()),
            None => Ok(Sourced { value: Timeout::new(DEFAULT_TIMEOUT)?, origin: Origin::default_value() }),
        }
    }

    /// Returns what `run --json` keeps of each stream.
    pub(crate) fn output_limit(&self) -> Result<OutputLimit> {
        let size = match &self.layer.output_limit {
            Some(size) => size.value,
            None => ByteSize::from_bytes(DEFAULT_OUTPUT_LIMIT_BYTES)?,
        };
        parse::output_limit_of(size).map_err(Failure::new)
    }

    /// Returns how many sandboxes `mcp` holds ready; none for 0 and where nobody says.
    pub(crate) fn pool(&self) -> Option<NonZeroUsize> {
        self.layer.pool.as_ref().and_then(|pool| NonZeroUsize::new(pool.value))
    }

    /// Returns what the sandbox must guarantee.
    pub(crate) fn spec(&self) -> Result<SandboxSpec> {
        let layer = &self.layer;
        fn value<T: Clone>(field: &Field<T>) -> Option<T> {
            field.as_ref().map(|sourced| sourced.value.clone())
        }
        let pairs = |map: &BTreeMap<String, Sourced<String>>| -> BTreeMap<String, String> {
            map.iter().map(|(name, sourced)| (name.clone(), sourced.value.clone())).collect()
        };
        let network = value(&layer.network).unwrap_or_default();
        let document = SpecDocument {
            env: EnvMap::new(pairs(&layer.env))?,
            block_network: network.block,
            allow_egress_to: network.hosts,
            allow_egress_to_cidrs: network.cidrs,
            least_network_strength: network.least_strength,
            limits: Limits {
                memory: value(&layer.memory),
                cpus: value(&layer.cpus),
                pids: value(&layer.pids),
                disk: value(&layer.disk),
            },
            isolation: value(&layer.isolation).unwrap_or_default(),
            image: value(&layer.image),
            workdir: value(&layer.workdir),
            lifetime_seconds: value(&layer.lifetime).map(|duration| duration.as_secs_f64()),
            idle_seconds: value(&layer.idle).map(|duration| duration.as_secs_f64()),
            owner: value(&layer.owner),
            labels: pairs(&layer.labels),
        };
        SandboxSpec::try_from(document).map_err(Failure::from)
    }

    /// Returns the settings of the backends.
    pub(crate) fn backend_settings(&self) -> Result<BackendSettings> {
        if self.layer.backends.is_empty() {
            return Ok(BackendSettings::default());
        }
        let mut schemes: BTreeMap<&str, BTreeMap<&str, &serde_json::Value>> = BTreeMap::new();
        for ((scheme, key), sourced) in &self.layer.backends {
            schemes.entry(scheme).or_default().insert(key, &sourced.value);
        }
        serde_json::to_value(schemes)
            .and_then(object)
            .map_err(|error| Failure::new(format!("settings of the backends: {error}")))
    }

    /// Says who asked for the field that a refusal names.
    pub(crate) fn explain(&self, failure: impl Into<Failure>) -> Failure {
        let failure = failure.into();
        match failure.field().and_then(|field| self.origin_of(field)) {
            Some(origin) if origin.source != Source::Default => failure.asked_by(&origin.place),
            _ => failure,
        }
    }

    fn origin_of(&self, field: SpecField) -> Option<&Origin> {
        fn origin<T>(field: &Field<T>) -> Option<&Origin> {
            field.as_ref().map(|sourced| &sourced.origin)
        }
        let layer = &self.layer;
        match field {
            SpecField::Network | SpecField::AllowEgressTo | SpecField::AllowEgressToCidrs => {
                origin(&layer.network)
            }
            SpecField::Memory => origin(&layer.memory),
            SpecField::Cpus => origin(&layer.cpus),
            SpecField::Pids => origin(&layer.pids),
            SpecField::Disk => origin(&layer.disk),
            SpecField::Isolation => origin(&layer.isolation),
            SpecField::Image => origin(&layer.image),
            SpecField::Workdir => origin(&layer.workdir),
            SpecField::Lifetime => origin(&layer.lifetime),
            SpecField::Idle => origin(&layer.idle),
            SpecField::Owner => origin(&layer.owner),
            SpecField::Env => layer.env.values().next().map(|sourced| &sourced.origin),
            SpecField::Labels => layer.labels.values().next().map(|sourced| &sourced.origin),
        }
    }
}
