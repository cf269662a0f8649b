use proptest::prelude::*;
use ringfence_core::ErrorKind;
use ringfence_core::clip::{ClipLimits, EARLIER_TRUNCATED, Head, format_size, head, lines, tail};

fn limits(max_lines: usize, max_bytes: usize) -> ClipLimits {
    ClipLimits::new(max_lines, max_bytes).expect("limits above 0")
}

fn marked(rest: &str) -> String {
    format!("{EARLIER_TRUNCATED}\n{rest}")
}

const WIDE: (usize, usize) = (2000, 51200);

fn wide() -> ClipLimits {
    limits(WIDE.0, WIDE.1)
}

#[test]
fn ot_01_short_text_is_unchanged() {
    assert_eq!(tail("a\nb", wide(), false), "a\nb");
    assert_eq!(tail("", wide(), false), "");
}

/// Where upstream showed nothing of a stream that was cut to nothing, the marker stands alone (section 21, item 10).
#[test]
fn ot_01_text_cut_to_nothing_is_not_silence() {
    assert_eq!(tail("", wide(), true), EARLIER_TRUNCATED);
    assert_eq!(tail("é", limits(1, 1), false), EARLIER_TRUNCATED);
}

#[test]
fn ot_02_the_tail_of_too_many_lines_is_kept_and_marked() {
    let text: String = (0..10).map(|n| format!("line{n}\n")).collect();
    assert_eq!(tail(&text, limits(3, 1000), false), marked("line7\nline8\nline9"));
    assert_eq!(tail(&text, limits(10, 1000), false), text.trim_end());
}

#[test]
fn ot_03_the_byte_budget_counts_joining_newlines() {
    let text = [&"x".repeat(20)[..]; 10].join("\n");
    assert_eq!(tail(&text, limits(100, 45), false), marked(&["x".repeat(20), "x".repeat(20)].join("\n")));
    assert_eq!(tail("aaaa\nbbbbb", limits(9, 10), false), "aaaa\nbbbbb");
    assert_eq!(tail("aaaaa\nbbbbb", limits(9, 10), false), marked("bbbbb"));
    assert_eq!(tail("é\né", limits(9, 5), false), "é\né");
    assert_eq!(tail("é\né", limits(9, 4), false), marked("é"));
}

#[test]
fn ot_04_no_partial_line_but_the_last() {
    let long = "y".repeat(50);
    assert_eq!(tail(&format!("short\n{long}"), limits(9, 52), false), marked(&long));
}

#[test]
fn ot_05_a_last_line_over_the_cap_keeps_its_last_bytes() {
    assert_eq!(tail("abcdefghij", limits(9, 4), false), marked("ghij"));
    assert_eq!(tail("first\nabcdefghij\n", limits(9, 4), false), marked("ghij"));
    // A character is not split: of the two bytes of the second one, only one would fit.
    assert_eq!(tail("éé!", limits(9, 4), false), marked("é!"));
    assert_eq!(tail("ééé", limits(9, 3), false), marked("é"));
}

#[test]
fn ot_06_a_cut_made_earlier_is_marked_although_everything_fits() {
    assert_eq!(tail("tail", wide(), true), marked("tail"));
    assert_eq!(tail("\n", wide(), true), marked(""));
}

#[test]
fn ot_07_a_long_line_before_the_last_is_dropped_whole() {
    assert_eq!(tail(&format!("{}\nshort", "L".repeat(30)), limits(9, 10), false), marked("short"));
}

/// Only LF and CRLF end a line; a lone CR and all the wide Unicode breaks stay as they are (section 21, item 9).
#[test]
fn ot_08_only_lf_and_crlf_end_a_line() {
    let others = "a\u{b}b\u{c}c\u{1c}d\u{1d}e\u{1e}f\u{85}g\u{2028}h\u{2029}i\rj";
    assert_eq!(lines(others).collect::<Vec<_>>(), [others]);
    assert_eq!(tail(others, limits(1, 1000), false), others);
    assert_eq!(tail("1%\r50%\r100%\n", limits(1, 1000), false), "1%\r50%\r100%");
    assert_eq!(tail("a\r\nb\r\n", wide(), false), "a\nb");
    assert_eq!(tail("a\r\r\nb\r", wide(), false), "a\r\nb\r");
}

#[test]
fn ot_09_a_final_newline_is_dropped_and_a_blank_line_is_kept() {
    assert_eq!(tail("a\n", wide(), false), "a");
    assert_eq!(tail("a\n\n", wide(), false), "a\n");
    assert_eq!(tail("\n", wide(), false), "");
    assert_eq!(tail("\n\n", wide(), false), "\n");
}

#[test]
fn ot_10_sizes() {
    let sizes = [0, 1, 512, 1023, 1024, 1536, 1_048_575, 1 << 20, 5 << 20, 6 << 20, 1 << 30, u64::MAX];
    let shown: Vec<String> = sizes.into_iter().map(format_size).collect();
    assert_eq!(
        shown,
        [
            "0B",
            "1B",
            "512B",
            "1023B",
            "1.0KB",
            "1.5KB",
            "1024.0KB",
            "1.0MB",
            "5.0MB",
            "6.0MB",
            "1024.0MB",
            "17592186044416.0MB"
        ]
    );
}

#[test]
fn ot_02_limits_of_zero_are_refused() {
    for (max_lines, max_bytes) in [(0, 1), (1, 0), (0, 0)] {
        let error = ClipLimits::new(max_lines, max_bytes).expect_err("refused");
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
    }
    assert_eq!((wide().max_lines(), wide().max_bytes()), WIDE);
}

#[test]
fn ld_06_the_head_of_a_list_is_kept_and_the_rest_is_counted() {
    let names = ["a", "bb", "ccc", "dddd"];
    let expect = |text: &str, shown, remaining| Head { text: text.to_owned(), shown, remaining };
    assert_eq!(head(names, limits(9, 100)), expect("a\nbb\nccc\ndddd", 4, 0));
    assert_eq!(head(names, limits(2, 100)), expect("a\nbb", 2, 2));
    assert_eq!(head(names, limits(9, 8)), expect("a\nbb\nccc", 3, 1));
    assert_eq!(head(names, limits(9, 7)), expect("a\nbb", 2, 2));
    assert_eq!(head(["too long", "b"], limits(9, 7)), expect("", 0, 2));
    assert_eq!(head([], limits(9, 7)), expect("", 0, 0));
    assert_eq!(head(["", ""], limits(9, 7)), expect("\n", 2, 0));
}

fn texts() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof![3 => "[a-zé€😀]{0,12}", 1 => Just("\r".to_owned())], 0..12)
        .prop_flat_map(|lines| {
            let count = lines.len();
            (Just(lines), proptest::collection::vec(prop_oneof![Just("\n"), Just("\r\n")], count))
        })
        .prop_map(|(lines, ends)| lines.iter().zip(ends).map(|(line, end)| format!("{line}{end}")).collect())
}

proptest! {
    #[test]
    fn ot_02_a_tail_keeps_both_bounds_and_is_a_suffix(
        text in texts(), max_lines in 1usize..8, max_bytes in 1usize..40, already: bool
    ) {
        let shown = tail(&text, limits(max_lines, max_bytes), already);
        let whole = lines(&text).collect::<Vec<_>>().join("\n");
        let (is_marked, body) = match shown.strip_prefix(EARLIER_TRUNCATED) {
            Some(body) => (true, body.strip_prefix('\n').unwrap_or(body)),
            None => (false, &shown[..]),
        };
        prop_assert!(body.len() <= max_bytes);
        prop_assert!(body.split('\n').count() <= max_lines);
        prop_assert!(whole.ends_with(body));
        prop_assert_eq!(is_marked, already || body != whole);
        // Whatever is kept begins where a line does, or is part of a last line that alone exceeds the cap.
        let begins_a_line = body.len() == whole.len() || whole[..whole.len() - body.len()].ends_with('\n');
        let last = whole.rsplit('\n').next().unwrap_or_default();
        prop_assert!(begins_a_line || (last.len() > max_bytes && !body.contains('\n')));
        // Nothing that fits is left out.
        if begins_a_line && body.len() < whole.len() {
            let next = whole[..whole.len() - body.len() - 1].rsplit('\n').next().unwrap_or_default();
            prop_assert!(body.split('\n').count() == max_lines || body.len() + 1 + next.len() > max_bytes);
        }
    }

    #[test]
    fn ld_06_a_head_keeps_both_bounds_and_counts_everything(
        text in texts(), max_lines in 1usize..8, max_bytes in 1usize..40
    ) {
        let all: Vec<&str> = lines(&text).collect();
        let head = head(lines(&text), limits(max_lines, max_bytes));
        prop_assert_eq!(&head.text, &all[..head.shown].join("\n"));
        prop_assert_eq!(head.shown + head.remaining, all.len());
        prop_assert!(head.text.len() <= max_bytes && head.shown <= max_lines);
        if head.remaining > 0 && head.shown < max_lines {
            prop_assert!(all[..=head.shown].join("\n").len() > max_bytes);
        }
    }
}
