//! The other programs: how each is asked for the same thing, as closely as it can do it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::room::Room;

/// What merged-usr systems have as links at the root.
const ROOT_LINKS: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64"];

/// What is installed here, and what is not.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) peers: Vec<Peer>,
    /// One sentence for each that is missing.
    pub(crate) absent: Vec<String>,
    // Dropped last: the peers' containers are in it.
    _folder: Folder,
}

/// Another program, as the commands that do the job with it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// What it is asked for, for the table.
    pub(crate) job: &'static str,
    /// Takes part in each so-many-th round: the slow ones would make the run long.
    pub(crate) every: usize,
    once: Vec<String>,
    living: Option<LivingCommands>,
    room: Rc<Room>,
}

#[derive(Debug)]
struct LivingCommands {
    start: Vec<String>,
    exec: Vec<String>,
    stop: Vec<String>,
}

impl Peers {
    /// Looks for the peers and tries each.
    pub(crate) fn find() -> Result<Self> {
        let folder = Folder::new()?;
        let here = Rc::new(Room::Here);
        let hidden = Room::hidden().ok().map(Rc::new);
        let mut peers = Vec::new();
        let mut absent = Vec::new();
        type Make = fn(String, &Path) -> Result<Peer>;
        let known: [(&str, &str, Make); 4] = [
            ("bwrap", "bubblewrap", bwrap),
            ("crun", "crun", crun),
            ("runc", "runc", runc),
            ("podman", "podman", podman),
        ];
        for (name, package, make) in known {
            let Some(program) = find(name) else {
                absent.push(format!(
                    "Not measured: {name}, which is not installed (Debian package {package})."
                ));
                continue;
            };
            let mut peer = make(program, &folder.0)?;
            let mut tried = peer.try_in(&here);
            if let (Err(_), Some(hidden)) = (&tried, &hidden) {
                tried = peer.try_in(hidden);
            }
            match tried {
                Ok(()) => peers.push(peer),
                Err(error) => {
                    absent.push(format!("Not measured: {name}, which does not run here: {error:#}."))
                }
            }
        }
        Ok(Self { peers, absent, _folder: folder })
    }

    /// Returns the first line of each peer's version, and what was done to make it run.
    pub(crate) fn versions(&self) -> Vec<String> {
        let version = |peer: &Peer| {
            let version = first_line(Command::new(&peer.once[0]).arg("--version"))?;
            let hidden = matches!(*peer.room, Room::Hidden(_));
            Some(version + if hidden { " (control groups v2 hidden from it)" } else { "" })
        };
        self.peers.iter().filter_map(version).collect()
    }
}

impl Peer {
    /// Does everything once. What works at the second try works.
    fn try_in(&mut self, room: &Rc<Room>) -> Result<()> {
        self.room = Rc::clone(room);
        let attempt = || self.once().and_then(|_| self.start().map(drop));
        attempt().or_else(|_| attempt())
    }

    /// Runs `true` in a sandbox or container of its own, from nothing to nothing.
    pub(crate) fn once(&self) -> Result<Duration> {
        self.room.time(&self.once)
    }

    /// Starts a container that lives until the returned value is dropped; none where the peer has no such thing.
    pub(crate) fn start(&self) -> Result<Option<Living<'_>>> {
        let Some(commands) = &self.living else { return Ok(None) };
        self.room.time(&commands.start)?;
        let living = Living { peer: self, commands };
        living.exec()?;
        Ok(Some(living))
    }
}

/// A running container.
#[derive(Debug)]
pub(crate) struct Living<'a> {
    pub(crate) peer: &'a Peer,
    commands: &'a LivingCommands,
}

impl Living<'_> {
    /// Runs `true` in it.
    pub(crate) fn exec(&self) -> Result<Duration> {
        self.peer.room.time(&self.commands.exec)
    }
}

impl Drop for Living<'_> {
    fn drop(&mut self) {
        // There is nobody to tell here; the next run of the peer complains.
        drop(self.peer.room.time(&self.commands.stop));
    }
}

/// bubblewrap with everything it can isolate, and the same view: system directories read-only, private /proc, /dev and
/// /tmp. It keeps nothing alive for a second command.
fn bwrap(program: String, _folder: &Path) -> Result<Peer> {
    let mut once =
        words(&[&program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
    once.extend(words(&["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]));
    for (link, target) in root_links() {
        once.extend(words(&["--symlink", &target, &format!("/{link}")]));
    }
    once.push("true".to_owned());
    Ok(Peer {
        name: "bwrap",
        job: "all namespaces, proc, dev, tmp, /usr read-only",
        every: 1,
        once,
        living: None,
        room: Rc::new(Room::Here),
    })
}

fn crun(program: String, folder: &Path) -> Result<Peer> {
    // As we do without a limit, and what makes it fastest.
    oci("crun", program, folder, &["--cgroup-manager", "disabled"], 1)
}

fn runc(program: String, folder: &Path) -> Result<Peer> {
    oci("runc", program, folder, &[], 2)
}

/// An engine that runs bundles: one whose root shows the host's /usr, with every namespace and no network.
fn oci(name: &'static str, program: String, folder: &Path, options: &[&str], every: usize) -> Result<Peer> {
    let bundle = |which: &str, command: &[&str]| -> Result<String> {
        let bundle = folder.join(name).join(which);
        root(&bundle.join("rootfs"))?;
        // It writes into the current directory, whatever else the options of the engine are.
        let status = Command::new(&program).arg("spec").current_dir(&bundle).stdin(Stdio::null()).status();
        status.with_context(|| format!("{name} spec"))?;
        let path = bundle.join("config.json");
        let mut config: Value =
            serde_json::from_slice(&fs::read(&path).context("read the engine's own spec")?)?;
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(command);
        let mapping = json!([{"containerID": 0, "hostID": 100_000, "size": 65_536}]);
        config["linux"]["uidMappings"] = mapping.clone();
        config["linux"]["gidMappings"] = mapping;
        let kinds = ["pid", "network", "ipc", "uts", "mount", "user", "cgroup"];
        config["linux"]["namespaces"] = kinds.map(|kind| json!({"type": kind})).into();
        let mounts = config["mounts"].as_array_mut().context("the engine's own spec has no mounts")?;
        mounts.push(json!({
            "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro", "nosuid", "nodev"]
        }));
        mounts.push(json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}));
        fs::write(&path, serde_json::to_vec(&config)?)?;
        Ok(bundle.to_string_lossy().into_owned())
    };
    let state = folder.join(name).join("state").to_string_lossy().into_owned();
    let engine = |rest: &[&str]| words(&[&[&program, "--root", &state], options, rest].concat());
    let (once, living) = (bundle("once", &["true"])?, bundle("living", &["sleep", "infinity"])?);
    // Engines name control groups after it.
    let id = format!("ringfence-bench-{name}-{}", std::process::id());
    let living_id = format!("{id}-living");
    Ok(Peer {
        name,
        job: "the same in a bundle made before",
        every,
        once: engine(&["run", "--bundle", &once, &id]),
        living: Some(LivingCommands {
            start: engine(&["run", "--detach", "--bundle", &living, &living_id]),
            exec: engine(&["exec", &living_id, "true"]),
            stop: engine(&["delete", "--force", &living_id]),
        }),
        room: Rc::new(Room::Here),
    })
}

/// podman on a root folder instead of an image, with a storage of its own, so that it leaves nothing behind.
fn podman(program: String, folder: &Path) -> Result<Peer> {
    let folder = folder.join("podman");
    root(&folder.join("rootfs"))?;
    // podman mounts these, and may not make them in a folder of another user.
    for file in ["etc/hosts", "etc/hostname", "etc/resolv.conf", "run/.containerenv"] {
        let file = folder.join("rootfs").join(file);
        fs::create_dir_all(file.parent().context("a folder for podman's files")?)?;
        fs::write(file, "")?;
    }
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (storage, state, root) = (at("storage"), at("state"), at("rootfs"));
    let engine = |rest: &[&str]| {
        let common = [
            "--root",
            &storage,
            "--runroot",
            &state,
            "--storage-driver",
            "vfs",
            "--cgroup-manager",
            "cgroupfs",
        ];
        words(&[&[program.as_str()], &common[..], rest].concat())
    };
    // The limits of open files and processes are podman's own choice, and more than this user may set everywhere.
    let options = [
        ["--cgroups", "disabled"],
        ["--network", "none"],
        ["--cap-drop", "all"],
        ["--uidmap", "0:100000:65536"],
        ["--ulimit", "nofile=1024:1024"],
        ["--ulimit", "nproc=1024:1024"],
        ["--volume", "/usr:/usr:ro"],
        ["--rootfs", &root],
    ]
    .concat();
    Ok(Peer {
        name: "podman",
        job: "`run --rm --rootfs`, otherwise the same",
        every: 10,
        once: engine(&[&["run", "--rm"], &options[..], &["true"]].concat()),
        living: Some(LivingCommands {
            start: engine(
                &[&["run", "--detach", "--name", "living"], &options[..], &["sleep", "infinity"]].concat(),
            ),
            exec: engine(&["exec", "living", "true"]),
            stop: engine(&["rm", "--force", "--time", "0", "living"]),
        }),
        room: Rc::new(Room::Here),
    })
}

/// Makes the root folder of a container.
fn root(root: &Path) -> Result<()> {
    for folder in ["usr", "proc", "dev", "sys", "tmp"] {
        fs::create_dir_all(root.join(folder)).with_context(|| format!("create {}", root.display()))?;
    }
    for (link, target) in root_links() {
        symlink(target, root.join(link))?;
    }
    Ok(())
}

fn root_links() -> impl Iterator<Item = (&'static str, String)> {
    let target = |link: &str| fs::read_link(Path::new("/").join(link));
    ROOT_LINKS.iter().filter_map(move |&link| Some((link, target(link).ok()?.to_string_lossy().into_owned())))
}

/// A temporary folder that goes when it is dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("ringfence-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // podman cleans up behind its back, in files that it makes anew if need be: until nothing comes back.
        for _ in 0..20 {
            // A leftover in the temporary folder would harm nobody.
            drop(fs::remove_dir_all(&self.0));
            sleep(Duration::from_millis(50));
            if !self.0.exists() {
                break;
            }
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Returns the first line that a command prints.
pub(crate) fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

fn find(program: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut candidates = std::env::split_paths(&path).chain(extra).map(|folder| folder.join(program));
    candidates.find(|path| path.is_file()).map(|path| path.to_string_lossy().into_owned())
}
