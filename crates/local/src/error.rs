//! The one place where kernel errors become errors of the contract.

use std::borrow::Cow;
use std::io;

use ringfence_core::{Error, ErrorKind, GuestPath, SandboxId, SpecField};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::SCHEME;
use crate::backend::CREATE;
use crate::launcher::End;
use crate::wire::{FileFault, Subject};

/// A sandbox that is gone or never was.
pub(crate) fn lost(operation: &'static str, sandbox: &SandboxId) -> Error {
    Error::new(ErrorKind::SandboxLost, SCHEME, operation, "the sandbox does not exist any more")
        .context("sandbox", sandbox.as_str())
        .hint("create a new one; its files are gone")
}

/// Something of the operating system that should not fail.
pub(crate) fn unexpected(operation: &'static str, what: &'static str, error: io::Error) -> Error {
    // Only where a process is to be started does this errno speak of them.
    let errno = error.raw_os_error().filter(|_| error.kind() != io::ErrorKind::WouldBlock);
    let hint = errno.and_then(shortage).map(|(_, hint)| hint);
    let error = Error::new(ErrorKind::Unexpected, SCHEME, operation, what).source(error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The same in this process while it has a sandbox made. That is over then.
pub(crate) fn not_created(step: &'static str, error: io::Error) -> Error {
    let errno = error.raw_os_error().unwrap_or_default();
    used_up(step, errno).unwrap_or_else(|| unexpected(CREATE, step, error).terminal())
}

/// A step of creation that failed: a refusal where a field of the spec needs it, otherwise the end of the matter (BK-03).
pub(crate) fn step_failed(subject: Subject, step: &str, errno: i32) -> Error {
    let cause = io::Error::from_raw_os_error(errno);
    if cause.kind() == io::ErrorKind::StorageFull && subject == Subject::OwnFiles {
        let message = format!("the limit leaves no room for the files that every sandbox has: {step}");
        return Error::refused(SCHEME, SpecField::Disk, message)
            .source(cause)
            .hint("raise the disk limit; where there is none, the memory limit, half of which it is");
    }
    // A lock that somebody else has is no shortage.
    let is_lock = subject == Subject::Listing && cause.kind() == io::ErrorKind::WouldBlock;
    if let (false, Some(error)) = (is_lock, used_up(step, errno)) {
        return error;
    }
    let message = match subject {
        Subject::Listing => format!("the sandbox could not be made to be found: {step}"),
        _ if is_about_a_path(subject, errno) => format!("a host path cannot be shown: {step}"),
        _ => format!("this machine does not allow a step of creation: {step}"),
    };
    let error = match field_of(subject) {
        Some(field) => Error::refused(SCHEME, field, message),
        None => Error::new(ErrorKind::Unavailable, SCHEME, "create a sandbox", message).terminal(),
    };
    error.source(cause).hint(remedy(subject, step, errno))
}

/// The launcher could not be started.
pub(crate) fn no_launcher(error: io::Error) -> Error {
    const STEP: &str = "start the launcher from a memory file";
    used_up(STEP, error.raw_os_error().unwrap_or_default()).unwrap_or_else(|| {
        let hint = match error.kind() {
            io::ErrorKind::FileTooLarge => "raise the limit on the size of files (ulimit -f)",
            _ => {
                "that needs /proc, /dev/null, the sysctl vm.memfd_noexec below 2, and no surrounding sandbox or system call filter that forbids \
                 memory files (memfd_create), process descriptors (pidfd_open) or to start programs from them"
            }
        };
        unexpected(CREATE, STEP, error).hint(hint).terminal()
    })
}

/// The launcher ended before it had made a sandbox, and the next one did too.
pub(crate) fn launcher_ended(end: &End) -> Error {
    let (step, signal) = match end {
        End::Step { step, errno } => return launcher_failed(step, *errno),
        End::Signal(signal) => {
            (format!("signal {signal} ends the launcher as soon as it is started"), Some(*signal))
        }
        End::Unknown => ("the launcher ends as soon as it is started".to_owned(), None),
    };
    let signal = signal.and_then(Signal::from_named_raw);
    let hint = match signal {
        Some(Signal::SYS) => {
            "a surrounding system call filter kills what makes a call that it forbids, instead of refusing the call: the kernel's log names it \
             (type=1326); start this without that filter, or allow the call"
        }
        Some(Signal::XFSZ) => "raise the limit on the size of files (ulimit -f)",
        Some(Signal::SEGV | Signal::KILL | Signal::BUS) => {
            "there may be too little memory for it: raise the limit on memory around this process (ulimit -v, the control group), and look \
             into the kernel's log"
        }
        _ => "ringfence doctor shows what works here",
    };
    Error::new(ErrorKind::Unavailable, SCHEME, CREATE, step).hint(hint).terminal()
}

/// A step of the launcher's own start, which needs nothing that a process does not have unless something around it takes that away.
fn launcher_failed(step: &str, errno: i32) -> Error {
    let step = format!("the launcher cannot {step}");
    used_up(&step, errno).unwrap_or_else(|| {
        let hint = match Errno::from_raw_os_error(errno) {
            Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
                "a surrounding sandbox or container forbids the call: start this outside of it, or with a system call filter that allows the \
                 call (Docker: --security-opt seccomp=unconfined)"
            }
            _ => "ringfence doctor shows what works here",
        };
        let cause = io::Error::from_raw_os_error(errno);
        Error::new(ErrorKind::Unavailable, SCHEME, CREATE, step).source(cause).hint(hint).terminal()
    })
}

/// What any step can meet that has nothing to do with it: the machine, or this user, has no more of something.
fn used_up(step: &str, errno: i32) -> Option<Error> {
    let (what, hint) = shortage(errno)?;
    let error = Error::new(ErrorKind::Unavailable, SCHEME, CREATE, format!("{what}: {step}"));
    Some(error.source(io::Error::from_raw_os_error(errno)).hint(hint).terminal())
}

/// What is used up, and the way out.
fn shortage(errno: i32) -> Option<(&'static str, &'static str)> {
    Some(match Errno::from_raw_os_error(errno) {
        Errno::MFILE => (
            "no descriptor is left for another sandbox",
            "raise the limit on open files (ulimit -n; for the launcher, which takes up to ten for each sandbox, the hard one counts, \
             ulimit -Hn), or end some sandboxes",
        ),
        Errno::NFILE => {
            ("this machine has no descriptor left", "raise fs.file-max (sysctl), or end something")
        }
        Errno::AGAIN => (
            "no process can be started any more",
            "raise the limit on processes of this user (ulimit -u) or of the control group around it (pids.max), or end some",
        ),
        Errno::NOMEM => {
            ("there is no memory left", "raise the memory limit around this process, or end something")
        }
        _ => return None,
    })
}

fn field_of(subject: Subject) -> Option<SpecField> {
    match subject {
        Subject::Sandbox
        | Subject::Namespaces
        | Subject::Ids
        | Subject::Proc
        | Subject::Shown
        | Subject::OwnFiles
        | Subject::Listing => None,
        Subject::Memory => Some(SpecField::Memory),
        Subject::Cpus => Some(SpecField::Cpus),
        Subject::Pids => Some(SpecField::Pids),
        Subject::Disk => Some(SpecField::Disk),
        Subject::Network => Some(SpecField::Network),
        Subject::Workdir => Some(SpecField::Workdir),
    }
}

/// What to try where a limit finds no cgroup.
pub(crate) const CGROUP_REMEDY: &str = "run where cgroups can be written: as root, or as a user in a delegated cgroup (systemd-run --user --scope -p \
             Delegate=yes …); or drop the limit";

/// What to try where sandboxes that others shall find have no place to be found in.
pub(crate) const DIRECTORY_REMEDY: &str = "set XDG_RUNTIME_DIR, or runtime_dir of the local backend, to a directory of this user's alone on a local file system that is \
     not full and can be written to";

/// How the helper names the last step.
const FILTER: &str = "load the seccomp filter";

/// Whether a host path is the reason, and not that nothing at all may be mounted.
fn is_about_a_path(subject: Subject, errno: i32) -> bool {
    subject == Subject::Shown && !matches!(Errno::from_raw_os_error(errno), Errno::PERM | Errno::NOSYS)
}

/// What a sandbox is made of in one call, as the kernel's settings name it.
const NAMESPACES: [&str; 6] = ["user", "mnt", "pid", "ipc", "uts", "cgroup"];

/// What to try where no namespace is left. The kernel does not say which kind it is: those that are switched off can be read.
fn raise_namespaces(limit_of: impl Fn(&str) -> Option<u64>) -> String {
    let off: Vec<String> = NAMESPACES
        .into_iter()
        .filter(|kind| limit_of(kind) == Some(0))
        .map(|kind| format!("user.max_{kind}_namespaces"))
        .collect();
    match off.as_slice() {
        [] => "namespaces are used up: raise user.max_user_namespaces, or another user.max_*_namespaces that is lower (sysctl)".to_owned(),
        [setting] if setting.contains("_user_") => format!("user namespaces are used up or switched off: raise {setting} (sysctl)"),
        off => format!("namespaces of a kind are switched off: raise {} (sysctl)", off.join(" and ")),
    }
}

fn limit_of_namespaces(kind: &str) -> Option<u64> {
    let limit = std::fs::read_to_string(format!("/proc/sys/user/max_{kind}_namespaces")).ok()?;
    limit.trim().parse().ok()
}

/// What to try, for the failures that are known from the field (P87 to P90).
fn remedy(subject: Subject, step: &str, errno: i32) -> Cow<'static, str> {
    if subject == Subject::Namespaces && Errno::from_raw_os_error(errno) == Errno::NOSPC {
        return raise_namespaces(limit_of_namespaces).into();
    }
    known_remedy(subject, step, errno).into()
}

fn known_remedy(subject: Subject, step: &str, errno: i32) -> &'static str {
    let is_about_a_path = is_about_a_path(subject, errno);
    let errno = Errno::from_raw_os_error(errno);
    match subject {
        Subject::Memory | Subject::Cpus | Subject::Pids => CGROUP_REMEDY,
        _ if is_about_a_path => {
            "the path must exist, and whoever runs this must be allowed to pass the folders above it, as their owner or with the rights \
             of others: root has no more than that here"
        }
        Subject::Workdir => "choose a working directory that is not inside a system directory",
        Subject::Network if errno == Errno::NOSPC => {
            "network namespaces are used up or switched off: raise user.max_net_namespaces (sysctl)"
        }
        // The default filter of container engines answers this, so that C libraries fall back to calls which it can judge.
        Subject::Namespaces if errno == Errno::NOSYS => {
            "the surrounding container forbids new namespaces: start it with a system call filter that allows them and an \
             unmasked /proc (Docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined); outside of a container the kernel \
             is too old: Linux 5.12 or newer is needed"
        }
        Subject::Namespaces => {
            "user namespaces are not allowed here: sysctl kernel.unprivileged_userns_clone=1 (Debian), \
             kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for this program (Ubuntu), or inside a \
             container a seccomp profile that allows them; or, outside of one, run as root"
        }
        Subject::Ids => {
            "the ids of a user namespace cannot be set: the process lacks CAP_SETUID although it is root, or a security \
             module forbids it"
        }
        Subject::Proc if errno == Errno::PERM => {
            "this process's own /proc is partly hidden, as in a container, so no new one may be mounted: run the container with \
             an unmasked /proc (Docker: --security-opt systempaths=unconfined)"
        }
        Subject::Listing => DIRECTORY_REMEDY,
        _ if step == FILTER => {
            "a kernel with CONFIG_SECCOMP_FILTER is needed, and a surrounding container that lets its processes load filters"
        }
        // A surrounding filter answers the same.
        _ if errno == Errno::NOSYS => {
            "the kernel is too old, or a surrounding container forbids the call: Linux 5.12 or newer is needed, and in a container \
             a system call filter that allows mounts and namespaces (Docker: --security-opt seccomp=unconfined)"
        }
        _ if errno == Errno::PERM || errno == Errno::ACCESS => {
            "a security module or the surrounding container forbids it: ringfence doctor shows what works here"
        }
        _ => "ringfence doctor shows what works here",
    }
}

/// A file operation that failed inside.
pub(crate) fn file_failed(operation: &'static str, path: &GuestPath, fault: FileFault, errno: i32) -> Error {
    let cause = Errno::from_raw_os_error(errno);
    let (kind, message) = match (fault, cause) {
        (FileFault::IsADirectory, _) | (_, Errno::ISDIR) => {
            (ErrorKind::IsADirectory, "it is a directory".to_owned())
        }
        (FileFault::NotRegular, _) => {
            (ErrorKind::NotARegularFile, "it is a device, FIFO or socket, not a regular file".to_owned())
        }
        (FileFault::Incomplete, _) => {
            (ErrorKind::Unexpected, "the content broke off; the file is unchanged".to_owned())
        }
        (_, Errno::NOENT) => (ErrorKind::NotFound, "it does not exist".to_owned()),
        (_, Errno::NOTDIR) => {
            (ErrorKind::NotADirectory, "it, or a part of its path, is not a directory".to_owned())
        }
        (_, Errno::ACCESS | Errno::PERM) => (ErrorKind::PermissionDenied, "permission denied".to_owned()),
        (_, Errno::ROFS) => {
            (ErrorKind::PermissionDenied, "it lies in the read-only part of the sandbox".to_owned())
        }
        (_, Errno::NOSPC | Errno::DQUOT) => {
            (ErrorKind::StorageFull, "the sandbox's disk limit is reached".to_owned())
        }
        (_, Errno::LOOP) => {
            (ErrorKind::InvalidArgument, "too many symbolic links, or one of the kernel's own".to_owned())
        }
        (_, Errno::NAMETOOLONG) => (ErrorKind::InvalidArgument, "the name is too long".to_owned()),
        (_, errno) => (ErrorKind::Unexpected, io::Error::from(errno).to_string()),
    };
    let error = Error::new(kind.clone(), SCHEME, operation, message).context("path", path.to_string());
    match kind {
        ErrorKind::IsADirectory => error.hint("use list_directory for directories"),
        ErrorKind::StorageFull => error.hint("remove files, or create the sandbox with a higher disk limit"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_is_no_fault_of_the_step_that_met_it() {
        for (errno, told) in [
            (Errno::MFILE, "open files (ulimit -n;"),
            (Errno::NFILE, "fs.file-max"),
            (Errno::AGAIN, "processes of this user (ulimit -u)"),
            (Errno::NOMEM, "memory limit around this process"),
        ] {
            for subject in [Subject::Network, Subject::Namespaces, Subject::Listing, Subject::Pids] {
                if (subject, errno) == (Subject::Listing, Errno::AGAIN) {
                    let error = step_failed(subject, "lock the record", errno.raw_os_error());
                    assert!(error.message().starts_with("the sandbox could not be made to be found"));
                    continue;
                }
                let error = step_failed(subject, "do it", errno.raw_os_error());
                assert_eq!(
                    (error.kind(), error.field(), error.is_terminal()),
                    (&ErrorKind::Unavailable, None, true)
                );
                assert!(error.hint_text().is_some_and(|hint| hint.contains(told)), "{error}");
                assert!(error.message().ends_with(": do it"), "{error}");
            }
            let error = not_created("do it", errno.into());
            assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::Unavailable, true));
            assert!(error.hint_text().is_some_and(|hint| hint.contains(told)), "{error}");
            // A sandbox that stands is not over.
            let error = unexpected("run a command", "do it", errno.into());
            assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::Unexpected, false));
            let has_hint = error.hint_text().is_some_and(|hint| hint.contains(told));
            assert_eq!(has_hint, errno != Errno::AGAIN, "{error}");
        }
        let other = unexpected("run a command", "do it", Errno::IO.into());
        assert_eq!(other.hint_text(), None);
    }

    #[test]
    fn s_21_the_kind_of_namespace_that_is_switched_off_is_named() {
        let off =
            |kinds: &'static [&str]| move |kind: &str| Some(if kinds.contains(&kind) { 0 } else { 1000 });
        for (off, remedy) in [
            (&["user"][..], "user namespaces are used up or switched off: raise user.max_user_namespaces (sysctl)"),
            (&["pid"], "namespaces of a kind are switched off: raise user.max_pid_namespaces (sysctl)"),
            (
                &["ipc", "uts"],
                "namespaces of a kind are switched off: raise user.max_ipc_namespaces and user.max_uts_namespaces (sysctl)",
            ),
        ]
        .map(|(kinds, remedy)| (off(kinds), remedy))
        {
            assert_eq!(raise_namespaces(off), remedy);
        }
        let used_up = "namespaces are used up: raise user.max_user_namespaces, or another user.max_*_namespaces that is lower (sysctl)";
        assert_eq!(raise_namespaces(off(&[])), used_up);
        assert_eq!(raise_namespaces(|_| None), used_up);
    }
}
