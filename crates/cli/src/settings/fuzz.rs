//! A settings file, as the project's and as the person's own.

#![expect(clippy::expect_used, reason = "what does not hold is said by panicking")]

use std::path::Path;

use ringfence::{NetworkPolicy, SandboxSpec};

use super::{Settings, Source, file, project};

/// What the person allows. A project may only narrow it (S45).
const ALLOWED: &str = r#"
backend = "local"
timeout = "60s"
[spec]
allow_egress_to = ["api.example.org"]
isolation = "user-space-kernel"
image = "base"
owner = "me"
limits = { memory = "1GiB", cpus = 2.0, pids = 100, disk = "1GiB" }
lifetime_seconds = 3600
idle_seconds = 60
"#;

/// Whatever a file says, it is refused, or is a spec; and of a project's file nothing is wider than without it.
pub(crate) fn target(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    // On a thread of its own, of which the memory is not measured: the TOML parser keeps all errors of a document, up to a KiB for a
    // byte of a short one. Of the largest file that is read, 1 MiB, that was 70 MB.
    std::thread::scope(|scope| scope.spawn(|| check_text(text)).join()).expect("what was asserted holds");
}

fn check_text(text: &str) {
    let path = Path::new("/p/ringfence.toml");
    if let Ok(layer) = file::layer(path, text, Source::UserFile) {
        check(&Settings { layer });
    }
    let allowed =
        || file::layer(Path::new("/u/config.toml"), ALLOWED, Source::UserFile).expect("a valid file");
    let Ok(project) = file::layer(path, text, Source::ProjectFile) else { return };
    let Ok(layer) = project::narrow(project, allowed()) else { return };
    let (narrowed, whole) = (Settings { layer }, Settings { layer: allowed() });
    check(&narrowed);
    assert_eq!(narrowed.backend(), whole.backend());
    assert!(narrowed.timeout().expect("a timeout").value <= whole.timeout().expect("a timeout").value);
    let Ok(spec) = narrowed.spec() else { return };
    assert_narrower(&spec, &whole.spec().expect("a spec"));
}

fn check(settings: &Settings) {
    drop(settings.rows());
    drop(settings.backend_settings());
    let Ok(spec) = settings.spec() else { return };
    let text = serde_json::to_string(&spec).expect("a JSON form");
    assert_eq!(serde_json::from_str::<SandboxSpec>(&text).expect("what was written is read"), spec);
}

fn assert_narrower(spec: &SandboxSpec, allowed: &SandboxSpec) {
    assert!(spec.network() == allowed.network() || *spec.network() == NetworkPolicy::Blocked);
    assert!(spec.isolation() >= allowed.isolation());
    let (limits, most) = (spec.limits(), allowed.limits());
    assert!(limits.memory.is_some_and(|memory| Some(memory) <= most.memory));
    assert!(limits.cpus.is_some_and(|cpus| Some(cpus) <= most.cpus));
    assert!(limits.pids.is_some_and(|pids| Some(pids) <= most.pids));
    assert!(limits.disk.is_some_and(|disk| Some(disk) <= most.disk));
    assert!(spec.lifetime().is_some_and(|time| Some(time) <= allowed.lifetime()));
    assert!(spec.idle().is_some_and(|time| Some(time) <= allowed.idle()));
    assert_eq!((spec.image(), spec.owner()), (allowed.image(), allowed.owner()));
    assert_eq!(spec.labels(), allowed.labels());
}
