//! What happened to sandboxes that others can find, as their backend wrote it down: who used them how, and why they ended.

use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::backend::SandboxId;

/// Something that happened to a sandbox. What files contain and commands print is not in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When it was written down.
    pub at: SystemTime,
    /// Which sandbox.
    pub sandbox: SandboxId,
    /// What happened, such as `created`, `command`, `write` or [`Event::ENDED`]. A reader passes over names that it does not know.
    pub event: String,
    /// More about it, by name; which names there are depends on the event and the backend.
    pub facts: Map<String, Value>,
}

impl Event {
    /// The last event of a sandbox; the fact `reason` says why it ended.
    pub const ENDED: &str = "ended";

    /// Returns why the sandbox ended, if this is its end: `lifetime`, `idle`, `destroyed`, `owner_gone`, `died`, `launcher_gone`, or
    /// what a backend knows besides. The empty text where that is not said.
    #[must_use]
    pub fn end_reason(&self) -> Option<&str> {
        let reason = self.facts.get("reason").and_then(Value::as_str).unwrap_or_default();
        (self.event == Self::ENDED).then_some(reason)
    }
}

/// A place in the record, in a form that only the backend reads. It stays good for as long as what follows it is kept, also for
/// another process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventPosition(String);

impl EventPosition {
    /// Wraps what a backend made of a place.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text, to be kept somewhere.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// From where on events are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EventsFrom {
    /// All that are kept.
    #[default]
    Oldest,
    /// Those to come.
    Now,
    /// Those behind a place.
    After(EventPosition),
}

/// Some events in the order in which they were written down.
#[derive(Debug, Clone, PartialEq)]
pub struct Events {
    /// The events.
    pub events: Vec<Event>,
    /// Behind the last of them.
    pub next: EventPosition,
    /// Whether there are more by now; otherwise the next ones are still to come.
    pub more: bool,
    /// Whether events behind the place that was asked for are not kept any more.
    pub missed: bool,
}
