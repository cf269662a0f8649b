//! How numbers and names are written for the model.

/// Formats a number in its shortest general form with at most six significant digits (RC-13): `30`, `2.5`, `1e+06`.
pub(crate) fn general_number(value: f64) -> String {
    const SIGNIFICANT: i32 = 6;
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { value.to_string() };
    }
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..SIGNIFICANT).contains(&exponent) {
        let decimals = usize::try_from(SIGNIFICANT - 1 - exponent).unwrap_or(0);
        return without_trailing_zeros(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.abs())
}

fn without_trailing_zeros(number: &str) -> String {
    if number.contains('.') {
        return number.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    number.to_owned()
}

/// Returns `1 line`, `2 lines`: the count with its noun in the right number.
pub(crate) fn counted(count: u64, singular: &str, plural: &str) -> String {
    format!("{count} {}", if count == 1 { singular } else { plural })
}

/// Quotes a path the way program source does (WF-03): single quotes, double ones if it holds a single quote, and what
/// does not print escaped.
pub(crate) fn quoted_path(path: &str) -> String {
    let quote = if path.contains('\'') && !path.contains('"') { '"' } else { '\'' };
    let mut quoted = String::with_capacity(path.len() + 2);
    quoted.push(quote);
    for character in path.chars() {
        if character == quote {
            quoted.push('\\');
            quoted.push(character);
        } else {
            push_escaped(&mut quoted, character);
        }
    }
    quoted.push(quote);
    quoted
}

/// Returns a file name as one line that stands for exactly one name (LD-07): as it is when it prints, else in double
/// quotes with escapes, `\xff` for a byte that is not UTF-8.
pub(crate) fn shown_name(name: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(name)
        && !text.starts_with('"')
        && text.chars().all(prints)
    {
        return text.to_owned();
    }
    let mut quoted = String::from('"');
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '"' {
                quoted.push('\\');
                quoted.push(character);
            } else {
                push_escaped(&mut quoted, character);
            }
        }
        for byte in chunk.invalid() {
            quoted.push_str(&format!("\\x{byte:02x}"));
        }
    }
    quoted.push('"');
    quoted
}

fn push_escaped(text: &mut String, character: char) {
    match character {
        '\\' => text.push_str("\\\\"),
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        _ if prints(character) => text.push(character),
        _ => {
            let code = u32::from(character);
            // Two hex digits would be read as a raw byte, so only ASCII gets them.
            text.push_str(&match code {
                0..=0x7f => format!("\\x{code:02x}"),
                0x80..=0xffff => format!("\\u{code:04x}"),
                _ => format!("\\U{code:08x}"),
            });
        }
    }
}

/// Whether a character shows as itself: not a control, a line separator, or one that turns the text around.
pub(crate) fn prints(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // Asked after a letter, the standard library escapes exactly what does not print; alone, it escapes accents too.
    let mut probe = String::from('a');
    probe.push(character);
    probe.escape_debug().nth(1) == Some(character)
}

#[cfg(test)]
mod tests {
    use super::{general_number, quoted_path, shown_name};

    #[test]
    fn rc_13_numbers_in_shortest_general_form() {
        let cases = [
            (30.0, "30"),
            (2.5, "2.5"),
            (1_000_000.0, "1e+06"),
            (0.01, "0.01"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_012_5, "1.25e-05"),
            (0.1 + 0.2, "0.3"),
            (-5.0, "-5"),
            (999_999.5, "1e+06"),
            (0.0, "0"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "NaN"),
        ];
        let shown: Vec<(f64, String)> = cases.iter().map(|(n, _)| (*n, general_number(*n))).collect();
        let expected: Vec<(f64, String)> = cases.iter().map(|(n, t)| (*n, (*t).to_owned())).collect();
        assert_eq!(format!("{shown:?}"), format!("{expected:?}"));
    }

    #[test]
    fn wf_03_paths_are_quoted_as_in_source() {
        let cases = [
            ("/w/a.txt", "'/w/a.txt'"),
            ("a b'.txt", "\"a b'.txt\""),
            ("a'b\"c", "'a\\'b\"c'"),
            ("a\nb\t\\\u{1}", "'a\\nb\\t\\\\\\x01'"),
            ("e\u{301}\u{2028}\u{202e}", "'e\u{301}\\u2028\\u202e'"),
        ];
        for (path, expected) in cases {
            assert_eq!(quoted_path(path), expected);
        }
    }

    #[test]
    fn ld_07_one_name_is_one_line_and_no_two_names_look_alike() {
        let cases: [(&[u8], &str); 8] = [
            (b"plain name", "plain name"),
            (b"back\\slash", "back\\slash"),
            (b"new\nline.txt", "\"new\\nline.txt\""),
            (b"new\\nline.txt", "new\\nline.txt"),
            (b"\"quoted", "\"\\\"quoted\""),
            (b"bad\xff\xfebyte", "\"bad\\xff\\xfebyte\""),
            ("\u{1b}[31m".as_bytes(), "\"\\x1b[31m\""),
            ("caf\u{e9}".as_bytes(), "caf\u{e9}"),
        ];
        for (name, expected) in cases {
            assert_eq!(shown_name(name), expected);
        }
    }
}
