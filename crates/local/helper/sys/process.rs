//! Processes: cloning, waiting, signalling, identity, limits.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::{Errno, Result, check, check_long};

/// Which side of a fork this is.
#[derive(Debug)]
pub(crate) enum Forked {
    /// The new process.
    Child,
    /// The old one, with the id of the new one in its own pid namespace.
    Parent(libc::pid_t),
}

/// Forks. Sound for any code afterwards, because the helper has one thread: no lock can be held by another.
pub(crate) fn fork() -> Result<Forked> {
    // SAFETY: single-threaded (module rule), so the child is a faithful copy.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// A clone into new namespaces: the child, or the parent with the child's id and pidfd.
#[derive(Debug)]
pub(crate) enum Cloned {
    /// The new process, PID 1 of its namespace.
    Child,
    /// The old one.
    Parent {
        /// The child's id here.
        pid: libc::pid_t,
        /// Refers to the child and never to a later process with the same id.
        pidfd: OwnedFd,
    },
}

/// Resets signal handlers in the child. Only the extended call takes it, and libc's constant is too narrow.
pub(crate) const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
/// Starts the child in a v2 cgroup; as above.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// `clone3` with `flags`, a pidfd, and optionally straight into a v2 cgroup.
pub(crate) fn clone_into_namespaces(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Cloned> {
    let mut pidfd: RawFd = -1;
    let mut args = libc::clone_args {
        flags: flags | libc::CLONE_PIDFD as u64,
        pidfd: ptr::from_mut(&mut pidfd) as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: no CLONE_VM and no new stack, so this is a fork; single-threaded (module rule), so that neither the C library's
    // fork handlers nor its notion of the thread's id matter, which the raw call leaves as they are. `args`, and `pidfd` that it
    // points to, outlive the call.
    let result =
        unsafe { libc::syscall(libc::SYS_clone3, ptr::from_mut(&mut args), size_of::<libc::clone_args>()) };
    match check_long(result)? {
        0 => Ok(Cloned::Child),
        // SAFETY: the kernel stored a fresh descriptor at `pidfd` (CLONE_PIDFD), owned by nobody else.
        pid => Ok(Cloned::Parent { pid: pid as libc::pid_t, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
    }
}

/// Opens a pidfd for a process.
pub(crate) fn pidfd_open(pid: libc::pid_t) -> Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Signals the process behind a pidfd.
pub(crate) fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> Result<()> {
    let none: *const libc::siginfo_t = ptr::null();
    // SAFETY: a null siginfo is allowed and means "as kill(2)".
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, none, 0) };
    check_long(result).map(|_| ())
}

/// Signals a process.
pub(crate) fn kill(pid: libc::pid_t, signal: libc::c_int) -> Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::kill(pid, signal) }).map(|_| ())
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Exit status, 0 to 255.
    Exited(i32),
    /// The signal.
    Signalled(i32),
}

/// Reaps one child that has ended; `None` when children live but none has ended. ECHILD when there are none.
pub(crate) fn reap() -> Result<Option<(libc::pid_t, Status)>> {
    wait(-1, libc::WNOHANG)
}

/// A child that a signal has stopped since this was asked last.
pub(crate) fn stopped() -> Option<libc::pid_t> {
    // SAFETY: all-zero is a valid buffer.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call.
    check(unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WSTOPPED | libc::WNOHANG) }).ok()?;
    // SAFETY: the call filled in the fields of a child, or left zeros when there is none.
    Some(unsafe { info.si_pid() }).filter(|pid| *pid > 0)
}

/// Waits for one child to end.
pub(crate) fn wait_for(pid: libc::pid_t) -> Result<Status> {
    loop {
        match wait(pid, 0) {
            Ok(Some((_, status))) => return Ok(status),
            Ok(None) | Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

fn wait(pid: libc::pid_t, options: libc::c_int) -> Result<Option<(libc::pid_t, Status)>> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let pid = check(unsafe { libc::waitpid(pid, &raw mut status, options) })?;
    if pid == 0 {
        return Ok(None);
    }
    let status = if libc::WIFSIGNALED(status) {
        Status::Signalled(libc::WTERMSIG(status))
    } else {
        Status::Exited(libc::WEXITSTATUS(status))
    };
    Ok(Some((pid, status)))
}

/// Ends this process at once.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: never returns; buffers of libc are not used by the helper.
    unsafe { libc::_exit(status) }
}

/// Replaces this process; returns only on failure.
pub(crate) fn exec(program: &CStr, arguments: &[CString], environment: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end with a null pointer and outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    Errno::last()
}

/// The id of this process in its own pid namespace.
pub(crate) fn getpid() -> libc::pid_t {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

/// The id of the parent; 0 when it is outside the pid namespace.
pub(crate) fn getppid() -> libc::pid_t {
    // SAFETY: always succeeds.
    unsafe { libc::getppid() }
}

/// The effective user and group.
pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: always succeeds.
    let uid = unsafe { libc::geteuid() };
    // SAFETY: always succeeds.
    let gid = unsafe { libc::getegid() };
    (uid, gid)
}

/// Starts a session of its own.
pub(crate) fn setsid() -> Result<()> {
    // SAFETY: takes nothing.
    check(unsafe { libc::setsid() }).map(|_| ())
}

/// Drops all supplementary groups.
pub(crate) fn drop_groups() -> Result<()> {
    // SAFETY: an empty list needs no pointer.
    check(unsafe { libc::setgroups(0, ptr::null()) }).map(|_| ())
}

/// Becomes a user and group for good, by the raw calls: there is one thread.
pub(crate) fn become_user(uid: u32, gid: u32) -> Result<()> {
    // SAFETY: takes integers only.
    check_long(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: takes integers only.
    check_long(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map(|_| ())
}

/// Adopts every orphan among this process's descendants from now on.
pub(crate) fn become_subreaper() -> Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Ends this process when its parent's thread that made it ends; the launcher has only one.
pub(crate) fn die_with_parent() -> Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

/// Keeps others of the same user from tracing this process and reading its memory.
pub(crate) fn hide_memory() -> Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 0)
}

/// Forbids gaining privileges by exec, for good.
pub(crate) fn no_new_privileges() -> Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

fn prctl(option: libc::c_int, argument: libc::c_ulong) -> Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: private, and the four options above take an integer.
    check(unsafe { libc::prctl(option, argument, zero, zero, zero) }).map(|_| ())
}

/// Sets the name that process lists show: started from a memory file, it would be a descriptor number.
pub(crate) fn set_name(name: &CStr) -> Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: the string outlives the call.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), zero, zero, zero) }).map(|_| ())
}

/// Sets both values of a resource limit of this process.
pub(crate) fn set_limit(resource: libc::__rlimit_resource_t, value: u64) -> Result<()> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `limit` outlives the call.
    check(unsafe { libc::setrlimit(resource, &raw const limit) }).map(|_| ())
}

/// Sets both values of a resource limit to `most`, or leaves them where they are lower.
pub(crate) fn lower_limit(resource: libc::__rlimit_resource_t, most: u64) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    check(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    set_limit(resource, most.min(limit.rlim_max))
}

/// Raises the soft limit of open descriptors to the hard one; the launcher holds two per sandbox.
pub(crate) fn raise_open_files() -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` outlives the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(|_| ())
}

/// Lowers the hard limit of open descriptors to its half, for good.
pub(crate) fn halve_open_files() -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    set_limit(libc::RLIMIT_NOFILE, limit.rlim_max / 2)
}

/// How many processors commands may be scheduled on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuShare {
    /// 0: all.
    pub(crate) count: u32,
    /// Picks the first, so that many small sandboxes do not share one processor.
    pub(crate) seed: u64,
}

/// Restricts this process to its share of the processors it may use now.
pub(crate) fn restrict_cpus(share: CpuShare) -> Result<()> {
    let (count, seed) = (share.count as usize, share.seed as usize);
    if count == 0 {
        return Ok(());
    }
    // SAFETY: an all-zero set is a valid empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `allowed` outlives the call and has the size given.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed) })?;
    let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE.
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) })
        .collect();
    if count >= cpus.len() {
        return Ok(());
    }
    // SAFETY: an all-zero set is a valid empty set.
    let mut chosen: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for index in 0..count {
        // SAFETY: the index came from the set above.
        unsafe { libc::CPU_SET(cpus[(seed + index) % cpus.len()], &mut chosen) };
    }
    // SAFETY: `chosen` outlives the call and has the size given.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const chosen) }).map(|_| ())
}

/// Sets the host name of this UTS namespace.
pub(crate) fn set_host_name(name: &[u8]) -> Result<()> {
    // SAFETY: pointer and length describe `name`.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(|_| ())
}

/// The signal by which a shim asks the agent to end everything that is not the agent.
pub(crate) const END_EVERYTHING: libc::c_int = libc::SIGUSR1;

/// Blocks SIGCHLD and [`END_EVERYTHING`], and returns a descriptor that becomes readable when either comes.
pub(crate) fn signal_fd() -> Result<OwnedFd> {
    let set = awaited_signals();
    // SAFETY: `set` outlives the call; no old set is asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) })?;
    // SAFETY: `set` outlives the call.
    let fd = check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn awaited_signals() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises it below.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid set.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: SIGCHLD is a valid signal.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGCHLD) };
    // SAFETY: it is a valid signal.
    unsafe { libc::sigaddset(&raw mut set, END_EVERYTHING) };
    set
}

/// Unblocks every signal and restores every default, as a fresh program expects. By the raw call, because the C library keeps
/// two signals to itself, which a careless ancestor can have left ignored all the same.
pub(crate) fn reset_signals() -> Result<()> {
    // struct sigaction of the kernel: handler, flags, restorer, mask; all zero is the default action.
    let default = [0u64; 4];
    let none: *mut u64 = ptr::null_mut();
    for signal in 1..=64 {
        // SAFETY: the action outlives the call and has the size of the kernel's; SIGKILL and SIGSTOP fail harmlessly.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, 8) };
    }
    // SAFETY: sigemptyset initialises it below.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid set.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: `set` outlives the call.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) }).map(|_| ())
}

/// Sets the mask for new files.
pub(crate) fn set_umask(mask: libc::mode_t) {
    // SAFETY: always succeeds.
    unsafe { libc::umask(mask) };
}

/// Milliseconds of a clock that never goes back and counts suspended time too.
pub(crate) fn now_millis() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call; CLOCK_BOOTTIME always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// A number by chance; not a secret.
pub(crate) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // Early at boot the kernel may have nothing yet: then 0 has to do.
    // SAFETY: pointer and length describe `bytes`.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    u64::from_ne_bytes(bytes) >> 1
}
