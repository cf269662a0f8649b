//! `ringfence rm`.

use std::sync::Arc;
use std::time::SystemTime;

use ringfence::{Backend, ErrorKind, Handle, Tagged};

use crate::args::RmArgs;
use crate::commands::runtime;
use crate::console;
use crate::environment::Environment;
use crate::exit;
use crate::failure::{Failure, Result};
use crate::marks::Marks;
use crate::reached::{Backends, attachable, failed};
use crate::shown;
use crate::signals::{Interrupt, Signals};

/// Removes the sandboxes. One that stays does not keep the others.
pub(crate) fn run(args: RmArgs, environment: &Environment) -> Result<u8> {
    let mut backends = Backends::load(args.backend.as_deref(), environment)?;
    let everything = if args.all { Some(backends.default()?) } else { None };
    runtime()?.block_on(async {
        let signals = Signals::new()?;
        tokio::select! {
            biased;
            signal = signals.next() => Ok(Interrupt::status(signal)),
            status = async {
                match everything {
                    Some(backend) => remove_all(&backend, args.force).await,
                    None => remove_named(&mut backends, &args.handles, args.force).await,
                }
            } => status,
        }
    })
}

async fn remove_all(backend: &Arc<dyn Backend>, force: bool) -> Result<u8> {
    let mut status = exit::OK;
    let listed = attachable(&**backend)?.list().await?;
    for silent in &listed.silent {
        status = told(&shown::silent(&Handle::new(backend.name(), &silent.id)?, &silent.fault));
    }
    for info in listed.sandboxes {
        let handle = Handle::new(backend.name(), &info.id)?;
        // One that has ended since it was listed is as gone as one that was removed.
        if let Err(failure) = remove(&**backend, &handle, force).await
            && failure.kind() != ErrorKind::SandboxLost.name()
        {
            status = told(&failure);
        }
    }
    Ok(status)
}

async fn remove_named(backends: &mut Backends, handles: &[Handle], force: bool) -> Result<u8> {
    let mut status = exit::OK;
    for handle in handles {
        let removed = match backends.of(handle) {
            Ok(backend) => remove(&*backend, handle, force).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = removed {
            status = told(&failure);
        }
    }
    Ok(status)
}

fn told(failure: &Failure) -> u8 {
    console::failure(failure);
    failure.status()
}

async fn remove(backend: &dyn Backend, handle: &Handle, force: bool) -> Result<()> {
    let attachable = attachable(backend)?;
    if !force {
        let tagged = attachable.tags(handle.sandbox()).await.map_err(|error| failed(handle, &error))?;
        refuse_held(handle, &tagged, SystemTime::now())?;
    }
    match backend.destroy(handle.sandbox()).await {
        // Somebody else was faster.
        Err(error) if *error.kind() == ErrorKind::SandboxLost => Ok(()),
        other => other.map_err(Failure::from),
    }
}

/// Refuses what somebody else uses.
fn refuse_held(handle: &Handle, tagged: &Tagged, now: SystemTime) -> Result<()> {
    let Some(holder) = Marks::read(&tagged.tags, now).holder else { return Ok(()) };
    let until = holder.until.and_then(shown::moment);
    let until = until.map_or_else(|| "until that lets it go".to_owned(), |until| format!("until {until}"));
    Err(Failure::new(format!("{handle} is held by {}, {until}", holder.name))
        .with_kind(ErrorKind::Conflict.name())
        .hint("`ringfence rm -f` removes it all the same"))
}

#[cfg(test)]
mod tests {
    use ringfence::memory::RecordingBackend;
    use ringfence::{Reach, SandboxId, claim};

    use super::*;
    use crate::shown::tests::info;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    async fn held(backend: &RecordingBackend) -> Handle {
        let spec = ringfence::SandboxSpec::new().with_owner("o").unwrap();
        let id = backend.attachable().unwrap().create_reachable(&spec, Reach::Kept).await.unwrap().id;
        let claimant = claim::Claimant::new("o").unwrap();
        let attachable = backend.attachable().unwrap();
        let _held = claim::claim(attachable, &id, &claimant, claim::Lease::default(), SystemTime::now())
            .await
            .unwrap();
        Handle::new(backend.name(), &id).unwrap()
    }

    #[test]
    fn s_54_force_removes_what_is_held_and_does_not_mind_what_is_not_there() {
        block_on(async {
            let backend = RecordingBackend::new().with_attach();
            let held = held(&backend).await;
            let refused = remove(&backend, &held, false).await.unwrap_err();
            assert_eq!(refused.kind(), "conflict");
            assert_eq!(backend.alive(), [held.sandbox().clone()]);
            remove(&backend, &held, true).await.unwrap();
            assert_eq!(backend.alive(), []);
            let gone = remove(&backend, &held, false).await.unwrap_err();
            let told = format!("there is no sandbox {held}");
            assert_eq!((gone.kind(), gone.to_string()), ("sandbox_lost", told));
            remove(&backend, &held, true).await.unwrap();
        });
    }

    #[test]
    fn one_that_stays_does_not_keep_the_others() {
        block_on(async {
            let backend = RecordingBackend::new().with_attach();
            let held = held(&backend).await;
            for _ in 0..2 {
                let spec = ringfence::SandboxSpec::new();
                backend.attachable().unwrap().create_reachable(&spec, Reach::Listed).await.unwrap();
            }
            let backend = Arc::new(backend);
            let shared: Arc<dyn Backend> = Arc::clone(&backend) as Arc<dyn Backend>;
            assert_eq!(remove_all(&shared, false).await.unwrap(), exit::OURS);
            assert_eq!(backend.alive(), [held.sandbox().clone()]);
            assert_eq!(remove_all(&shared, true).await.unwrap(), exit::OK);
            assert_eq!(backend.alive(), Vec::<SandboxId>::new());
        });
    }

    #[test]
    fn s_54_what_somebody_holds_is_not_removed_by_accident() {
        let refused = |tags: &[(&str, &str)]| {
            let (info, now) = info(tags);
            let handle = Handle::new("local", &info.id).unwrap();
            refuse_held(&handle, &info.tagged, now).map_err(|failure| failure.to_string())
        };
        let held = |until| [("ringfence_holder", "h"), ("ringfence_lease_until", until)];
        assert_eq!(refused(&[]), Ok(()));
        assert_eq!(refused(&held("1000000090")), Ok(()));
        let told = "local:sb-1 is held by h, until 2001-09-09T01:48:11Z";
        assert_eq!(refused(&held("1000000091")), Err(told.to_owned()));
        let told = "local:sb-1 is held by h, until that lets it go";
        assert_eq!(refused(&held("?")), Err(told.to_owned()));
    }
}
