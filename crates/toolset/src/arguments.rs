//! Takes a tool's arguments from JSON as models and their clients write it (TD-03, TD-04).
//!
//! Every fault of a call is reported at once and names the type expected, because some clients turn the text `true`
//! into a boolean before it gets here.

use serde_json::{Map, Value};

use crate::text;

/// The arguments of one call while they are taken out.
#[derive(Debug)]
pub(crate) struct Arguments<'a> {
    given: Option<&'a Map<String, Value>>,
    known: Vec<&'static str>,
    faults: Vec<String>,
}

impl<'a> Arguments<'a> {
    /// Starts on the arguments of a call; `null` stands for none.
    pub(crate) fn of(arguments: &'a Value) -> Self {
        let mut faults = Vec::new();
        let given = match arguments {
            Value::Object(fields) => Some(fields),
            Value::Null => None,
            other => {
                faults.push(format!("the arguments must be an object, not {}", described(other)));
                None
            }
        };
        Self { given, known: Vec::new(), faults }
    }

    /// Takes a required text. The value returned after a fault is never used: [`Self::finish`] fails.
    pub(crate) fn text(&mut self, name: &'static str) -> String {
        match self.take(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => self.fault(name, "a string", other),
            None => {
                self.faults.push(format!("`{name}` is missing; it must be a string"));
                String::new()
            }
        }
    }

    /// Takes a text that may be left out but not be null (TD-02).
    pub(crate) fn text_or(&mut self, name: &'static str, default: &str) -> String {
        match self.take(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => self.fault(name, "a string", other),
            None => default.to_owned(),
        }
    }

    /// Takes a number that may be null or left out. Texts that hold a number and booleans are numbers too; what is beyond
    /// the range of the type is infinite (TD-04).
    pub(crate) fn number(&mut self, name: &'static str) -> Option<f64> {
        let value = self.take(name)?;
        let number = match value {
            Value::Null => return None,
            Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
            Value::String(text) => text.trim().parse().ok(),
            // Only a number of arbitrary precision can be too large here.
            Value::Number(number) => number.as_f64().or(Some(f64::INFINITY)),
            Value::Array(_) | Value::Object(_) => None,
        };
        if number.is_none() {
            return self.fault(name, "a number or null", value);
        }
        number
    }

    /// Takes a whole number that may be null or left out; `"5"`, `5.0` and `true` are whole numbers too (TD-04). What does
    /// not fit is the nearest number that does.
    pub(crate) fn integer(&mut self, name: &'static str) -> Option<i64> {
        let value = self.take(name)?;
        let integer = match value {
            Value::Null => return None,
            Value::Bool(flag) => Some(i64::from(*flag)),
            Value::String(text) => match text.trim().parse::<i64>() {
                Ok(integer) => Some(integer),
                Err(_) => text.trim().parse().ok().and_then(whole),
            },
            Value::Number(number) => number.as_i64().or_else(|| number.as_f64().and_then(whole)),
            Value::Array(_) | Value::Object(_) => None,
        };
        if integer.is_none() {
            return self.fault(name, "a whole number or null", value);
        }
        integer
    }

    /// Ends the taking: every argument that nobody asked for is a fault too.
    ///
    /// # Errors
    /// All faults, in the order in which they were met.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        let unknown =
            self.given.into_iter().flat_map(Map::keys).filter(|key| !self.known.contains(&key.as_str()));
        let unknown: Vec<String> = unknown
            .map(|key| {
                format!("{} is not an argument; there is only {}", key_shown(key), self.known.join(", "))
            })
            .collect();
        self.faults.extend(unknown);
        if self.faults.is_empty() { Ok(()) } else { Err(self.faults.join("; ")) }
    }

    fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.given?.get(name)
    }

    fn fault<T: Default>(&mut self, name: &str, expected: &str, got: &Value) -> T {
        self.faults.push(format!("`{name}` must be {expected}, not {}", described(got)));
        T::default()
    }
}

/// Returns the integer that a number is, saturated; `None` when it is none.
fn whole(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "saturates, which is what is wanted")]
    (number.fract() == 0.0).then_some(number as i64)
}

fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => format!("the boolean {flag}"),
        Value::Number(number) => match number.as_f64() {
            Some(number) => format!("the number {}", text::general_number(number)),
            None => "a number".to_owned(),
        },
        Value::String(text) => format!("the string {:?}", short(text)),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// How much of a bad value is repeated: enough to recognise it, never a whole file.
const SHOWN_CHARACTERS: usize = 40;

/// Returns a key, or its size when it is too long to repeat. Never a part of it: half a secret could not be masked.
fn key_shown(key: &str) -> String {
    let characters = key.chars().count();
    if characters > SHOWN_CHARACTERS {
        format!("a name of {characters} characters")
    } else {
        format!("`{key}`")
    }
}

/// Returns the beginning of a value. The caller masks values before it gets here, see `Call::parse`.
fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}
