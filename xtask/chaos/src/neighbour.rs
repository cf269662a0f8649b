//! Those who have nothing to do with what is killed: their sandboxes must not even notice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringfence::{Backend, BackendSettings, CommandRequest, OutputLimit, Registry, SandboxId, Timeout};

use crate::cast::Stage;
use crate::processes::{Id, Tree, reap};
use crate::remains::control_groups;

/// An id that owns nothing on a usual machine.
const OTHER_USER: u32 = 12_345;

const PATIENCE: Duration = Duration::from_secs(20);

/// One of them, with a kept sandbox and one that lives with its creator.
#[derive(Debug)]
pub(crate) struct Neighbour {
    stage: Stage,
    user: Option<u32>,
    /// The processes when all had begun.
    processes: BTreeSet<Id>,
    records: BTreeMap<PathBuf, (u64, i64)>,
    control_groups: Vec<PathBuf>,
    kept: String,
    creator: Option<ChildStdin>,
}

/// What makes two records the same.
fn records(stage: &Stage) -> BTreeMap<PathBuf, (u64, i64)> {
    let entries = fs::read_dir(stage.directory()).into_iter().flatten().flatten();
    let records = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with("audit."));
    records
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok().map(|is| (is.ino(), is.mtime()))?)))
        .collect()
}

impl Neighbour {
    /// Moves in. As root a neighbour can be another user.
    pub(crate) fn settle(stage: Stage, other_user: bool) -> Result<Self> {
        let before = Tree::look().ids();
        let user = other_user.then_some(OTHER_USER);
        if let Some(user) = user {
            for folder in [&stage.runtime, &stage.temporary] {
                chown(folder, Some(user), Some(user)).context("give a folder away")?;
            }
        }
        let mut neighbour = Self {
            stage,
            user,
            processes: BTreeSet::new(),
            records: BTreeMap::new(),
            control_groups: Vec::new(),
            kept: String::new(),
            creator: None,
        };
        let limits = neighbour.stage.limited.flags();
        let mut kept = neighbour.ringfence(&[&["create", "--keep", "--owner", "neighbour"], limits].concat());
        let child =
            kept.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().context("start a neighbour")?;
        neighbour.kept = first_line(child)?.trim().to_owned();
        let mut listed = neighbour.ringfence(&[&["create"], limits].concat());
        let mut child = listed.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        neighbour.creator = child.stdin.take();
        first_line(child)?;
        if user.is_none() {
            neighbour.says("while :; do sleep 100000; done > /dev/null 2>&1 & echo on")?;
        }
        // `create --keep` may still be about to end, and a process about to become what it will be.
        sleep(Duration::from_millis(300));
        reap();
        neighbour.processes = Tree::look().ids().difference(&before).copied().collect();
        neighbour.records = records(&neighbour.stage);
        if neighbour.records.len() != 4 {
            bail!("a neighbour has {} files and not 4", neighbour.records.len());
        }
        let ids: Vec<String> = neighbour.records.keys().filter_map(|path| id_of(path)).collect();
        neighbour.control_groups = control_groups(|_, name| ids.iter().any(|id| name.ends_with(id.as_str())));
        Ok(neighbour)
    }

    /// What is not this round's.
    pub(crate) fn processes(&self) -> &BTreeSet<Id> {
        &self.processes
    }

    fn ringfence(&self, arguments: &[&str]) -> Command {
        let Some(user) = self.user else { return self.stage.ringfence(arguments) };
        let mut command = self.stage.command(Path::new("setpriv"));
        let id = user.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--inh-caps=-all"]);
        command.arg(&self.stage.program).args(arguments);
        command
    }

    fn backend(&self) -> Result<Arc<dyn Backend>> {
        let mut settings = BackendSettings::default();
        settings.local.runtime_dir = Some(self.stage.directory());
        Ok(Registry::new(settings).open("local")?)
    }

    fn says(&self, command: &str) -> Result<()> {
        let id = self.kept.strip_prefix("local:").and_then(SandboxId::new).context("a handle")?;
        says(&*self.backend()?, &id, command)
    }

    /// What has changed for it: nothing should.
    pub(crate) fn disturbed(&self, tree: &Tree) -> Vec<String> {
        let mut changes = Vec::new();
        if !self.processes.is_subset(&tree.ids()) {
            changes.push("a neighbour's process is gone".to_owned());
        }
        if records(&self.stage) != self.records {
            changes.push("a neighbour's records have changed".to_owned());
        }
        if self.control_groups.iter().any(|path| !path.is_dir()) {
            changes.push("a neighbour's control group is gone".to_owned());
        }
        // Another user's sandbox cannot be asked, not even by root.
        if self.user.is_none()
            && let Err(error) = self.says("echo on")
        {
            changes.push(format!("a neighbour's sandbox does not answer: {error:#}"));
        }
        changes
    }

    /// Moves out; returns what is left then.
    pub(crate) fn leave(mut self) -> Result<Vec<String>> {
        drop(self.creator.take());
        let child = self.ringfence(&["rm", "-f", "--all"]).stdout(Stdio::piped()).spawn()?;
        let deadline = Instant::now() + PATIENCE;
        drop(child);
        loop {
            reap();
            let there = Tree::look().ids();
            let processes = self.processes.intersection(&there).count();
            let groups = self.control_groups.iter().filter(|path| path.exists()).count();
            let records = records(&self.stage).len();
            if (processes, groups, records) == (0, 0, 0) {
                return Ok(Vec::new());
            }
            if Instant::now() > deadline {
                return Ok(vec![format!(
                    "of a neighbour that moved out: {processes} processes, {groups} control groups, {records} records"
                )]);
            }
            sleep(Duration::from_millis(10));
        }
    }
}

fn id_of(record: &Path) -> Option<String> {
    record.file_name()?.to_str()?.strip_suffix(".json").map(str::to_owned)
}

fn first_line(mut child: Child) -> Result<String> {
    use std::io::BufRead;
    let mut line = String::new();
    let output = child.stdout.take().context("a neighbour's output")?;
    std::io::BufReader::new(output).read_line(&mut line)?;
    if !line.starts_with("local:") {
        bail!("a neighbour could not move in");
    }
    Ok(line)
}

/// Runs a command in a sandbox, which has to say `on`.
pub(crate) fn says(backend: &dyn Backend, id: &SandboxId, command: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let request =
        CommandRequest::shell(command, Timeout::new(Duration::from_secs(20))?, OutputLimit::new(4096)?);
    let result = runtime.block_on(backend.run_command(id, request))?;
    if result.stdout.text() != "on\n" {
        bail!("it says {:?} {:?}", result.stdout.text(), result.stderr.text());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};
    use std::sync::PoisonError;

    use super::{Neighbour, records};
    use crate::cast::Stage;
    use crate::owner::Limited;
    use crate::processes::{CHILDREN, Tree, id_of};

    #[test]
    fn whatever_is_touched_of_a_neighbour_is_noticed() {
        let _alone = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let stage = Stage {
            program: "/bin/true".into(),
            runtime: folder.path().to_owned(),
            temporary: folder.path().to_owned(),
            marker: String::new(),
            limited: Limited::Nothing,
        };
        let (directory, group) = (stage.directory(), folder.path().join("group"));
        for path in [&directory, &group] {
            fs::create_dir(path).unwrap();
        }
        fs::write(directory.join("sb-1.json"), "").unwrap();
        let mut process = Command::new("sleep").arg("300").stdout(Stdio::null()).spawn().unwrap();
        let mut neighbour = Neighbour {
            processes: [id_of(process.id()).unwrap()].into(),
            records: records(&stage),
            control_groups: vec![group.clone()],
            kept: "local:sb-1".to_owned(),
            creator: None,
            user: Some(1),
            stage,
        };
        let changes = |neighbour: &Neighbour| neighbour.disturbed(&Tree::look());
        assert_eq!(changes(&neighbour), [""; 0]);
        process.kill().unwrap();
        process.wait().unwrap();
        let mut expected = vec!["a neighbour's process is gone"];
        assert_eq!(changes(&neighbour), expected);
        // The same name with something else behind it.
        fs::rename(directory.join("sb-1.json"), directory.join("old")).unwrap();
        fs::write(directory.join("sb-1.json"), "").unwrap();
        fs::remove_file(directory.join("old")).unwrap();
        expected.push("a neighbour's records have changed");
        assert_eq!(changes(&neighbour), expected);
        fs::remove_dir(&group).unwrap();
        expected.push("a neighbour's control group is gone");
        assert_eq!(changes(&neighbour), expected);
        // As one of the same user it is asked, too.
        neighbour.user = None;
        let found = changes(&neighbour);
        assert_eq!(found[..3], expected);
        assert!(found[3].starts_with("a neighbour's sandbox does not answer: "), "{found:?}");
    }
}
