use ringfence_core::memory::RecordingBackend;
use ringfence_core::{Backend, Check, Error, ErrorKind, Outcome, ProbeReport, SpecField};
use serde_json::json;

fn report(outcomes: &[Outcome]) -> ProbeReport {
    let check = |outcome: &Outcome| Check { outcome: *outcome, ..Check::works("x", "y", Vec::new()) };
    ProbeReport { checks: outcomes.iter().map(check).collect() }
}

#[test]
fn p_90_a_probe_that_tried_nothing_proves_nothing() {
    let can_isolate =
        [&[][..], &[Outcome::Works], &[Outcome::Works, Outcome::Absent], &[Outcome::Works, Outcome::Failed]]
            .map(|outcomes| report(outcomes).can_isolate());
    assert_eq!(can_isolate, [false, true, true, false]);
}

#[tokio::test]
async fn a_backend_tries_nothing_unless_it_says_how() {
    assert_eq!(RecordingBackend::new().probe().await.expect("a report"), ProbeReport::default());
}

#[test]
fn a_check_of_an_error_has_its_causes_and_its_way_out() {
    let error = Error::new(ErrorKind::Unavailable, "rec", "create", "no cgroup")
        .source(std::io::Error::other("read-only"))
        .hint("delegate one");
    let check = Check::of_error("memory limit", Outcome::Absent, &error, vec![SpecField::Memory]);
    let report = ProbeReport { checks: vec![Check::works("sandbox", "namespaces", Vec::new()), check] };
    let document = json!({"checks": [
        {"name": "sandbox", "outcome": "works", "detail": "namespaces", "fields": []},
        {
            "name": "memory limit",
            "outcome": "absent",
            "detail": "no cgroup: read-only",
            "remedy": "delegate one",
            "fields": ["memory"],
        },
    ]});
    assert_eq!(serde_json::to_value(&report).expect("JSON"), document);
    assert_eq!(serde_json::from_value::<ProbeReport>(document).expect("a report"), report);
}
