//! `ringfence demo`: a short agent run with fixed moves, shown as it happens.
//!
//! It goes through the same tools that an agent is given and checks what each answers, so it is also the quickest test of a
//! machine.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ringfence::toolset::{Session, Toolset, ToolsetConfig};
use ringfence::{NetworkPolicy, Registry};
use serde_json::{Value, json};

use crate::args::DemoArgs;
use crate::commands::{print, runtime};
use crate::console::{self, Unwritten, printable, printable_lines};
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::log;
use crate::settings::{RunFlags, Settings};
use crate::signals::{Interrupt, Signals};

/// The timeout of the step that is meant to run into it.
const DELIBERATE_TIMEOUT: Duration = Duration::from_secs(2);
/// By when that step must be back: the timeout, the grace between the two signals, and a slow machine.
const DELIBERATE_TIMEOUT_END: Duration = Duration::from_secs(6);

/// Plays the run and returns the exit status.
pub(crate) fn run(args: &DemoArgs, environment: &Environment) -> Result<u8> {
    // A sandbox that could not be destroyed is named in a warning of the toolset.
    log::start_warnings(environment)?;
    let settings = Settings::load(&args.spec, RunFlags::default(), environment)?;
    let spec = settings.spec().map_err(|failure| settings.explain(failure))?;
    let backend = Registry::new(settings.backend_settings()?).open(settings.backend())?;
    backend.judge(&spec).map_err(|error| settings.explain(error))?;
    let resolves_nothing = *spec.network() == NetworkPolicy::Blocked;
    let toolset = Toolset::new(backend, ToolsetConfig::new().spec(spec))?;
    let runtime = runtime()?;
    let status = runtime.block_on(async {
        let signals = Signals::new()?;
        let session = toolset.open();
        let mut interrupt = None;
        let played = tokio::select! {
            biased;
            signal = signals.next() => {
                interrupt = Some(signal);
                Ok(false)
            }
            played = play(&session, settings.backend(), resolves_nothing) => played,
        };
        let clock = Instant::now();
        signals.shield(&mut interrupt, session.close()).await;
        Ok(match (interrupt.map(Interrupt::status), played) {
            (Some(status), _) => status,
            (None, Err(why)) => why.status()?,
            (None, Ok(false)) => exit::UNFIT,
            (None, Ok(true)) => {
                print(&format!("done, sandbox destroyed  ({})\n", shown(clock.elapsed())), exit::OK, None)?
            }
        })
    });
    runtime.shutdown_background();
    status
}

/// Judges the structured result and the time of a call.
type Expectation = Box<dyn Fn(&Value, Duration) -> bool>;

/// One move of the agent and what must come of it.
struct Step {
    why: &'static str,
    tool: &'static str,
    arguments: Value,
    expect: Expectation,
}

impl Step {
    fn new(
        why: &'static str,
        tool: &'static str,
        arguments: Value,
        expect: impl Fn(&Value, Duration) -> bool + 'static,
    ) -> Self {
        Self { why, tool, arguments, expect: Box::new(expect) }
    }
}

/// The script that the agent writes, wrong and right, in a language that is there.
struct Script {
    name: &'static str,
    command: &'static str,
    wrong: &'static str,
    right: &'static str,
    complaint: &'static str,
}

const PYTHON: Script = Script {
    name: "mean.py",
    command: "python3 mean.py 3 4 8",
    wrong: "import sys\n\nnumbers = [int(text) for text in sys.argv[1:]]\nprint(sum(numbers) // len(numbrs))\n",
    right: "import sys\n\nnumbers = [int(text) for text in sys.argv[1:]]\nprint(sum(numbers) // len(numbers))\n",
    complaint: "NameError",
};
const SHELL: Script = Script {
    name: "mean.sh",
    command: "sh mean.sh 3 4 8",
    wrong: "set -u\nsum=0\nfor number in \"$@\"; do sum=$((sum + number)); done\necho $((sum / $count))\n",
    right: "set -u\nsum=0\nfor number in \"$@\"; do sum=$((sum + number)); done\necho $((sum / $#))\n",
    complaint: "count",
};

/// Returns whether everything came out as it should.
async fn play(
    session: &Session,
    backend: &str,
    resolves_nothing: bool,
) -> std::result::Result<bool, Unwritten> {
    let title = format!("An agent's run on `{}`: four tools, one sandbox.\n\n", printable(backend));
    console::stdout(title.as_bytes(), None)?;
    let look = Step::new(
        "What is there? The first call also makes the sandbox.",
        "run_command",
        json!({"command": "command -v python3 || command -v sh"}),
        |result, _| result["exit_code"] == 0,
    );
    let Some(found) = perform(session, &look).await? else { return Ok(false) };
    let has_python = found["stdout"].as_str().is_some_and(|path| path.contains("python"));
    for step in steps(if has_python { &PYTHON } else { &SHELL }, resolves_nothing) {
        if perform(session, &step).await?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn steps(script: &'static Script, resolves_nothing: bool) -> Vec<Step> {
    let write = |content: &str| json!({"path": script.name, "content": content});
    let run = json!({"command": script.command});
    let mut steps = vec![
        Step::new("Write a script.", "write_file", write(script.wrong), |_, _| true),
        Step::new("Run it; it is wrong.", "run_command", run.clone(), |result, _| {
            let complaint = result["stderr"].as_str().is_some_and(|text| text.contains(script.complaint));
            result["exit_code"].as_i64().is_some_and(|code| code != 0) && complaint
        }),
        Step::new("Mend it.", "write_file", write(script.right), |_, _| true),
        Step::new("Run it again.", "run_command", run, |result, _| {
            result["exit_code"] == 0 && result["stdout"].as_str().map(str::trim) == Some("5")
        }),
        Step::new(
            "Something that never ends gets 2 s; what it wrote is kept.",
            "run_command",
            json!({"command": "echo started; sleep 600", "timeout_seconds": DELIBERATE_TIMEOUT.as_secs()}),
            |result, elapsed| {
                let in_time = (DELIBERATE_TIMEOUT..DELIBERATE_TIMEOUT_END).contains(&elapsed);
                result["timed_out"] == true
                    && result["stdout"].as_str().map(str::trim) == Some("started")
                    && in_time
            },
        ),
        Step::new(
            "The file from before is still there.",
            "read_file",
            json!({"path": script.name}),
            |result, _| result["content"].as_str().map(str::trim_end) == Some(script.right.trim_end()),
        ),
    ];
    if resolves_nothing {
        steps.push(Step::new(
            "No name resolves: the network is blocked.",
            "run_command",
            json!({"command": "getent hosts example.org; echo status $?"}),
            // 2 is getent's "not found"; a missing getent would be 127.
            |result, _| result["stdout"].as_str().map(str::trim) == Some("status 2"),
        ));
    }
    steps.push(Step::new("Look around.", "list_directory", json!({}), |result, _| {
        result["entries"].as_array().is_some_and(|entries| entries.iter().any(|entry| entry == script.name))
    }));
    steps
}

/// Makes a call, shows it, and returns its structured result if it is what it should be.
async fn perform(session: &Session, step: &Step) -> std::result::Result<Option<Value>, Unwritten> {
    let clock = Instant::now();
    let answer = session.call(step.tool, &step.arguments).await;
    let elapsed = clock.elapsed();
    let mut text = String::new();
    line(&mut text, format_args!("# {}", step.why));
    line(&mut text, format_args!("{}  ({})", call_text(step), shown(elapsed)));
    let (answer_text, structured) = match answer {
        Ok(output) => (output.text, Some(output.structured)),
        Err(error) => (error.to_string(), None),
    };
    for answer_line in printable_lines(&answer_text).lines() {
        line(&mut text, format_args!("    {answer_line}"));
    }
    let result = structured.filter(|result| (step.expect)(result, elapsed));
    if result.is_none() {
        line(&mut text, format_args!("    ^ not what was expected"));
    }
    console::stdout(format!("{text}\n").as_bytes(), None)?;
    Ok(result)
}

fn call_text(step: &Step) -> String {
    let arguments = step.arguments.as_object().into_iter().flatten();
    let shown: Vec<String> = arguments
        .map(|(name, value)| match value.as_str() {
            Some(content) if content.contains('\n') => format!("{name}=<{} lines>", content.lines().count()),
            _ => format!("{name}={value}"),
        })
        .collect();
    printable(&format!("{}({})", step.tool, shown.join(", ")))
}

fn shown(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    if writeln!(text, "{arguments}").is_err() {
        // Writing into a String does not fail.
    }
}
