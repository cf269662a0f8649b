//! Settings files: where they are, what they may say, and on which line they say it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence::document::object;
use ringfence::spec::SpecDocument;
use ringfence::{
    BackendSettings, ByteSize, EnvMap, Isolation, Limits, NetworkStrength, SandboxSpec, Timeout,
};
use serde::{Deserialize, Deserializer};
use toml::de::{DeTable, DeValue};

use super::{Field, Layer, Network, Origin, Source, Sourced};
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::host_file;
use crate::parse;

/// The name of a project's settings file.
const PROJECT_FILE: &str = "ringfence.toml";

/// The most keys and list entries of a settings file, far more than a sandbox has a use for. A project file comes with code
/// nobody has read.
const MAX_ENTRIES: usize = 4096;

/// A settings file. Unknown keys are refused: a misspelt ceiling that is passed over would be no ceiling.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileDocument {
    backend: Option<String>,
    timeout: Option<TimeoutValue>,
    output_limit: Option<ByteSize>,
    pool: Option<usize>,
    /// Read here for its checks and their words only, see [`Written`].
    #[serde(rename = "spec")]
    _spec: SpecDocument,
    /// As above.
    #[serde(rename = "backends", deserialize_with = "object")]
    _backends: BackendSettings,
}

/// Spec and backend settings as written, because what is not written must not hide a weaker layer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    #[serde(deserialize_with = "object")]
    spec: SpecTable,
    backends: BTreeMap<String, BTreeMap<String, serde_json::Value>>,
}

/// The spec's own JSON names, every one optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SpecTable {
    env: EnvMap,
    block_network: Option<bool>,
    allow_egress_to: Option<Vec<String>>,
    allow_egress_to_cidrs: Option<Vec<String>>,
    least_network_strength: Option<NetworkStrength>,
    limits: Limits,
    isolation: Option<Isolation>,
    image: Option<String>,
    workdir: Option<String>,
    lifetime_seconds: Option<f64>,
    idle_seconds: Option<f64>,
    owner: Option<String>,
    labels: BTreeMap<String, String>,
}

impl SpecTable {
    /// Reads a whole spec; whatever the contract refuses is refused here, in its words.
    pub(super) fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<SandboxSpec>(text)?;
        object(&mut serde_json::Deserializer::from_str(text))
    }

    /// Returns the layer, with the origin that `origin` gives for a path of keys.
    pub(super) fn into_layer(self, origin: &dyn Fn(&[&str]) -> Origin) -> Result<Layer> {
        let sourced = |key: &'static str| move |value| Sourced { value, origin: origin(&["spec", key]) };
        let duration = |key: &'static str, seconds: Option<f64>| -> Result<Field<Duration>> {
            let Some(seconds) = seconds else { return Ok(None) };
            let origin = origin(&["spec", key]);
            let value = Timeout::from_secs_f64(seconds)
                .map_err(|error| Failure::new(format!("{origin}: {key}: {}", error.message())))?;
            Ok(Some(Sourced { value: value.get(), origin }))
        };
        if let Some(workdir) = &self.workdir {
            parse::workdir(workdir)
                .map_err(|why| Failure::new(format!("{}: {why}", origin(&["spec", "workdir"]))))?;
        }
        let lifetime = duration("lifetime_seconds", self.lifetime_seconds)?;
        let idle = duration("idle_seconds", self.idle_seconds)?;
        let limit = |key: &'static str| origin(&["spec", "limits", key]);
        let pairs = |table: &'static str, pairs: Vec<(String, String)>| {
            pairs
                .into_iter()
                .map(|(name, value)| {
                    let origin = origin(&["spec", table, &name]);
                    (name, Sourced { value, origin })
                })
                .collect()
        };
        Ok(Layer {
            network: self.network(origin),
            env: pairs("env", self.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect()),
            memory: self.limits.memory.map(|value| Sourced { value, origin: limit("memory") }),
            cpus: self.limits.cpus.map(|value| Sourced { value, origin: limit("cpus") }),
            pids: self.limits.pids.map(|value| Sourced { value, origin: limit("pids") }),
            disk: self.limits.disk.map(|value| Sourced { value, origin: limit("disk") }),
            isolation: self.isolation.map(|value| Sourced { value, origin: origin(&["spec", "isolation"]) }),
            image: self.image.map(sourced("image")),
            workdir: self.workdir.map(sourced("workdir")),
            lifetime,
            idle,
            owner: self.owner.map(sourced("owner")),
            labels: pairs("labels", self.labels.into_iter().collect()),
            ..Layer::default()
        })
    }

    fn network(&self, origin: &dyn Fn(&[&str]) -> Origin) -> Field<Network> {
        let key = if self.allow_egress_to.is_some() {
            "allow_egress_to"
        } else if self.allow_egress_to_cidrs.is_some() {
            "allow_egress_to_cidrs"
        } else if self.block_network.is_some() {
            "block_network"
        } else if self.least_network_strength.is_some() {
            "least_network_strength"
        } else {
            return None;
        };
        let value = Network {
            block: self.block_network.unwrap_or(true),
            hosts: self.allow_egress_to.clone().unwrap_or_default(),
            cidrs: self.allow_egress_to_cidrs.clone().unwrap_or_default(),
            least_strength: self.least_network_strength.unwrap_or_default(),
        };
        Some(Sourced { value, origin: origin(&["spec", key]) })
    }
}

/// A timeout as text with a unit or as a number of seconds.
#[derive(Debug)]
struct TimeoutValue(Timeout);

impl<'de> Deserialize<'de> for TimeoutValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = TimeoutValue;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("seconds or a text such as \"10m\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<TimeoutValue, E> {
                parse::timeout(text).map(TimeoutValue).map_err(E::custom)
            }
            fn visit_f64<E: serde::de::Error>(self, seconds: f64) -> std::result::Result<TimeoutValue, E> {
                self.visit_str(&seconds.to_string())
            }
            fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> std::result::Result<TimeoutValue, E> {
                self.visit_str(&seconds.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Returns what the user's file says; nothing if there is none.
pub(super) fn user_layer(environment: &Environment) -> Result<Layer> {
    let Some(path) = environment.user_file() else { return Ok(Layer::default()) };
    match host_file::read_text_if_present(&path)? {
        Some(text) => layer(&path, &text, Source::UserFile),
        None => Ok(Layer::default()),
    }
}

/// Returns what the project file says, before anything in it is refused; `None` if there is none.
pub(super) fn project_layer(environment: &Environment, ignore: bool) -> Result<Option<Layer>> {
    if ignore {
        return Ok(None);
    }
    let Ok(current) = std::env::current_dir() else { return Ok(None) };
    for folder in project_folders(&current, environment.home().map(PathBuf::as_path)) {
        let path = folder.join(PROJECT_FILE);
        if let Some(text) = host_file::read_text_if_present(&path)? {
            return layer(&path, &text, Source::ProjectFile).map(Some);
        }
    }
    Ok(None)
}

/// Returns the folders where a project file counts, nearest first: up to the root of the repository. Outside of one only
/// the current folder counts, so that nobody can plant a file for everyone in `/tmp` or `/`.
fn project_folders<'a>(current: &'a Path, home: Option<&Path>) -> Vec<&'a Path> {
    let mut folders = Vec::new();
    for folder in current.ancestors().take_while(|folder| Some(*folder) != home) {
        folders.push(folder);
        if folder.join(".git").symlink_metadata().is_ok() {
            return folders;
        }
    }
    vec![current]
}

pub(super) fn layer(path: &Path, text: &str, source: Source) -> Result<Layer> {
    let numbers = Lines::new(text);
    let fault = |error: toml::de::Error| {
        let line = error.span().map_or(String::new(), |span| format!(":{}", numbers.number(span.start)));
        Failure::new(format!("{}{line}: {}", path.display(), error.message()))
            .hint("`ringfence config --help` shows the keys")
    };
    let lines = DeTable::parse(text).map_err(fault)?;
    let count: usize = lines.get_ref().values().map(|value| 1 + entries(value.get_ref())).sum();
    if count > MAX_ENTRIES {
        return Err(Failure::new(format!(
            "{}: {count} entries, at most {MAX_ENTRIES} are accepted",
            path.display()
        )));
    }
    let document: FileDocument = toml::from_str(text).map_err(fault)?;
    let written: Written = toml::from_str(text).map_err(fault)?;
    let origin = |keys: &[&str]| {
        let line = key_offset(lines.get_ref(), keys).map_or(1, |offset| numbers.number(offset));
        Origin::new(source, format!("{}:{line}", path.display()))
    };
    let mut layer = written.spec.into_layer(&origin)?;
    layer.backend = document.backend.map(|value| Sourced { value, origin: origin(&["backend"]) });
    layer.timeout = document.timeout.map(|value| Sourced { value: value.0, origin: origin(&["timeout"]) });
    layer.output_limit =
        document.output_limit.map(|value| Sourced { value, origin: origin(&["output_limit"]) });
    if let Some(size) = &layer.output_limit {
        parse::output_limit_of(size.value)
            .map_err(|why| Failure::new(format!("{}: output_limit: {why}", size.origin)))?;
    }
    layer.pool = document.pool.map(|value| Sourced { value, origin: origin(&["pool"]) });
    if let Some(size) = &layer.pool {
        parse::pool(&size.value.to_string())
            .map_err(|why| Failure::new(format!("{}: pool: {why}", size.origin)))?;
    }
    for (scheme, keys) in written.backends {
        for (key, value) in keys {
            let origin = origin(&["backends", &scheme, &key]);
            layer.backends.insert((scheme.clone(), key), Sourced { value, origin });
        }
    }
    Ok(layer)
}

/// Returns where a key is written.
fn key_offset(table: &DeTable<'_>, keys: &[&str]) -> Option<usize> {
    let (first, rest) = keys.split_first()?;
    let (key, value) = table.get_key_value(*first)?;
    match value.get_ref() {
        DeValue::Table(table) if !rest.is_empty() => key_offset(table, rest),
        _ => Some(key.span().start),
    }
}

/// Returns how many keys and list entries there are.
fn entries(value: &DeValue<'_>) -> usize {
    match value {
        DeValue::Table(table) => table.values().map(|value| 1 + entries(value.get_ref())).sum(),
        DeValue::Array(list) => list.iter().map(|value| 1 + entries(value.get_ref())).sum(),
        _ => 0,
    }
}

/// Where the lines of a text start, found once.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(offset, _)| offset).collect())
    }

    /// Returns the number of the line that an offset is on.
    fn number(&self, offset: usize) -> usize {
        1 + self.0.partition_point(|newline| *newline < offset)
    }
}
