//! Other processes of this machine, as `/proc` shows them.

use std::fs;

/// The name that a launcher gives itself before it makes anything.
const LAUNCHER: &str = "ringfence";

/// PF_EXITING in the flags of `/proc/PID/stat`.
const EXITING: u64 = 0x4;
/// SIGKILL in the masks of `/proc/PID/status`.
const KILLED: u64 = 1 << 8;

/// Whether a process is a launcher that lives. One whose number was given again may be taken for living, never the other way round.
pub(crate) fn is_launcher(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.name == LAUNCHER && !stat.ended)
}

/// Whether a process is gone, or ending, or will in a moment.
pub(crate) fn is_ending(pid: u32) -> bool {
    // 0 is one of another pid namespace, of which nothing can be said.
    pid != 0 && (stat(pid).is_none() || was_killed(pid))
}

/// Whether a process is there still, and ending: what was killed is, also where the kernel has not begun with it.
pub(crate) fn was_killed(pid: u32) -> bool {
    let Some(stat) = stat(pid) else { return false };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let killed = ["SigPnd:", "ShdPnd:"].into_iter().filter_map(pending).any(|mask| mask & KILLED != 0);
    stat.ended || stat.flags & EXITING != 0 || killed
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    ended: bool,
    flags: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// A name can contain anything, brackets too; what follows cannot.
fn parse(text: &str) -> Option<Stat> {
    let (begin, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    // Parent, group, session, terminal and its group stand between.
    let flags = fields.nth(5)?.parse().ok()?;
    Some(Stat { name: begin.split_once('(')?.1.to_owned(), ended, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_taken_apart() {
        let parsed = parse("12 (a) (b) S 1 2 3 0 -1 4194560 5 6");
        assert_eq!(parsed, Some(Stat { name: "a) (b".to_owned(), ended: false, flags: 4_194_560 }));
        assert_eq!(parse("12 (ringfence) Z 1 2 3 0 -1 4 5").map(|stat| stat.ended), Some(true));
        assert_eq!(parse("12 (ringfence"), None);
    }

    #[test]
    fn p_117_only_a_living_launcher_is_one_and_a_killed_process_is_ending() {
        let own = std::process::id();
        assert!(!is_launcher(own), "this is a test");
        assert!(!is_ending(own));
        let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        // Not reaped, so it is there under its number until then.
        assert!(is_ending(child.id()) && was_killed(child.id()));
        child.wait().unwrap();
        assert!(is_ending(child.id()) && !was_killed(child.id()) && !is_launcher(child.id()));
    }
}
