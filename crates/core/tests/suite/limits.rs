use proptest::prelude::*;
use ringfence_core::{ByteSize, Cpus, ErrorKind, Limits, Pids};

fn bytes(text: &str) -> Option<u64> {
    text.parse::<ByteSize>().ok().map(ByteSize::get)
}

#[test]
fn sizes_are_read_with_their_units() {
    for (text, expected) in [
        ("1", Some(1)),
        ("1024", Some(1024)),
        ("7b", Some(7)),
        ("2g", Some(2 << 30)),
        ("512MiB", Some(512 << 20)),
        ("512mb", Some(512 << 20)),
        ("3K", Some(3 << 10)),
        ("1TiB", Some(1 << 40)),
        ("007k", Some(7 << 10)),
        ("9223372036854775807", Some(i64::MAX as u64)),
        ("9223372036854775808", None),
        ("8388608t", None),
        ("18446744073709551616", None),
        ("99999999999999999999g", None),
        ("0", None),
        ("0g", None),
        ("", None),
        ("g", None),
        ("-1", None),
        ("+1", None),
        ("1.5g", None),
        ("1 g", None),
        (" 1", None),
        ("1\n", None),
        ("1e3", None),
        ("0x10", None),
        ("1p", None),
        ("1µ", None),
        ("inf", None),
    ] {
        assert_eq!(bytes(text), expected, "{text:?}");
    }
}

#[test]
fn sizes_of_nothing_or_beyond_every_kernel_are_refused() {
    for size in [0, i64::MAX as u64 + 1, u64::MAX] {
        let error = ByteSize::from_bytes(size).expect_err("refused");
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
        assert!(error.message().ends_with(&format!("not {size}")), "{error}");
    }
}

#[test]
fn sp_16_numbers_of_cpus_are_positive_and_finite() {
    for cpus in [0.0, -1.0, 0.009, 10_000.1, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let error = Cpus::new(cpus).expect_err("refused");
        assert!(error.message().starts_with("cpus ") && error.message().ends_with(&format!("not {cpus}")));
    }
    for (cpus, millis, ceil) in
        [(0.01, 10, 1), (0.5, 500, 1), (1.0, 1000, 1), (1.001, 1001, 2), (10_000.0, 10_000_000, 10_000)]
    {
        let cpus = Cpus::new(cpus).expect("accepted");
        assert_eq!((cpus.millis(), cpus.ceil()), (millis, ceil));
    }
    assert!(
        "two".parse::<Cpus>().is_err() && "nan".parse::<Cpus>().is_err() && "inf".parse::<Cpus>().is_err()
    );
}

#[test]
fn pids_are_bounded() {
    assert_eq!(
        [0, 1, 1 << 22, (1 << 22) + 1].map(|pids| Pids::new(pids).is_ok()),
        [false, true, true, false]
    );
    assert!("0".parse::<Pids>().is_err() && "-1".parse::<Pids>().is_err() && "1.5".parse::<Pids>().is_err());
}

#[test]
fn limits_are_read_strictly() {
    let read = |json: &str| serde_json::from_str::<Limits>(json);
    let limits = read(r#"{"memory": "512MiB", "cpus": 2, "pids": 100, "disk": 1048576}"#).expect("accepted");
    assert_eq!(
        limits,
        Limits {
            memory: Some(ByteSize::from_bytes(512 << 20).expect("a size")),
            cpus: Some(Cpus::new(2.0).expect("cpus")),
            pids: Some(Pids::new(100).expect("pids")),
            disk: Some(ByteSize::from_bytes(1 << 20).expect("a size")),
        }
    );
    assert_eq!(
        serde_json::to_string(&limits).expect("JSON"),
        r#"{"memory":536870912,"cpus":2.0,"pids":100,"disk":1048576}"#
    );
    for json in [
        r#"{"memory": 0}"#,
        r#"{"memory": -1}"#,
        r#"{"memory": true}"#,
        r#"{"memory": 1.5}"#,
        r#"{"memory": "lots"}"#,
        r#"{"cpus": true}"#,
        r#"{"cpus": "2"}"#,
        r#"{"cpus": 0}"#,
        r#"{"pids": 0}"#,
        r#"{"pids": 1.0}"#,
        r#"{"pids": true}"#,
        r#"{"ram": 1}"#,
    ] {
        assert!(read(json).is_err(), "{json}");
    }
}

proptest! {
    #[test]
    fn a_size_reads_what_it_shows(number in 1u64..=1 << 20, shift in 0u32..43) {
        let size = ByteSize::from_bytes(number << shift).expect("a size");
        prop_assert_eq!(bytes(&size.to_string()), Some(size.get()));
        let json = serde_json::to_string(&size).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<ByteSize>(&json).expect("a size"), size);
    }

    #[test]
    fn a_number_of_cpus_reads_what_it_shows(millis in 10u32..=10_000_000) {
        let cpus = Cpus::new(f64::from(millis) / 1000.0).expect("cpus");
        prop_assert_eq!(cpus.millis(), millis);
        prop_assert_eq!(cpus.to_string().parse::<Cpus>().expect("cpus"), cpus);
        let json = serde_json::to_string(&cpus).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<Cpus>(&json).expect("cpus"), cpus);
    }

    #[test]
    fn no_text_makes_a_size_panic(text in "\\PC{0,24}") {
        drop(text.parse::<ByteSize>());
    }
}
