//! Specs as people and programs write them.

use ringfence_core::attach::RESERVED_PREFIX;
use ringfence_core::{NetworkPolicy, SandboxSpec};
use serde_json::Value;

/// A spec is an object, means the same after it was written and read again, and never says more than what was written.
pub(super) fn target(bytes: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<SandboxSpec>(bytes) else { return };
    assert_eq!(bytes.trim_ascii_start().first(), Some(&b'{'), "a list read by position");
    let text = serde_json::to_string(&spec).expect("a JSON form");
    let again: SandboxSpec = serde_json::from_str(&text).expect("what was written is read");
    assert_eq!(again, spec);
    assert_eq!(serde_json::to_string(&again).expect("a JSON form"), text);
    let written: Value = serde_json::from_slice(bytes).expect("it was read before");
    for inner in ["env", "limits", "labels"] {
        assert!(written.get(inner).is_none_or(Value::is_object), "a list read by position");
    }
    // Whoever did not write the word did not open it (SP-01).
    if *spec.network() == NetworkPolicy::Open {
        assert_eq!(written["block_network"], Value::Bool(false));
    }
    assert!(spec.workdir().is_none_or(|path| path.starts_with('/') && !path.contains('\0')));
    assert!(spec.labels().keys().all(|name| !name.is_empty() && !name.starts_with(RESERVED_PREFIX)));
    assert!([spec.lifetime(), spec.idle()].into_iter().flatten().all(|time| !time.is_zero()));
    let tag = spec.network().to_tag();
    assert_eq!(NetworkPolicy::from_tag(&tag).expect("what was written is read"), *spec.network());
}
