//! Runs the tests of the local backend a second time, as an ordinary user.
//!
//! The test runner keeps its job: it starts each test binary through a *target runner*, which is this program again. As
//! root it makes the build reachable for the user, then becomes the user for good and executes the test. Tests find their
//! files at the paths that were compiled into them.

use std::fmt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::metadata::{Metadata, host_triple, toolchain};
use crate::tools;

/// The task under which this program is its own target runner.
pub(crate) const RUNNER_TASK: &str = "as-user";

/// An id that owns nothing on a usual machine.
const USER: u32 = 12_345;
/// Sandboxes have directories of their own where temporary files go, so the home lies elsewhere.
const HOMES: &str = "/var/lib";
const HOME: &str = "RINGFENCE_XTASK_HOME";
const TEMPORARY: &str = "RINGFENCE_XTASK_TEMPORARY";
const UNVEIL: &str = "RINGFENCE_XTASK_UNVEIL";

/// Who runs the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    Root,
    User,
}

impl Identity {
    pub(crate) fn mine() -> Self {
        if tools::is_root() { Self::Root } else { Self::User }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::User => "user",
        })
    }
}

/// The user's home and temporary folder while the pass runs.
#[derive(Debug)]
pub(crate) struct SecondPass {
    home: PathBuf,
    temporary: PathBuf,
}

/// Makes the command run its tests as the ordinary user.
pub(crate) fn prepare(metadata: &Metadata, command: &mut Command) -> Result<SecondPass> {
    tools::require("setpriv", "util-linux")?;
    let name = format!("ringfence-user-{}", std::process::id());
    let pass = SecondPass { home: Path::new(HOMES).join(&name), temporary: std::env::temp_dir().join(&name) };
    for folder in [&pass.home, &pass.temporary] {
        std::fs::create_dir(folder).with_context(|| format!("create {}", folder.display()))?;
        chown(folder, Some(USER), Some(USER)).with_context(|| format!("give away {}", folder.display()))?;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    }
    // The runner relinks this very program while it runs; the copy stays what it is.
    let copy = metadata.target_directory.join("xtask/as-user");
    drop(std::fs::remove_file(&copy));
    std::fs::copy(std::env::current_exe()?, &copy).context("copy this program")?;

    let variable = host_triple()?.to_uppercase().replace('-', "_");
    command
        .env(format!("CARGO_TARGET_{variable}_RUNNER"), format!("{} {RUNNER_TASK}", copy.display()))
        .env(HOME, &pass.home)
        .env(TEMPORARY, &pass.temporary);
    // The toolchain too: a test shows it to a sandbox (P73).
    let needed = [metadata.target_directory.clone(), metadata.workspace_root.clone(), toolchain()?];
    if !needed.iter().all(|path| user_reaches(path)) {
        tools::require("unshare", "util-linux")?;
        let list = std::env::join_paths(needed)?;
        command.env(UNVEIL, list);
    }
    Ok(pass)
}

impl SecondPass {
    /// Removes what the user had; what cannot be removed was left by a test and fails the run.
    pub(crate) fn clean_up(&self) -> Result<()> {
        for folder in [&self.home, &self.temporary] {
            std::fs::remove_dir_all(folder)
                .with_context(|| format!("remove {}: a test left something there", folder.display()))?;
        }
        Ok(())
    }
}

impl Drop for SecondPass {
    fn drop(&mut self) {
        // After a failure nobody has cleaned up, and after a success there is nothing to remove.
        for folder in [&self.home, &self.temporary] {
            drop(std::fs::remove_dir_all(folder));
        }
    }
}

fn user_reaches(path: &Path) -> bool {
    become_user_command(&["test".to_owned(), "-x".to_owned(), path.display().to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A command that is the ordinary user's, with nothing of ours in its environment.
pub(crate) fn user_command(command: &[String]) -> Result<Command> {
    tools::require("setpriv", "util-linux")?;
    let mut start = become_user_command(command);
    start.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").current_dir("/");
    Ok(start)
}

fn become_user_command(command: &[String]) -> Command {
    let mut setpriv = Command::new("setpriv");
    let id = USER.to_string();
    setpriv.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--inh-caps=-all"]).args(command);
    setpriv
}

/// The target runner: never returns on success.
pub(crate) fn become_user(command: &[&str]) -> Result<()> {
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let given = |name| std::env::var_os(name).context("this task is for test runners");
    let (home, temporary) = (given(HOME)?, given(TEMPORARY)?);
    let mut start = become_user_command(&command);
    if let Some(list) = std::env::var_os(UNVEIL) {
        start = unveiled(&std::env::split_paths(&list).collect::<Vec<_>>(), &start)?;
    }
    let error = start
        .env_remove(HOME)
        .env_remove(TEMPORARY)
        .env_remove(UNVEIL)
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("XDG_CACHE_HOME")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME")
        .env("HOME", home)
        .env("TMPDIR", temporary)
        .env("USER", "ringfence-test")
        .env("LOGNAME", "ringfence-test")
        .exec();
    Err(error).with_context(|| format!("start {}", command.join(" ")))
}

/// Wraps a command so that it sees the given folders at their own paths although a parent is closed to the user: in a
/// private mount namespace the closed parent is covered by an empty one, in which only the folders appear.
fn unveiled(folders: &[PathBuf], inner: &Command) -> Result<Command> {
    let mut steps = vec!["set -e".to_owned(), "hold=$(mktemp -d)".to_owned()];
    let mut covers: Vec<PathBuf> = Vec::new();
    for (index, folder) in folders.iter().enumerate() {
        let folder = folder.canonicalize()?;
        steps.push(format!("mkdir $hold/{index}; mount --bind {} $hold/{index}", quoted(&folder)?));
        if let Some(cover) = closed_parent(&folder)
            && !covers.contains(&cover)
        {
            covers.push(cover);
        }
    }
    for cover in &covers {
        steps.push(format!("mount -t tmpfs -o mode=755,nosuid,nodev none {}", quoted(cover)?));
    }
    for (index, folder) in folders.iter().enumerate() {
        let folder = folder.canonicalize()?;
        if covers.iter().any(|cover| folder.starts_with(cover)) {
            steps.push(format!("mkdir -p {0}; mount --move $hold/{index} {0}", quoted(&folder)?));
        } else {
            steps.push(format!("umount $hold/{index}"));
        }
    }
    let here = std::env::current_dir()?;
    steps.push("rm -rf --one-file-system $hold".to_owned());
    steps.push(format!("cd {}", quoted(&here)?));
    steps.push("exec \"$@\"".to_owned());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &steps.join("\n"), "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    Ok(command)
}

/// Returns the outermost parent that an ordinary user cannot pass.
fn closed_parent(folder: &Path) -> Option<PathBuf> {
    let mut closed = None;
    for parent in folder.ancestors().skip(1) {
        let open = std::fs::metadata(parent).is_ok_and(|facts| facts.permissions().mode() & 0o001 != 0);
        if !open {
            closed = Some(parent.to_owned());
        }
    }
    closed
}

fn quoted(path: &Path) -> Result<String> {
    let text = path.to_str().context("a path that is not text")?;
    if text.contains('\'') {
        bail!("cannot handle a quote in {text}");
    }
    Ok(format!("'{text}'"))
}
