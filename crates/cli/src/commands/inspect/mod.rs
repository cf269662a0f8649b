//! `ringfence inspect`.

mod json;
mod text;

use std::time::SystemTime;

use ringfence::{CommandStatus, Handle, Inspection};
use serde_json::{Value, json};

use crate::args::InspectArgs;
use crate::commands::{print, print_json, runtime};
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::reached::{attachable, backend_of, failed};

/// Stands for the value of a variable, which may be a secret.
const HIDDEN: &str = "***";

/// What is shown.
struct Report {
    handle: Handle,
    found: Inspection,
    /// As in its JSON form, values of variables hidden unless they are wanted.
    spec: Value,
    /// `None` where the backend runs no commands in the background.
    commands: Option<Vec<CommandStatus>>,
    now: SystemTime,
}

/// Shows the sandbox.
pub(crate) fn run(args: &InspectArgs, environment: &Environment) -> Result<u8> {
    let handle = &args.handle;
    let backend = backend_of(handle, environment)?;
    let attachable = attachable(&*backend)?;
    let (found, commands) = runtime()?.block_on(async {
        let found = attachable.inspect(handle.sandbox()).await.map_err(|error| failed(handle, &error))?;
        let commands = match backend.background() {
            Some(background) => {
                let listed = background.list_commands(handle.sandbox()).await;
                Some(listed.map_err(|error| failed(handle, &error))?)
            }
            None => None,
        };
        Result::Ok((found, commands))
    })?;
    let spec = spec(&found, args.show_env)?;
    let report = Report { handle: handle.clone(), found, spec, commands, now: SystemTime::now() };
    if args.json {
        return print_json(&json::document(&report), exit::OK, None);
    }
    print(&text::render(&report), exit::OK, None)
}

fn spec(found: &Inspection, show_env: bool) -> Result<Value> {
    let mut spec =
        serde_json::to_value(&found.spec).map_err(|error| Failure::new(format!("show the spec: {error}")))?;
    if !show_env && let Some(Value::Object(env)) = spec.get_mut("env") {
        env.values_mut().for_each(|value| *value = json!(HIDDEN));
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringfence::{
        CommandId, CommandState, Ending, EnforcementRow, EnforcementStatement, EnvMap, Evidence, Process,
        SandboxSpec, SpecField, Usage,
    };

    use super::*;
    use crate::shown::tests::info;

    /// A sandbox with something of everything.
    fn report(show_env: bool) -> Report {
        let tags = [("job", "build"), ("ringfence_owner", "o"), ("ringfence_fence", "3")];
        let (info, now) = info(&tags);
        let document = serde_json::json!({"limits": {"memory": "64MiB", "pids": 8, "cpus": 0.5}, "lifetime_seconds": 3600});
        let spec: SandboxSpec = serde_json::from_value(document).unwrap();
        let spec = spec.with_env(EnvMap::new([("TOKEN", "hunter2")]).unwrap());
        let statement = EnforcementStatement {
            version: 1,
            at: Some("2001-09-09T01:46:40Z".to_owned()),
            rows: vec![
                EnforcementRow {
                    strength: Some("name".to_owned()),
                    ..EnforcementRow::new(SpecField::Network, "a namespace of its own", Evidence::Applied)
                },
                EnforcementRow::new(SpecField::Memory, "memory.max = 1", Evidence::ReadBack),
                EnforcementRow::not_asked(SpecField::Image),
            ],
        };
        let mut usage = Usage::default();
        usage.memory_bytes = Some(3 << 19);
        usage.cpu_time = Some(Duration::from_millis(1250));
        usage.pids = Some(2);
        let processes = vec![Process { pid: 7, parent: 1, command: b"sleep\0\x1b[2J\xff".to_vec() }];
        let command = |id, state| CommandStatus {
            id: CommandId(id),
            state,
            age: Duration::from_secs(5),
            stdout_bytes: 2048,
            stderr_bytes: 0,
        };
        let commands = vec![
            command(1, CommandState::Running),
            command(2, CommandState::Ended(Ending::Exited(3))),
            command(3, CommandState::Ended(Ending::Signalled(9))),
            command(4, CommandState::Ended(Ending::TimedOut)),
        ];
        let found = Inspection { info, spec, statement, usage, processes };
        let spec = spec_of(&found, show_env);
        Report { handle: "local:sb-1".parse().unwrap(), found, spec, commands: Some(commands), now }
    }

    fn spec_of(found: &Inspection, show_env: bool) -> Value {
        spec(found, show_env).unwrap()
    }

    #[test]
    fn mk_06_values_of_variables_are_shown_only_when_asked_for() {
        let shown = |show_env| {
            let report = report(show_env);
            let texts = [text::render(&report), json::document(&report).to_string()];
            texts.map(|text| (text.contains("TOKEN"), text.contains("hunter2")))
        };
        assert_eq!(shown(false), [(true, false); 2]);
        assert_eq!(shown(true), [(true, true); 2]);
    }

    #[test]
    fn the_text_is_whole() {
        let whole = "\
local:sb-1
  created  2001-09-09T01:46:40Z, 90s ago
  left     58m
  reach    kept
  owner    o
  holder   -

tags
  job              build
  ringfence_fence  3
  ringfence_owner  o

spec
  block_network           true
  env.TOKEN               ***
  isolation               shared-kernel
  least_network_strength  address
  lifetime_seconds        3600.0
  limits.cpus             0.5
  limits.memory           64MiB
  limits.pids             8

enforced, as of 2001-09-09T01:46:40Z
  network  applied    a namespace of its own, strength name
  memory   read back  memory.max = 1

used
  memory  1.5MiB of 64MiB
  cpu     1.2s, at most 0.5 at a time
  pids    2 of 8
  disk    not known

processes
  PID  PARENT  COMMAND
  7    1       sleep \\u{1b}[2J\u{fffd}

commands
  ID  STATE      AGE  STDOUT  STDERR
  c1  running    5s   2KiB    0B
  c2  exited 3   5s   2KiB    0B
  c3  signal 9   5s   2KiB    0B
  c4  timed_out  5s   2KiB    0B
";
        assert_eq!(text::render(&report(false)), whole);
    }

    #[test]
    fn the_json_is_whole() {
        let mut document = json::document(&report(false));
        let statement = serde_json::to_value(report(false).found.statement).unwrap();
        assert_eq!((&document["version"], &document["statement"]), (&json!(1), &statement));
        for key in ["handle", "created_at", "remaining_seconds", "labels"] {
            assert!(!document[key].is_null(), "{key}");
        }
        assert_eq!(document["spec"]["env"], json!({"TOKEN": "***"}));
        assert_eq!(document["tags"], json!({"job": "build", "ringfence_fence": "3", "ringfence_owner": "o"}));
        assert_eq!(document["tags_version"], 2);
        assert_eq!(
            document["usage"],
            json!({"memory_bytes": 1_572_864, "cpu_seconds": 1.25, "pids": 2, "disk_bytes": null})
        );
        assert_eq!(
            document["processes"],
            json!([{"pid": 7, "parent": 1, "command": "sleep \u{1b}[2J\u{fffd}"}])
        );
        let commands = document["commands"].take();
        let ended = |id, ending, exit_code: Value, signal: Value| {
            json!({"id": id, "running": false, "ending": ending, "exit_code": exit_code, "signal": signal,
                "age_seconds": 5.0, "stdout_bytes": 2048, "stderr_bytes": 0})
        };
        let mut running = ended("c1", Value::Null, Value::Null, Value::Null);
        running["running"] = json!(true);
        let whole = json!([
            running,
            ended("c2", json!("exited"), json!(3), Value::Null),
            ended("c3", json!("signalled"), Value::Null, json!(9)),
            ended("c4", json!("timed_out"), Value::Null, Value::Null),
        ]);
        assert_eq!(commands, whole);
    }
}
