//! An agent's run with the four tools: a spec with limits, an input, the calls a model would make, and the end.
//!
//! ```sh
//! cargo run -p ringfence --example agent
//! ```
//!
//! What a model does is played by [`CALLS`]. A program with a real model offers it [`Toolset::definitions`], hands each of its
//! calls to [`Session::call`] and gives it the text of the answer.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::time::Duration;

use ringfence::toolset::{InputSource, Session, ToolError, Toolset, ToolsetConfig};
use ringfence::{BackendSettings, GuestPath, Limits, Registry, SandboxSpec};
use serde_json::Value;

const DATA: &[u8] = b"name,amount\nada,3\ngrace,4\nedsger,8\n";

/// Tools and arguments as a model writes them.
const CALLS: &[(&str, &str)] = &[
    ("list_directory", r#"{}"#),
    ("read_file", r#"{"path": "data.csv"}"#),
    (
        "write_file",
        r#"{"path": "sum.sh", "content": "tail -n +2 data.csv | cut -d, -f2 | paste -sd+ | sed 's/.*/echo $((&))/' | sh\n"}"#,
    ),
    ("run_command", r#"{"command": "sh sum.sh"}"#),
    ("read_file", r#"{"path": "missing.txt"}"#),
    ("run_command", r#"{"command": "sleep 600", "timeout_seconds": 1}"#),
];

// The runtime must have I/O and time enabled; this attribute enables both.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // A ceiling on memory is asked for in the same way: `memory: Some("256MiB".parse()?)`. It is refused where no control group
    // can be written, as for many an ordinary user, and this example is to run everywhere.
    let limits = Limits { disk: Some("64MiB".parse()?), ..Limits::default() };
    // The network is closed unless the spec opens it.
    let spec = SandboxSpec::new().with_limits(limits).with_lifetime(Duration::from_secs(120))?;
    let config = ToolsetConfig::new()
        .spec(spec)
        .max_command_timeout_seconds(10.0)
        .input(InputSource::Bytes(DATA.into()), GuestPath::new("data.csv")?);
    let backend = Registry::new(BackendSettings::default()).open("local")?;
    let toolset = Toolset::new(backend, config)?;
    // Refuses what this machine cannot enforce, before anything is made.
    toolset.judge()?;
    for definition in toolset.definitions() {
        println!("offered: {}", definition.name);
    }

    // The first call makes the sandbox, and all calls share it. It is destroyed whatever came of them.
    let session = toolset.open();
    let played = play(&session).await;
    session.close().await;
    Ok(played?)
}

async fn play(session: &Session) -> Result<(), ToolError> {
    for (name, arguments) in CALLS {
        println!("\n{name} {arguments}");
        // Arguments that are no JSON are for the tool to refuse, not for this loop.
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        match session.call(name, &arguments).await {
            Ok(output) => println!("{}", output.text),
            // The model reads this too, and may do better.
            Err(ToolError::Correction(correction)) => println!("{}", correction.text),
            // Anything else ends the run.
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
