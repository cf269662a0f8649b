//! The audit record: a line for each thing that happened to a sandbox that others can find, without contents.

mod noted;
pub(crate) mod reader;

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringfence_core::{
    CommandResult, Event, EventsFrom, GuestPath, Invocation, Result, SandboxId, TreeSummary,
};
use rustix::fs::{FlockOperation, OFlags};
use serde_json::{Value, json};

pub(crate) use self::noted::Noted;
use crate::config::LocalConfig;
use crate::wire::AUDIT_FILE;

/// From this size on the record is put aside and begun anew; the one put aside before is dropped.
const FULL_BYTES: u64 = 8 << 20;

/// The record of one directory.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
}

impl Audit {
    /// The record in `directory`.
    pub(crate) fn of(directory: &Path) -> Self {
        Self { path: directory.join(String::from_utf8_lossy(AUDIT_FILE).as_ref()) }
    }

    /// Where it is put aside when it is full.
    fn aside(&self) -> PathBuf {
        self.path.with_extension("1.jsonl")
    }

    /// Begins it where it is missing, and puts it aside where it is full.
    pub(crate) fn begin(&self) -> io::Result<()> {
        self.put_aside(self.open(OFlags::CREATE)?)
    }

    /// Puts the record aside where it is full.
    fn put_aside(&self, file: File) -> io::Result<()> {
        if file.metadata()?.size() < FULL_BYTES {
            return Ok(());
        }
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        // Somebody else may have been faster.
        if std::fs::metadata(&self.path)?.ino() == file.metadata()?.ino() {
            std::fs::rename(&self.path, self.aside())?;
            self.open(OFlags::CREATE)?;
        }
        Ok(())
    }

    fn open(&self, flags: OFlags) -> io::Result<File> {
        // Not blocking, should it be something else than a file.
        let flags =
            i32::try_from((flags | OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        options.append(true).create(flags & i32::try_from(OFlags::CREATE.bits()).unwrap_or_default() != 0);
        let file = options.mode(0o600).custom_flags(flags).open(&self.path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the audit record is not a file"));
        }
        Ok(file)
    }

    /// Adds a line. In one write, so that lines of several processes do not mix.
    pub(crate) fn add(&self, sandbox: &SandboxId, event: &str, facts: Value) -> io::Result<()> {
        let mut line =
            json!({"at_millis": millis(SystemTime::now()), "sandbox": sandbox.as_str(), "event": event});
        if let (Value::Object(line), Value::Object(facts)) = (&mut line, facts) {
            line.extend(facts);
        }
        let mut text = line.to_string();
        text.push('\n');
        let mut file = self.open(OFlags::empty())?;
        file.write_all(text.as_bytes())?;
        self.put_aside(file)
    }
}

/// The ends that stand in a record, which is read on each time.
#[derive(Debug)]
pub(crate) struct Ends<'a> {
    audit: &'a Audit,
    from: EventsFrom,
    known: HashSet<SandboxId>,
}

impl<'a> Ends<'a> {
    /// Of this record. Nothing is read yet.
    pub(crate) fn of(audit: &'a Audit) -> Self {
        Self { audit, from: EventsFrom::Oldest, known: HashSet::new() }
    }

    /// Adds the end of a sandbox, unless it stands there already: its launcher may have been killed just after it wrote it, and
    /// so may somebody else who tidied up. To be called by whoever has the lock of the sandbox's record, which is one at a time.
    pub(crate) fn add(&mut self, sandbox: &SandboxId, reason: &str) -> io::Result<()> {
        while let Some(page) = reader::read(self.audit, &self.from)? {
            let ends = page.events.into_iter().filter(|event| event.event == Event::ENDED);
            self.known.extend(ends.map(|event| event.sandbox));
            self.from = EventsFrom::After(page.next);
            if !page.more {
                break;
            }
        }
        if self.known.insert(sandbox.clone()) {
            self.audit.add(sandbox, Event::ENDED, json!({"reason": reason}))?;
        }
        Ok(())
    }
}

/// Milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What is written of a command: its first word, and all of it where the operator asked for contents.
pub(crate) fn command(config: &LocalConfig, invocation: &Invocation) -> Value {
    let (kind, all) = match invocation {
        Invocation::Shell(text) => ("shell", text.clone()),
        Invocation::Program(arguments) => {
            let words: Vec<_> = arguments.iter().map(|word| String::from_utf8_lossy(word)).collect();
            ("program", words.join(" "))
        }
    };
    let program = match invocation {
        Invocation::Shell(_) => None,
        Invocation::Program(arguments) => {
            arguments.first().map(|word| shorten(&String::from_utf8_lossy(word), NAME_BYTES))
        }
    };
    let mut facts = json!({"kind": kind});
    if let Some(program) = program {
        facts["program"] = program.into();
    }
    if config.audit_contents {
        facts["command"] = shorten(&all, CONTENT_BYTES).into();
    }
    facts
}

/// What is written of the result of a command.
pub(crate) fn command_result(result: &CommandResult) -> Value {
    json!({
        "ending": result.ending.name(),
        "status": result.ending.shell_status(),
        "stdout_bytes": result.stdout.total_bytes,
        "stderr_bytes": result.stderr.total_bytes,
    })
}

/// What is written of what either came about or did not.
pub(crate) fn outcome<T>(result: &Result<T>) -> Value {
    match result {
        Ok(_) => json!({}),
        Err(error) => json!({"error": error.kind().name()}),
    }
}

/// What is written of a file operation.
pub(crate) fn file(config: &LocalConfig, path: &GuestPath) -> Value {
    if config.audit_contents {
        json!({"path": shorten(&String::from_utf8_lossy(path.as_bytes()), CONTENT_BYTES)})
    } else {
        json!({})
    }
}

/// What is written of as much of a tree as was copied.
pub(crate) fn tree(copied: TreeSummary) -> Value {
    let TreeSummary { directories, files, bytes, symlinks, skipped } = copied;
    json!({"directories": directories, "files": files, "bytes": bytes, "symlinks": symlinks, "skipped": skipped})
}

/// The most of a name, and of contents, in a line: lines stay so short that each is written at once.
const NAME_BYTES: usize = 256;
const CONTENT_BYTES: usize = 8 << 10;

fn shorten(text: &str, most: usize) -> String {
    if text.len() <= most {
        text.to_owned()
    } else {
        format!("{}…", &text[..text.floor_char_boundary(most)])
    }
}
