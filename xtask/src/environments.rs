//! Python and npm packages for checks, as pinned in a folder of the repository: `requirements.txt` and `package-lock.json`.
//!
//! They are installed below `target/` and again only when the pins change. No package runs a script of its own on the way.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::tools;

/// Where both are for one set of pins.
#[derive(Debug)]
pub(crate) struct Environments {
    venv: PathBuf,
    node: PathBuf,
}

impl Environments {
    /// Installs what `pins` names into `folder`, both at a time, and returns where.
    pub(crate) fn install(pins: &Path, folder: &Path) -> Result<Self> {
        let (venv, node) = (folder.join("venv"), folder.join("node"));
        tools::require("python3", "python3-venv")?;
        tools::require("npm", "npm")?;
        std::thread::scope(|scope| {
            let python = scope.spawn(|| install_python(pins, &venv));
            let npm = install_npm(pins, &node);
            python.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(npm)
        })?;
        Ok(Self { venv, node })
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.venv.join("bin/python")
    }

    /// Returns the folder of the npm packages, from which a script is run that imports them.
    pub(crate) fn node_folder(&self) -> &Path {
        &self.node
    }

    /// Returns a command that finds the programs of both before any others, and that leaves no compiled files in the sources.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Result<Command> {
        let own = [self.venv.join("bin"), self.node.join("node_modules/.bin")];
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path)))?;
        let mut command = Command::new(program.as_ref());
        command.env("PATH", path).env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
        Ok(command)
    }
}

fn install_python(pins: &Path, venv: &Path) -> Result<()> {
    let requirements = pins.join("requirements.txt");
    let version = tools::output(
        Command::new("python3").args(["-c", "import sys; print(sys.executable, sys.version)"]),
    )?;
    let stamp = Stamp::new(venv, &[&requirements], &version)?;
    if stamp.holds() {
        return Ok(());
    }
    tools::remove(venv)?;
    tools::output(Command::new("python3").args(["-m", "venv"]).arg(venv))
        .context("make a virtual environment of Python (on Debian that is the package python3-venv)")?;
    tools::output(
        Command::new(venv.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--only-binary",
                ":all:",
                "-r",
            ])
            .arg(&requirements),
    )
    .with_context(|| format!("install {} from PyPI, if that can be reached", requirements.display()))?;
    stamp.write()
}

fn install_npm(pins: &Path, folder: &Path) -> Result<()> {
    let files = ["package.json", "package-lock.json"].map(|name| pins.join(name));
    let stamp = Stamp::new(folder, &[&files[0], &files[1]], "")?;
    if stamp.holds() {
        return Ok(());
    }
    tools::fresh_folder(folder)?;
    for file in &files {
        std::fs::copy(file, folder.join(file.file_name().unwrap_or_default()))?;
    }
    // Not `npm ci`: it refuses a lock in which an optional package of another system could not be resolved.
    let flags = [
        "--ignore-scripts",
        "--no-save",
        "--no-audit",
        "--no-fund",
        "--prefer-offline",
        "--loglevel",
        "error",
    ];
    tools::output(Command::new("npm").arg("install").args(flags).current_dir(folder)).with_context(|| {
        format!("install {} from the npm registry, if that can be reached", files[1].display())
    })?;
    stamp.write()
}

/// What an installation was made of, kept in it.
struct Stamp {
    path: PathBuf,
    text: String,
}

impl Stamp {
    fn new(folder: &Path, files: &[&Path], more: &str) -> Result<Self> {
        let mut text = more.to_owned();
        for file in files {
            text += &std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        }
        Ok(Self { path: folder.join("made-of"), text })
    }

    fn holds(&self) -> bool {
        std::fs::read_to_string(&self.path).is_ok_and(|text| text == self.text)
    }

    fn write(&self) -> Result<()> {
        std::fs::write(&self.path, &self.text).with_context(|| format!("write {}", self.path.display()))
    }
}
