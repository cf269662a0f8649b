//! `ringfence doctor`: what this machine can enforce, found out by trying.

use std::fmt::Write as _;

use ringfence::{Check, Outcome, ProbeReport, Registry};
use serde_json::{Value, json};

use crate::args::{DoctorArgs, SpecArgs};
use crate::commands::{print, print_json, runtime};
use crate::console::printable;
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::settings::{RunFlags, Settings};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// A backend by its scheme, and what was tried.
type Probe = (String, ProbeReport);

/// Probes every backend.
pub(crate) fn run(args: &DoctorArgs, environment: &Environment) -> Result<u8> {
    let settings = Settings::load(&SpecArgs::default(), RunFlags::default(), environment)?;
    let registry = Registry::new(settings.backend_settings()?);
    let probes = runtime()?.block_on(async {
        let mut probes = Vec::new();
        for (scheme, _) in registry.schemes() {
            let report = registry.probe(&scheme).await?;
            probes.push((scheme, report));
        }
        ringfence::Result::<Vec<Probe>>::Ok(probes)
    })?;
    let can_isolate = probes.iter().any(|(_, report)| report.can_isolate());
    let status = if can_isolate { exit::OK } else { exit::UNFIT };
    if args.json {
        let version = env!("CARGO_PKG_VERSION");
        let backends: Vec<Value> = probes.iter().map(to_json).collect();
        let document = json!({
            "version": VERSION, "ringfence": version, "can_isolate": can_isolate, "backends": backends,
        });
        return print_json(&document, status, None);
    }
    let text = if environment.utf8 { render(&probes, &UTF8) } else { ascii(&render(&probes, &ASCII)) };
    print(&text, status, None)
}

fn to_json((scheme, report): &Probe) -> Value {
    json!({"backend": scheme, "can_isolate": report.can_isolate(), "checks": report.checks})
}

/// The signs before a check.
struct Marks {
    works: &'static str,
    absent: &'static str,
    failed: &'static str,
}

const UTF8: Marks = Marks { works: "✓", absent: "!", failed: "✗" };
const ASCII: Marks = Marks { works: "ok", absent: "--", failed: "NO" };

/// Returns the text without anything beyond ASCII: details quote what the kernel and the operator wrote.
fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '…' => out.push_str("..."),
            '–' | '—' => out.push('-'),
            '’' | '‘' => out.push('\''),
            _ if char.is_ascii() => out.push(char),
            _ => out.push('?'),
        }
    }
    out
}

fn render(probes: &[Probe], marks: &Marks) -> String {
    let mut text = String::new();
    for (scheme, report) in probes {
        let verdict = match report {
            _ if report.can_isolate() => "can isolate",
            report if report.checks.is_empty() => "has nothing to try here",
            _ => "cannot isolate here",
        };
        push(&mut text, format_args!("{scheme}: {verdict}\n"));
        let name_width = report.checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
        for check in &report.checks {
            render_check(&mut text, check, marks, name_width);
        }
    }
    text
}

fn render_check(text: &mut String, check: &Check, marks: &Marks, name_width: usize) {
    let mark = match check.outcome {
        Outcome::Works => marks.works,
        Outcome::Absent => marks.absent,
        Outcome::Failed => marks.failed,
    };
    let detail = printable(&check.detail.replace('\n', " "));
    push(text, format_args!("  {mark} {:name_width$}  {detail}\n", check.name));
    let indent = " ".repeat(mark.chars().count() + 3);
    if check.outcome == Outcome::Works {
        return;
    }
    if !check.fields.is_empty() {
        let fields: Vec<&str> = check.fields.iter().map(|field| field.key()).collect();
        push(text, format_args!("{indent}refused here: {}\n", fields.join(", ")));
    }
    if let Some(remedy) = &check.remedy {
        push(text, format_args!("{indent}try: {}\n", printable(remedy)));
    }
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    if text.write_fmt(arguments).is_err() {
        // Writing into a String does not fail.
    }
}

#[cfg(test)]
mod tests {
    use ringfence::SpecField;

    use super::*;

    fn check(name: &str, outcome: Outcome, remedy: Option<&str>, fields: &[SpecField]) -> Check {
        Check {
            name: name.to_owned(),
            outcome,
            detail: "detail".to_owned(),
            remedy: remedy.map(str::to_owned),
            fields: fields.to_vec(),
        }
    }

    #[test]
    fn one_line_per_check_and_the_remedy_under_each_failure() {
        let checks = vec![
            check("seccomp", Outcome::Works, None, &[]),
            check("memory limit", Outcome::Absent, Some("delegate"), &[SpecField::Memory]),
            check("user namespace", Outcome::Failed, Some("sysctl"), &[]),
        ];
        let empty = ("far".to_owned(), ProbeReport::default());
        let probes = [("local".to_owned(), ProbeReport { checks }), empty];
        assert_eq!(
            render(&probes, &UTF8),
            "local: cannot isolate here\n  ✓ seccomp         detail\n  ! memory limit    detail\n    refused here: limits.memory\n    \
             try: delegate\n  ✗ user namespace  detail\n    try: sysctl\nfar: has nothing to try here\n"
        );
        assert!(render(&probes, &ASCII).is_ascii());
        assert_eq!(ascii("a … b – é\n"), "a ... b - ?\n");
    }
}
