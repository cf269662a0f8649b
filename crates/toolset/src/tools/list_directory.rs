//! `list_directory`: arguments, wording, rendering (LD).

use std::num::NonZeroUsize;

use ringfence_core::clip::{self, ClipLimits};
use ringfence_core::{DirectoryEntry, EntryKind, GuestPath, ListRequest, Listing, Result};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Setting, guest_path};
use crate::arguments::Arguments;
use crate::config::Bounds;
use crate::definition::schema_of;
use crate::mask::Masker;
use crate::outcome::ToolOutput;
use crate::text::{counted, shown_name};

pub(crate) const TITLE: &str = "List a directory";

const EMPTY: &str = "(empty)";
const HERE: &str = ".";

/// The arguments of `list_directory`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the JSON form; `ListDirectory::parse` takes it")]
struct ListDirectoryArguments {
    /// The directory, absolute or relative to the working directory.
    #[schemars(default = "here")]
    path: String,
}

fn here() -> String {
    HERE.to_owned()
}

/// The beginning of the listing.
#[derive(Debug, Serialize, JsonSchema)]
struct ListDirectoryStructure {
    /// The names, sorted, directories with a final `/`; a name that does not print is in double quotes with escapes.
    entries: Vec<String>,
    /// How many more entries there are.
    remaining: u64,
}

pub(crate) fn input_schema() -> Value {
    schema_of::<ListDirectoryArguments>()
}

pub(crate) fn output_schema() -> Value {
    schema_of::<ListDirectoryStructure>()
}

/// Returns what the model is told about the tool.
pub(crate) fn description(setting: Setting<'_>) -> String {
    format!(
        "Lists a directory of the sandbox, by default the working directory: one name per line, sorted, hidden ones \
         included, directories with a final /, symbolic links without. The first {} names or {} are returned, and how \
         many more there are. A name that does not print is in double quotes with escapes.",
        setting.bounds.max_output_lines,
        clip::format_size(setting.bounds.max_output_bytes as u64),
    )
}

/// A checked call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListDirectory {
    pub(crate) shown_path: String,
    pub(crate) path: GuestPath,
}

impl ListDirectory {
    /// Takes the arguments (TD-03). The empty path is the working directory too (LD-04).
    pub(crate) fn parse(arguments: &Value) -> Result<Self, String> {
        let mut arguments = Arguments::of(arguments);
        let mut path = arguments.text_or("path", HERE);
        arguments.finish()?;
        if path.is_empty() {
            path = here();
        }
        Ok(Self { path: guest_path(&path)?, shown_path: path })
    }

    /// Returns the request: no more entries than could be shown.
    pub(crate) fn request(bounds: &Bounds) -> ListRequest {
        let max_entries = NonZeroUsize::new(bounds.max_output_lines).unwrap_or(NonZeroUsize::MIN);
        ListRequest { max_entries, after: None }
    }

    /// Renders the head of a listing and how much follows (LD-01 to LD-08).
    pub(crate) fn render(
        listing: &Listing,
        bounds: &Bounds,
        prefix: &str,
        masker: &Masker,
    ) -> Result<ToolOutput> {
        // Masked as bytes, before escaping could hide a secret from the search.
        let mut sorted: Vec<&DirectoryEntry> = listing.entries.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<String> = sorted
            .iter()
            .map(|entry| {
                let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
                format!("{}{slash}", shown_name(&masker.bytes(&entry.name)))
            })
            .collect();
        let limits = ClipLimits::new(bounds.max_output_lines, bounds.max_output_bytes)?;
        let head = clip::head(names.iter().map(String::as_str), limits);
        let remaining = listing.remaining.saturating_add(head.remaining as u64);
        let mut lines: Vec<String> = Vec::new();
        if head.shown > 0 {
            lines.push(head.text);
        }
        if remaining > 0 {
            let more = counted(remaining, "more entry", "more entries");
            lines.push(format!(
                "[... {more}; use {prefix}run_command to see them, such as ls with a pattern]"
            ));
        }
        if lines.is_empty() {
            lines.push(EMPTY.to_owned());
        }
        let mut entries = names;
        entries.truncate(head.shown);
        super::output(lines.join("\n"), &ListDirectoryStructure { entries, remaining })
    }
}
