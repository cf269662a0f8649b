//! The answer of a script: framed, so that what a login profile or a background process prints around it is not taken for
//! it (BD-10, EX-20).
//!
//! A frame is `\n<nonce> begin <header>\n<payload>\n<nonce> end <status> <trailer>\n`; a script that has nothing to
//! send prints the end only. The nonce is new for every command.

use crate::error::ErrorKind;

/// Exit statuses that mean the same in every script (BD-03). Also the word after `end`, which is the one believed: a
/// backend may report the status of a wrapper instead.
pub(super) mod status {
    pub(in crate::shell) const OK: u8 = 0;
    pub(in crate::shell) const MISSING: u8 = 66;
    pub(in crate::shell) const DIRECTORY: u8 = 67;
    pub(in crate::shell) const NOT_REGULAR: u8 = 68;
    pub(in crate::shell) const TOO_LARGE: u8 = 69;
    pub(in crate::shell) const NOT_A_DIRECTORY: u8 = 70;
    pub(in crate::shell) const DENIED: u8 = 71;
    pub(in crate::shell) const FULL: u8 = 72;
    pub(in crate::shell) const INCOMPLETE: u8 = 73;
    pub(in crate::shell) const FAILED: u8 = 74;
}

/// Returns the kind that a status stands for. `TOO_LARGE` needs sizes and is dealt with by those who asked.
pub(super) fn kind_of(status: u8) -> ErrorKind {
    match status {
        status::MISSING => ErrorKind::NotFound,
        status::DIRECTORY => ErrorKind::IsADirectory,
        status::NOT_REGULAR => ErrorKind::NotARegularFile,
        status::NOT_A_DIRECTORY => ErrorKind::NotADirectory,
        status::DENIED => ErrorKind::PermissionDenied,
        status::FULL => ErrorKind::StorageFull,
        _ => ErrorKind::Unexpected,
    }
}

/// What marks the answer to one command.
#[derive(Debug)]
pub(super) struct Nonce(String);

impl Nonce {
    pub(super) fn new() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The nonce as shell text in which it does not stand in one piece, so that a profile that echoes the command it is
    /// about to run does not forge a frame.
    pub(super) fn to_shell(&self) -> String {
        let (front, back) = self.0.split_at(self.0.len() / 2);
        format!("'{front}''{back}'")
    }
}

/// A parsed frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// The words after `begin`; absent if there was no payload, or its beginning was cut off.
    pub(super) header: Option<&'a str>,
    pub(super) payload: &'a [u8],
    pub(super) status: u8,
    /// The words after the status.
    pub(super) trailer: &'a str,
}

impl<'a> Frame<'a> {
    /// Finds the frame in standard output; `None` if it is not there in whole.
    pub(super) fn find(output: &'a [u8], nonce: &Nonce) -> Option<Self> {
        let begin = format!("{} begin", nonce.as_str());
        let end = format!("\n{} end ", nonce.as_str());
        let (before, after) = split_last(output, end.as_bytes())?;
        let trailer = line(after)?;
        let (status, trailer) = trailer.split_once(' ').unwrap_or((trailer, ""));
        let status = status.parse().ok()?;
        let Some(at) = find(before, begin.as_bytes()) else {
            return Some(Self { header: None, payload: b"", status, trailer });
        };
        let rest = &before[at + begin.len()..];
        let newline = find(rest, b"\n")?;
        let header = std::str::from_utf8(&rest[..newline]).ok()?.trim();
        Some(Self { header: Some(header), payload: &rest[newline + 1..], status, trailer })
    }
}

fn line(bytes: &[u8]) -> Option<&str> {
    let end = find(bytes, b"\n")?;
    std::str::from_utf8(&bytes[..end]).ok().map(|line| line.trim_end_matches('\r'))
}

pub(super) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn split_last<'a>(haystack: &'a [u8], needle: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = haystack.windows(needle.len()).rposition(|window| window == needle)?;
    Some((&haystack[..at], &haystack[at + needle.len()..]))
}

/// Decodes a payload that was sent as `base64` or `hex`. Strict: a byte that does not belong there means that something
/// else wrote into the frame.
pub(super) fn decode(encoding: &str, payload: &[u8]) -> Option<Vec<u8>> {
    match encoding {
        "base64" => decode_base64(payload),
        "hex" => decode_hex(payload),
        _ => None,
    }
}

fn decode_hex(payload: &[u8]) -> Option<Vec<u8>> {
    let payload = payload.trim_ascii();
    let (pairs, rest) = payload.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

fn decode_base64(payload: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(payload.len() / 4 * 3);
    let mut group = [0u8; 4];
    let mut filled = 0;
    let mut padding = 0;
    for byte in payload {
        let six_bits = match byte {
            b'\n' | b'\r' => continue,
            b'=' => {
                padding += 1;
                0
            }
            _ if padding > 0 => return None,
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        group[filled] = six_bits;
        filled += 1;
        if filled == 4 {
            filled = 0;
            let [a, b, c, d] = group;
            let bytes = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
            let count = 3usize.checked_sub(padding).filter(|count| *count > 0)?;
            decoded.extend_from_slice(&bytes[..count]);
        }
    }
    (filled == 0).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Frame, Nonce, decode};

    fn encode_base64(bytes: &[u8]) -> String {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for group in bytes.chunks(3) {
            let bits =
                group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            for place in 0..4 {
                let six = (bits >> (18 - 6 * place)) as usize & 63;
                text.push(if place <= group.len() { char::from(ALPHABET[six]) } else { '=' });
            }
        }
        text
    }

    #[test]
    fn bd_10_a_frame_is_found_whatever_stands_around_it() {
        let nonce = Nonce::new();
        let mark = nonce.as_str();
        let framed = |text: &str| format!("noise\n{mark}x\n{text}noise after\n").into_bytes();
        let with_payload = framed(&format!("\n{mark} begin base64 1 2\npay\nload\n{mark} end 0 3 4\n"));
        assert_eq!(
            Frame::find(&with_payload, &nonce),
            Some(Frame { header: Some("base64 1 2"), payload: b"pay\nload", status: 0, trailer: "3 4" })
        );
        let empty = framed(&format!("\n{mark} begin\n\n{mark} end 0 0\n"));
        assert_eq!(
            Frame::find(&empty, &nonce),
            Some(Frame { header: Some(""), payload: b"", status: 0, trailer: "0" })
        );
        let status = framed(&format!("\n{mark} end 66\r\n"));
        assert_eq!(
            Frame::find(&status, &nonce),
            Some(Frame { header: None, payload: b"", status: 66, trailer: "" })
        );
        for broken in [
            String::new(),
            format!("\n{mark} begin\npayload"),
            format!("\n{mark} end 0"),
            format!("\n{mark} end x\n"),
            format!("\n{mark} end 256\n"),
            format!("{mark} end 0\n"),
        ] {
            assert_eq!(Frame::find(broken.as_bytes(), &nonce), None, "{broken:?}");
        }
        assert_eq!(Frame::find(&status, &Nonce::new()), None, "another command's frame");
    }

    #[test]
    fn bd_10_the_nonce_does_not_stand_in_the_command() {
        let nonce = Nonce::new();
        assert!(!nonce.to_shell().contains(nonce.as_str()));
    }

    #[test]
    fn bd_10_decoding_is_strict() {
        for text in
            ["A", "AA", "AAA", "A===", "AA=", "AA=A", "AAAA=", "AA==AA==", "A A=", "AA-_", "AAA\0", "===="]
        {
            assert_eq!(decode("base64", text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(decode("base64", b"QUJD\nRA==\r\n"), Some(b"ABCD".to_vec()));
        for text in ["0", "0g", "00 00", "000"] {
            assert_eq!(decode("hex", text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(decode("hex", b"00fFA1\n"), Some(vec![0, 255, 161]));
        assert_eq!(decode("rot13", b""), None);
    }

    proptest! {
        #[test]
        fn bd_10_what_was_encoded_is_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(decode("base64", encode_base64(&bytes).as_bytes()), Some(bytes.clone()));
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            prop_assert_eq!(decode("hex", hex.as_bytes()), Some(bytes));
        }

        #[test]
        fn bd_10_no_answer_makes_the_parser_panic(
            parts in proptest::collection::vec(
                prop_oneof![Just("NONCE"), Just(" begin"), Just(" end "), Just("\n"), Just("0"), Just("\u{ff}"), Just(" ")],
                0..20,
            )
        ) {
            let nonce = Nonce::new();
            let output = parts.concat().replace("NONCE", nonce.as_str());
            if let Some(frame) = Frame::find(output.as_bytes(), &nonce) {
                prop_assert!(frame.payload.len() < output.len());
            }
        }
    }
}
