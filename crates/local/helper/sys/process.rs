//! Processes: cloning, waiting, signalling, identity, limits.

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::ptr;

use super::call::Word;
use super::fd::{BorrowedFd, OwnedFd, RawFd};
use super::{Errno, Result};

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
    // SAFETY: single-threaded (module rule), so the child is a faithful copy; no new stack, so it goes on where this one does.
    match unsafe { call!(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid as libc::pid_t)),
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
    let (args, size) = (ptr::from_mut(&mut args), size_of::<libc::clone_args>());
    // SAFETY: no CLONE_VM and no new stack, so this is a fork; single-threaded (module rule). `args`, and `pidfd` that it points
    // to, outlive the call.
    match unsafe { call!(libc::SYS_clone3, args, size) }? {
        0 => Ok(Cloned::Child),
        // SAFETY: the kernel stored a fresh descriptor at `pidfd` (CLONE_PIDFD), owned by nobody else.
        pid => Ok(Cloned::Parent { pid: pid as libc::pid_t, pidfd: unsafe { OwnedFd::new(pidfd as usize) } }),
    }
}

/// Signals the process behind a pidfd.
pub(crate) fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> Result<()> {
    let none: *const libc::siginfo_t = ptr::null();
    // SAFETY: a null siginfo is allowed and means "as kill(2)".
    unsafe { call!(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, none, 0) }.map(drop)
}

/// Makes a network namespace and goes into it.
pub(crate) fn make_network() -> Result<()> {
    // SAFETY: takes an integer.
    unsafe { call!(libc::SYS_unshare, libc::CLONE_NEWNET) }.map(drop)
}

/// Goes into a network namespace.
pub(crate) fn enter_network(network: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_setns, network.as_raw_fd(), libc::CLONE_NEWNET) }.map(drop)
}

/// Opens a pidfd for a process.
pub(crate) fn pidfd_open(pid: libc::pid_t) -> Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = unsafe { call!(libc::SYS_pidfd_open, pid, 0) }?;
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::new(fd) })
}

/// Signals a process.
pub(crate) fn kill(pid: libc::pid_t, signal: libc::c_int) -> Result<()> {
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_kill, pid, signal) }.map(drop)
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
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    let (options, none) = (libc::WSTOPPED | libc::WNOHANG, ptr::null::<u8>());
    // SAFETY: `info` outlives the call; what the processes used is not asked for.
    unsafe { call!(libc::SYS_waitid, libc::P_ALL as i32, 0, &raw mut info, options, none) }.ok()?;
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
    let mut status: libc::c_int = 0;
    // SAFETY: `status` outlives the call; what the process used is not asked for.
    let pid = unsafe { call!(libc::SYS_wait4, pid, &raw mut status, options, ptr::null::<u8>()) }?;
    if pid == 0 {
        return Ok(None);
    }
    let status = if libc::WIFSIGNALED(status) {
        Status::Signalled(libc::WTERMSIG(status))
    } else {
        Status::Exited(libc::WEXITSTATUS(status))
    };
    Ok(Some((pid as libc::pid_t, status)))
}

/// Ends this process at once.
pub(crate) fn exit(status: i32) -> ! {
    loop {
        // SAFETY: takes an integer, and never returns.
        drop(unsafe { call!(libc::SYS_exit_group, status) });
    }
}

/// Replaces this process; returns only on failure.
pub(crate) fn exec(program: &CStr, arguments: &[CString], environment: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end with a null pointer and outlive the call.
    match unsafe { call!(libc::SYS_execve, program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) } {
        Err(errno) => errno,
        // Does not return here when it succeeds.
        Ok(_) => Errno(libc::EIO),
    }
}

/// The id of this process in its own pid namespace.
pub(crate) fn getpid() -> libc::pid_t {
    // SAFETY: takes nothing.
    number(unsafe { call!(libc::SYS_getpid) }) as libc::pid_t
}

/// The effective user and group.
pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: takes nothing.
    let uid = number(unsafe { call!(libc::SYS_geteuid) });
    // SAFETY: takes nothing.
    let gid = number(unsafe { call!(libc::SYS_getegid) });
    (uid, gid)
}

/// The result of a call that always succeeds.
fn number(result: Result<usize>) -> u32 {
    result.unwrap_or_default() as u32
}

/// Starts a session of its own.
pub(crate) fn setsid() -> Result<()> {
    // SAFETY: takes nothing.
    unsafe { call!(libc::SYS_setsid) }.map(drop)
}

/// Drops all supplementary groups.
pub(crate) fn drop_groups() -> Result<()> {
    // SAFETY: an empty list needs no pointer.
    unsafe { call!(libc::SYS_setgroups, 0, ptr::null::<libc::gid_t>()) }.map(drop)
}

/// Becomes a user and group for good.
pub(crate) fn become_user(uid: u32, gid: u32) -> Result<()> {
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_setresgid, gid, gid, gid) }?;
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_setresuid, uid, uid, uid) }.map(drop)
}

/// Gives what this process makes from now on to a user and group. They are of this number inside, so no capability changes.
pub(crate) fn make_files_of(id: u32) -> Result<()> {
    // Neither call says whether it has worked, but who it was before: asked once more, that must be the new one.
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_setfsgid, id) }?;
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_setfsuid, id) }?;
    // SAFETY: takes integers only.
    let group = unsafe { call!(libc::SYS_setfsgid, id) }?;
    // SAFETY: takes integers only.
    let user = unsafe { call!(libc::SYS_setfsuid, id) }?;
    if (user, group) == (id as usize, id as usize) { Ok(()) } else { Err(Errno(libc::EPERM)) }
}

/// Adopts every orphan among this process's descendants from now on.
pub(crate) fn become_subreaper() -> Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Ends this process when its parent's thread that made it ends; the launcher has only one.
pub(crate) fn die_with_parent() -> Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)
}

/// Keeps others of the same user from tracing this process and reading its memory.
pub(crate) fn hide_memory() -> Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 0)
}

/// Forbids gaining privileges by exec, for good.
pub(crate) fn no_new_privileges() -> Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

fn prctl(option: libc::c_int, argument: libc::c_int) -> Result<()> {
    // SAFETY: private, and the four options above take an integer.
    unsafe { call!(libc::SYS_prctl, option, argument, 0, 0, 0) }.map(drop)
}

/// Sets the name that process lists show: started from a memory file, it would be a descriptor number.
pub(crate) fn set_name(name: &CStr) -> Result<()> {
    // SAFETY: the string outlives the call.
    unsafe { call!(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) }.map(drop)
}

/// Sets both values of a resource limit of this process.
pub(crate) fn set_limit(resource: impl Word, value: u64) -> Result<()> {
    write_limit(resource.word(), &libc::rlimit { rlim_cur: value, rlim_max: value })
}

/// Sets both values of a resource limit to `most`, or leaves them where they are lower.
pub(crate) fn lower_limit(resource: impl Word, most: u64) -> Result<()> {
    let resource = resource.word();
    let limit = read_limit(resource)?;
    set_limit(resource, most.min(limit.rlim_max))
}

/// How many descriptors this process may have.
pub(crate) fn most_open_files() -> Result<u64> {
    read_limit(libc::RLIMIT_NOFILE.word()).map(|limit| limit.rlim_cur)
}

/// Raises the soft limit of open descriptors to the hard one; the launcher holds several per sandbox.
pub(crate) fn raise_open_files() -> Result<()> {
    let resource = libc::RLIMIT_NOFILE.word();
    let limit = read_limit(resource)?;
    write_limit(resource, &libc::rlimit { rlim_cur: limit.rlim_max, ..limit })
}

/// Lowers the hard limit of open descriptors to its half, for good.
pub(crate) fn halve_open_files() -> Result<()> {
    let resource = libc::RLIMIT_NOFILE.word();
    let limit = read_limit(resource)?;
    set_limit(resource, limit.rlim_max / 2)
}

fn read_limit(resource: usize) -> Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let none: *const libc::rlimit = ptr::null();
    // SAFETY: `limit` outlives the call; nothing is set.
    unsafe { call!(libc::SYS_prlimit64, 0, resource, none, &raw mut limit) }?;
    Ok(limit)
}

fn write_limit(resource: usize, limit: &libc::rlimit) -> Result<()> {
    let none: *mut libc::rlimit = ptr::null_mut();
    // SAFETY: `limit` outlives the call; the old one is not asked for.
    unsafe { call!(libc::SYS_prlimit64, 0, resource, ptr::from_ref(limit), none) }.map(drop)
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
    let mut allowed: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: `allowed` outlives the call and has the size given.
    unsafe { call!(libc::SYS_sched_getaffinity, 0, size, &raw mut allowed) }?;
    let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE.
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) })
        .collect();
    if count >= cpus.len() {
        return Ok(());
    }
    // SAFETY: an all-zero set is a valid empty set.
    let mut chosen: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    for index in 0..count {
        // SAFETY: the index came from the set above.
        unsafe { libc::CPU_SET(cpus[(seed + index) % cpus.len()], &mut chosen) };
    }
    // SAFETY: `chosen` outlives the call and has the size given.
    unsafe { call!(libc::SYS_sched_setaffinity, 0, size, &raw const chosen) }.map(drop)
}

/// Sets the host name of this UTS namespace.
pub(crate) fn set_host_name(name: &[u8]) -> Result<()> {
    // SAFETY: pointer and length describe `name`.
    unsafe { call!(libc::SYS_sethostname, name.as_ptr(), name.len()) }.map(drop)
}

/// The signal by which a shim asks the agent to end everything that is not the agent.
pub(crate) const END_EVERYTHING: libc::c_int = libc::SIGUSR1;

/// Blocks SIGCHLD and [`END_EVERYTHING`], and returns a descriptor that becomes readable when either comes.
pub(crate) fn signal_fd() -> Result<OwnedFd> {
    let set = member(libc::SIGCHLD) | member(END_EVERYTHING);
    set_blocked(libc::SIG_BLOCK, set)?;
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: `set` outlives the call and has the size given.
    let fd = unsafe { call!(libc::SYS_signalfd4, -1, ptr::from_ref(&set), SET_BYTES, flags) }?;
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::new(fd) })
}

/// Blocks SIGPIPE: a write that nobody reads is an error and not the end of this process.
pub(crate) fn block_broken_pipe() -> Result<()> {
    set_blocked(libc::SIG_BLOCK, member(libc::SIGPIPE))
}

/// The kernel's set of signals: a bit for each of the 64.
const SET_BYTES: usize = size_of::<u64>();

fn member(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

fn set_blocked(how: libc::c_int, set: u64) -> Result<()> {
    let (set, none) = (ptr::from_ref(&set), ptr::null_mut::<u64>());
    // SAFETY: `set` outlives the call and has the size given; no old set is asked for.
    unsafe { call!(libc::SYS_rt_sigprocmask, how, set, none, SET_BYTES) }.map(drop)
}

/// Restores every default and unblocks every signal, whatever a careless ancestor left. Nothing of ours is called by a signal
/// or ignores one, so what is a default here is one in every process made from here.
pub(crate) fn reset_signals() -> Result<()> {
    // struct sigaction of the kernel: handler, flags, restorer, mask; all zero is the default action.
    let default = [0u64; 4];
    let none: *mut u64 = ptr::null_mut();
    for signal in 1..=64 {
        // SIGKILL and SIGSTOP fail harmlessly.
        // SAFETY: the action outlives the call and has the size of the kernel's.
        drop(unsafe { call!(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, SET_BYTES) });
    }
    unblock_signals()
}

/// Unblocks every signal, as a fresh program expects.
pub(crate) fn unblock_signals() -> Result<()> {
    set_blocked(libc::SIG_SETMASK, 0)
}

/// Sets the mask for new files; returns the one before.
pub(crate) fn set_umask(mask: libc::mode_t) -> libc::mode_t {
    // SAFETY: takes an integer, and always succeeds.
    unsafe { call!(libc::SYS_umask, mask) }.unwrap_or_default() as libc::mode_t
}

/// Milliseconds of a clock that never goes back and counts suspended time too.
pub(crate) fn now_millis() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call; CLOCK_BOOTTIME always exists.
    drop(unsafe { call!(libc::SYS_clock_gettime, libc::CLOCK_BOOTTIME, &raw mut time) });
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since 1970, as this machine's clock has them.
pub(crate) fn unix_millis() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call; CLOCK_REALTIME always exists.
    drop(unsafe { call!(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, &raw mut time) });
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// A number by chance; not a secret.
pub(crate) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // Early at boot the kernel may have nothing yet: then 0 has to do.
    // SAFETY: pointer and length describe `bytes`.
    drop(unsafe { call!(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), libc::GRND_NONBLOCK) });
    u64::from_ne_bytes(bytes) >> 1
}
