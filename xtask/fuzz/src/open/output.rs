//! What a command writes, on its way into a bounded tail.

use ringfence_core::{OutputLimit, TailBuffer, clip};

/// The first byte says how much is kept, the second how many follow that are sizes of parts; then comes the output.
pub(super) fn target(bytes: &[u8]) {
    let [limit, count, rest @ ..] = bytes else { return };
    let (parts, output) = rest.split_at(usize::from(*count).min(rest.len()));
    let limit = usize::from(*limit) + 1;
    let whole = keep(limit, output, &[]);
    assert_eq!(keep(limit, output, parts), whole, "in parts of {parts:?}");
    assert_eq!(whole.total_bytes, output.len() as u64);
    assert!(whole.bytes.len() <= limit && output.ends_with(&whole.bytes));
    assert_eq!(whole.truncated, whole.bytes.len() < output.len());
    // A line that is torn at its beginning is shown only where whole ones would be less than half (BK-07, BK-08).
    let before = output.len() - whole.bytes.len();
    let at_line_start = before == 0 || output[before - 1] == b'\n';
    assert!(at_line_start || whole.bytes.len() == limit);
    assert!(whole.bytes.len() * 2 >= limit.min(output.len()));
    check_clips(&whole.text(), limit);
}

fn keep(limit: usize, mut output: &[u8], parts: &[u8]) -> ringfence_core::Captured {
    let mut tail = TailBuffer::new(OutputLimit::new(limit).expect("a limit"));
    let mut sizes = parts.iter().map(|size| usize::from(*size)).cycle();
    while !output.is_empty() {
        let size = sizes.next().unwrap_or(output.len()).clamp(1, output.len());
        tail.push(&output[..size]);
        output = &output[size..];
    }
    tail.finish()
}

/// Whatever is cut for a reader is whole lines of the text, and no more than was allowed.
fn check_clips(text: &str, limit: usize) {
    let limits = clip::ClipLimits::new(limit % 8 + 1, limit).expect("limits");
    let lines: Vec<&str> = clip::lines(text).collect();
    let head = clip::head(lines.iter().copied(), limits);
    assert_eq!(head.shown + head.remaining, lines.len());
    assert!(head.shown <= limits.max_lines() && head.text.len() <= limits.max_bytes());
    assert_eq!(head.text, lines[..head.shown].join("\n"));
    let tail = clip::tail(text, limits, true);
    let kept = tail.split_once('\n').map_or("", |(_, kept)| kept);
    assert!(kept.len() <= limits.max_bytes() && lines.join("\n").ends_with(kept), "{tail:?}");
}
