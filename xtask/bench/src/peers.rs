//! The other programs: how each is asked for the same thing, as closely as it can do it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// What merged-usr systems have as links at the root.
const ROOT_LINKS: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64"];

/// What is installed here.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) bwrap: Option<PathBuf>,
    pub(crate) runc: Option<Runc>,
    pub(crate) absent: Vec<String>,
}

impl Peers {
    /// Looks for the peers and tries each once.
    pub(crate) fn find() -> Result<Self> {
        let mut absent = Vec::new();
        let bwrap = find("bwrap").filter(|path| match timed(&mut bwrap_command(path)) {
            Ok(_) => true,
            Err(error) => {
                absent.push(format!("bwrap: {error:#}"));
                false
            }
        });
        if bwrap.is_none() && absent.is_empty() {
            absent.push("bwrap: it is not installed (Debian package bubblewrap)".to_owned());
        }
        let runc = match find("runc") {
            None => {
                absent.push("runc: it is not installed (Debian package runc)".to_owned());
                None
            }
            Some(program) => {
                let runc = Runc::new(program)?;
                match runc.run_once() {
                    Ok(_) => Some(runc),
                    Err(error) => {
                        absent.push(format!("runc: {error:#}"));
                        None
                    }
                }
            }
        };
        Ok(Self { bwrap, runc, absent })
    }

    /// Returns the first line of each peer's version.
    pub(crate) fn versions(&self) -> Vec<String> {
        let programs = [self.bwrap.as_deref(), self.runc.as_ref().map(|runc| runc.program.as_path())];
        programs
            .into_iter()
            .flatten()
            .filter_map(|program| first_line(Command::new(program).arg("--version")))
            .collect()
    }
}

/// Returns bubblewrap with everything it can isolate, and the same view: system directories read-only, private /proc,
/// /dev and /tmp.
pub(crate) fn bwrap_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
    command.args(["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
    for link in ROOT_LINKS {
        if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
            command.arg("--symlink").arg(target).arg(Path::new("/").join(link));
        }
    }
    command.arg("true");
    command
}

/// runc, with a bundle made for it.
#[derive(Debug)]
pub(crate) struct Runc {
    program: PathBuf,
    folder: PathBuf,
}

impl Runc {
    fn new(program: PathBuf) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("ringfence-bench-runc-{}", std::process::id()));
        let runc = Self { program, folder };
        runc.bundle("true", &["true"])?;
        runc.bundle("sleep", &["sleep", "infinity"])?;
        Ok(runc)
    }

    /// Makes a bundle whose root shows the host's /usr, and which has every namespace and no network.
    fn bundle(&self, name: &str, command: &[&str]) -> Result<()> {
        let bundle = self.folder.join(name);
        let root = bundle.join("rootfs");
        for folder in ["usr", "proc", "dev", "sys", "tmp"] {
            fs::create_dir_all(root.join(folder)).with_context(|| format!("create {}", root.display()))?;
        }
        for link in ROOT_LINKS {
            if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
                symlink(target, root.join(link))?;
            }
        }
        timed(Command::new(&self.program).args(["spec", "--bundle"]).arg(&bundle)).context("runc spec")?;
        let path = bundle.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path)?)?;
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(command);
        let mounts = config["mounts"].as_array_mut().context("runc spec wrote no mounts")?;
        mounts.push(json!({
            "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro", "nosuid", "nodev"]
        }));
        fs::write(&path, serde_json::to_vec(&config)?)?;
        Ok(())
    }

    fn command<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(self.folder.join("state")).args(arguments);
        command
    }

    /// Runs `true` in a container of its own, from nothing to nothing.
    pub(crate) fn run_once(&self) -> Result<Duration> {
        let id = format!("ringfence-bench-{}", std::process::id());
        timed(self.command(["run", "--bundle"]).arg(self.folder.join("true")).arg(id))
    }

    /// Starts a container that lives until the returned value is dropped.
    pub(crate) fn start(&self) -> Result<Living<'_>> {
        let id = format!("ringfence-bench-living-{}", std::process::id());
        timed(self.command(["run", "--detach", "--bundle"]).arg(self.folder.join("sleep")).arg(&id))?;
        Ok(Living { runc: self, id })
    }
}

impl Drop for Runc {
    fn drop(&mut self) {
        // A leftover in the temporary folder would harm nobody.
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// A running container of runc.
#[derive(Debug)]
pub(crate) struct Living<'a> {
    runc: &'a Runc,
    id: String,
}

impl Living<'_> {
    pub(crate) fn exec_true(&self) -> Result<Duration> {
        timed(&mut self.runc.command(["exec", &self.id, "true"]))
    }
}

impl Drop for Living<'_> {
    fn drop(&mut self) {
        // Reported by the next run of runc if it fails; there is nobody to tell here.
        drop(timed(&mut self.runc.command(["delete", "--force", &self.id])));
    }
}

/// Runs a command to its end and returns how long that took; an exit status other than 0 is an error.
pub(crate) fn timed(command: &mut Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status();
    let took = begun.elapsed();
    let status = status.with_context(|| format!("start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{} ended with {status}", command.get_program().display());
    }
    Ok(took)
}

/// Returns the first line that a command prints.
pub(crate) fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(extra).map(|folder| folder.join(program)).find(|path| path.is_file())
}
