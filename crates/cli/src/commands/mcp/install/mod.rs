//! `ringfence mcp install`: adds the server to a client's settings and leaves everything else there as it is.

mod clients;
mod edit;
mod replace;
mod served;

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence::toolset::DEFAULT_MAX_COMMAND_TIMEOUT_SECONDS;

use self::clients::Entry;
use self::edit::{Change, Refusal};
use self::replace::{LOCK_PATIENCE, Target};
use crate::args::InstallArgs;
use crate::commands::print;
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::host_file;

/// The largest settings file that is changed. Some clients keep their history in it.
const SETTINGS_LIMIT_BYTES: u64 = 64 << 20;

/// Writes or prints the settings and returns the exit status.
pub(super) fn run(args: &InstallArgs, environment: &Environment) -> Result<u8> {
    let served = served::parse(&args.arguments)?;
    let settings = clients::settings_of(args.client, args.scope, environment)?;
    let entry = Entry {
        name: args.name.clone(),
        command: own_path()?,
        arguments: args.arguments.clone(),
        longest: served
            .toolset
            .max_command_timeout
            .map_or(Duration::from_secs_f64(DEFAULT_MAX_COMMAND_TIMEOUT_SECONDS), |timeout| timeout.get()),
    };
    let notices = served::notices(&served, settings.scope);
    served::check(served, &args.arguments, settings.scope, environment)?;
    let fields = entry.fields(args.client);
    let edit = |text: &str| edit::with_entry(text, &settings.place, &fields, &entry.name);
    let told = if args.print {
        console::notice(&format!("this goes into {}", settings.path.display()));
        edit("").map_err(|refusal| Failure::new(refusal.to_string()))?.0
    } else {
        let done = match write(&settings.path, edit)? {
            Change::Added => format!("added {} to {}", entry.name, settings.path.display()),
            Change::Updated => format!("updated {} in {}", entry.name, settings.path.display()),
            Change::None => format!("{} is in {} already", entry.name, settings.path.display()),
        };
        format!("{done}\n{}\n", clients::next_step(args.client, args.scope))
    };
    for notice in notices {
        console::notice(&notice);
    }
    print(&told, exit::OK, None)
}

/// Changes a file by `edit`, as a whole or not at all.
fn write(
    path: &Path,
    edit: impl Fn(&str) -> std::result::Result<(String, Change), Refusal>,
) -> Result<Change> {
    let unwritten =
        |error: io::Error| Failure::new(format!("write {}: {error}; nothing was changed", path.display()));
    let target = Target::hold(path, LOCK_PATIENCE).map_err(unwritten)?;
    let before = host_file::read_text_up_to(target.path(), SETTINGS_LIMIT_BYTES)?;
    let (after, change) = edit(before.as_deref().unwrap_or_default()).map_err(|refusal| {
        Failure::new(format!("{}: {refusal}; nothing was changed", path.display())).hint(refusal.hint())
    })?;
    if change != Change::None {
        target.replace(before.as_deref(), &after).map_err(unwritten)?;
    }
    Ok(change)
}

/// Returns the path under which a client finds this program, whatever its own `PATH` is.
fn own_path() -> Result<String> {
    let own = std::env::current_exe().map_err(|error| Failure::new(format!("find this program: {error}")))?;
    let own = standing(own, std::fs::metadata("/proc/self/exe").ok().as_ref())?;
    let path = found_by_name(&own).unwrap_or(own);
    path.into_os_string().into_string().map_err(|path| {
        Failure::new(format!("the path of this program is not UTF-8: {}", PathBuf::from(path).display()))
    })
}

/// Returns where the program is now. Linux puts a remark behind the name of one whose file was deleted or replaced while it
/// ran; an upgrade does that, and then the new file is the one to start.
fn standing(own: PathBuf, running: Option<&Metadata>) -> Result<PathBuf> {
    let Some(name) = own.as_os_str().as_bytes().strip_suffix(b" (deleted)") else { return Ok(own) };
    // Somebody may have named it so.
    let place = |meta: &Metadata| (meta.dev(), meta.ino());
    if own.metadata().is_ok_and(|there| running.is_some_and(|running| place(running) == place(&there))) {
        return Ok(own);
    }
    let name = PathBuf::from(OsString::from_vec(name.to_vec()));
    if name.is_file() {
        return Ok(name);
    }
    let gone = format!("{}, the file of this program, was deleted while it ran", name.display());
    Err(Failure::new(gone).hint("start it again from where it is installed now"))
}

/// Returns where `PATH` has this very program: such a place, often a link, outlives an upgrade.
fn found_by_name(own: &Path) -> Option<PathBuf> {
    let own = own.canonicalize().ok()?;
    let path = Environment::foreign("PATH")?;
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("ringfence"))
        .find(|candidate| candidate.canonicalize().is_ok_and(|candidate| candidate == own))
}

#[cfg(test)]
mod tests;
