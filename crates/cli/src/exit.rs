//! Exit statuses: the command's own are passed through, ours are kept apart from them.

use ringfence::Ending;

/// All went well.
pub(crate) const OK: u8 = 0;
/// `doctor` found no way to isolate, or `demo` saw something unexpected.
pub(crate) const UNFIT: u8 = 1;
/// `cp` has left something out, or `ps` does not know how some stand.
pub(crate) const PARTIAL: u8 = 1;
/// The files of the sandbox do not allow it: one that is missing, too large, or not to be read or written.
pub(crate) const NOT_ALLOWED: u8 = 1;
/// The arguments are wrong, in subcommands that run no command.
pub(crate) const USAGE: u8 = 2;
/// The command was ended by its timeout, as `timeout` reports it, or by the sandbox's lifetime.
pub(crate) const TIMED_OUT: u8 = 124;
/// Ringfence failed or refused, bad arguments of `run` and `shell` included; no command's status is imitated.
pub(crate) const OURS: u8 = 125;
/// The program was found but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// SIGINT ended ringfence.
pub(crate) const INTERRUPTED: u8 = 130;
/// Nobody reads standard output any more: what SIGPIPE would have said.
pub(crate) const READER_GONE: u8 = 141;
/// SIGTERM ended ringfence.
pub(crate) const TERMINATED: u8 = 143;

/// Returns the status that stands for how a command ended.
pub(crate) fn status_of(ending: Ending) -> u8 {
    match ending {
        Ending::TimedOut => TIMED_OUT,
        Ending::Unknown => OURS,
        other => u8::try_from(other.shell_status()).unwrap_or(OURS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_48_a_signal_and_a_high_exit_status_map_as_a_shell_maps_them() {
        let table = [
            (Ending::Exited(0), 0),
            (Ending::Exited(255), 255),
            (Ending::Exited(137), 137),
            (Ending::Signalled(9), 137),
            (Ending::TimedOut, 124),
            (Ending::MemoryExceeded, 137),
            (Ending::PidsExceeded, 1),
            (Ending::Unknown, 125),
            (Ending::Exited(-1), 125),
            (Ending::Exited(256), 125),
        ];
        assert_eq!(table.map(|(ending, _)| status_of(ending)), table.map(|(_, status)| status));
    }
}
