use proptest::prelude::*;
use ringfence_core::env::{MAX_NAME_BYTES, MAX_VALUE_BYTES};
use ringfence_core::{EnvMap, ErrorKind};

use super::support::spec;

#[test]
fn s_42_names_that_are_not_variable_names_are_refused() {
    for name in [
        "",
        "FOO;touch /tmp/pwned",
        "A=B",
        "A\n",
        "A\0",
        "$(x)",
        "1A",
        "MY-KEY",
        "é",
        " A",
        "A B",
        "BASH_FUNC_ls%%",
    ] {
        let error = EnvMap::new([(name, "v")]).expect_err(name);
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
        assert!(error.message().contains(&format!("{name:?}")), "{error}");
    }
    assert!(EnvMap::new([("A".repeat(MAX_NAME_BYTES + 1), "v")]).is_err());
}

#[test]
fn s_42_values_are_exact() {
    let value = "new\nline 'single' \"double\" $(x) `y` \\ \t\r é";
    let largest = "x".repeat(MAX_VALUE_BYTES);
    let name = "N".repeat(MAX_NAME_BYTES);
    let env = EnvMap::new([("A", value), ("_b9", ""), (&name, &largest)]).expect("accepted");
    assert_eq!(
        env.iter().map(|(name, value)| (&name[..], &value[..])).collect::<Vec<_>>(),
        [("A", value), (&name[..], &largest[..]), ("_b9", "")]
    );
    assert_eq!((env.get("A"), env.get("missing"), env.is_empty()), (Some(value), None, false));
}

#[test]
fn s_42_values_that_no_process_can_have_are_refused() {
    let too_long = "x".repeat(MAX_VALUE_BYTES + 1);
    let error = EnvMap::new([("A", "a\0b"), ("B", &too_long), ("C", "fine")]).expect_err("refused");
    assert_eq!(
        error.message(),
        "\"A\" has a value with a NUL byte; \"B\" has a value longer than 130814 bytes"
    );
}

/// Facts of contract 11.5: the keys and their types, and never a value.
#[test]
fn mo_09_values_that_are_no_texts_are_refused_by_name() {
    let error =
        spec(r#"{"env": {"PORT": 8080, "FLAG": true, "NOTHING": null, "L": [], "O": {}, "OK": "secret"}}"#)
            .expect_err("refused");
    let expected = "accept the environment: \"FLAG\" is a boolean, not a text; \"L\" is a list, not a text; \
                    \"NOTHING\" is null, not a text; \"O\" is an object, not a text; \"PORT\" is a number, not a text at line 1 ";
    assert!(error.to_string().starts_with(expected), "{error}");
    let error = spec(r#"{"env": {"5": "x", "A-B": "secret"}}"#).expect_err("refused").to_string();
    assert!(error.contains("\"5\"") && error.contains("\"A-B\"") && !error.contains("secret"), "{error}");
}

#[test]
fn mk_06_debug_shows_names_only() {
    let env = EnvMap::new([("TOKEN", "hunter2")]).expect("accepted");
    assert_eq!(format!("{env:?}"), r#"{"TOKEN": "***"}"#);
}

proptest! {
    #[test]
    fn s_42_an_accepted_name_is_one_every_shell_has(name in "[A-Za-z0-9_=;$(\n\u{0} é-]{0,12}") {
        let accepted = EnvMap::new([(name.clone(), "v")]).is_ok();
        let good = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        prop_assert_eq!(accepted, good);
    }
}
