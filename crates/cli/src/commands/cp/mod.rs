//! `ringfence cp`: files and directories between this machine and a sandbox, streamed.

mod beneath;
mod from_host;
mod from_tar;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod into_sandbox;
mod links;
mod onto_host;
mod onto_stdout;
mod skips;

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringfence::{
    Backend, DEFAULT_SCHEME, Error, ErrorKind, GuestPath, Handle, ListRequest, TreeLimits, tree,
};
use tokio::io::AsyncRead;

use self::beneath::Beneath;
use self::into_sandbox::IntoSandbox;
use self::onto_host::{OntoHost, Place};
use self::onto_stdout::OntoStdout;
use self::skips::Skips;
use crate::args::CpArgs;
use crate::commands::runtime;
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::operand::Operand;
use crate::reached::{backend_of, failed};
use crate::signals::{Interrupt, Signals};
use crate::stdin::StdinReader;

/// Which way, and what is here.
enum Way {
    OntoHost(PathBuf),
    OntoStdout,
    FromHost(PathBuf),
    FromStdin,
}

/// The side that is in the sandbox.
struct Inside<'a> {
    backend: &'a dyn Backend,
    handle: &'a Handle,
    path: &'a GuestPath,
    limits: TreeLimits,
}

/// Copies.
pub(crate) fn run(args: CpArgs, environment: &Environment) -> Result<u8> {
    let max_bytes = args.max_size.map_or(TreeLimits::default().max_bytes, |size| size.get());
    let limits = TreeLimits { max_bytes, max_entries: args.max_entries, ..TreeLimits::default() };
    let (handle, path, way) = sides(args)?;
    let backend = backend_of(&handle, environment)?;
    let inside = Inside { backend: &*backend, handle: &handle, path: &path, limits };
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let signals = Signals::new()?;
        tokio::select! {
            biased;
            // What is not in its place yet is removed, here and there.
            signal = signals.next() => Ok(Interrupt::status(signal)),
            status = copy(&inside, way) => status,
        }
    });
    // A thread blocked in a read of standard input is not waited for.
    runtime.shutdown_background();
    result
}

fn sides(args: CpArgs) -> Result<(Handle, GuestPath, Way)> {
    match (args.source, args.target) {
        (Operand::Sandbox(handle, path), Operand::Host(target)) => Ok((handle, path, Way::OntoHost(target))),
        (Operand::Sandbox(handle, path), Operand::Stream) => {
            refuse_terminal("output", rustix::termios::isatty(rustix::stdio::stdout()))?;
            Ok((handle, path, Way::OntoStdout))
        }
        (Operand::Host(source), Operand::Sandbox(handle, path)) => Ok((handle, path, Way::FromHost(source))),
        (Operand::Stream, Operand::Sandbox(handle, path)) => {
            refuse_terminal("input", rustix::termios::isatty(rustix::stdio::stdin()))?;
            Ok((handle, path, Way::FromStdin))
        }
        (Operand::Sandbox(..), Operand::Sandbox(..)) => {
            Err(Failure::new("both are in a sandbox; one of them has to be here")
                .hint("pipe from one to the other: ringfence cp HANDLE:SRC - | ringfence cp - HANDLE:DST")
                .with_status(exit::USAGE))
        }
        (source, target) => {
            let paths = [source, target];
            let meant = paths.iter().find_map(|side| match side {
                Operand::Host(path) => meant(path),
                _ => None,
            });
            let form =
                "HANDLE:PATH, such as local:sb-0123456789ab:/workspace; `ringfence ps` shows the handles";
            Err(Failure::new("neither of the two is in a sandbox")
                .hint(meant.unwrap_or_else(|| form.to_owned()))
                .with_status(exit::USAGE))
        }
    }
}

/// Says what was probably meant by a path of this machine that looks like the end of one in a sandbox.
fn meant(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let (sandbox, _) = text.split_once(':')?;
    let looks = sandbox.starts_with("sb-") && !sandbox.contains('/');
    looks.then(|| format!("a path in that sandbox is {DEFAULT_SCHEME}:{text}"))
}

fn refuse_terminal(which: &str, is_terminal: bool) -> Result<()> {
    if is_terminal {
        return Err(Failure::new(format!("an archive on standard {which}, which is a terminal"))
            .hint("redirect it, or give a path")
            .with_status(exit::USAGE));
    }
    Ok(())
}

async fn copy(inside: &Inside<'_>, way: Way) -> Result<u8> {
    let mut skips = Skips::new(console::notice);
    let copied = match way {
        Way::OntoHost(target) => onto_host(inside, &target, &mut skips).await.map(|()| exit::OK),
        Way::OntoStdout => {
            let write = |bytes: &[u8]| console::stdout(bytes, None);
            onto_stdout(inside, write, &mut skips).await
        }
        Way::FromHost(source) => from_host(inside, &source, &mut skips).await.map(|()| exit::OK),
        Way::FromStdin => from_stdin(inside, StdinReader::default(), &mut skips).await.map(|()| exit::OK),
    };
    // Also behind a failure: they are missing as well.
    let skipped = skips.status();
    Ok(match copied? {
        exit::OK => skipped,
        other => other,
    })
}

async fn onto_host(inside: &Inside<'_>, target: &Path, skips: &mut Skips) -> Result<()> {
    let place = place(target, name_of_guest(inside.path))?;
    let mut sink = OntoHost::new(place, skips);
    inside.export(&mut sink).await?;
    Ok(sink.finish()?)
}

async fn onto_stdout(
    inside: &Inside<'_>,
    write: impl FnMut(&[u8]) -> std::result::Result<(), console::Unwritten> + Send,
    skips: &mut Skips,
) -> Result<u8> {
    let prefix = name_of_guest(inside.path).unwrap_or_default().to_vec();
    let mut sink = OntoStdout::new(prefix, write, skips);
    let copied = match inside.export(&mut sink).await {
        Ok(()) => sink.finish().map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    match sink.unwritten {
        Some(why) => why.status(),
        None => copied.map(|()| exit::OK),
    }
}

async fn from_host(inside: &Inside<'_>, source: &Path, skips: &mut Skips) -> Result<()> {
    let opened = from_host::Source::open(source)?;
    let is_file = matches!(opened, from_host::Source::File(_));
    let base = inside.base(name_of_host(source), is_file).await?;
    let mut into = IntoSandbox::new(inside.backend, inside.handle.sandbox(), base, inside.limits, skips);
    let copied = from_host::copy(opened, source, &mut into).await;
    copied?;
    into.finish().await
}

async fn from_stdin(
    inside: &Inside<'_>,
    archive: impl AsyncRead + Send + Unpin,
    skips: &mut Skips,
) -> Result<()> {
    let base = inside.base(None, false).await?;
    let mut into = IntoSandbox::new(inside.backend, inside.handle.sandbox(), base, inside.limits, skips);
    from_tar::copy(archive, &mut into).await?;
    into.finish().await
}

impl Inside<'_> {
    async fn export(&self, sink: &mut dyn ringfence::TreeSink) -> Result<()> {
        let copied = tree::export(self.backend, self.handle.sandbox(), self.path, self.limits, sink).await;
        copied.map(|_| ()).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &Error) -> Failure {
        let failure = failed(self.handle, error);
        if *error.kind() == ErrorKind::NotFound && error.hint_text().is_none() {
            return failure.hint(format!("`ringfence ls {}` lists its working directory", self.handle));
        }
        match error.fact("limit") {
            Some("max_bytes") => failure.hint("raise it with --max-size"),
            Some("max_entries") => failure.hint("raise it with --max-entries"),
            _ => failure,
        }
    }

    /// Returns where a source that is called `name` goes: into a directory that is there, else under the name that was given.
    async fn base(&self, name: Option<&[u8]>, is_file: bool) -> Result<GuestPath> {
        let one = ListRequest { max_entries: NonZeroUsize::MIN, after: None };
        let path = self.path.as_bytes();
        let listed = self.backend.list_directory(self.handle.sandbox(), self.path, one).await;
        match (listed.map_err(|error| (error.kind().clone(), error)), name) {
            (Ok(_), Some(name)) => {
                let separator: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                Ok(GuestPath::new([path, separator, name].concat())?)
            }
            (Ok(_), None) => Ok(self.path.clone()),
            // A directory of which nothing can be seen can still be one into which something can be put.
            (Err((ErrorKind::PermissionDenied, _)), None) if !is_file => Ok(self.path.clone()),
            (Err((ErrorKind::NotADirectory, _)), _) if is_file && !path.ends_with(b"/") => {
                Ok(self.path.clone())
            }
            (Err((ErrorKind::NotFound, _)), _) if is_file && path.ends_with(b"/") => {
                let message = format!("{}:{} names a directory that is not there", self.handle, self.path);
                Err(Failure::new(message).hint("give the name that the file gets"))
            }
            (Err((ErrorKind::NotADirectory, _)), _) => {
                let message = match is_file {
                    true => "names a directory, and is a file",
                    false => "is a file, and a directory cannot take its place",
                };
                Err(Failure::new(format!("{}:{} {message}", self.handle, self.path))
                    .hint("give another name, or remove the file first"))
            }
            (Err((ErrorKind::NotFound, _)), _) => Ok(self.path.clone()),
            (Err((_, error)), _) => Err(self.failed(&error)),
        }
    }
}

/// The name under which a tree goes into a directory; none for `.` and the like, of which the content goes.
fn name_of(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    Some(&path[start..end]).filter(|name| !matches!(*name, b"." | b".."))
}

fn name_of_guest(path: &GuestPath) -> Option<&[u8]> {
    name_of(path.as_bytes())
}

fn name_of_host(path: &Path) -> Option<&[u8]> {
    name_of(path.as_os_str().as_bytes())
}

/// Returns where a tree that is called `name` goes on this machine.
fn place(target: &Path, name: Option<&[u8]>) -> Result<Place> {
    let unusable = |error: std::io::Error| Failure::io(&target.display().to_string(), &error);
    let is_directory = match std::fs::metadata(target) {
        Ok(meta) => Some(meta.is_dir()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(unusable(error)),
    };
    if is_directory == Some(true) {
        let shown = name.map_or_else(|| target.to_owned(), |name| target.join(OsStr::from_bytes(name)));
        return Ok(Place {
            parent: Beneath::named(target).map_err(unusable)?,
            name: name.map(<[u8]>::to_vec),
            only_directory: false,
            shown,
        });
    }
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = name_of_host(target).ok_or_else(|| {
        Failure::new(format!("{}: no directory is there", target.display())).hint("give a name for the copy")
    })?;
    Ok(Place {
        parent: Beneath::named(parent).map_err(|error| {
            let failure = Failure::io(&parent.display().to_string(), &error);
            match error.kind() {
                std::io::ErrorKind::NotFound => {
                    failure.hint(format!("`mkdir -p {}` first", parent.display()))
                }
                _ => failure,
            }
        })?,
        name: Some(name.to_vec()),
        only_directory: target.as_os_str().as_bytes().ends_with(b"/"),
        shown: target.to_owned(),
    })
}

#[cfg(test)]
mod tests;
