//! What a sandbox sees of the host: an allowlist over an empty root. Nothing is hidden, because nothing is there (S5).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use ringfence_core::{Error, ErrorKind, Result, SandboxSpec};

use crate::SCHEME;
use crate::config::{LocalConfig, Shell};
use crate::wire::{COPY_BYTES, ViewEntry};

/// The user's name inside.
pub(crate) const USER: &str = "sandbox";
/// The one user and group id inside.
pub(crate) const UID: u32 = 1000;
/// Home directory inside.
pub(crate) const HOME: &str = "/home/sandbox";
/// Where commands start unless the spec says otherwise.
pub(crate) const WORKDIR: &str = "/workspace";
/// Host name inside.
pub(crate) const HOST_NAME: &str = "sandbox";

/// Links or directories of the root that hold programs; on most distributions links into `/usr`.
const PROGRAM_DIRECTORIES: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// What of `/etc` programs need to run, where the host has it. No passwords, no keys, nothing about this machine's services or
/// users. Each costs a mount per sandbox, so what programs can do without is left out.
const ETC: [&str; 13] = [
    "alternatives",
    // Chromium is started by a script that ends where this is missing (P76).
    "chromium.d",
    "crypto-policies",
    "fonts",
    "ImageMagick-6",
    "ImageMagick-7",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "maven",
    "pki/ca-trust/extracted",
    "ssl/certs",
];

/// Small files of `/etc` that are copied: cheaper than a mount.
const ETC_COPIES: [&str; 3] = ["protocols", "services", "ssl/openssl.cnf"];

/// Device nodes (S50).
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Refuses host paths that cannot be shown as asked; one dropped in silence would be missed, one below a writable place
/// would have to be writable.
pub(crate) fn judge(config: &LocalConfig, workdir: &[u8]) -> Result<()> {
    let workdir = Path::new(OsStr::from_bytes(workdir));
    for path in &config.read_only_paths {
        let refuse = |why: &str| {
            let message = format!("read_only_paths names {}, {why}", path.display());
            Err(Error::new(ErrorKind::InvalidArgument, SCHEME, "accept the configuration", message)
                .terminal())
        };
        if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
            return refuse("which is not an absolute path without `..`");
        }
        if path.to_str().is_none() {
            return refuse("which is not valid UTF-8");
        }
        let own = ["/tmp", "/var/tmp", "/dev", "/proc", HOME].map(Path::new);
        let overlap =
            own.into_iter().chain([workdir]).find(|own| path.starts_with(own) || own.starts_with(path));
        if let Some(own) = overlap {
            return refuse(&format!("which overlaps with the sandbox's own {}", own.display()));
        }
    }
    Ok(())
}

/// Where commands start.
pub(crate) fn workdir_of(spec: &SandboxSpec) -> Vec<u8> {
    spec.workdir().unwrap_or(WORKDIR).as_bytes().to_vec()
}

/// What every command sees unless the spec says otherwise.
pub(crate) fn environment(spec: &SandboxSpec, shell: Shell) -> Vec<(String, String)> {
    let defaults = [
        ("HOME", HOME),
        ("HOSTNAME", HOST_NAME),
        ("LANG", "C.UTF-8"),
        ("LOGNAME", USER),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("SHELL", if shell == Shell::Bash { "/bin/bash" } else { "/bin/sh" }),
        ("USER", USER),
    ];
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let given = spec.env().iter().map(|(name, value)| own((name.as_str(), value.as_str())));
    // Later ones win where they are put together.
    defaults.map(own).into_iter().chain(given).collect()
}

/// Refuses to show a sandbox the place where sandboxes are found: whoever can connect there commands them (S36).
pub(crate) fn judge_directory(config: &LocalConfig, directory: &Path) -> Result<()> {
    // Links on the way are followed on both sides; what does not exist cannot be shown.
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    for path in &config.read_only_paths {
        let shown = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if directory.starts_with(&shown) || shown.starts_with(&directory) {
            let message = format!(
                "read_only_paths names {}, which would show the directory of sandboxes, {}, and with it the means to command them",
                path.display(),
                directory.display()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, SCHEME, "accept the configuration", message)
                .hint("show something narrower, or set runtime_dir to a directory elsewhere")
                .terminal());
        }
    }
    Ok(())
}

/// Composes the root. `workdir` is absolute.
pub(crate) fn compose(config: &LocalConfig, workdir: &[u8]) -> Vec<ViewEntry> {
    let mut view = View::default();
    for name in PROGRAM_DIRECTORIES {
        view.system_directory(name);
    }
    view.bind(Path::new("/usr"));
    view.etc();
    view.devices();
    view.directory("proc");
    view.writable("tmp", 0o1777);
    view.directory("var");
    view.symlink("var/tmp", b"../tmp".to_vec());
    view.writable("dev/shm", 0o1777);
    view.writable(HOME.trim_start_matches('/'), 0o700);
    let workdir: PathBuf = Path::new(OsStr::from_bytes(workdir))
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let workdir = workdir.to_string_lossy();
    view.writable(&workdir, 0o755);
    for path in &config.read_only_paths {
        // Also where it is missing: creation then fails and says so.
        view.bind_always(path);
    }
    view.entries
}

#[derive(Default)]
struct View {
    entries: Vec<ViewEntry>,
    directories: Vec<PathBuf>,
}

impl View {
    /// Adds a directory and its parents, once; below a writable place they are created there.
    fn directory(&mut self, path: &str) {
        for directory in Path::new(path).ancestors().collect::<Vec<_>>().into_iter().rev() {
            let known =
                directory.as_os_str().is_empty() || self.directories.iter().any(|known| known == directory);
            if !known && !self.is_inside_bind(directory) {
                self.entries.push(ViewEntry::Directory(directory.as_os_str().as_bytes().to_vec()));
                self.directories.push(directory.to_owned());
            }
        }
    }

    fn parents(&mut self, path: &str) {
        if let Some(parent) = Path::new(path).parent().and_then(Path::to_str) {
            self.directory(parent);
        }
    }

    /// Whether the host decides what lies there.
    fn is_inside_bind(&self, path: &Path) -> bool {
        self.entries.iter().any(|entry| match entry {
            ViewEntry::Bind(bound, _) => path.starts_with(Path::new(OsStr::from_bytes(bound))),
            _ => false,
        })
    }

    fn is_below_writable(&self, path: &str) -> bool {
        self.entries.iter().any(|entry| match entry {
            ViewEntry::Writable(place, _) => Path::new(path).starts_with(Path::new(OsStr::from_bytes(place))),
            _ => false,
        })
    }

    fn writable(&mut self, path: &str, mode: u32) {
        let new = ViewEntry::Writable(path.as_bytes().to_vec(), mode);
        if self.is_below_writable(path) {
            // The whole place is writable already; only the directory itself may be missing.
            self.directory(path);
        } else if let Some(entry) = self.entries.iter_mut().find(|entry| is_directory(entry, path)) {
            // What is mounted below comes later and lies on top.
            *entry = new;
        } else {
            self.parents(path);
            self.entries.push(new);
            self.directories.push(PathBuf::from(path));
        }
    }

    /// Shows a host path at the same place, where it exists.
    fn bind(&mut self, source: &Path) {
        if source.exists() {
            self.bind_always(source);
        }
    }

    fn bind_always(&mut self, source: &Path) {
        let Some(path) = source.to_str().map(|path| path.trim_start_matches('/')) else { return };
        if path.is_empty() || self.is_inside_bind(Path::new(path)) {
            return;
        }
        self.parents(path);
        self.entries.push(ViewEntry::Bind(path.as_bytes().to_vec(), source.as_os_str().as_bytes().to_vec()));
    }

    /// `/bin` and its like: the same link where the host has a link, the directory where it has one.
    fn system_directory(&mut self, name: &str) {
        let source = Path::new("/").join(name);
        match fs::read_link(&source) {
            Ok(target) => self.symlink(name, target.into_os_string().into_vec()),
            Err(_) => self.bind(&source),
        }
    }

    fn symlink(&mut self, path: &str, target: Vec<u8>) {
        self.parents(path);
        self.entries.push(ViewEntry::Symlink(path.as_bytes().to_vec(), target));
    }

    fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.parents(path);
        self.entries.push(ViewEntry::File(path.as_bytes().to_vec(), content.into()));
    }

    fn etc(&mut self) {
        for name in ETC {
            self.bind(&Path::new("/etc").join(name));
        }
        for name in ETC_COPIES {
            let source = Path::new("/etc").join(name);
            // What is not everybody's to read is not the sandbox's either.
            if fs::metadata(&source).is_ok_and(|metadata| {
                metadata.is_file() && metadata.len() <= COPY_BYTES && metadata.mode() & 0o004 != 0
            }) {
                let path = format!("etc/{name}");
                self.parents(&path);
                self.entries.push(ViewEntry::Copy(path.into_bytes(), source.into_os_string().into_vec()));
            }
        }
        self.symlink("etc/os-release", b"../usr/lib/os-release".to_vec());
        self.symlink("etc/mtab", b"/proc/self/mounts".to_vec());
        let shell = "/bin/sh";
        self.file(
            "etc/passwd",
            format!(
                "{USER}:x:{UID}:{UID}::{HOME}:{shell}\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
            ),
        );
        self.file("etc/group", format!("{USER}:x:{UID}:\nnogroup:x:65534:\n"));
        self.file("etc/hosts", format!("127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n"));
        self.file("etc/hostname", format!("{HOST_NAME}\n"));
        self.file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");
        // No server: a look-up fails at once instead of waiting for one that cannot be reached.
        self.file("etc/resolv.conf", "");
        self.time_zone();
    }

    /// The host's time zone, as a link where the host has a link into the shared zone files (P84).
    fn time_zone(&mut self) {
        let local = Path::new("/etc/localtime");
        if let Ok(target) = fs::read_link(local)
            && Path::new("/etc").join(&target).starts_with("/usr/share/zoneinfo")
        {
            self.symlink("etc/localtime", target.into_os_string().into_vec());
        } else if let Ok(target) = fs::canonicalize(local)
            && target.starts_with("/usr/share/zoneinfo")
        {
            self.symlink("etc/localtime", target.into_os_string().into_vec());
        } else if let Ok(content) = fs::read(local) {
            self.file("etc/localtime", content);
        }
        if let Ok(name) = fs::read("/etc/timezone") {
            self.file("etc/timezone", name);
        }
    }

    fn devices(&mut self) {
        for name in DEVICES {
            let path = format!("dev/{name}");
            self.parents(&path);
            self.entries.push(ViewEntry::Device(path.clone().into_bytes(), format!("/{path}").into_bytes()));
        }
        self.directory("dev/pts");
        for (name, target) in [
            ("ptmx", "pts/ptmx"),
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ] {
            self.symlink(&format!("dev/{name}"), target.as_bytes().to_vec());
        }
    }
}

fn is_directory(entry: &ViewEntry, path: &str) -> bool {
    matches!(entry, ViewEntry::Directory(known) if known == path.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(workdir: &str) -> Vec<ViewEntry> {
        let about = Path::new(workdir.trim_start_matches('/'));
        let own = |entry: &ViewEntry| match entry {
            ViewEntry::Directory(path) | ViewEntry::Writable(path, _) => {
                let path = Path::new(OsStr::from_bytes(path));
                about.starts_with(path) || path.starts_with(about)
            }
            _ => false,
        };
        compose(&LocalConfig::default(), workdir.as_bytes()).into_iter().filter(own).collect()
    }

    #[test]
    fn host_paths_that_cannot_be_shown_are_refused_with_the_reason() {
        let why = |path: &str| {
            let config = LocalConfig { read_only_paths: vec![PathBuf::from(path)], ..LocalConfig::default() };
            judge(&config, b"/workspace").err().map(|error| error.message().to_owned())
        };
        assert_eq!(why("/opt/tools"), None);
        for (path, reason) in [
            ("relative", "which is not an absolute path without `..`"),
            ("/opt/../root", "which is not an absolute path without `..`"),
            ("/tmp/x", "which overlaps with the sandbox's own /tmp"),
            ("/", "which overlaps with the sandbox's own /tmp"),
            ("/home", "which overlaps with the sandbox's own /home/sandbox"),
            ("/workspace/x", "which overlaps with the sandbox's own /workspace"),
        ] {
            assert_eq!(why(path), Some(format!("read_only_paths names {path}, {reason}")));
        }
    }

    #[test]
    fn every_working_directory_is_made_once_and_writable() {
        let directory = |path: &str| ViewEntry::Directory(path.into());
        let writable = |path: &str, mode| ViewEntry::Writable(path.into(), mode);
        let home = || writable("home/sandbox", 0o700);
        assert_eq!(placed("/workspace"), [writable("workspace", 0o755)]);
        assert_eq!(
            placed("/srv//a/./b/"),
            [directory("srv"), directory("srv/a"), writable("srv/a/b", 0o755)]
        );
        assert_eq!(placed("/tmp"), [writable("tmp", 0o1777)]);
        assert_eq!(placed("/tmp/x"), [writable("tmp", 0o1777), directory("tmp/x")]);
        assert_eq!(placed("/home/sandbox/p"), [directory("home"), home(), directory("home/sandbox/p")]);
        assert_eq!(placed("/home"), [writable("home", 0o755), home()]);
        assert_eq!(placed("/var"), [writable("var", 0o755)]);
    }
}
