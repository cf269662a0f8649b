//! The audit record as it is read again, while it grows and is put aside.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use ringfence_core::{Event, EventPosition, Events, EventsFrom, SandboxId};
use rustix::fs::OFlags;
use serde_json::{Map, Value};

use super::Audit;

/// What is read at once; some lines more than fit into it are the next page. No line is as long as this.
const PAGE_BYTES: usize = 256 << 10;

/// How often the files are opened anew because one was put aside in between.
const ATTEMPTS: usize = 8;

/// How far a file was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    file: Identity,
    offset: u64,
    /// Whether that was its end then.
    at_end: bool,
}

/// A file, whatever its name is by now. Numbers of files are given again, so the time of birth goes with them where the file system
/// keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    inode: u64,
    born_nanos: u64,
}

impl Identity {
    fn of(meta: &Metadata) -> Self {
        let born = meta.created().ok().and_then(|born| born.duration_since(SystemTime::UNIX_EPOCH).ok());
        let born_nanos = born.map_or(0, |born| u64::try_from(born.as_nanos()).unwrap_or(u64::MAX));
        Self { inode: meta.ino(), born_nanos }
    }
}

/// Reads a page. `None` for a place that is not one of this record's.
pub(crate) fn read(audit: &Audit, from: &EventsFrom) -> io::Result<Option<Events>> {
    let known = match from {
        EventsFrom::Oldest | EventsFrom::Now => Vec::new(),
        EventsFrom::After(position) => match decode(position) {
            Some(marks) => marks,
            None => return Ok(None),
        },
    };
    let mut page =
        Page { room: PAGE_BYTES, events: Vec::new(), marks: Vec::new(), more: false, missed: false };
    for (file, meta) in files(audit)? {
        let identity = Identity::of(&meta);
        let known = known.iter().find(|mark| mark.file == identity).map(|mark| mark.offset);
        let offset = match known {
            _ if *from == EventsFrom::Now => meta.len(),
            // Somebody has shortened it.
            Some(offset) if offset > meta.len() => {
                page.missed = true;
                0
            }
            known => known.unwrap_or(0),
        };
        page.read(&file, identity, offset)?;
    }
    let is_there = |mark: &Mark| page.marks.iter().any(|now| now.file == mark.file);
    let newest_is_gone = known.last().is_some_and(|mark| !is_there(mark));
    page.missed |= newest_is_gone || known.iter().any(|mark| !mark.at_end && !is_there(mark));
    let Page { events, marks, more, missed, .. } = page;
    Ok(Some(Events { events, next: encode(&marks), more, missed }))
}

/// The place where a record begins that is not there yet.
pub(crate) fn nothing() -> Events {
    Events { events: Vec::new(), next: encode(&[]), more: false, missed: false }
}

/// The files of the record, the older one first. A line can still come into that one: by a writer who had it open.
fn files(audit: &Audit) -> io::Result<Vec<(File, Metadata)>> {
    let mut found = Vec::new();
    for _ in 0..ATTEMPTS {
        let current = open(&audit.path)?;
        let aside = open(&audit.aside())?;
        let again = open(&audit.path)?;
        let inode = |file: &Option<(File, Metadata)>| file.as_ref().map(|(_, meta)| meta.ino());
        let settled =
            inode(&current) == inode(&again) && (inode(&aside) != inode(&current) || aside.is_none());
        found = aside.into_iter().chain(current).collect();
        if settled {
            break;
        }
    }
    Ok(found)
}

fn open(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).map_err(io::Error::other)?;
    match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => {
            let meta = file.metadata()?;
            Ok(Some((file, meta)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A page as it fills.
struct Page {
    room: usize,
    events: Vec<Event>,
    marks: Vec<Mark>,
    more: bool,
    missed: bool,
}

impl Page {
    /// Takes whole lines from `offset` on, as many as there is room for.
    fn read(&mut self, file: &File, identity: Identity, offset: u64) -> io::Result<()> {
        let mut bytes = vec![0; self.room];
        let mut length = 0;
        while length < bytes.len() {
            match file.read_at(&mut bytes[length..], offset + length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let bytes = &bytes[..length];
        let cut = length == self.room;
        // What has no end yet is being written, or was cut here. What is longer than a page is no line of ours.
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if cut && length == PAGE_BYTES => length,
            None => 0,
        };
        self.events.extend(bytes[..whole].split(|byte| *byte == b'\n').filter_map(event));
        self.room -= length;
        self.more |= cut;
        self.marks.push(Mark { file: identity, offset: offset + whole as u64, at_end: !cut });
        Ok(())
    }
}

/// Reads a line; `None` for half a line, as a full disk leaves one, and for whatever else is none.
fn event(line: &[u8]) -> Option<Event> {
    let mut facts: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let at = facts.remove("at_millis")?.as_u64()?;
    let text = |value: Option<Value>| value?.as_str().map(str::to_owned);
    Some(Event {
        at: SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at))?,
        sandbox: SandboxId::new(text(facts.remove("sandbox"))?)?,
        event: text(facts.remove("event"))?,
        facts,
    })
}

fn encode(marks: &[Mark]) -> EventPosition {
    let marks = marks.iter().map(|mark| {
        let Mark { file: Identity { inode, born_nanos }, offset, at_end } = mark;
        format!("{inode}.{born_nanos}.{offset}.{}", u8::from(*at_end))
    });
    EventPosition::new(marks.collect::<Vec<_>>().join("-"))
}

fn decode(position: &EventPosition) -> Option<Vec<Mark>> {
    let marks = position.as_str().split('-').filter(|mark| !mark.is_empty()).map(|mark| {
        let numbers = mark.split('.').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let [inode, born_nanos, offset, at_end @ (0 | 1)] = numbers[..] else { return None };
        Some(Mark { file: Identity { inode, born_nanos }, offset, at_end: at_end == 1 })
    });
    marks.collect()
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;

    struct Record {
        _directory: tempfile::TempDir,
        audit: Audit,
    }

    impl Record {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let audit = Audit::of(directory.path());
            Self { _directory: directory, audit }
        }

        fn add(&self, number: usize) {
            let id = SandboxId::new("sb-1").unwrap();
            self.audit.add(&id, "command", json!({"n": number})).unwrap();
        }

        fn put_aside(&self) {
            std::fs::rename(&self.audit.path, self.audit.aside()).unwrap();
            self.audit.begin().unwrap();
        }

        /// Everything from a place on, page by page: the numbers, whether some are missing, and the place behind.
        fn read(&self, from: EventsFrom) -> (Vec<u64>, bool, EventsFrom) {
            let (mut numbers, mut missed, mut from) = (Vec::new(), false, from);
            loop {
                let page = read(&self.audit, &from).unwrap().unwrap();
                numbers.extend(page.events.iter().map(|event| event.facts["n"].as_u64().unwrap()));
                missed |= page.missed;
                from = EventsFrom::After(page.next);
                if !page.more {
                    return (numbers, missed, from);
                }
            }
        }

        #[track_caller]
        fn assert(&self, from: &EventsFrom, numbers: &[u64], missed: bool) -> EventsFrom {
            let (found, is_missed, next) = self.read(from.clone());
            assert_eq!((found.as_slice(), is_missed), (numbers, missed));
            next
        }
    }

    #[test]
    fn a_reader_goes_on_where_it_was_also_when_the_record_is_put_aside() {
        let record = Record::new();
        let before = record.assert(&EventsFrom::Oldest, &[], false);
        record.audit.begin().unwrap();
        record.add(1);
        let now = record.assert(&EventsFrom::Now, &[], false);
        record.add(2);
        record.assert(&before, &[1, 2], false);
        let two = record.assert(&now, &[2], false);
        record.assert(&two, &[], false);
        let late = record.audit.open(OFlags::empty()).unwrap();
        record.add(3);
        record.put_aside();
        record.add(4);
        record.assert(&EventsFrom::Oldest, &[1, 2, 3, 4], false);
        let four = record.assert(&two, &[3, 4], false);
        // Somebody had it open when it was put aside.
        (&late).write_all(b"{\"at_millis\":1,\"sandbox\":\"sb-1\",\"event\":\"x\",\"n\":5}\n").unwrap();
        let five = record.assert(&four, &[5], false);
        // The older file goes, and with it nothing that this reader has not seen.
        record.put_aside();
        record.add(6);
        record.assert(&five, &[6], false);
        record.assert(&two, &[4, 6], true);
        record.put_aside();
        record.assert(&five, &[6], true);
    }

    #[test]
    fn pages_are_bounded_and_nothing_falls_between_them() {
        let record = Record::new();
        record.audit.begin().unwrap();
        let numbers: Vec<u64> = (0..12_000).collect();
        for number in 0..12_000 {
            if number == 5000 {
                record.put_aside();
            }
            record.add(number);
        }
        let first = read(&record.audit, &EventsFrom::Oldest).unwrap().unwrap();
        assert!(first.more && first.events.len() < 6000, "{}", first.events.len());
        record.assert(&EventsFrom::Oldest, &numbers, false);
    }

    #[test]
    fn what_is_no_line_is_passed_over_and_half_a_line_is_waited_for() {
        let record = Record::new();
        record.audit.begin().unwrap();
        record.add(1);
        let mut file = record.audit.open(OFlags::empty()).unwrap();
        let long = vec![b'x'; PAGE_BYTES + 100];
        for bad in [&b"{\"at_millis\":1,\"sand\n"[..], b"[1]\n\n", b"{\"at_millis\":-1}\n", &long, b"\n"] {
            file.write_all(bad).unwrap();
        }
        record.add(2);
        file.write_all(b"{\"at_millis\":1,\"sandbox\":\"sb-1\",").unwrap();
        let next = record.assert(&EventsFrom::Oldest, &[1, 2], false);
        record.assert(&next, &[], false);
        file.write_all(b"\"event\":\"x\",\"n\":3}\n").unwrap();
        record.assert(&next, &[3], false);
    }

    #[test]
    fn only_a_place_of_this_record_is_one() {
        let record = Record::new();
        for text in ["x", "1.2.3", "1.2.3.4", "1.2.3.0-", "-1.2.3.0"] {
            let page = read(&record.audit, &EventsFrom::After(EventPosition::new(text))).unwrap();
            assert_eq!(page.is_some(), text.ends_with('-') || text.starts_with('-'), "{text}");
        }
        let marks = [(7, 8, 9, true), (u64::MAX, 0, 1, false)].map(|(inode, born_nanos, offset, at_end)| {
            Mark { file: Identity { inode, born_nanos }, offset, at_end }
        });
        assert_eq!(decode(&encode(&marks)), Some(marks.to_vec()));
    }
}
