use super::driver::Call;

#[track_caller]
fn refused(args: &[&str], needles: &[&str]) {
    let done = Call::new(args).done();
    assert_eq!((done.status, done.out()), (Some(125), ""), "{args:?}: {}", done.stderr);
    assert!(done.stderr.starts_with("ringfence: "), "{args:?}: {}", done.stderr);
    for needle in needles {
        assert!(done.stderr.contains(needle), "{needle} is not in {}", done.stderr);
    }
}

#[test]
fn an_open_network_is_refused_by_the_backend_with_its_reason_and_who_asked() {
    refused(&["run", "--open-network", "--", "true"], &["local: ", "network", "asked for by --open-network"]);
}

#[test]
fn an_allowlist_is_validated_first() {
    for (args, needle) in [
        (&["--allow-host", "https://pypi.org/x"][..], "bare name"),
        (&["--allow-host", "*.com"], "single label"),
        (&["--allow-host", "pypi.org\n"], "not a DNS name"),
        (&["--allow-cidr", "10.0.0.1/8"], "host bits"),
        (&["--allow-cidr", "0.0.0.0/1", "--allow-cidr", "128.0.0.0/1"], "restrict nothing"),
        (&["--open-network", "--allow-host", "pypi.org"], "contradict"),
    ] {
        refused(&[&["run"], args, &["--", "true"]].concat(), &[needle]);
    }
}

#[test]
fn s_42_a_variable_name_that_no_shell_can_carry_is_refused_and_no_value_is_shown() {
    for name in ["MY-KEY", "FOO;touch /tmp/pwned", "$(x)", "1A", "A\nB", ""] {
        refused(&["run", "--env", &format!("{name}=hunter2"), "--", "true"], &["is not a variable name"]);
    }
    let done = Call::new(["run", "--env", "MY-KEY=hunter2", "--", "true"]).done();
    assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
}

#[test]
fn a_variable_to_inherit_must_be_set() {
    refused(&["run", "--env", "SURELY_UNSET", "--", "true"], &["SURELY_UNSET is not set"]);
}

#[test]
fn an_unknown_backend_is_refused_with_the_known_ones() {
    refused(
        &["run", "--backend", "modla", "--", "true"],
        &["there is no backend \"modla\"", "try: known: local"],
    );
}

#[test]
fn a_wall_that_the_backend_does_not_have_is_refused() {
    refused(
        &["run", "--spec", r#"{"isolation": "own-kernel"}"#, "--", "true"],
        &["isolation", "asked for by --spec"],
    );
}

#[test]
fn s_22_a_refusal_is_in_the_json_and_in_the_status() {
    let done = Call::new(["run", "--json", "--open-network", "--", "true"]).done();
    assert_eq!(done.status, Some(125));
    let document = done.json();
    assert_eq!(document["status"], 125);
    assert_eq!(document["error"]["kind"], "refused");
    assert_eq!(document["error"]["field"], "block_network");
    assert_eq!(document["error"]["backend"], "local");
}

#[test]
fn shell_without_a_terminal_is_refused_with_the_way_out() {
    refused(&["shell"], &["needs a terminal", "try: ringfence run"]);
}
