use super::driver::Call;

#[test]
fn p_90_doctor_finds_out_by_trying_and_its_status_says_whether_anything_isolates() {
    let text = Call::new(["doctor"]).done();
    let json = Call::new(["doctor", "--json"]).done();
    let document = json.json();
    assert_eq!(document["version"], 1);
    let can_isolate = document["can_isolate"].as_bool().unwrap();
    let expected = Some(if can_isolate { 0 } else { 1 });
    assert_eq!((text.status, json.status), (expected, expected), "{}", text.out());
    assert_eq!((text.stderr.as_str(), json.stderr.as_str()), ("", ""));
    let checks = document["backends"][0]["checks"].as_array().unwrap();
    assert!(!checks.is_empty(), "{document}");
    for check in checks {
        let line = format!(" {}", check["name"].as_str().unwrap());
        assert!(text.out().lines().any(|shown| shown.contains(&line)), "{line}: {}", text.out());
        // Whatever does not work names its way out.
        assert!(check["outcome"] == "works" || check["remedy"].is_string(), "{check}");
    }
    // These tests run where sandboxes can be made.
    assert!(can_isolate, "{}", text.out());
    assert!(text.out().contains('✓'), "{}", text.out());
}

#[test]
fn doctor_is_plain_ascii_where_the_locale_is() {
    let done = Call::new(["doctor"]).env("LC_ALL", "C").done();
    assert!(done.out().is_ascii() && done.out().contains("  ok "), "{}", done.out());
}
