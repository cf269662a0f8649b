//! Entries of a tree are put into a sandbox, by the sandbox's own file operations and programs: there is no path here that this
//! machine resolves, and nothing that an entry could reach but what a command in the sandbox could.
//!
//! Directories are made many at a time. Links are made last, so that no entry of the tree can come to lie behind one (S40).

use std::fmt::Display;
use std::time::Duration;

use ringfence::{
    Backend, CommandRequest, Ending, Error, ErrorKind, GuestPath, Invocation, OutputLimit, SandboxId,
    Timeout, TreeLimits, TreePath,
};
use tokio::io::AsyncRead;

use super::skips::Skips;
use crate::failure::{Failure, Result};

/// What a program of the sandbox is given at once; far below what an argument list takes.
const BATCH: usize = 200;
const BATCH_BYTES: usize = 256 << 10;
/// What the programs do takes no time; a sandbox that needs longer is broken.
const TIMEOUT: Duration = Duration::from_secs(30);
const OUTPUT_BYTES: usize = 64 << 10;
/// The most bytes of paths and targets of links, which are remembered to the end.
const MAX_LINK_BYTES: usize = 64 << 20;

/// Makes links out of pairs of target and path, `$1` being the option of `ln`; writes the number of each that cannot be made. A
/// directory is not replaced by a link.
const LINK: &str = r#"
kind=$1; shift; number=0
while [ $# -gt 0 ]; do
  if { [ -L "$2" ] || ! [ -d "$2" ]; } && /bin/mkdir -p -- "${2%/*}/" && /bin/rm -f -- "$2" && /bin/ln $kind -- "$1" "$2"
  then :; else echo $number; fi
  number=$((number + 1)); shift 2
done"#;

/// A link that is still to be made.
struct Link {
    path: TreePath,
    /// Of a symbolic link the text; of a second name for a file, the path in the sandbox.
    target: Vec<u8>,
}

/// Puts a tree into a sandbox.
pub(super) struct IntoSandbox<'a> {
    backend: &'a dyn Backend,
    sandbox: &'a SandboxId,
    base: GuestPath,
    limits: TreeLimits,
    skips: &'a mut Skips,
    entries: u64,
    bytes: u64,
    directories: Vec<GuestPath>,
    directory_bytes: usize,
    symlinks: Vec<Link>,
    hard_links: Vec<Link>,
    link_bytes: usize,
}

impl<'a> IntoSandbox<'a> {
    /// Returns what puts a tree at `base`.
    pub(super) fn new(
        backend: &'a dyn Backend,
        sandbox: &'a SandboxId,
        base: GuestPath,
        limits: TreeLimits,
        skips: &'a mut Skips,
    ) -> Self {
        Self {
            backend,
            sandbox,
            base,
            limits,
            skips,
            entries: 0,
            bytes: 0,
            directories: Vec::new(),
            directory_bytes: 0,
            symlinks: Vec::new(),
            hard_links: Vec::new(),
            link_bytes: 0,
        }
    }

    /// Returns how many more entries are taken.
    pub(super) fn entries_left(&self) -> u64 {
        self.limits.max_entries.saturating_sub(self.entries)
    }

    /// Says that an entry is not copied.
    pub(super) fn skip(&mut self, what: impl Display, why: impl Display) -> Result<()> {
        self.count()?;
        self.skips.note(what, why);
        Ok(())
    }

    /// Says that an entry that was begun is not copied.
    pub(super) fn note(&mut self, what: impl Display, why: impl Display) {
        self.skips.note(what, why);
    }

    /// Makes a directory if there is none.
    pub(super) async fn directory(&mut self, path: &TreePath) -> Result<()> {
        self.count()?;
        let path = self.at(path)?;
        self.directory_bytes += path.as_bytes().len();
        self.directories.push(path);
        if self.directories.len() >= BATCH || self.directory_bytes >= BATCH_BYTES {
            self.make_directories().await?;
        }
        Ok(())
    }

    /// Replaces or creates a file, and its parent directories. One that cannot be put there is skipped.
    pub(super) async fn file(
        &mut self,
        path: &TreePath,
        size: u64,
        executable: bool,
        content: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<()> {
        self.count()?;
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.limits.max_bytes {
            let limit = self.limits.max_bytes;
            return Err(Failure::new(format!(
                "{path}: more than {limit} bytes are to be copied, which is the limit"
            ))
            .hint("raise it with --max-size"));
        }
        let target = self.at(path)?;
        let done = self.backend.import_file(self.sandbox, &target, size, executable, content).await;
        let Err(error) = done else { return Ok(()) };
        match error.kind() {
            // Then there is nothing that was copied.
            _ if path.is_root() => Err(error.into()),
            // Of this one and not of all that follow.
            ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::NotARegularFile
            | ErrorKind::PermissionDenied
            | ErrorKind::NotFound
            | ErrorKind::InvalidArgument => {
                self.skips.note(&target, error.message());
                Ok(())
            }
            _ => Err(error.into()),
        }
    }

    /// Makes a symbolic link, later.
    pub(super) fn symlink(&mut self, path: &TreePath, target: Vec<u8>) -> Result<()> {
        self.count()?;
        let link = self.link(path, target)?;
        self.symlinks.push(link);
        Ok(())
    }

    /// Gives a file that was copied another name, later.
    pub(super) fn hard_link(&mut self, path: &TreePath, of: &TreePath) -> Result<()> {
        self.count()?;
        let of = self.at(of)?.as_bytes().to_vec();
        let link = self.link(path, of)?;
        self.hard_links.push(link);
        Ok(())
    }

    fn link(&mut self, path: &TreePath, target: Vec<u8>) -> Result<Link> {
        self.link_bytes = self.link_bytes.saturating_add(path.as_bytes().len() + target.len());
        if self.link_bytes > MAX_LINK_BYTES {
            return Err(Failure::new(format!("its links have more than {MAX_LINK_BYTES} bytes")));
        }
        Ok(Link { path: path.clone(), target })
    }

    /// Makes what is still to be made.
    pub(super) async fn finish(mut self) -> Result<()> {
        self.make_directories().await?;
        // Second names first: what they are of must not be a link by then.
        let hard_links = std::mem::take(&mut self.hard_links);
        self.make_links("-f", &hard_links).await?;
        let symlinks = std::mem::take(&mut self.symlinks);
        self.make_links("-s", &symlinks).await
    }

    fn count(&mut self) -> Result<()> {
        if self.entries >= self.limits.max_entries {
            let message =
                format!("more than {} entries are to be copied, which is the limit", self.limits.max_entries);
            return Err(Failure::new(message).hint("raise it with --max-entries"));
        }
        self.entries += 1;
        Ok(())
    }

    fn at(&self, path: &TreePath) -> Result<GuestPath> {
        if path.is_root() {
            return Ok(self.base.clone());
        }
        let base = self.base.as_bytes();
        let separator: &[u8] = if base.ends_with(b"/") { b"" } else { b"/" };
        Ok(GuestPath::new([base, separator, path.as_bytes()].concat())?)
    }

    async fn make_directories(&mut self) -> Result<()> {
        let directories = std::mem::take(&mut self.directories);
        self.directory_bytes = 0;
        if directories.is_empty() {
            return Ok(());
        }
        let words = [b"/bin/mkdir".as_slice(), b"-p", b"--"].into_iter();
        let words = words.chain(directories.iter().map(GuestPath::as_bytes)).map(<[u8]>::to_vec);
        let (ending, _, stderr) = self.run("make the directories", words.collect()).await?;
        match ending {
            Ending::Exited(0) => Ok(()),
            Ending::Exited(_) => {
                // The others are made all the same, and those that are not are said by name.
                for line in stderr.lines().filter(|line| !line.is_empty()) {
                    self.skips.note("a directory", line);
                }
                Ok(())
            }
            other => Err(Failure::new(format!("make the directories: /bin/mkdir {}", other.name()))),
        }
    }

    async fn make_links(&mut self, kind: &str, links: &[Link]) -> Result<()> {
        let mut rest = links;
        while !rest.is_empty() {
            let mut words: Vec<Vec<u8>> =
                ["/bin/sh", "-c", LINK, "sh", kind].map(|word| word.as_bytes().to_vec()).into();
            let (mut count, mut bytes) = (0, 0);
            for link in rest.iter().take(BATCH) {
                let path = self.at(&link.path)?.as_bytes().to_vec();
                // What begins with a dash is told from an option by the script; without a slash there is no parent to make.
                let path = if path.contains(&b'/') { path } else { [b"./", path.as_slice()].concat() };
                bytes += path.len() + link.target.len();
                if count > 0 && bytes > BATCH_BYTES {
                    break;
                }
                words.extend([link.target.clone(), path]);
                count += 1;
            }
            let (batch, following) = rest.split_at(count);
            rest = following;
            let (ending, stdout, _) = self.run("make the links", words).await?;
            if ending != Ending::Exited(0) {
                return Err(Failure::new(format!("make the links: /bin/sh {}", ending.name())));
            }
            for link in stdout.lines().filter_map(|line| batch.get(line.parse::<usize>().ok()?)) {
                self.skips.note(&link.path, "the link could not be made");
            }
        }
        Ok(())
    }

    async fn run(&self, what: &str, words: Vec<Vec<u8>>) -> Result<(Ending, String, String)> {
        let request = CommandRequest::new(
            Invocation::Program(words),
            Timeout::new(TIMEOUT)?,
            OutputLimit::new(OUTPUT_BYTES)?,
        );
        let result = self.backend.run_command(self.sandbox, request).await;
        let result = result.map_err(|error: Error| Failure::from(error).during(what))?;
        if result.sandbox_lost {
            return Err(Failure::new(format!("{what}: the sandbox was lost"))
                .with_kind(ErrorKind::SandboxLost.name()));
        }
        Ok((result.ending, result.stdout.text().into_owned(), result.stderr.text().into_owned()))
    }
}
