//! Environment variables given by the spec.

use std::collections::BTreeMap;
use std::collections::btree_map;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The longest value accepted, in bytes: Linux takes 128 KiB for one `NAME=value` with its NUL.
pub const MAX_VALUE_BYTES: usize = (128 << 10) - 258;

/// The longest name accepted, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// Variables with names that every shell can carry: letters, digits and `_`, not starting with a digit (S42).
/// Values are exact: newlines and quotes included, NUL excluded.
#[derive(Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct EnvMap(BTreeMap<String, String>);

impl EnvMap {
    /// Checks names and values.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) that names every bad key; values are never shown.
    pub fn new<K: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self> {
        let map: BTreeMap<String, String> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let bad: Vec<String> = map
            .iter()
            .filter_map(|(name, value)| Some(format!("{name:?} {}", fault(name, value)?)))
            .collect();
        if bad.is_empty() {
            return Ok(Self(map));
        }
        Err(Error::invalid("accept the environment", bad.join("; ")))
    }

    /// Iterates in byte order of the names.
    pub fn iter(&self) -> btree_map::Iter<'_, String, String> {
        self.0.iter()
    }

    /// Returns a value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns whether there are no variables.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a EnvMap {
    type Item = (&'a String, &'a String);
    type IntoIter = btree_map::Iter<'a, String, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Names the type of a JSON value for a message; the value itself may be a secret.
pub(crate) fn json_type(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "a boolean",
        serde_json::Value::Number(_) => "a number",
        serde_json::Value::String(_) => "a text",
        serde_json::Value::Array(_) => "a list",
        serde_json::Value::Object(_) => "an object",
    }
}

fn fault(name: &str, value: &str) -> Option<&'static str> {
    let mut bytes = name.bytes();
    let starts_well = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !starts_well || !bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Some("is not a variable name: letters, digits and _, not starting with a digit");
    }
    if name.len() > MAX_NAME_BYTES {
        return Some("is longer than 256 bytes");
    }
    if value.contains('\0') {
        return Some("has a value with a NUL byte");
    }
    (value.len() > MAX_VALUE_BYTES).then_some("has a value longer than 130814 bytes")
}

/// Shows names only: values may be secrets.
impl std::fmt::Debug for EnvMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, "***"))).finish()
    }
}

impl<'de> Deserialize<'de> for EnvMap {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        // Read as any value first: a number that YAML or a template made of `8080` must be named, not only located.
        let values = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
        let mut texts = BTreeMap::new();
        let mut bad = Vec::new();
        for (name, value) in values {
            match value {
                serde_json::Value::String(text) => {
                    texts.insert(name, text);
                }
                other => bad.push(format!("{name:?} is {}, not a text", json_type(&other))),
            }
        }
        if !bad.is_empty() {
            return Err(serde::de::Error::custom(format!("accept the environment: {}", bad.join("; "))));
        }
        Self::new(texts).map_err(serde::de::Error::custom)
    }
}
