//! A sandbox that outlives the program that made it: one program keeps it and passes its handle on, another works in it for an agent,
//! and a third looks at what came of it and ends it.
//!
//! ```sh
//! cargo run -p ringfence --example keep
//! ```
//!
//! The three are functions here. Nothing goes from one to the next but the handle, as text.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::time::Duration;

use ringfence::toolset::{AttachedToolset, ToolsetConfig};
use ringfence::{
    Attachable, Backend, BackendSettings, Claimant, GuestPath, Handle, Reach, Registry, SandboxSpec,
};
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Whose the sandbox is. A handle is no secret, it stands in logs: whoever attaches also has to say this.
const OWNER: &str = "reports/2026-12-01";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let handle = keep().await?;
    println!("kept: {handle}");
    let worked = work(&handle).await;
    // It is ended whatever came of the work; without this, by its lifetime.
    let report = end(&handle).await;
    worked?;
    println!("report: {}", report?.trim_end());
    Ok(())
}

/// Makes a sandbox that stays when this program has ended, and returns its handle.
async fn keep() -> Result<String> {
    let backend = Registry::new(BackendSettings::default()).open("local")?;
    let spec = SandboxSpec::new().with_owner(OWNER)?.with_lifetime(Duration::from_secs(600))?;
    let sandbox = attachable(&*backend)?.create_reachable(&spec, Reach::Kept).await?.id;
    backend.write_file(&sandbox, &GuestPath::new("data.txt")?, b"3\n4\n8\n").await?;
    Ok(Handle::new("local", &sandbox)?.to_string())
}

/// Gives the four tools in that sandbox to an agent, which nobody else works in meanwhile.
async fn work(handle: &str) -> Result<()> {
    let handle: Handle = handle.parse()?;
    let backend = Registry::new(BackendSettings::default()).open_for(&handle)?;
    // Holders exclude each other; the same one may come back, as after a crash.
    let claimant = Claimant::new(OWNER)?.with_holder("reports/2026-12-01/sum")?;
    let toolset = AttachedToolset::new(backend, ToolsetConfig::attached(claimant))?;
    // Claimed now, before a model has spent anything.
    let session = toolset.attach(handle.sandbox().as_str()).await?;
    let call = json!({"command": "paste -sd+ data.txt | sed 's/.*/echo $((&))/' | sh > report.txt && cat report.txt"});
    let answer = session.call("run_command", &call).await;
    // Gives the sandbox back; what is in it stays.
    session.close().await;
    println!("run_command: {}", answer?.text);
    Ok(())
}

/// Takes a file out and ends the sandbox. A program of the same user needs no claim for that.
async fn end(handle: &str) -> Result<String> {
    let handle: Handle = handle.parse()?;
    let backend = Registry::new(BackendSettings::default()).open_for(&handle)?;
    let report = backend.read_file(handle.sandbox(), &GuestPath::new("report.txt")?, 1 << 20).await;
    backend.destroy(handle.sandbox()).await?;
    Ok(String::from_utf8(report?)?)
}

/// Returns the backend as one whose sandboxes other processes find.
fn attachable(backend: &dyn Backend) -> Result<&dyn Attachable> {
    backend.attachable().ok_or_else(|| "other processes cannot use sandboxes of this backend".into())
}

#[cfg(test)]
#[test]
fn it_runs() -> Result<()> {
    main()
}
