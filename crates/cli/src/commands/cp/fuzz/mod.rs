//! Trees that others made, on their way into a sandbox and out of one.

pub(crate) mod archive;
pub(crate) mod host;

/// Where a link that lies so many directories deep leads, by its text, is beneath the base on the whole way.
fn stays(mut depth: usize, target: &[u8]) {
    assert!(!target.is_empty() && !target.contains(&0) && !target.starts_with(b"/"));
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                assert!(depth > 0, "a link that leads out: {}", target.escape_ascii());
                depth -= 1;
            }
            _ => depth += 1,
        }
    }
}
