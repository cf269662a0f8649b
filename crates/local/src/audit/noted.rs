//! An operation that is written down whatever becomes of it.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use ringfence_core::{Error, Result};
use serde_json::{Value, json};

use crate::access::Access;

/// What the line of an operation says whose caller did not wait for its end.
const INTERRUPTED: &str = "interrupted";

/// An operation under way. Its line is written by [`Self::ended`], or when this is dropped because nobody waits for it any more. A
/// process that is killed writes nothing: what may take long, or has happened to a part, also says that it began.
#[derive(Debug)]
pub(crate) struct Noted<'a> {
    sandbox: &'a Access,
    event: &'static str,
    /// `None` where nothing is to be written, or it was.
    facts: Option<Value>,
    /// When it began, where that was said.
    began: Option<Instant>,
}

impl<'a> Noted<'a> {
    /// Begins one whose only line is that of its end.
    pub(crate) fn new(sandbox: &'a Access, event: &'static str, facts: impl FnOnce() -> Value) -> Self {
        let facts = sandbox.audit.is_some().then(facts);
        Self { sandbox, event, facts, began: None }
    }

    /// Writes down that it begins, as `event`. Both lines have the same `call`; without the second, its end is not known.
    pub(crate) fn begin(mut self, event: &'static str) -> Self {
        if let Some(facts) = &mut self.facts {
            // Told apart from those of other processes; nobody has to be kept from guessing it.
            facts["call"] = format!("{:016x}", RandomState::new().hash_one(0)).into();
            self.sandbox.note(event, || facts.clone());
        }
        self.began = Some(Instant::now());
        self
    }

    /// Writes down how it went: what `told` makes of what came of it, or the kind of the error.
    pub(crate) fn ended<T>(self, result: &Result<T>, told: impl FnOnce(&T) -> Value) {
        self.ended_at(result, |result| result.map_or_else(|_| json!({}), told));
    }

    /// The same where there is something to tell of what failed, too.
    pub(crate) fn ended_at<T>(
        mut self,
        result: &Result<T>,
        told: impl FnOnce(std::result::Result<&T, &Error>) -> Value,
    ) {
        let error = result.as_ref().err().map(|error| error.kind().name());
        self.write(error, || told(result.as_ref()));
    }

    fn write(&mut self, error: Option<&str>, told: impl FnOnce() -> Value) {
        let Some(mut facts) = self.facts.take() else { return };
        if let (Value::Object(facts), Value::Object(told)) = (&mut facts, told()) {
            facts.extend(told);
        }
        if let Some(began) = self.began {
            facts["seconds"] = began.elapsed().as_secs_f64().into();
        }
        if let Some(error) = error {
            facts["error"] = error.into();
        }
        self.sandbox.note(self.event, || facts);
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.write(Some(INTERRUPTED), || json!({}));
    }
}
