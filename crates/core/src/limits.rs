//! Ceilings on what a sandbox may use.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::object_only;

/// Ceilings; each one given is enforced or the spec is refused, never treated as a hint.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Limits {
    /// Memory of all processes together, files on memory-backed file systems included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// CPU time per wall time, in processors; fractions are possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Processes and threads at one time; at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<Pids>,
    /// What can be stored in all writable places together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<ByteSize>,
}

object_only!(Limits);

/// A number of bytes, at least 1. Written as a number or as text with a unit: `512MiB`, `2g`, `1024`.
/// `k`, `m`, `g`, `t` with or without `b` or `ib` are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "ByteSizeDocument")]
pub struct ByteSize(u64);

/// Both outside forms of a [`ByteSize`].
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "describes the JSON form only")]
enum ByteSizeDocument {
    Bytes(#[schemars(range(min = 1, max = 9_223_372_036_854_775_807_u64))] u64),
    Text(#[schemars(regex(pattern = r"^[0-9]+([kmgtKMGT]?[bB]?|[kmgtKMGT][iI][bB])$"))] String),
}

impl ByteSize {
    /// Wraps a number of bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for 0 or more than `i64::MAX`, which no
    /// kernel interface takes.
    pub fn from_bytes(bytes: u64) -> Result<Self> {
        if bytes == 0 || bytes > i64::MAX as u64 {
            return Err(Error::invalid(
                "accept the size",
                format!("a size must be between 1 and {} bytes, not {bytes}", i64::MAX),
            ));
        }
        Ok(Self(bytes))
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (unit, shift) in UNITS {
            if self.0 >= 1 << shift && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl FromStr for ByteSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = || {
            Error::invalid("accept the size", format!("{text:?} is not a size such as 512MiB, 2g or 1048576"))
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(refuse()),
        };
        let number: u64 = number.parse().map_err(|_| refuse())?;
        number.checked_mul(1 << shift).ok_or_else(refuse).and_then(Self::from_bytes)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = ByteSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes or a text such as \"512MiB\"")
            }
            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> std::result::Result<ByteSize, E> {
                ByteSize::from_bytes(bytes).map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> std::result::Result<ByteSize, E> {
                u64::try_from(bytes)
                    .map_err(|_| E::custom("a size cannot be negative"))
                    .and_then(|bytes| self.visit_u64(bytes))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A number of processors: finite, greater than 0, kept in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "f64", extend("minimum" = 0.01, "maximum" = 10_000))]
pub struct Cpus(u32);

impl Cpus {
    /// Checks a number of processors.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) below 0.01, above 10000, or not a number:
    /// kernels take no smaller quota than 1 ms in 100.
    pub fn new(cpus: f64) -> Result<Self> {
        if !(0.01..=10_000.0).contains(&cpus) {
            return Err(Error::invalid(
                "accept the number of cpus",
                format!("cpus must be between 0.01 and 10000, not {cpus}"),
            ));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above: at most 10^7"
        )]
        Ok(Self((cpus * 1000.0).round() as u32))
    }

    /// Returns thousandths of a processor.
    #[must_use]
    pub fn millis(self) -> u32 {
        self.0
    }

    /// Returns the number of whole processors needed to use all of it; what `nproc` shows inside.
    #[must_use]
    pub fn ceil(self) -> u32 {
        self.0.div_ceil(1000)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

impl FromStr for Cpus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = text.parse().map_err(|_| {
            Error::invalid("accept the number of cpus", format!("{text:?} is not a number such as 2 or 0.5"))
        })?;
        Self::new(number)
    }
}

impl Serialize for Cpus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 1000.0)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::new(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A number of processes and threads, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(transparent)]
pub struct Pids(#[schemars(range(min = 1, max = 4_194_304))] u32);

impl Pids {
    /// Checks a number of processes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for 0 or more than 4194304, the most a
    /// kernel numbers.
    pub fn new(pids: u32) -> Result<Self> {
        if pids == 0 || pids > 1 << 22 {
            return Err(Error::invalid(
                "accept the number of pids",
                format!("pids must be between 1 and 4194304, not {pids}"),
            ));
        }
        Ok(Self(pids))
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Pids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pids {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = text.parse().map_err(|_| {
            Error::invalid(
                "accept the number of pids",
                format!("{text:?} is not a whole number between 1 and 4194304"),
            )
        })?;
        Self::new(number)
    }
}

impl Serialize for Pids {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de> Deserialize<'de> for Pids {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::new(u32::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
