//! `ringfence ps`.

mod watch;

use std::time::SystemTime;

use ringfence::{Attachable, Backend, Handle, SandboxId, SandboxInfo};
use serde_json::{Value, json};

use crate::args::PsArgs;
use crate::commands::{print, print_json, runtime};
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::marks::Marks;
use crate::parse::LabelFilter;
use crate::reached::{Backends, attachable};
use crate::shown;

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Shows the sandboxes.
pub(crate) fn run(args: &PsArgs, environment: &Environment) -> Result<u8> {
    let backend = Backends::load(args.backend.backend.as_deref(), environment)?.default()?;
    let attachable = attachable(&*backend)?;
    let runtime = runtime()?;
    if args.watch {
        return runtime.block_on(watch::run(args, attachable));
    }
    let found = runtime.block_on(find(attachable, &args.labels))?;
    let status = if found.silent.is_empty() { exit::OK } else { exit::PARTIAL };
    if args.json {
        let now = SystemTime::now();
        let rows = found
            .sandboxes
            .iter()
            .map(|(handle, info)| Value::Object(shown::sandbox(handle, info, now)))
            .collect::<Vec<_>>();
        let silent = found
            .silent
            .iter()
            .map(|(handle, fault)| json!({"handle": handle.to_string(), "fault": fault}))
            .collect::<Vec<_>>();
        return print_json(&json!({"version": VERSION, "sandboxes": rows, "silent": silent}), status, None);
    }
    for (handle, fault) in &found.silent {
        console::failure(&shown::silent(handle, fault));
    }
    print(&text(&found.sandboxes, args.quiet, SystemTime::now()), status, None)
}

/// What was found.
struct Found {
    /// Those with the labels that were asked for.
    sandboxes: Vec<(Handle, SandboxInfo)>,
    /// Those that could not be asked, whose labels nobody knows, and why.
    silent: Vec<(Handle, String)>,
}

async fn find(attachable: &dyn Attachable, labels: &[LabelFilter]) -> Result<Found> {
    let now = SystemTime::now();
    let listed = attachable.list().await?;
    let handle = |id: &SandboxId| Handle::new(Backend::name(attachable), id);
    let silent = listed.silent.into_iter().map(|silent| Ok((handle(&silent.id)?, silent.fault)));
    let mut found = Found { sandboxes: Vec::new(), silent: silent.collect::<Result<_>>()? };
    for info in listed.sandboxes {
        let marks = Marks::read(&info.tagged.tags, now);
        if labels.iter().all(|label| label.fits(&marks.labels)) {
            found.sandboxes.push((handle(&info.id)?, info));
        }
    }
    Ok(found)
}

/// One line each, handles alone if `quiet`.
fn text(found: &[(Handle, SandboxInfo)], quiet: bool, now: SystemTime) -> String {
    if quiet {
        return found.iter().map(|(handle, _)| format!("{handle}\n")).collect();
    }
    let header = ["HANDLE", "AGE", "LEFT", "REACH", "OWNER", "HOLDER", "LABELS"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(found.iter().map(|(handle, info)| {
        let marks = Marks::read(&info.tagged.tags, now);
        let cell = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let labels = shown::pairs(marks.labels.iter().map(|(name, value)| (*name, *value)));
        vec![
            handle.to_string(),
            shown::span(shown::age(info, now)),
            left(info),
            info.reach.name().to_owned(),
            cell(marks.owner),
            cell(marks.holder.map(|holder| holder.name)),
            cell(Some(labels.as_str()).filter(|labels| !labels.is_empty())),
        ]
    }));
    shown::table(&rows)
}

/// What ends the sandbox first, and when.
fn left(info: &SandboxInfo) -> String {
    match (info.remaining, info.remaining_idle) {
        (None, None) => "-".to_owned(),
        (Some(left), None) => shown::span(left),
        (Some(left), Some(idle)) if left <= idle => shown::span(left),
        (_, Some(idle)) => format!("{} idle", shown::span(idle)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::shown::tests::info;

    #[test]
    fn a_line_says_how_old_how_long_whose_and_who_has_it() {
        let tags = [
            ("job", "a b"),
            ("evil", "\x1b[2J\nlocal:sb-9"),
            ("ringfence_owner", "dag"),
            ("ringfence_holder", "dag\ttask"),
            ("ringfence_lease_until", "1000000091"),
        ];
        let (marked, now) = info(&tags);
        let (mut plain, _) = info(&[("ringfence_holder", "x"), ("ringfence_lease_until", "1000000090")]);
        plain.remaining_idle = Some(Duration::from_secs(600));
        let handle = Handle::new("local", &marked.id).unwrap();
        let found = [(handle.clone(), marked), (handle, plain)];
        let table = "\
HANDLE      AGE  LEFT      REACH  OWNER  HOLDER     LABELS
local:sb-1  90s  58m       kept   dag    dag\\ttask  evil=\"\\u{1b}[2J\\nlocal:sb-9\",job=\"a b\"
local:sb-1  90s  10m idle  kept   -      -          -
";
        assert_eq!(text(&found, false, now), table);
        assert_eq!(text(&found, true, now), "local:sb-1\nlocal:sb-1\n");
        assert_eq!(text(&[], false, now), "HANDLE  AGE  LEFT  REACH  OWNER  HOLDER  LABELS\n");
    }

    #[test]
    fn what_ends_it_first_is_shown() {
        let (mut info, _) = info(&[]);
        for (remaining, idle, shown) in [
            (None, None, "-"),
            (Some(60), None, "60s"),
            (None, Some(60), "60s idle"),
            (Some(60), Some(60), "60s"),
            (Some(61), Some(60), "60s idle"),
        ] {
            info.remaining = remaining.map(Duration::from_secs);
            info.remaining_idle = idle.map(Duration::from_secs);
            assert_eq!(left(&info), shown);
        }
    }
}
