//! `read_file`: arguments, wording, rendering (RF).

use ringfence_core::clip::{self, ClipLimits};
use ringfence_core::{GuestPath, Result};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Setting, guest_path};
use crate::arguments::Arguments;
use crate::config::Bounds;
use crate::definition::schema_of;
use crate::mask::Masker;
use crate::outcome::ToolOutput;
use crate::text::counted;

pub(crate) const TITLE: &str = "Read a file";

/// The arguments of `read_file`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the JSON form; `ReadFile::parse` takes it, more leniently")]
struct ReadFileArguments {
    /// The file, absolute or relative to the working directory.
    path: String,
    /// The first line to return; the first line of the file is 1.
    #[schemars(default)]
    offset: Option<i64>,
    /// The most lines to return.
    #[schemars(default)]
    limit: Option<i64>,
}

/// A window of the file.
#[derive(Debug, Serialize, JsonSchema)]
struct ReadFileStructure {
    /// The lines, joined by newlines, without a final one.
    content: String,
    /// The number of the first line asked for.
    offset: u64,
    /// How many lines are returned.
    lines: u64,
    /// How many lines the file has.
    total_lines: u64,
    /// The offset to read on with; null at the end of the file.
    next_offset: Option<u64>,
    /// Whether bytes that are not UTF-8 were replaced.
    lossy: bool,
    /// Why nothing is returned, in words.
    note: Option<String>,
}

pub(crate) fn input_schema() -> Value {
    schema_of::<ReadFileArguments>()
}

pub(crate) fn output_schema() -> Value {
    schema_of::<ReadFileStructure>()
}

/// Returns what the model is told about the tool.
pub(crate) fn description(setting: Setting<'_>) -> String {
    let bounds = setting.bounds;
    format!(
        "Reads a text file of the sandbox from its beginning, or from line offset on, up to limit lines, {} lines or {} \
         at a time. When more follows, the last line of the answer says with which offset to read on. Bytes that are not \
         UTF-8 are replaced. A file over {} is refused: use {}run_command to read a part of it.",
        bounds.max_output_lines,
        clip::format_size(bounds.max_output_bytes as u64),
        clip::format_size(bounds.max_read_bytes),
        setting.prefix,
    )
}

/// A checked call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadFile {
    pub(crate) shown_path: String,
    pub(crate) path: GuestPath,
    offset: usize,
    limit: usize,
}

impl ReadFile {
    /// Takes the arguments (TD-03, TD-04). 0 and less mean the first line and no limit (RF-09).
    pub(crate) fn parse(arguments: &Value) -> Result<Self, String> {
        let mut arguments = Arguments::of(arguments);
        let path = arguments.text("path");
        let offset = arguments.integer("offset");
        let limit = arguments.integer("limit");
        arguments.finish()?;
        let positive = |value: Option<i64>| {
            value.filter(|value| *value > 0).map(|value| usize::try_from(value).unwrap_or(usize::MAX))
        };
        Ok(Self {
            path: guest_path(&path)?,
            shown_path: path,
            offset: positive(offset).unwrap_or(1),
            limit: positive(limit).unwrap_or(usize::MAX),
        })
    }

    /// Renders the window of a file (RF-01 to RF-11).
    pub(crate) fn render(
        &self,
        content: &[u8],
        bounds: &Bounds,
        prefix: &str,
        masker: &Masker,
    ) -> Result<ToolOutput> {
        // Masked as a whole before any line is counted or cut (MK-02).
        let masked = masker.bytes(content);
        let text = String::from_utf8_lossy(&masked);
        let lossy = matches!(text, std::borrow::Cow::Owned(_));
        let total = clip::lines(&text).count();
        let limits = ClipLimits::new(bounds.max_output_lines.min(self.limit), bounds.max_output_bytes)?;
        let window = clip::head(clip::lines(&text).skip(self.offset - 1), limits);
        let last = (self.offset - 1).saturating_add(window.shown);
        let more = window.remaining as u64;

        let mut structure = ReadFileStructure {
            content: window.text,
            offset: self.offset as u64,
            lines: window.shown as u64,
            total_lines: total as u64,
            next_offset: (more > 0).then_some(last as u64 + 1),
            lossy,
            note: None,
        };
        let shown = if window.shown > 0 && more > 0 {
            let more = counted(more, "more line", "more lines");
            format!("{}\n[... {more}; read on with offset={}]", structure.content, last + 1)
        } else if window.shown > 0 {
            structure.content.clone()
        } else if more > 0 {
            // The line itself does not fit; the next offset keeps paging possible (RF-08 done right).
            let next = (self.offset < total).then_some(self.offset + 1);
            structure.next_offset = next.map(|next| next as u64);
            let note = self.too_long(bounds, prefix, next);
            format!("[{}]", structure.note.insert(note))
        } else {
            let lines = counted(total as u64, "line", "lines");
            let note = format!("no lines at offset {}; file has {lines}", self.offset);
            format!("({})", structure.note.insert(note))
        };
        super::output(shown, &structure)
    }

    fn too_long(&self, bounds: &Bounds, prefix: &str, next: Option<usize>) -> String {
        let on = match next {
            Some(next) => format!("; read on with offset={next}"),
            None => "; it is the last line".to_owned(),
        };
        format!(
            "line {line} is longer than {limit}; use {prefix}run_command to see a part of it, such as sed -n {line}p \
             FILE | cut -c 1-1000{on}",
            line = self.offset,
            limit = clip::format_size(bounds.max_output_bytes as u64),
        )
    }
}

/// Returns what to say about a file over the read limit (RF-12).
pub(crate) fn too_large(size_bytes: u64, limit_bytes: u64, prefix: &str) -> String {
    format!(
        "is {}, over the {} read limit; use {prefix}run_command to read a part of it, such as head, tail, sed -n or grep",
        clip::format_size(size_bytes),
        clip::format_size(limit_bytes),
    )
}
