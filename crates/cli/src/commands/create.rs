//! `ringfence create`: a sandbox that other processes use.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringfence::toolset::Input;
use ringfence::{
    Attachable, Backend, Created, ErrorKind, Handle, Reach, Registry, SandboxId, SandboxSpec, Timeout,
};
use serde_json::{Value, json};

use crate::args::CreateArgs;
use crate::commands::{json_text, runtime};
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::inputs;
use crate::reached::{attachable, failed};
use crate::settings::{RunFlags, Settings};
use crate::shown;
use crate::signals::{Interrupt, Signals};
use crate::stdin;

/// The version of the JSON form.
const VERSION: u32 = 1;

/// How often it is looked whether the sandbox still stands.
const INTERVAL: Duration = Duration::from_secs(1);

/// Everything that is decided before there is a sandbox.
struct Job {
    backend: Arc<dyn Backend>,
    settings: Settings,
    spec: SandboxSpec,
    inputs: Vec<Input>,
    timeout: Timeout,
    reach: Reach,
    json: bool,
}

/// What is to become of the sandbox.
enum Then {
    /// It stands, and its handle is known.
    Stays,
    /// It has ended by itself.
    Gone,
    /// It is ended, and this is ours.
    Ends(Result<u8>),
}

/// Creates the sandbox, and without `--keep` waits for its end.
pub(crate) fn run(args: CreateArgs, environment: &Environment) -> Result<u8> {
    let settings = Settings::load(&args.spec, RunFlags::default(), environment)?;
    let spec = settings.spec().map_err(|failure| settings.explain(failure))?;
    let backend = Registry::new(settings.backend_settings()?).open(settings.backend())?;
    attachable(&*backend)?;
    backend.judge(&spec).map_err(|error| settings.explain(error))?;
    let job = Job {
        backend,
        spec,
        inputs: inputs::collect(&args.input)?,
        timeout: settings.timeout()?.value,
        reach: if args.keep { Reach::Kept } else { Reach::Listed },
        json: args.json,
        settings,
    };
    runtime()?.block_on(execute(&job))
}

async fn execute(job: &Job) -> Result<u8> {
    let attachable = attachable(&*job.backend)?;
    let signals = Signals::new()?;
    let mut interrupt = None;
    let created = signals.shield(&mut interrupt, attachable.create_reachable(&job.spec, job.reach)).await;
    let created = match (created, interrupt) {
        (Some(Ok(created)), _) => created,
        (None | Some(Err(_)), Some(signal)) => return Ok(signal.status()),
        (Some(Err(error)), None) => return Err(job.settings.explain(error)),
        // Only a signal abandons it.
        (None, None) => return Ok(exit::OURS),
    };
    let then = match interrupt {
        Some(signal) => Then::Ends(Ok(signal.status())),
        None => tokio::select! {
            biased;
            signal = signals.next() => {
                interrupt = Some(signal);
                Then::Ends(Ok(Interrupt::status(signal)))
            }
            then = hand_over(job, attachable, &created) => then,
        },
    };
    let status = match then {
        Then::Stays => return Ok(exit::OK),
        Then::Gone => {
            console::notice("the sandbox has ended");
            return Ok(exit::OK);
        }
        Then::Ends(status) => status,
    };
    if let Some(Err(error)) = signals.shield(&mut interrupt, job.backend.destroy(&created.id)).await {
        console::notice(&format!("the sandbox {} may still exist: {error}", created.id));
    }
    status
}

/// Copies the inputs in, tells the handle, and waits for what ends a sandbox that is not kept.
async fn hand_over(job: &Job, attachable: &dyn Attachable, created: &Created) -> Then {
    let told = match prepare(job, attachable, created).await {
        Ok(told) => told,
        Err(failure) => return Then::Ends(Err(failure)),
    };
    if let Err(why) = console::stdout(told.as_bytes(), None) {
        return Then::Ends(why.status());
    }
    if job.reach == Reach::Kept {
        return Then::Stays;
    }
    let held_by_pipe = stdin::is_pipe();
    if !held_by_pipe {
        // Whoever called this in `$(...)` waits for its end, and would not know what for.
        console::notice("the sandbox ends with this process: Ctrl-C ends it, --keep would have kept it");
    }
    tokio::select! {
        () = stdin::writers_gone(), if held_by_pipe => Then::Ends(Ok(exit::OK)),
        then = gone(attachable, &created.id) => then,
    }
}

async fn prepare(job: &Job, attachable: &dyn Attachable, created: &Created) -> Result<String> {
    inputs::stage(&job.inputs, &*job.backend, &created.id, job.timeout).await?;
    let handle = Handle::new(job.backend.name(), &created.id)?;
    if !job.json {
        return Ok(format!("{handle}\n"));
    }
    let found = attachable.inspect(&created.id).await.map_err(|error| failed(&handle, &error))?;
    let mut object = shown::sandbox(&handle, &found.info, SystemTime::now());
    object.insert("version".to_owned(), json!(VERSION));
    object.insert("statement".to_owned(), json!(created.statement));
    Ok(json_text(&Value::Object(object)))
}

/// Waits for the sandbox to end by itself. A look does not count as use of it.
async fn gone(attachable: &dyn Attachable, sandbox: &SandboxId) -> Then {
    let mut tick = tokio::time::interval(INTERVAL);
    loop {
        tick.tick().await;
        match attachable.tags(sandbox).await {
            Ok(_) => {}
            Err(error) if *error.kind() == ErrorKind::SandboxLost => return Then::Gone,
            Err(error) => return Then::Ends(Err(error.into())),
        }
    }
}
