//! `ringfence prune`.

use ringfence::{Handle, Leftover};
use serde_json::{Value, json};

use crate::args::PruneArgs;
use crate::commands::{print, print_json, runtime};
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::reached::{Backends, attachable};
use crate::shown;

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Removes, or looks for, what is left.
pub(crate) fn run(args: &PruneArgs, environment: &Environment) -> Result<u8> {
    let backend = Backends::load(args.backend.backend.as_deref(), environment)?.default()?;
    let leftovers = runtime()?.block_on(attachable(&*backend)?.prune(args.dry_run))?;
    let stays = |leftover: &Leftover| leftover.fault.is_some() || (!args.dry_run && !leftover.removed);
    let status = if leftovers.iter().any(stays) { exit::UNFIT } else { exit::OK };
    if args.json {
        return print_json(&to_json(backend.name(), &leftovers, args.dry_run)?, status, None);
    }
    print(&render(backend.name(), &leftovers, args.dry_run)?, status, None)
}

fn to_json(backend: &str, leftovers: &[Leftover], dry_run: bool) -> Result<Value> {
    let rows = leftovers.iter().map(|leftover| {
        let handle = Handle::new(backend, &leftover.id)?;
        Ok(json!({
            "handle": handle.to_string(),
            "what": leftover.what,
            "removed": leftover.removed,
            "fault": leftover.fault,
        }))
    });
    let rows = rows.collect::<Result<Vec<Value>>>()?;
    Ok(json!({"version": VERSION, "backend": backend, "dry_run": dry_run, "leftovers": rows}))
}

fn render(backend: &str, leftovers: &[Leftover], dry_run: bool) -> Result<String> {
    if leftovers.is_empty() {
        return Ok("nothing is left behind\n".to_owned());
    }
    let rows = leftovers.iter().map(|leftover| {
        let handle = Handle::new(backend, &leftover.id)?;
        let (state, what) = match &leftover.fault {
            Some(fault) => ("stays", format!("{}: {fault}", leftover.what)),
            None if leftover.removed => ("removed", leftover.what.clone()),
            None if dry_run => ("found", leftover.what.clone()),
            None => ("stays", leftover.what.clone()),
        };
        Ok(vec![state.to_owned(), handle.to_string(), what])
    });
    Ok(shown::table(&rows.collect::<Result<Vec<_>>>()?))
}

#[cfg(test)]
mod tests {
    use ringfence::SandboxId;

    use super::*;

    fn leftover(what: &str, removed: bool, fault: Option<&str>) -> Leftover {
        let id = SandboxId::new("sb-1").unwrap();
        Leftover { id, what: what.to_owned(), removed, fault: fault.map(str::to_owned) }
    }

    #[test]
    fn what_was_found_is_told_from_what_is_gone_and_what_stays() {
        let found = [leftover("/r/a", true, None), leftover("/r/b\n", false, Some("busy"))];
        let text = "removed  local:sb-1  /r/a\nstays    local:sb-1  /r/b\\n: busy\n";
        assert_eq!(render("local", &found, false).unwrap(), text);
        let looked = [leftover("/r/a", false, None)];
        assert_eq!(render("local", &looked, true).unwrap(), "found  local:sb-1  /r/a\n");
        assert_eq!(render("local", &[], true).unwrap(), "nothing is left behind\n");
        let whole = json!({"version": 1, "backend": "local", "dry_run": false, "leftovers": [
            {"handle": "local:sb-1", "what": "/r/a", "removed": true, "fault": null},
            {"handle": "local:sb-1", "what": "/r/b\n", "removed": false, "fault": "busy"},
        ]});
        assert_eq!(to_json("local", &found, false).unwrap(), whole);
    }
}
