use std::time::Duration;

use proptest::prelude::*;
use ringfence_core::{Captured, ErrorKind, OutputLimit, TailBuffer, Timeout};

fn tail(limit: usize, chunks: &[&[u8]]) -> Captured {
    let mut buffer = TailBuffer::new(OutputLimit::new(limit).expect("a limit"));
    for chunk in chunks {
        buffer.push(chunk);
    }
    buffer.finish()
}

fn captured(bytes: &[u8], truncated: bool, total_bytes: u64) -> Captured {
    Captured { bytes: bytes.to_vec().into(), truncated, total_bytes }
}

#[test]
fn bk_05_timeouts_must_be_positive_and_finite() {
    let refused = [0.0, -0.0, -1.0, -5.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e18, 31_536_000.1];
    for seconds in refused {
        let error = Timeout::from_secs_f64(seconds).expect_err("refused");
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument, "{seconds}");
        assert!(error.message().ends_with(&format!("not {seconds}")), "{error}");
    }
    assert!(Timeout::new(Duration::ZERO).is_err());
    assert!(Timeout::new(Timeout::MAX + Duration::from_nanos(1)).is_err());
}

/// A positive request stays what it is, however small (RC-03); infinity is not reported as not positive (21.12).
#[test]
fn rc_03_small_timeouts_pass_and_infinity_has_its_own_reason() {
    for (seconds, nanos) in [
        (0.01, 10_000_000),
        (0.5, 500_000_000),
        (1e-300, 1),
        (1e-10, 1),
        (31_536_000.0, 31_536_000_000_000_000),
    ] {
        let timeout = Timeout::from_secs_f64(seconds).expect("accepted");
        assert_eq!(timeout.get(), Duration::from_nanos(nanos), "{seconds}");
    }
    let error = Timeout::from_secs_f64(f64::INFINITY).expect_err("refused");
    assert!(error.message().contains("finite"), "{error}");
}

#[test]
fn bk_05_output_limits_must_be_positive_and_bounded() {
    for bytes in [0, OutputLimit::MAX_BYTES + 1, usize::MAX] {
        assert_eq!(OutputLimit::new(bytes).expect_err("refused").kind(), &ErrorKind::InvalidArgument);
    }
    assert_eq!(OutputLimit::new(1).expect("accepted").get(), 1);
    assert_eq!(OutputLimit::new(OutputLimit::MAX_BYTES).expect("accepted").get(), 64 << 20);
}

#[test]
fn bk_07_long_line_survives() {
    assert_eq!(tail(4, &[b"0123456789"]), captured(b"6789", true, 10));
    // The line ends in a newline: upstream's sbx answers with nothing here (section 21, item 1).
    assert_eq!(tail(4, &[b"0123456789\n"]), captured(b"789\n", true, 11));
    assert_eq!(tail(4, &[b"01234567", b"8", b"9\n"]), captured(b"789\n", true, 11));
}

#[test]
fn bk_08_a_partial_first_line_goes_only_if_half_the_cap_survives() {
    assert_eq!(tail(8, &[b"aaaaaaaa\nbbbb\n"]), captured(b"bbbb\n", true, 14));
    assert_eq!(tail(8, &[b"aaaaaaaaaa\nbb\n"]), captured(b"aaaa\nbb\n", true, 14));
    // Exactly half is enough.
    assert_eq!(tail(8, &[b"aaaaaaaaaa\nbbb\n"]), captured(b"bbb\n", true, 15));
}

#[test]
fn bk_08_a_whole_first_line_stays() {
    assert_eq!(tail(8, &[b"x\nbbb\nccc\n"]), captured(b"bbb\nccc\n", true, 10));
    assert_eq!(tail(8, &[b"x\n", b"bbb\n", b"ccc\n"]), captured(b"bbb\nccc\n", true, 10));
}

#[test]
fn bk_06_an_uncut_stream_is_exact() {
    assert_eq!(tail(8, &[]), captured(b"", false, 0));
    assert_eq!(tail(8, &[b"", b"abc\n", b"", b"\0\xff\r\n"]), captured(b"abc\n\0\xff\r\n", false, 8));
}

#[test]
fn bk_09_text_is_never_an_error() {
    assert_eq!(captured(b"ok\xff\xfe\0", false, 5).text(), "ok\u{fffd}\u{fffd}\0");
    // A character that the cut split is left out, on every backend alike.
    assert_eq!(captured("€é".as_bytes().get(1..).expect("bytes"), true, 5).text(), "é");
    // Without a cut the program wrote those bytes itself.
    assert_eq!(captured(b"\x82\xac", false, 2).text(), "\u{fffd}\u{fffd}");
    assert_eq!(Captured::complete("out\n").text(), "out\n");
}

/// What a tail buffer promises, with all the bytes at hand.
fn model(limit: usize, all: &[u8]) -> Captured {
    let from = all.len().saturating_sub(limit);
    let mut kept = &all[from..];
    if from > 0 && all[from - 1] != b'\n' {
        let whole = kept.iter().position(|byte| *byte == b'\n').map(|at| &kept[at + 1..]);
        kept = whole.filter(|whole| whole.len() * 2 >= limit).unwrap_or(kept);
    }
    captured(kept, from > 0, all.len() as u64)
}

proptest! {
    #[test]
    fn bk_07_a_tail_buffer_is_its_model(
        limit in 1usize..40,
        chunks in proptest::collection::vec(
            proptest::collection::vec(prop_oneof![4 => Just(b'x'), 1 => Just(b'\n'), 2 => any::<u8>()], 0..90),
            0..12,
        )
    ) {
        let parts: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let result = tail(limit, &parts);
        prop_assert_eq!(&result, &model(limit, &chunks.concat()));
        prop_assert!(result.bytes.len() <= limit);
        // At least half the cap of a longer stream survives, whatever it holds.
        prop_assert!(!result.truncated || result.bytes.len() * 2 >= limit);
    }

    #[test]
    fn bk_05_every_finite_positive_number_is_a_timeout_or_refused(seconds in any::<f64>()) {
        let accepted = Timeout::from_secs_f64(seconds).is_ok();
        prop_assert_eq!(accepted, seconds > 0.0 && seconds <= 31_536_000.0);
    }
}
