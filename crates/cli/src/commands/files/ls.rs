//! `ringfence ls`.

use ringfence::{DirectoryEntry, EntryKind, GuestPath, ListRequest, Listing};
use serde_json::{Value, json};

use super::{drive, failed};
use crate::args::LsArgs;
use crate::base64::text_or_base64;
use crate::commands::json_text;
use crate::console::{self, is_unprintable};
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::reached::backend_of;

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Lists the directory.
pub(crate) fn run(args: &LsArgs, environment: &Environment) -> Result<u8> {
    let backend = backend_of(&args.handle, environment)?;
    let path = match &args.path {
        Some(path) => path.clone(),
        None => GuestPath::new(".")?,
    };
    drive(async {
        let request = ListRequest { max_entries: args.limit, after: None };
        let listing = backend
            .list_directory(args.handle.sandbox(), &path, request)
            .await
            .map_err(|error| failed(&args.handle, &path, &error))?;
        let shown = if args.json {
            json_text(&to_json(&args.handle.to_string(), &path, &listing)).into_bytes()
        } else if args.null {
            listing.entries.iter().flat_map(|entry| [entry.name.as_slice(), b"\0"].concat()).collect()
        } else {
            lines(&listing.entries, args.long).into_bytes()
        };
        if let Err(why) = console::stdout(&shown, None) {
            return why.status();
        }
        if !args.json && listing.remaining > 0 {
            console::notice(&format!("{} more are not shown; --limit shows more", listing.remaining));
        }
        Ok(exit::OK)
    })
}

fn to_json(handle: &str, path: &GuestPath, listing: &Listing) -> Value {
    let entries = listing.entries.iter().map(|entry| {
        let mut value = json!({"kind": kind(entry.kind).1, "size_bytes": entry.size_bytes});
        text_or_base64(&mut value, ["name", "name_base64"], &entry.name);
        value
    });
    let entries: Vec<Value> = entries.collect();
    let mut value =
        json!({"version": VERSION, "handle": handle, "entries": entries, "remaining": listing.remaining});
    text_or_base64(&mut value, ["path", "path_base64"], path.as_bytes());
    value
}

fn lines(entries: &[DirectoryEntry], long: bool) -> String {
    let size =
        |entry: &DirectoryEntry| entry.size_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    let width = entries.iter().map(|entry| size(entry).len()).max().unwrap_or(0);
    let line = |entry: &DirectoryEntry| {
        let name = shown(&entry.name);
        match long {
            true => format!("{} {:>width$} {name}\n", kind(entry.kind).0, size(entry)),
            false => format!("{name}\n"),
        }
    };
    entries.iter().map(line).collect()
}

/// Returns the name on one line. One that is escaped is so as a whole, so that what is shown says which it is.
fn shown(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.contains(is_unprintable) => text.to_owned(),
        _ => name.escape_ascii().to_string(),
    }
}

fn kind(kind: EntryKind) -> (char, &'static str) {
    match kind {
        EntryKind::File => ('-', "file"),
        EntryKind::Directory => ('d', "directory"),
        EntryKind::Symlink => ('l', "link"),
        EntryKind::Other => ('?', "other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], kind: EntryKind, size_bytes: Option<u64>) -> DirectoryEntry {
        DirectoryEntry { name: name.to_vec(), kind, size_bytes }
    }

    #[test]
    fn p_57_no_name_can_forge_a_line() {
        let entries = [
            entry(b"a\nb", EntryKind::File, Some(12)),
            entry("é x".as_bytes(), EntryKind::Directory, None),
            entry(b"\xff\x1b[2J", EntryKind::Symlink, None),
            entry("\u{202e}".as_bytes(), EntryKind::Other, None),
        ];
        assert_eq!(lines(&entries, false), "a\\nb\né x\n\\xff\\x1b[2J\n\\xe2\\x80\\xae\n");
        let long = "- 12 a\\nb\nd  - é x\nl  - \\xff\\x1b[2J\n?  - \\xe2\\x80\\xae\n";
        assert_eq!(lines(&entries, true), long);
        assert_eq!(lines(&[], true), "");
    }

    #[test]
    fn p_67_the_object_tells_every_name_without_loss() {
        let entries =
            vec![entry(b"a\nb", EntryKind::File, Some(12)), entry(b"\xff", EntryKind::Symlink, None)];
        let value = to_json("local:sb-1", &GuestPath::new("/d").unwrap(), &Listing { entries, remaining: 3 });
        let whole = json!({"version": 1, "handle": "local:sb-1", "path": "/d", "remaining": 3, "entries": [
            {"name": "a\nb", "kind": "file", "size_bytes": 12},
            {"name_base64": "/w==", "kind": "link", "size_bytes": null},
        ]});
        assert_eq!(value, whole);
    }
}
