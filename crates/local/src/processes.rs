//! Other processes of this machine, as `/proc` shows them.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The name that a launcher gives itself before it makes anything.
const LAUNCHER: &[u8] = b"ringfence";

/// PF_EXITING in the flags of `/proc/PID/stat`.
const EXITING: u64 = 0x4;
/// SIGKILL in the masks of `/proc/PID/status`.
const KILLED: u64 = 1 << 8;

/// The pid namespace of this process, by the number that the kernel gives to each as long as there is one. `None` where `/proc` is that of
/// another one, in which nothing can be learned of the numbers of this one.
pub(crate) fn namespace() -> Option<u64> {
    if numbers(&status("self")?) != 1 {
        return None;
    }
    fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

/// In how many pid namespaces a process has a number, from that of `/proc` on.
fn numbers(status: &str) -> usize {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.map_or(0, |numbers| numbers.split_whitespace().count())
}

/// Whether a process is a launcher that lives. One whose number was given again may be taken for living, never the other way round.
pub(crate) fn is_launcher(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.name == LAUNCHER && !stat.ended)
}

/// Whether a process is gone, or ending, or will in a moment.
pub(crate) fn is_ending(pid: u32) -> bool {
    // 0 is one of another pid namespace, of which nothing can be said.
    pid != 0 && standing(pid) != Standing::Lives
}

/// How a process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody has killed it.
    Lives,
    /// It is there still, and ending: what was killed is, also where the kernel has not begun with it.
    Ends,
    /// There is none.
    Gone,
}

/// How a process stands.
pub(crate) fn standing(pid: u32) -> Standing {
    let Some(status) = status(pid) else { return Standing::Gone };
    // After that: the signal is pending until the process begins to end, which its flags say for good.
    let Some(stat) = stat(pid) else { return Standing::Gone };
    let pending = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let killed = ["SigPnd:", "ShdPnd:"].into_iter().filter_map(pending).any(|mask| mask & KILLED != 0);
    if stat.ended || stat.flags & EXITING != 0 || killed { Standing::Ends } else { Standing::Lives }
}

/// What `/proc` says of a process in lines, in which its name need not be text.
fn status(pid: impl Display) -> Option<String> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    Some(String::from_utf8_lossy(&status).into_owned())
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: Vec<u8>,
    pub(crate) ended: bool,
    pub(crate) flags: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// A name can contain anything, brackets and what is no text too; what follows cannot.
pub(crate) fn parse(line: &[u8]) -> Option<Stat> {
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let begin = line.iter().position(|byte| *byte == b'(').filter(|begin| *begin < end)?;
    let mut fields = std::str::from_utf8(&line[end + 1..]).ok()?.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    // Parent, group, session, terminal and its group stand between.
    let flags = fields.nth(5)?.parse().ok()?;
    Some(Stat { name: line[begin + 1..end].to_vec(), ended, flags })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::CommandExt;

    use super::*;

    #[test]
    fn a_line_of_stat_is_taken_apart() {
        let parsed = parse(b"12 (a) (\xff) S 1 2 3 0 -1 4194560 5 6");
        assert_eq!(parsed, Some(Stat { name: b"a) (\xff".to_vec(), ended: false, flags: 4_194_560 }));
        assert_eq!(parse(b"12 (ringfence) Z 1 2 3 0 -1 4 5").map(|stat| stat.ended), Some(true));
        assert_eq!(parse(b"12 (ringfence"), None);
        assert_eq!(parse(b"12 )ringfence( Z 1 2 3 0 -1 4 5"), None);
    }

    #[test]
    fn p_117_the_numbers_of_another_pid_namespace_are_not_believed() {
        assert_eq!(numbers("Pid:\t12\nNSpid:\t12\nNSpgid:\t1\t2\n"), 1);
        assert_eq!(numbers("NSpid:\t4021\t12\n"), 2);
        assert_eq!(numbers("Pid:\t12\n"), 0);
        assert!(namespace().is_some_and(|number| number > 0));
    }

    /// From the signal to its end there is no moment in which a killed process could be taken for one that lives.
    #[test]
    fn p_117_a_killed_process_never_seems_to_live() {
        for round in 0..100 {
            let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
            child.kill().unwrap();
            while child.try_wait().unwrap().is_none() {
                for _ in 0..20 {
                    assert_ne!(standing(child.id()), Standing::Lives, "round {round}");
                }
            }
            child.wait().unwrap();
        }
    }

    #[test]
    fn p_117_only_a_living_launcher_is_one_and_a_killed_process_is_ending() {
        let own = std::process::id();
        assert!(!is_launcher(own), "this is a test");
        assert!(!is_ending(own));
        let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        assert_eq!((is_ending(child.id()), standing(child.id())), (false, Standing::Lives));
        child.kill().unwrap();
        // Not reaped, so it is there under its number until then.
        assert_eq!((is_ending(child.id()), standing(child.id())), (true, Standing::Ends));
        child.wait().unwrap();
        assert_eq!((is_ending(child.id()), standing(child.id())), (true, Standing::Gone));
        assert!(!is_launcher(child.id()));
    }

    #[test]
    fn p_117_a_process_whose_name_is_no_text_is_a_living_one() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join(OsStr::from_bytes(b"\xff) Z"));
        std::os::unix::fs::symlink("/bin/sleep", &name).unwrap();
        let mut child = std::process::Command::new(&name).arg0("sleep").arg("300").spawn().unwrap();
        assert_eq!(stat(child.id()).map(|stat| (stat.name, stat.ended)), Some((b"\xff) Z".to_vec(), false)));
        assert_eq!((is_ending(child.id()), standing(child.id())), (false, Standing::Lives));
        child.kill().unwrap();
        assert_eq!((is_ending(child.id()), standing(child.id())), (true, Standing::Ends));
        child.wait().unwrap();
    }
}
