//! Just enough of Rust's lexical rules to look for words in code and not in comments or strings.

/// Returns the source with comments, strings and character literals blanked out, line breaks kept.
pub(crate) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = skip_non_code(bytes, at);
        if end > at {
            code.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }));
            at = end;
        } else {
            code.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Returns the lines, counted from one, on which `word` stands by itself.
pub(crate) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut lines = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let bytes = line.as_bytes();
        let alone = line.match_indices(word).any(|(start, _)| {
            let joined_before = start > 0 && is_part(bytes[start - 1]);
            let joined_after = bytes.get(start + word.len()).is_some_and(|&byte| is_part(byte));
            !joined_before && !joined_after
        });
        if alone {
            lines.push(number + 1);
        }
    }
    lines
}

/// Returns the end of the comment, string or character literal that begins at `at`, or `at` where code stands.
fn skip_non_code(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    if rest[0] == b'"' {
        return quoted_end(bytes, at + 1, b'"');
    }
    if rest[0] == b'r' && !at.checked_sub(1).is_some_and(|before| is_name_but_not_prefix(bytes[before])) {
        return raw_string_end(bytes, at).unwrap_or(at);
    }
    if rest[0] == b'\'' && is_character_literal(&rest[1..]) {
        return quoted_end(bytes, at + 1, b'\'');
    }
    at
}

/// Tells `'x'` and `'\n'` from the lifetime `'x`: a literal has exactly one character before the closing quote.
fn is_character_literal(after_quote: &[u8]) -> bool {
    match after_quote.first() {
        Some(b'\\') => true,
        Some(&first) => {
            let length = match first {
                0..0x80 => 1,
                0x80..0xE0 => 2,
                0xE0..0xF0 => 3,
                0xF0.. => 4,
            };
            after_quote.get(length) == Some(&b'\'')
        }
        None => false,
    }
}

fn is_name_but_not_prefix(byte: u8) -> bool {
    (byte.is_ascii_alphanumeric() || byte == b'_') && byte != b'b' && byte != b'c'
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut position = at;
    while position < bytes.len() {
        if bytes[position..].starts_with(b"/*") {
            depth += 1;
            position += 2;
        } else if bytes[position..].starts_with(b"*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += 1;
        }
    }
    bytes.len()
}

fn quoted_end(bytes: &[u8], mut position: usize, quote: u8) -> usize {
    while position < bytes.len() {
        match bytes[position] {
            b'\\' => position += 2,
            byte if byte == quote => return position + 1,
            _ => position += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &bytes[open + 1..];
    let length = body.windows(close.len()).position(|window| window == close)?;
    Some(open + 1 + length + close.len())
}

#[cfg(test)]
mod tests {
    use super::{code_only, lines_with_word};

    #[test]
    fn words_in_comments_strings_and_names_do_not_count() {
        let cases = [
            ("unsafe { x() }", vec![1]),
            ("// unsafe\n/* unsafe /* unsafe */ unsafe */ unsafe fn f() {}", vec![2]),
            ("let a = \"unsafe \\\" unsafe\";", vec![]),
            ("let a = r#\"unsafe \" unsafe\"#; unsafe {}", vec![1]),
            ("#![forbid(unsafe_code)]", vec![]),
            ("let quote = '\"'; unsafe {}", vec![1]),
            ("let quote = b'\\''; unsafe {}", vec![1]),
            ("fn f<'a, 'b>(x: &'a str, y: &'b str) { unsafe {} }", vec![1]),
            ("fn f<'a,'b>() { unsafe {} }", vec![1]),
            ("let br = br\"unsafe\"; let r = 1; unsafe {}", vec![1]),
        ];
        for (source, expected) in cases {
            assert_eq!(lines_with_word(&code_only(source), "unsafe"), expected, "{source}");
        }
    }
}
