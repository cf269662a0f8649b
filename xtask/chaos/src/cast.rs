//! Those who own sandboxes in a round: each a process of its own, and what it says.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::dice::Dice;
use crate::owner::{self, Limited};
use crate::processes::{self, Id};

/// What all who act in a round have in common.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The program `ringfence`.
    pub(crate) program: PathBuf,
    /// What `XDG_RUNTIME_DIR` is.
    pub(crate) runtime: PathBuf,
    /// Where temporary files go.
    pub(crate) temporary: PathBuf,
    /// Unlike that of any other round; stands in the arguments of every command.
    pub(crate) marker: String,
    /// The limits there are here.
    pub(crate) limited: Limited,
}

impl Stage {
    /// Where records are.
    pub(crate) fn directory(&self) -> PathBuf {
        self.runtime.join("ringfence")
    }

    /// A command that knows nothing of this machine but what it needs.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env("TMPDIR", &self.temporary)
            .env("HOME", &self.temporary)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// The command line program.
    pub(crate) fn ringfence(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.program);
        command.args(arguments);
        command
    }
}

/// What somebody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// `ringfence create --keep`.
    Kept,
    /// `ringfence create`.
    Listed,
    /// `ringfence run`.
    Run,
    /// A program that uses the library.
    Maker,
    /// One that uses the sandboxes of others.
    Visitor,
}

/// What one of them has said.
#[derive(Debug, Default, Clone)]
pub(crate) struct Said {
    /// What it is doing.
    pub(crate) phase: String,
    /// Kept sandboxes of its own that are complete.
    pub(crate) kept: Vec<String>,
    /// Sandboxes that it begins to end.
    pub(crate) ending: Vec<String>,
    /// What failed.
    pub(crate) faults: Vec<String>,
}

impl Said {
    fn hear(&mut self, role: Role, line: &str) {
        match (role, line.split_once(' ')) {
            (Role::Kept, None) => {
                self.kept.extend(line.strip_prefix("local:").map(str::to_owned));
                self.phase = "kept".to_owned();
            }
            (Role::Listed, None) => self.phase = "listed".to_owned(),
            (Role::Run, _) => self.phase = "command".to_owned(),
            (_, Some(("phase", phase))) => self.phase = phase.to_owned(),
            (_, Some(("kept", id))) => self.kept.push(id.to_owned()),
            (_, Some(("ending", id))) => self.ending.push(id.to_owned()),
            (_, Some(("fault", fault))) => self.faults.push(fault.to_owned()),
            _ => self.faults.push(format!("said what nobody understands: {line}")),
        }
    }
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) role: Role,
    pub(crate) id: Id,
    said: Arc<Mutex<Said>>,
    listener: Option<JoinHandle<()>>,
    /// Open, because `create` ends with it.
    _input: Option<ChildStdin>,
}

impl Actor {
    /// Starts one.
    pub(crate) fn start(stage: &Stage, role: Role, dice: &mut Dice) -> Result<Self> {
        let limited = if dice.percent(50) { stage.limited } else { Limited::Nothing };
        let mut command = match role {
            Role::Kept => stage.ringfence(&[&["create", "--keep"], limited.flags()].concat()),
            Role::Listed => stage.ringfence(&[&["create"], limited.flags()].concat()),
            Role::Run => {
                let waits = if dice.percent(50) { "300." } else { "0.01" };
                let text = format!("echo begun; {}", owner::deep_tree(&stage.marker, waits));
                stage.ringfence(&[&["run"], limited.flags(), &["--", "sh", "-c", &text]].concat())
            }
            Role::Maker | Role::Visitor => {
                let mut command = stage.command(&std::env::current_exe()?);
                let role = if role == Role::Maker { owner::MAKER } else { owner::VISITOR };
                command.args([owner::ROLE, role, &dice.next().to_string()]).arg(stage.directory());
                command.args([stage.limited.word(), &stage.marker]);
                command
            }
        };
        if role == Role::Listed {
            command.stdin(Stdio::piped());
        }
        let mut child = command.stdout(Stdio::piped()).spawn().context("start an owner")?;
        // Not reaped yet, so it is there under its number.
        let id = processes::id_of(child.id()).context("an owner that was just started")?;
        let said = Arc::new(Mutex::new(Said { phase: "create".to_owned(), ..Said::default() }));
        let output = BufReader::new(child.stdout.take().context("an owner's output")?);
        let heard = Arc::clone(&said);
        let listener = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).hear(role, &line);
            }
        });
        Ok(Self { role, id, said, listener: Some(listener), _input: child.stdin.take() })
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> Said {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills it, if it is still there.
    pub(crate) fn kill(&self) -> Result<()> {
        processes::signal(self.id, Signal::KILL).map(drop)
    }

    /// All that it has said, once it has ended.
    pub(crate) fn last_words(&mut self) -> Said {
        if let Some(listener) = self.listener.take() {
            // It only reads lines.
            drop(listener.join());
        }
        self.said()
    }
}

#[cfg(test)]
mod tests {
    use super::{Role, Said};

    #[test]
    fn what_is_said_is_understood() {
        let mut said = Said::default();
        for line in ["phase tags", "kept sb-1", "ending sb-1", "fault create unavailable x y"] {
            said.hear(Role::Maker, line);
        }
        assert_eq!((said.phase.as_str(), said.kept.len(), said.ending.len()), ("tags", 1, 1));
        assert_eq!(said.faults, ["create unavailable x y"]);
        said.hear(Role::Kept, "local:sb-2");
        assert_eq!((said.phase.as_str(), said.kept[1].as_str()), ("kept", "sb-2"));
        said.hear(Role::Visitor, "?");
        assert_eq!(said.faults.len(), 2);
    }
}
