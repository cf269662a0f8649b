//! `cargo xtask test --engines`: inside containers of a real engine, where a sandbox works or is refused, and never anything between.
//!
//! A Docker daemon of our own is started for this, with all its data under `target/`, no network and no rights over the
//! machine's firewall; it touches no daemon that runs already. The image is Debian from its packages, so no registry is needed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::metadata::Metadata;
use crate::report;
use crate::stage::{Stages, cargo_command};
use crate::tools;

/// The newest Debian, so that what was linked on this machine finds a C library there.
const SUITE: &str = "trixie";
const IMAGE: &str = "ringfence-engines:1";
/// How long the daemon may take to answer.
const START: Duration = Duration::from_secs(30);

/// One way to start a container and what must come of a sandbox inside.
struct Case {
    name: &'static str,
    options: &'static [&'static str],
    arguments: &'static [&'static str],
    expect: Expect,
}

enum Expect {
    /// The command ran.
    Works,
    /// It did not run, and standard error has all of these.
    Refused(&'static [&'static str]),
}

/// What must be there for a sandbox to work in a container.
const OPEN: &[&str] = &["--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"];
const OPEN_AS_USER: &[&str] =
    &["--user", "1234", "--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"];
const OPEN_READ_ONLY: &[&str] = &[
    "--user",
    "1234",
    "--read-only",
    "--env",
    "HOME=/nonexistent",
    "--security-opt",
    "seccomp=unconfined",
    "--security-opt",
    "systempaths=unconfined",
];
const FILTERED: Expect = Expect::Refused(&["Function not implemented", "seccomp=unconfined"]);
const MASKED: Expect = Expect::Refused(&["create /proc", "systempaths=unconfined"]);

const CASES: &[Case] = &[
    Case { name: "default, root", options: &[], arguments: &[], expect: FILTERED },
    Case { name: "default, user", options: &["--user", "1234"], arguments: &[], expect: FILTERED },
    Case {
        name: "no filter, masked /proc, root",
        options: &["--security-opt", "seccomp=unconfined"],
        arguments: &[],
        expect: MASKED,
    },
    Case {
        name: "no filter, masked /proc, user",
        options: &["--user", "1234", "--security-opt", "seccomp=unconfined"],
        arguments: &[],
        expect: MASKED,
    },
    Case {
        name: "SYS_ADMIN, masked /proc",
        options: &["--cap-add", "SYS_ADMIN"],
        arguments: &[],
        expect: MASKED,
    },
    Case { name: "no filter, open /proc, root", options: OPEN, arguments: &[], expect: Expect::Works },
    Case {
        name: "no filter, open /proc, user",
        options: OPEN_AS_USER,
        arguments: &[],
        expect: Expect::Works,
    },
    Case { name: "read-only root, no home", options: OPEN_READ_ONLY, arguments: &[], expect: Expect::Works },
    Case {
        name: "memory limit, cgroups read-only",
        options: OPEN,
        arguments: &["--memory", "64MiB"],
        expect: Expect::Refused(&["field limits.memory", "cgroup"]),
    },
];

/// Starts the engine, runs every case, and ends the engine.
pub(crate) fn run() -> Result<()> {
    ensure!(tools::is_root(), "a Docker daemon has to be started for this, which takes root");
    for (program, package) in
        [("dockerd", "docker.io"), ("docker", "docker.io"), ("debootstrap", "debootstrap")]
    {
        tools::require(program, package)?;
    }
    let metadata = Metadata::members_only()?;
    let stages = Stages::new(&metadata.target_directory)?;
    stages.command("build", &mut cargo_command(&["build", "--bin", "ringfence"]), |_| String::new())?;
    let program = metadata.target_directory.join("debug/ringfence");
    let folder = stages.folder().join("engine");
    std::fs::create_dir_all(&folder)?;
    let tarball = folder.join(format!("{SUITE}.tar"));
    if !tarball.exists() {
        let root = folder.join("root");
        tools::fresh_folder(&root)?;
        let mut debootstrap = Command::new("debootstrap");
        stages
            .command("image", debootstrap.args(["--variant=minbase", SUITE]).arg(&root), |_| String::new())?;
        let unfinished = folder.join("unfinished.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&root).arg("-cf").arg(&unfinished).args(["--exclude=./var/cache/apt/*", "."]);
        stages.command("pack", &mut tar, |_| String::new())?;
        std::fs::rename(&unfinished, &tarball)?;
        std::fs::remove_dir_all(&root)?;
    }
    let engine = Engine::start(&folder)?;
    stages.command("import", engine.docker().arg("import").arg(&tarball).arg(IMAGE), |_| String::new())?;
    for case in CASES {
        stages.check(case.name, || check(case, &engine, &program))?;
    }
    engine.stop()?;
    report::say(&format!("everything passed in {:.0} s", stages.elapsed().as_secs_f64()));
    Ok(())
}

fn check(case: &Case, engine: &Engine, program: &Path) -> Result<String> {
    let mount = format!("{}:/usr/local/bin/ringfence:ro", program.display());
    let mut docker = engine.docker();
    docker.args(["run", "--rm", "--network", "none", "--volume", &mount]).args(case.options).arg(IMAGE);
    docker.args(["ringfence", "run"]).args(case.arguments).args(["--", "sh", "-c", "echo ran as $(id -u)"]);
    let output = docker.stdin(Stdio::null()).output().context("start docker")?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let came = format!("came: status {:?}, output {out:?}, errors {err:?}", output.status.code());
    match case.expect {
        Expect::Works => {
            ensure!(output.status.code() == Some(0) && out == "ran as 1000\n" && err.is_empty(), "{came}");
            Ok("works".to_owned())
        }
        Expect::Refused(words) => {
            let said = words.iter().all(|word| err.contains(word));
            ensure!(output.status.code() == Some(125) && out.is_empty() && said, "not {words:?}; {came}");
            Ok(format!("refused: {}", words.join(", ")))
        }
    }
}

/// A Docker daemon of our own; ended when dropped.
struct Engine {
    daemon: Child,
    host: String,
}

impl Engine {
    fn start(folder: &Path) -> Result<Self> {
        // A socket's path has at most 107 bytes, and a checkout may lie deep.
        let place = PathBuf::from(format!("/run/ringfence-engines-{}", std::process::id()));
        std::fs::create_dir_all(&place)?;
        let host = format!("unix://{}/docker.sock", place.display());
        let log = std::fs::File::create(folder.join("dockerd.log"))?;
        let daemon = Command::new(tools::require("dockerd", "docker.io")?)
            .args(["--host", &host, "--data-root"])
            .arg(folder.join("data"))
            .arg("--exec-root")
            .arg(place.join("exec"))
            .arg("--pidfile")
            .arg(place.join("pid"))
            .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start dockerd")?;
        let mut engine = Self { daemon, host };
        let begun = Instant::now();
        while !engine.answers() {
            if let Some(status) = engine.daemon.try_wait()? {
                bail!("dockerd ended with {status}: see {}", folder.join("dockerd.log").display());
            }
            ensure!(
                begun.elapsed() < START,
                "dockerd does not answer: see {}",
                folder.join("dockerd.log").display()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(engine)
    }

    fn docker(&self) -> Command {
        let mut command = Command::new("docker");
        command.env("DOCKER_HOST", &self.host);
        command
    }

    fn answers(&self) -> bool {
        let mut version = self.docker();
        version.args(["version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    }

    fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// Asks it to end, which takes its containers and its containerd along, and waits.
    fn end(&mut self) -> Result<()> {
        let pid = self.daemon.id().to_string();
        let asked =
            Command::new("kill").args(["-TERM", &pid]).stdin(Stdio::null()).status().context("start kill")?;
        ensure!(asked.success(), "dockerd (process {pid}) could not be ended");
        self.daemon.wait().context("wait for dockerd")?;
        if let Some(place) = self.host.strip_prefix("unix://").and_then(|path| Path::new(path).parent()) {
            std::fs::remove_dir_all(place).with_context(|| format!("remove {}", place.display()))?;
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Already ended when a run came to its end; otherwise the failure on its way is the one to tell.
        if matches!(self.daemon.try_wait(), Ok(None))
            && let Err(error) = self.end()
        {
            report::complain(&format!("xtask: {error:#}"));
        }
    }
}
