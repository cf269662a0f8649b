//! Every setting as a row.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Field, Origin, Settings, Sourced};
use crate::failure::{Failure, Result};

/// One setting.
#[derive(Debug)]
pub(crate) struct Row {
    /// The key, as in a settings file.
    pub(crate) key: String,
    /// The value; null where nothing is set.
    pub(crate) value: Value,
    /// Where it came from.
    pub(crate) origin: Origin,
}

/// Stands for the value of a variable, which may be a secret, and of whatever a backend's table calls one.
const HIDDEN: &str = "***";

/// What the key of a secret has in it.
const SECRET_WORDS: [&str; 4] = ["token", "key", "secret", "password"];

impl Settings {
    /// Returns every setting in a fixed order. Values of variables are not shown.
    pub(crate) fn rows(&self) -> Result<Vec<Row>> {
        let layer = &self.layer;
        let timeout = self.timeout()?;
        let timeout = Sourced {
            value: humantime::format_duration(timeout.value.get()).to_string(),
            origin: timeout.origin,
        };
        let mut rows = vec![
            row("backend", &layer.backend, |_| json!(self.backend()), json!(self.backend())),
            Row { key: "timeout".to_owned(), value: json!(timeout.value), origin: timeout.origin },
            row("output_limit", &layer.output_limit, |size| json!(size.to_string()), json!("1MiB")),
            row("pool", &layer.pool, |size| json!(size), json!(0)),
        ];
        rows.extend(layer.env.iter().map(|(name, sourced)| Row {
            key: format!("spec.env.{name}"),
            value: json!(HIDDEN),
            origin: sourced.origin.clone(),
        }));
        rows.extend([
            row("spec.block_network", &layer.network, |network| json!(network.block), json!(true)),
            row("spec.allow_egress_to", &layer.network, |network| json!(network.hosts), json!([])),
            row("spec.allow_egress_to_cidrs", &layer.network, |network| json!(network.cidrs), json!([])),
            row(
                "spec.least_network_strength",
                &layer.network,
                |network| json!(network.least_strength),
                json!(ringfence::NetworkStrength::default()),
            ),
            row("spec.limits.memory", &layer.memory, |size| json!(size.to_string()), Value::Null),
            row("spec.limits.cpus", &layer.cpus, |cpus| json!(cpus), Value::Null),
            row("spec.limits.pids", &layer.pids, |pids| json!(pids), Value::Null),
            row("spec.limits.disk", &layer.disk, |size| json!(size.to_string()), Value::Null),
            row(
                "spec.isolation",
                &layer.isolation,
                |isolation| json!(isolation),
                json!(ringfence::Isolation::default()),
            ),
            row("spec.image", &layer.image, |image| json!(image), Value::Null),
            row("spec.workdir", &layer.workdir, |workdir| json!(workdir), Value::Null),
            row(
                "spec.lifetime_seconds",
                &layer.lifetime,
                |duration| json!(duration.as_secs_f64()),
                Value::Null,
            ),
            row("spec.idle_seconds", &layer.idle, |duration| json!(duration.as_secs_f64()), Value::Null),
            row("spec.owner", &layer.owner, |owner| json!(owner), Value::Null),
        ]);
        rows.extend(layer.labels.iter().map(|(name, sourced)| Row {
            key: format!("spec.labels.{name}"),
            value: json!(sourced.value),
            origin: sourced.origin.clone(),
        }));
        rows.extend(self.backend_rows()?);
        Ok(rows)
    }

    /// The keys of the backends are whatever their settings types have.
    fn backend_rows(&self) -> Result<Vec<Row>> {
        let settings = self.backend_settings()?;
        let schemes: BTreeMap<String, BTreeMap<String, Value>> = serde_json::to_value(settings)
            .and_then(serde_json::from_value)
            .map_err(|error| Failure::new(format!("settings of the backends: {error}")))?;
        let mut rows = Vec::new();
        for (scheme, keys) in schemes {
            for (key, value) in keys {
                let origin = self.layer.backends.get(&(scheme.clone(), key.clone()));
                rows.push(Row {
                    value: shown(&key, value),
                    key: format!("backends.{scheme}.{key}"),
                    origin: origin.map_or_else(Origin::default_value, |sourced| sourced.origin.clone()),
                });
            }
        }
        Ok(rows)
    }
}

/// Returns the value with all that its keys call a secret hidden; what is not set stays so.
fn shown(key: &str, value: Value) -> Value {
    let key = key.to_ascii_lowercase();
    match value {
        Value::Null => Value::Null,
        _ if SECRET_WORDS.iter().any(|word| key.contains(word)) => json!(HIDDEN),
        Value::Object(table) => {
            table.into_iter().map(|(key, value)| (key.clone(), shown(&key, value))).collect()
        }
        Value::Array(values) => values.into_iter().map(|value| shown("", value)).collect(),
        other => other,
    }
}

fn row<T>(key: &str, field: &Field<T>, show: impl FnOnce(&T) -> Value, default: Value) -> Row {
    match field {
        Some(sourced) => {
            Row { key: key.to_owned(), value: show(&sourced.value), origin: sourced.origin.clone() }
        }
        None => Row { key: key.to_owned(), value: default, origin: Origin::default_value() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mk_06_what_a_backends_table_calls_a_secret_is_not_shown() {
        let table = json!({
            "API_Token": "hunter2", "private_key": ["hunter2"], "client-secret": {"id": "hunter2"}, "password": null,
            "shell": "sh", "accounts": [{"name": "x", "password": "hunter2"}],
        });
        let hidden = json!({
            "API_Token": "***", "private_key": "***", "client-secret": "***", "password": null,
            "shell": "sh", "accounts": [{"name": "x", "password": "***"}],
        });
        assert_eq!(shown("vendor", table), hidden);
        assert_eq!(shown("token", json!("hunter2")), json!("***"));
    }
}
