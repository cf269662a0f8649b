use std::sync::Arc;

use ringfence::{
    Availability, Backend, BackendSettings, Check, DEFAULT_SCHEME, Error, ErrorKind, Outcome, ProbeReport,
    Registry, memory::RecordingBackend,
};

fn registry() -> Registry {
    Registry::new(BackendSettings::default())
}

#[test]
fn an_unknown_scheme_is_answered_with_the_known_ones() {
    let error = registry().open("modla").unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
    assert_eq!(error.to_string(), "open the backend: there is no backend \"modla\"; known: local");
}

#[test]
fn the_default_scheme_is_known_in_every_build() {
    let expected = if cfg!(not(target_os = "linux")) {
        Availability::NeedsSystem("Linux")
    } else if cfg!(feature = "local") {
        Availability::Available
    } else {
        Availability::NeedsFeature("local")
    };
    assert_eq!(registry().schemes(), [(DEFAULT_SCHEME.to_owned(), expected)]);
}

#[cfg(all(feature = "local", target_os = "linux"))]
#[test]
fn bk_01_opening_the_local_backend_needs_no_runtime_and_no_machine() {
    let backend = registry().open("local").unwrap();
    assert_eq!(backend.name(), "local");
}

#[cfg(not(all(feature = "local", target_os = "linux")))]
#[tokio::test]
async fn a_scheme_that_is_not_compiled_in_says_what_it_needs() {
    let error = registry().open("local").unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unsupported);
    let need = if cfg!(target_os = "linux") { "needs feature `local`" } else { "need Linux" };
    assert!(error.message().contains(need), "{error}");
    let probe = registry().probe("local").await.unwrap();
    assert!(!probe.can_isolate());
    assert!(probe.checks[0].detail.contains(need), "{probe:?}");
}

#[test]
fn settings_of_the_local_backend_are_read_in_every_build() {
    let text = r#"{"local": {"shell": "sh", "read_only_paths": ["/srv/data"]}}"#;
    let settings: BackendSettings = serde_json::from_str(text).unwrap();
    let local = &serde_json::to_value(&settings).unwrap()["local"];
    let kept = [&local["shell"], &local["read_only_paths"]].map(Clone::clone);
    assert_eq!(kept, [serde_json::json!("sh"), serde_json::json!(["/srv/data"])]);
    let error = serde_json::from_str::<BackendSettings>(r#"{"lcoal": {}}"#).unwrap_err();
    assert!(error.to_string().contains("unknown field `lcoal`"), "{error}");
}

#[test]
fn sp_12_settings_are_not_read_by_position() {
    for text in [r#"[{"shell": "sh"}]"#, r#"{"local": ["sh"]}"#] {
        let error = serde_json::from_str::<BackendSettings>(text).unwrap_err().to_string();
        assert!(error.starts_with("invalid type: sequence, expected"), "{error}");
    }
}

#[tokio::test]
async fn a_registered_backend_is_opened_and_probed_by_its_scheme() {
    let registry = registry()
        .with_backend("rec", Arc::new(|| Ok(Arc::new(RecordingBackend::default()) as Arc<dyn Backend>)))
        .with_backend("broken", Arc::new(|| Err(Error::invalid("open it", "no address").hint("give one"))));
    assert_eq!(registry.open("rec").unwrap().name(), "rec");
    assert_eq!(registry.schemes().len(), 3);
    assert_eq!(registry.probe("rec").await.unwrap(), ProbeReport::default());
    let check = Check {
        name: "backend".to_owned(),
        outcome: Outcome::Failed,
        detail: "no address".to_owned(),
        remedy: Some("give one".to_owned()),
        fields: Vec::new(),
    };
    assert_eq!(registry.probe("broken").await.unwrap(), ProbeReport { checks: vec![check] });
    assert_eq!(registry.probe("nope").await.unwrap_err().kind(), &ErrorKind::InvalidArgument);
}
