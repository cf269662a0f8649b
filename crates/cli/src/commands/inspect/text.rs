//! What `inspect` shows to people.

use ringfence::{CommandState, CommandStatus, Ending, Evidence, Inspection, SandboxInfo};
use serde_json::Value;

use super::Report;
use crate::marks::Marks;
use crate::shown::{self, bytes, span};

/// Returns the text.
pub(super) fn render(report: &Report) -> String {
    let Report { handle, found, spec, commands, .. } = report;
    let mut text = format!("{handle}\n");
    text.push_str(&indented(&facts(report)));
    let mut section = |title: &str, rows: &[Vec<String>]| {
        if !rows.is_empty() {
            text.push_str(&format!("\n{title}\n{}", indented(rows)));
        }
    };
    section("tags", &tags(&found.info));
    section("spec", &fields("", spec));
    let at = found.statement.at.as_ref().map_or(String::new(), |at| format!(", as of {at}"));
    section(&format!("enforced{}", crate::console::printable(&at)), &enforced(found));
    section("used", &used(found));
    section("processes", &processes(found));
    section("commands", &commands.as_deref().map(background).unwrap_or_default());
    text
}

fn indented(rows: &[Vec<String>]) -> String {
    shown::table(rows).lines().map(|line| format!("  {line}\n")).collect()
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn facts(report: &Report) -> Vec<Vec<String>> {
    let info = &report.found.info;
    let marks = Marks::read(&info.tagged.tags, report.now);
    let created = shown::moment(info.created_at).unwrap_or_else(|| "at an unknown time".to_owned());
    let holder = marks.holder.map(|holder| match holder.until.and_then(shown::moment) {
        Some(until) => format!("{}, until {until}", holder.name),
        None => holder.name.to_owned(),
    });
    vec![
        row(["created", &format!("{created}, {} ago", span(shown::age(info, report.now)))]),
        row(["left", &left(info)]),
        row(["reach", info.reach.name()]),
        row(["owner", marks.owner.unwrap_or("-")]),
        row(["holder", holder.as_deref().unwrap_or("-")]),
    ]
}

fn tags(info: &SandboxInfo) -> Vec<Vec<String>> {
    info.tagged.tags.iter().map(|(name, value)| row([name.as_str(), value.as_str()])).collect()
}

fn left(info: &SandboxInfo) -> String {
    match (info.remaining, info.remaining_idle) {
        (None, None) => "no clock ends it".to_owned(),
        (Some(left), None) => span(left),
        (None, Some(idle)) => format!("{}, unless it is used", span(idle)),
        (Some(left), Some(idle)) => format!("{}, {} unless it is used", span(left), span(idle)),
    }
}

/// Returns what a spec says, by the keys of its JSON form; what it leaves out or leaves empty is not shown.
fn fields(path: &str, value: &Value) -> Vec<Vec<String>> {
    match value {
        Value::Object(object) => {
            let within = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            object.iter().flat_map(|(key, value)| fields(&within(key), value)).collect()
        }
        Value::Null => Vec::new(),
        Value::Array(values) if values.is_empty() => Vec::new(),
        Value::String(text) => vec![row([path, text])],
        other => {
            let size = other.as_u64().filter(|_| ["limits.memory", "limits.disk"].contains(&path));
            vec![row([path, &size.map_or_else(|| other.to_string(), bytes)])]
        }
    }
}

fn enforced(found: &Inspection) -> Vec<Vec<String>> {
    let asked = found.statement.rows.iter().filter(|row| row.evidence != Evidence::NotAsked);
    asked
        .map(|of| {
            let how = match &of.strength {
                Some(strength) => format!("{}, strength {strength}", of.mechanism),
                None => of.mechanism.clone(),
            };
            row([of.field.as_str(), known(of.evidence), &how])
        })
        .collect()
}

fn known(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::ReadBack => "read back",
        Evidence::Applied => "applied",
        Evidence::Probed => "probed",
        Evidence::DeclaredByOperator => "declared by the operator",
        Evidence::VendorDocumentation => "said by the vendor",
        Evidence::Planned => "planned",
        Evidence::NotAsked => "not asked",
    }
}

fn used(found: &Inspection) -> Vec<Vec<String>> {
    let limits = found.spec.limits();
    let of = |used: Option<String>, limit: Option<String>| match (used, limit) {
        (Some(used), Some(limit)) => format!("{used} of {limit}"),
        (Some(used), None) => used,
        (None, Some(limit)) => format!("not known, of {limit}"),
        (None, None) => "not known".to_owned(),
    };
    let usage = &found.usage;
    let cpu = usage.cpu_time.map_or_else(
        || "not known".to_owned(),
        |time| format!("{}.{}s", time.as_secs(), time.subsec_millis() / 100),
    );
    let cpu = limits.cpus.map_or_else(|| cpu.clone(), |cpus| format!("{cpu}, at most {cpus} at a time"));
    vec![
        row(["memory", &of(usage.memory_bytes.map(bytes), limits.memory.map(|limit| limit.to_string()))]),
        row(["cpu", &cpu]),
        row([
            "pids",
            &of(usage.pids.map(|pids| pids.to_string()), limits.pids.map(|limit| limit.to_string())),
        ]),
        row(["disk", &of(usage.disk_bytes.map(bytes), limits.disk.map(|limit| limit.to_string()))]),
    ]
}

fn processes(found: &Inspection) -> Vec<Vec<String>> {
    if found.processes.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![row(["PID", "PARENT", "COMMAND"])];
    rows.extend(found.processes.iter().map(|process| {
        row([&process.pid.to_string(), &process.parent.to_string(), &words(&process.command)])
    }));
    rows
}

/// Returns program and arguments as text; they are separated as the kernel does it.
pub(super) fn words(command: &[u8]) -> String {
    String::from_utf8_lossy(command).trim_end_matches('\0').replace('\0', " ")
}

fn background(commands: &[CommandStatus]) -> Vec<Vec<String>> {
    if commands.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![row(["ID", "STATE", "AGE", "STDOUT", "STDERR"])];
    rows.extend(commands.iter().map(|command| {
        let state = match command.state {
            CommandState::Running => "running".to_owned(),
            CommandState::Ended(Ending::Exited(status)) => format!("exited {status}"),
            CommandState::Ended(Ending::Signalled(signal)) => format!("signal {signal}"),
            CommandState::Ended(other) => other.name().to_owned(),
        };
        row([
            &command.id.to_string(),
            &state,
            &span(command.age),
            &bytes(command.stdout_bytes),
            &bytes(command.stderr_bytes),
        ])
    }));
    rows
}
