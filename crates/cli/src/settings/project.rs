//! What a project file may do: make a sandbox narrower.
//!
//! It comes with code nobody has read, so nothing in it may widen what the person allowed (S45), and nothing in it may
//! reach a run outside of a sandbox (S46). Keys that could are refused and not passed over, so that nobody is left to
//! believe they are in force. Flags and variables are the person's own word and are not narrowed.

use ringfence::Timeout;

use super::{DEFAULT_TIMEOUT, Field, Layer, Network, Origin, Source, Sourced};
use crate::failure::{Failure, Result};

/// Returns the user's file with the project's on top.
pub(super) fn narrow(project: Layer, user: Layer) -> Result<Layer> {
    refuse_widening(&project)?;
    let default_timeout = Sourced { value: Timeout::new(DEFAULT_TIMEOUT)?, origin: Origin::default_value() };
    let timeout = match (project.timeout, user.timeout) {
        (None, user) => user,
        (project, user) => lower(project, user.or(Some(default_timeout)))
            .filter(|timeout| timeout.origin.source != Source::Default),
    };
    Ok(Layer {
        timeout,
        output_limit: lower(project.output_limit, user.output_limit),
        memory: lower(project.memory, user.memory),
        cpus: lower(project.cpus, user.cpus),
        pids: lower(project.pids, user.pids),
        disk: lower(project.disk, user.disk),
        lifetime: lower(project.lifetime, user.lifetime),
        idle: lower(project.idle, user.idle),
        isolation: higher(project.isolation, user.isolation),
        // Only "blocked" is left of it.
        network: project.network.or(user.network),
        workdir: project.workdir.or(user.workdir),
        env: {
            let mut env = user.env;
            env.extend(project.env);
            env
        },
        backend: user.backend,
        pool: user.pool,
        image: user.image,
        owner: user.owner,
        labels: user.labels,
        backends: user.backends,
    })
}

fn lower<T: PartialOrd>(project: Field<T>, user: Field<T>) -> Field<T> {
    match (project, user) {
        (Some(project), Some(user)) => Some(if project.value <= user.value { project } else { user }),
        (project, user) => project.or(user),
    }
}

fn higher<T: PartialOrd>(project: Field<T>, user: Field<T>) -> Field<T> {
    match (project, user) {
        (Some(project), Some(user)) => Some(if project.value >= user.value { project } else { user }),
        (project, user) => project.or(user),
    }
}

fn refuse_widening(project: &Layer) -> Result<()> {
    let network = project.network.as_ref().filter(|network| network.value != Network::default());
    let label = project.labels.values().next();
    let backend = project.backends.iter().next();
    let candidates = [
        (project.backend.as_ref().map(|field| &field.origin), "backend".to_owned()),
        (network.map(|field| &field.origin), "anything of the network but block_network = true".to_owned()),
        (project.pool.as_ref().map(|field| &field.origin), "pool".to_owned()),
        (project.image.as_ref().map(|field| &field.origin), "spec.image".to_owned()),
        (project.owner.as_ref().map(|field| &field.origin), "spec.owner".to_owned()),
        (label.map(|field| &field.origin), "spec.labels".to_owned()),
        (
            backend.map(|(_, field)| &field.origin),
            backend.map_or(String::new(), |((scheme, key), _)| format!("backends.{scheme}.{key}")),
        ),
    ];
    for (origin, key) in candidates {
        if let Some(origin) = origin {
            return Err(Failure::new(format!(
                "{origin}: a project file cannot set {key}: it comes with code nobody has read and may only narrow a sandbox"
            ))
            .hint(
                "set it in your own file, ringfence/config.toml in the XDG configuration folder, or by flag; \
                 --ignore-project-file runs without the project's",
            ));
        }
    }
    Ok(())
}
