//! Times, sizes and tables as people and programs read them.

use std::time::{Duration, SystemTime};

use ringfence::{ErrorKind, Handle, SandboxInfo};
use serde_json::{Map, Value, json};

use crate::console::printable;
use crate::failure::Failure;
use crate::marks::Marks;

/// Returns what is said of a sandbox that cannot be asked how it stands.
pub(crate) fn silent(handle: &Handle, fault: &str) -> Failure {
    Failure::new(format!("{handle}: {fault}")).with_kind(ErrorKind::Unavailable.name())
}

/// Shows a span of time in its largest unit, rounded down.
pub(crate) fn span(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Shows a number of bytes in a unit in which it is short.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        let tenths = (u128::from(bytes) * 10) >> shift;
        if tenths >= 10 {
            return match (tenths / 10, tenths % 10) {
                (whole, 0) => format!("{whole}{unit}"),
                (whole, tenths) => format!("{whole}.{tenths}{unit}"),
            };
        }
    }
    format!("{bytes}B")
}

/// Shows a moment as RFC 3339 in UTC; `None` for one that this form cannot have, as a tag may say anything.
pub(crate) fn moment(time: SystemTime) -> Option<String> {
    has_form(time).then(|| humantime::format_rfc3339_seconds(time).to_string())
}

/// Shows a moment to the millisecond.
pub(crate) fn moment_millis(time: SystemTime) -> Option<String> {
    has_form(time).then(|| humantime::format_rfc3339_millis(time).to_string())
}

fn has_form(time: SystemTime) -> bool {
    const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);
    time.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since < YEAR_10000)
}

/// Returns seconds as a number of JSON, to the millisecond.
pub(crate) fn seconds(span: Duration) -> Value {
    json!((span.as_secs_f64() * 1e3).round() / 1e3)
}

/// Aligns columns. Whatever drives a terminal is escaped, so that no cell can forge another line.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Shows labels or tags as one cell; what could be taken for something else is quoted.
pub(crate) fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let shown = pairs.into_iter().map(|(name, value)| format!("{}={}", quoted(name), quoted(value)));
    shown.collect::<Vec<_>>().join(",")
}

/// Returns the text, in quotes where it could be taken for more than one.
pub(crate) fn quoted(text: &str) -> String {
    let special = |character: char| character.is_whitespace() || matches!(character, '=' | ',' | '"');
    if text.contains(special) { format!("{text:?}") } else { text.to_owned() }
}

/// Returns what every JSON form says about a sandbox.
pub(crate) fn sandbox(handle: &Handle, info: &SandboxInfo, now: SystemTime) -> Map<String, Value> {
    let marks = Marks::read(&info.tagged.tags, now);
    let expires_at = info.remaining.and_then(|left| now.checked_add(left)).and_then(moment);
    let value = json!({
        "handle": handle.to_string(),
        "backend": handle.scheme(),
        "sandbox": info.id,
        "reach": info.reach.name(),
        "created_at": moment(info.created_at),
        "age_seconds": seconds(age(info, now)),
        "expires_at": expires_at,
        "remaining_seconds": info.remaining.map(seconds),
        "remaining_idle_seconds": info.remaining_idle.map(seconds),
        "owner": marks.owner,
        "holder": marks.holder.map(|holder| holder.name),
        "holder_until": marks.holder.and_then(|holder| holder.until).and_then(moment),
        "labels": marks.labels,
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Returns how old a sandbox is. The clock of whoever made it may be ahead.
pub(crate) fn age(info: &SandboxInfo, now: SystemTime) -> Duration {
    now.duration_since(info.created_at).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::UNIX_EPOCH;

    use ringfence::{Reach, SandboxId, Tagged};

    use super::*;

    /// A sandbox of the year 2001, as it is 90 seconds after its creation.
    pub(crate) fn info(tags: &[(&str, &str)]) -> (SandboxInfo, SystemTime) {
        let created_at = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let info = SandboxInfo {
            id: SandboxId::new("sb-1").unwrap(),
            created_at,
            reach: Reach::Kept,
            remaining: Some(Duration::from_secs(3510)),
            remaining_idle: None,
            tagged: Tagged { version: 2, tags },
        };
        (info, created_at + Duration::from_secs(90))
    }

    #[test]
    fn spans_are_rounded_down_to_their_largest_unit() {
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7199, "119m"),
            (7200, "2h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (31_536_000, "365d"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), shown);
        }
        assert_eq!(span(Duration::from_millis(999)), "0s");
    }

    #[test]
    fn sizes_are_short() {
        for (size, shown) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1KiB"),
            (1536, "1.5KiB"),
            (64 << 20, "64MiB"),
            ((64 << 20) - 1, "63.9MiB"),
            (u64::MAX, "16777215.9TiB"),
        ] {
            assert_eq!(bytes(size), shown);
        }
    }

    #[test]
    fn a_moment_that_has_no_form_is_none() {
        let at = |seconds| moment(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(1_000_000_000).unwrap(), "2001-09-09T01:46:40Z");
        assert_eq!(at(253_402_300_799).unwrap(), "9999-12-31T23:59:59Z");
        assert_eq!(at(253_402_300_800), None);
        assert_eq!(moment(UNIX_EPOCH - Duration::from_secs(1)), None);
    }

    #[test]
    fn no_cell_can_forge_a_line_or_another_cell() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let text = table(&[row(&["A", "LABELS"]), row(&["1", "x\ny\x1b[2J"]), row(&["22", ""])]);
        assert_eq!(text, "A   LABELS\n1   x\\ny\\u{1b}[2J\n22\n");
        let labels = [("a", "b"), ("c", "d,e=f"), ("g h", "\"\n")];
        assert_eq!(pairs(labels), "a=b,c=\"d,e=f\",\"g h\"=\"\\\"\\n\"");
    }

    #[test]
    fn the_json_of_a_sandbox_is_whole() {
        let tags = [
            ("job", "build"),
            ("ringfence_owner", "o"),
            ("ringfence_holder", "h"),
            ("ringfence_lease_until", "1000000100.5"),
        ];
        let (info, now) = info(&tags);
        let handle = Handle::new("local", &info.id).unwrap();
        let whole = json!({
            "handle": "local:sb-1", "backend": "local", "sandbox": "sb-1", "reach": "kept",
            "created_at": "2001-09-09T01:46:40Z", "age_seconds": 90.0,
            "expires_at": "2001-09-09T02:46:40Z", "remaining_seconds": 3510.0, "remaining_idle_seconds": null,
            "owner": "o", "holder": "h", "holder_until": "2001-09-09T01:48:20Z", "labels": {"job": "build"},
        });
        assert_eq!(Value::Object(sandbox(&handle, &info, now)), whole);
        // A clock that is behind.
        assert_eq!(age(&info, UNIX_EPOCH), Duration::ZERO);
    }
}
