//! Values that must not be shown.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is shown of a secret.
const MASK: &str = "***";

/// A token or password of a backend's settings. What shows it, as text, for debugging or as JSON, shows `***`; only
/// [`Self::expose`] gives it out. Read back, `***` is refused: settings that were shown are no settings.
#[derive(Clone, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct Secret(#[schemars(extend("writeOnly" = true))] String);

impl Secret {
    /// Wraps a value.
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// Returns the value, for the request that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)? {
            value if value == MASK => {
                Err(serde::de::Error::custom("`***` is what is shown of a secret, not the secret"))
            }
            value => Ok(Self(value)),
        }
    }
}
