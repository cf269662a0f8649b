//! A line of `/proc/PID/stat`, in which a process has put a name of its own choice.

/// The fields that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The letter of its state.
    pub(crate) state: u8,
    /// Its parent's number.
    pub(crate) parent: i32,
    /// Clock ticks from the start of the machine to its own.
    pub(crate) start: u64,
}

/// The fields of a line behind the name, the first of which is the third of the line. The name can hold anything, brackets too, so the
/// last `)` counts: behind it stands nothing but numbers.
pub(crate) fn fields(line: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = core::str::from_utf8(line.get(end + 2..)?).ok()?;
    Some(rest.split(' '))
}

impl Stat {
    /// Takes a line apart.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = fields(line)?;
        let state = fields.next()?.bytes().next()?;
        let parent = fields.next()?.parse().ok()?;
        // Field 22 of the whole line; state is field 3.
        let start = fields.nth(17)?.parse().ok()?;
        Some(Self { state, parent, start })
    }
}
