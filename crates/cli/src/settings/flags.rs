//! The layers that are not settings files: flags, the document of `--spec`, the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringfence::{DEFAULT_SCHEME, EnvMap};

use super::file::SpecTable;
use super::{Field, Layer, Network, Origin, RunFlags, Source, Sourced};
use crate::args::SpecArgs;
use crate::environment::{self, Environment};
use crate::failure::{Failure, Result};
use crate::host_file;
use crate::parse::{self, EnvAssignment};

/// Returns what the flags say.
pub(super) fn flag_layer(args: &SpecArgs, run: RunFlags) -> Result<Layer> {
    fn flag<T: Clone>(value: Option<&T>, name: &str) -> Field<T> {
        value.map(|value| Sourced { value: value.clone(), origin: Origin::new(Source::Flag, name) })
    }
    let mut layer = Layer {
        backend: flag(args.backend.as_ref(), "--backend"),
        timeout: flag(run.timeout.as_ref(), "--timeout"),
        output_limit: flag(run.output_limit.as_ref(), "--output-limit"),
        pool: flag(run.pool.as_ref(), "--pool"),
        network: flag(network(args).as_ref(), network_flag(args)),
        memory: flag(args.memory.as_ref(), "--memory"),
        cpus: flag(args.cpus.as_ref(), "--cpus"),
        pids: flag(args.pids.as_ref(), "--pids"),
        disk: flag(args.disk.as_ref(), "--disk"),
        workdir: flag(args.workdir.as_ref(), "--workdir"),
        lifetime: flag(args.lifetime.as_ref(), "--lifetime"),
        idle: flag(args.idle.as_ref(), "--idle"),
        owner: flag(args.owner.as_ref(), "--owner"),
        ..Layer::default()
    };
    for path in &args.env_file {
        for (assignment, line) in env_file(path)? {
            assign(&mut layer, assignment, Origin::new(Source::Flag, format!("{}:{line}", path.display())))?;
        }
    }
    for assignment in &args.env {
        assign(&mut layer, assignment.clone(), Origin::new(Source::Flag, "--env"))?;
    }
    for label in &args.labels {
        let sourced = Sourced { value: label.value.clone(), origin: Origin::new(Source::Flag, "--label") };
        layer.labels.insert(label.name.clone(), sourced);
    }
    Ok(layer)
}

fn network(args: &SpecArgs) -> Option<Network> {
    let asked =
        args.open_network || args.block_network || !args.allow_host.is_empty() || !args.allow_cidr.is_empty();
    asked.then(|| Network {
        block: !args.open_network,
        hosts: args.allow_host.clone(),
        cidrs: args.allow_cidr.clone(),
        ..Network::default()
    })
}

fn network_flag(args: &SpecArgs) -> &'static str {
    match args {
        SpecArgs { open_network: true, .. } => "--open-network",
        SpecArgs { block_network: true, .. } => "--block-network",
        SpecArgs { allow_host, .. } if !allow_host.is_empty() => "--allow-host",
        _ => "--allow-cidr",
    }
}

fn assign(layer: &mut Layer, assignment: EnvAssignment, origin: Origin) -> Result<()> {
    let (name, value) = resolve(assignment, &origin)?;
    layer.env.insert(name, Sourced { value, origin });
    Ok(())
}

/// Returns the variables of a single command.
pub(crate) fn variables(assignments: Vec<EnvAssignment>) -> Result<EnvMap> {
    let origin = Origin::new(Source::Flag, "--env");
    let resolved = assignments.into_iter().map(|assignment| resolve(assignment, &origin));
    Ok(EnvMap::new(resolved.collect::<Result<BTreeMap<String, String>>>()?)?)
}

/// Returns name and value, which may come from our own environment.
fn resolve(assignment: EnvAssignment, origin: &Origin) -> Result<(String, String)> {
    match assignment {
        EnvAssignment::Given(name, value) => Ok((name, value)),
        EnvAssignment::Inherited(name) => {
            let value = Environment::foreign(&name).ok_or_else(|| {
                Failure::new(format!("{origin}: {name} is not set in the environment"))
                    .hint(format!("{name}=VALUE"))
            })?;
            let value = value
                .into_string()
                .map_err(|_| Failure::new(format!("{origin}: the value of {name} is not UTF-8")))?;
            Ok((name, value))
        }
    }
}

/// Reads `NAME=VALUE` or `NAME` per line; empty lines and lines that start with `#` are skipped.
fn env_file(path: &Path) -> Result<Vec<(EnvAssignment, usize)>> {
    let text = host_file::read_named_text(path)?;
    let mut assignments = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let assignment = parse::env_assignment(line.trim_start())
            .map_err(|why| Failure::new(format!("{}:{}: {why}", path.display(), index + 1)))?;
        assignments.push((assignment, index + 1));
    }
    Ok(assignments)
}

/// Returns what the document of `--spec` says. It is a whole spec: where it is silent about the network, that is closed
/// by its word and no weaker layer opens it. Ceilings and variables of weaker layers still apply.
pub(super) fn spec_layer(args: &SpecArgs) -> Result<Layer> {
    let Some(spec) = &args.spec else { return Ok(Layer::default()) };
    let (text, place) = if spec.trim_start().starts_with('{') {
        (spec.clone(), "--spec".to_owned())
    } else {
        (host_file::read_named_text(&PathBuf::from(spec))?, spec.clone())
    };
    let table = SpecTable::from_json(&text).map_err(|error| Failure::new(format!("{place}: {error}")))?;
    let origin = |_: &[&str]| Origin::new(Source::Spec, place.clone());
    let mut layer = table.into_layer(&origin)?;
    layer.network.get_or_insert_with(|| Sourced { value: Network::default(), origin: origin(&[]) });
    Ok(layer)
}

/// Returns what the environment says.
pub(super) fn environment_layer(environment: &Environment) -> Result<Layer> {
    fn field<T>(
        environment: &Environment,
        name: &'static str,
        parse: impl FnOnce(&str) -> std::result::Result<T, String>,
    ) -> Result<Field<T>> {
        environment
            .get(name)
            .map(|text| {
                let value = parse(text).map_err(|why| Failure::new(format!("{name}: {why}")))?;
                Ok(Sourced { value, origin: Origin::new(Source::Environment, name) })
            })
            .transpose()
    }
    let text = |text: &str| Ok(text.to_owned());
    let mut layer = Layer {
        backend: field(environment, environment::BACKEND, text)?,
        timeout: field(environment, environment::TIMEOUT, parse::timeout)?,
        output_limit: field(environment, environment::OUTPUT_LIMIT, parse::output_limit)?,
        pool: field(environment, environment::POOL, parse::pool)?,
        network: environment_network(environment)?,
        memory: field(environment, environment::MEMORY, parse::size)?,
        cpus: field(environment, environment::CPUS, parse::cpus)?,
        pids: field(environment, environment::PIDS, parse::pids)?,
        disk: field(environment, environment::DISK, parse::size)?,
        workdir: field(environment, environment::WORKDIR, parse::workdir)?,
        lifetime: field(environment, environment::LIFETIME, parse::duration)?,
        idle: field(environment, environment::IDLE, parse::duration)?,
        ..Layer::default()
    };
    let mut local = |key: &str, name: &'static str, value: serde_json::Value| {
        layer.backends.insert(
            (DEFAULT_SCHEME.to_owned(), key.to_owned()),
            Sourced { value, origin: Origin::new(Source::Environment, name) },
        );
    };
    if let Some(shell) = environment.get(environment::SHELL) {
        local("shell", environment::SHELL, shell.into());
    }
    if let Some(paths) = environment.get(environment::READ_ONLY_PATHS) {
        let paths: Vec<&str> = paths.split(':').filter(|path| !path.is_empty()).collect();
        local("read_only_paths", environment::READ_ONLY_PATHS, paths.into());
    }
    Ok(layer)
}

/// Returns what belongs to the login rather than to anybody's wishes, and so is weaker than all of these.
pub(super) fn login_layer(environment: &Environment) -> Layer {
    let mut layer = Layer::default();
    // Paths of settings are text in every form they have; one that is not cannot be passed on unchanged.
    if let Some(folder) = environment.runtime_folder().as_ref().and_then(|folder| folder.to_str()) {
        let origin = Origin::new(Source::Environment, "XDG_RUNTIME_DIR");
        let key = (DEFAULT_SCHEME.to_owned(), "runtime_dir".to_owned());
        layer.backends.insert(key, Sourced { value: folder.into(), origin });
    }
    layer
}

fn environment_network(environment: &Environment) -> Result<Field<Network>> {
    let list = |name| -> Vec<String> {
        let entries = environment.get(name).unwrap_or_default().split(',').map(str::trim);
        entries.filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    };
    let open = match environment.get(environment::OPEN_NETWORK) {
        Some(text) => switch(environment::OPEN_NETWORK, text)?,
        None => false,
    };
    let network = Network {
        block: !open,
        hosts: list(environment::ALLOW_HOST),
        cidrs: list(environment::ALLOW_CIDR),
        ..Network::default()
    };
    let name = match &network {
        Network { block: false, .. } => environment::OPEN_NETWORK,
        Network { hosts, .. } if !hosts.is_empty() => environment::ALLOW_HOST,
        Network { cidrs, .. } if !cidrs.is_empty() => environment::ALLOW_CIDR,
        _ => return Ok(None),
    };
    Ok(Some(Sourced { value: network, origin: Origin::new(Source::Environment, name) }))
}

/// Parses a variable that switches something.
pub(super) fn switch(name: &str, text: &str) -> Result<bool> {
    match text {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        other => Err(Failure::new(format!("{name}: {other:?} is neither 1 nor 0"))),
    }
}
