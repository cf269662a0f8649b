//! The system call filter: what is allowed is listed, known-dangerous calls fail with EPERM, everything else with ENOSYS as
//! on a kernel that lacks it. Compiled to a search tree, because the load time of a filter grows with its length.

mod calls;

use calls::{ALLOWED, DANGEROUS};

/// One classic BPF instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;

/// The low half of an argument: all arguments checked here are 32 bits wide for the kernel, so what a caller puts into the
/// high half (S11) is not looked at by either.
const fn offset_argument(index: u32) -> u32 {
    16 + 8 * index
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Numbers from here on enter the x32 interface of the same architecture, past every check by number (S16).
const X32: u32 = 0x4000_0000;

const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;

const fn fail_with(errno: i32) -> u32 {
    0x0005_0000 | errno.cast_unsigned()
}

/// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const NEW_NAMESPACES: u32 = 0x7e02_0000;
/// CLONE_NEWTIME; only `unshare` takes it, in `clone` the bit belongs to the exit signal.
const NEW_TIME_NAMESPACE: u32 = 0x80;

/// What happens to a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allow,
    Fail(i32),
    /// Fails with EPERM when the argument has any of the bits.
    ForbidBits {
        argument: u32,
        bits: u32,
    },
    /// Fails with EPERM when the argument is one of these values.
    ForbidValues {
        argument: u32,
        values: &'static [u32],
    },
    /// Fails with EPERM unless the argument is one of these values.
    OnlyValues {
        argument: u32,
        values: &'static [u32],
    },
    /// Allows local, IPv4, IPv6 and routing-netlink sockets (S19).
    SocketFamilies,
    /// `setrlimit`: a new limit for core dumps is taken without effect (S48).
    SetLimit,
    /// `prlimit64`: the same, and only for the caller. Shims have the commands' user, and a processor time or descriptor limit
    /// would end or deafen one.
    SetLimitOf,
    /// `setpriority`, `ioprio_set`: only for the caller, and one of two kinds of it (never the whole user's).
    OwnPriority {
        kinds: [u32; 2],
    },
    /// `sched_setscheduler`: for other threads only what costs privileges or nothing; an idle shim would keep no time.
    SetPolicyOf,
}

/// The agent's number inside.
const AGENT: u32 = 1;

/// What a process may ask of another one of its sandbox: to stop, to be looked at and to go on, as checkers for memory leaks do. PTRACE_PEEKTEXT,
/// PEEKDATA, PEEKUSER, CONT, KILL, GETREGS, ATTACH, DETACH, GETSIGINFO, GETREGSET. Never an option: with PTRACE_O_TRACEEXIT two processes that trace
/// each other wait for one another while they end, and no signal, not even that of their namespace's end, ends them. Never PTRACE_TRACEME, which
/// would make a shim or the agent the tracer. An unknown high half is an unknown request for the kernel.
const TRACE_REQUESTS: [u32; 10] = [1, 2, 3, 7, 8, 12, 16, 17, 0x4202, 0x4204];

/// The protocols of IPv4 and IPv6 sockets: default, ICMP, TCP, UDP, ICMPv6, MPTCP. Others would load kernel code by name (S19).
const INTERNET_PROTOCOLS: [u32; 6] = [0, 1, 6, 17, 58, 262];
/// What datagram, stream and raw sockets have in common: none of these bits in their type.
const OTHER_SOCKET_TYPES: u32 = 0xc;

#[cfg(target_arch = "x86_64")]
const SETRLIMIT: libc::c_long = libc::SYS_setrlimit;
/// libc has no name for it on aarch64.
#[cfg(target_arch = "aarch64")]
const SETRLIMIT: libc::c_long = 164;

/// Calls whose arguments decide.
const CHECKED: [(libc::c_long, Verdict); 19] = [
    (libc::SYS_clone, Verdict::ForbidBits { argument: 0, bits: NEW_NAMESPACES }),
    (libc::SYS_unshare, Verdict::ForbidBits { argument: 0, bits: NEW_NAMESPACES | NEW_TIME_NAMESPACE }),
    // Its flags lie in memory, where a filter cannot look; libraries fall back to clone.
    (libc::SYS_clone3, Verdict::Fail(libc::ENOSYS)),
    (libc::SYS_socket, Verdict::SocketFamilies),
    (libc::SYS_socketpair, Verdict::SocketFamilies),
    // TIOCSTI types into a terminal, TIOCLINUX pastes into a console (S11), TIOCSETD loads line disciplines by number.
    (libc::SYS_ioctl, Verdict::ForbidValues { argument: 1, values: &[0x5412, 0x541c, 0x5423] }),
    // The default, or only asking.
    (libc::SYS_personality, Verdict::OnlyValues { argument: 0, values: &[0, 0xffff_ffff] }),
    (libc::SYS_ptrace, Verdict::OnlyValues { argument: 0, values: &TRACE_REQUESTS }),
    (SETRLIMIT, Verdict::SetLimit),
    (libc::SYS_prlimit64, Verdict::SetLimitOf),
    (libc::SYS_sched_setaffinity, Verdict::ForbidValues { argument: 0, values: &[AGENT] }),
    // Its attributes lie in memory: only for the caller.
    (libc::SYS_sched_setattr, Verdict::OnlyValues { argument: 0, values: &[0] }),
    (libc::SYS_sched_setparam, Verdict::ForbidValues { argument: 0, values: &[AGENT] }),
    (libc::SYS_sched_setscheduler, Verdict::SetPolicyOf),
    // PRIO_PROCESS and PRIO_PGRP; IOPRIO_WHO_PROCESS and IOPRIO_WHO_PGRP.
    (libc::SYS_setpriority, Verdict::OwnPriority { kinds: [0, 1] }),
    (libc::SYS_ioprio_set, Verdict::OwnPriority { kinds: [1, 2] }),
    // Attributes are not counted as stored bytes, so they would pass by the disk limit. Programs cope: many file systems have
    // none.
    (libc::SYS_setxattr, Verdict::Fail(libc::EOPNOTSUPP)),
    (libc::SYS_lsetxattr, Verdict::Fail(libc::EOPNOTSUPP)),
    (libc::SYS_fsetxattr, Verdict::Fail(libc::EOPNOTSUPP)),
];

/// The filter as the kernel takes it: 8 bytes an instruction.
pub(crate) fn filter() -> Vec<u8> {
    program()
        .iter()
        .flat_map(|instruction| {
            let mut bytes = [0u8; 8];
            bytes[..2].copy_from_slice(&instruction.code.to_ne_bytes());
            bytes[2] = instruction.if_true;
            bytes[3] = instruction.if_false;
            bytes[4..].copy_from_slice(&instruction.value.to_ne_bytes());
            bytes
        })
        .collect()
}

fn program() -> Vec<Instruction> {
    let mut program = vec![
        load(OFFSET_ARCHITECTURE),
        jump(JUMP_IF_EQUAL, ARCHITECTURE, 1, 0),
        give(KILL_PROCESS),
        load(OFFSET_NUMBER),
        jump(JUMP_IF_AT_LEAST, X32, 0, 1),
        give(fail_with(libc::ENOSYS)),
    ];
    program.extend(search(&segments()));
    program
}

/// Neighbouring numbers with one verdict, as first number and verdict; the first segment starts at 0.
fn segments() -> Vec<(u32, Verdict)> {
    let mut verdicts: Vec<(u32, Verdict)> = Vec::new();
    let number = |call: libc::c_long| call as u32;
    verdicts.extend(ALLOWED.iter().map(|call| (number(*call), Verdict::Allow)));
    verdicts.extend(DANGEROUS.iter().map(|call| (number(*call), Verdict::Fail(libc::EPERM))));
    verdicts.extend(CHECKED.iter().map(|(call, verdict)| (number(*call), *verdict)));
    verdicts.sort_by_key(|(number, _)| *number);
    let unknown = Verdict::Fail(libc::ENOSYS);
    let mut segments = vec![(0, unknown)];
    let mut next = 0;
    for (number, verdict) in verdicts {
        if number > next {
            push(&mut segments, next, unknown);
        }
        push(&mut segments, number, verdict);
        next = number + 1;
    }
    push(&mut segments, next, unknown);
    segments
}

fn push(segments: &mut Vec<(u32, Verdict)>, first: u32, verdict: Verdict) {
    match segments.last_mut() {
        Some((start, last)) if *start == first => *last = verdict,
        Some((_, last)) if *last == verdict => {}
        _ => segments.push((first, verdict)),
    }
}

/// A binary search for the segment of the number in the accumulator, ending in its verdict.
fn search(segments: &[(u32, Verdict)]) -> Vec<Instruction> {
    if let [(_, verdict)] = segments {
        return decide(*verdict);
    }
    let (below, from) = segments.split_at(segments.len() / 2);
    let first = from[0].0;
    let (below, from) = (search(below), search(from));
    let mut code = match u8::try_from(below.len()) {
        Ok(skip) => vec![jump(JUMP_IF_AT_LEAST, first, skip, 0)],
        // Conditional jumps reach 255 instructions, unconditional ones all.
        Err(_) => {
            vec![jump(JUMP_IF_AT_LEAST, first, 0, 1), jump(JUMP, below.len() as u32, 0, 0)]
        }
    };
    code.extend(below);
    code.extend(from);
    code
}

fn decide(verdict: Verdict) -> Vec<Instruction> {
    let forbidden = give(fail_with(libc::EPERM));
    match verdict {
        Verdict::Allow => vec![give(ALLOW)],
        Verdict::Fail(errno) => vec![give(fail_with(errno))],
        Verdict::ForbidBits { argument, bits } => {
            vec![load(offset_argument(argument)), jump(JUMP_IF_ANY_BIT, bits, 1, 0), give(ALLOW), forbidden]
        }
        Verdict::ForbidValues { argument, values } => {
            let mut code = vec![load(offset_argument(argument))];
            code.extend(any_of(values));
            code.extend([give(ALLOW), forbidden]);
            code
        }
        Verdict::OnlyValues { argument, values } => {
            let mut code = vec![load(offset_argument(argument))];
            code.extend(any_of(values));
            code.extend([forbidden, give(ALLOW)]);
            code
        }
        Verdict::SocketFamilies => {
            let internet = internet_socket();
            let mut code = vec![
                load(offset_argument(0)),
                jump(JUMP_IF_EQUAL, libc::AF_INET.cast_unsigned(), 4, 0),
                jump(JUMP_IF_EQUAL, libc::AF_INET6.cast_unsigned(), 3, 0),
                jump(JUMP_IF_EQUAL, libc::AF_UNIX.cast_unsigned(), 0, 1),
                give(ALLOW),
                jump(JUMP, internet.len() as u32, 0, 0),
            ];
            code.extend(internet);
            code.extend([
                jump(JUMP_IF_EQUAL, libc::AF_NETLINK.cast_unsigned(), 1, 0),
                give(fail_with(libc::EAFNOSUPPORT)),
                load(offset_argument(2)),
                // Only the routing protocol, which programs list interfaces with (P93).
                jump(JUMP_IF_EQUAL, libc::NETLINK_ROUTE.cast_unsigned(), 0, 1),
                give(ALLOW),
                give(fail_with(libc::EPROTONOSUPPORT)),
            ]);
            code
        }
        Verdict::SetLimit => vec![
            load(offset_argument(0)),
            jump(JUMP_IF_EQUAL, libc::RLIMIT_CORE, 0, 1),
            give(fail_with(0)),
            give(ALLOW),
        ],
        Verdict::SetLimitOf => vec![
            // Only asking: the pointer to the new limit is null in both halves.
            load(offset_argument(2)),
            jump(JUMP_IF_EQUAL, 0, 0, 3),
            load(offset_argument(2) + 4),
            jump(JUMP_IF_EQUAL, 0, 0, 1),
            give(ALLOW),
            load(offset_argument(0)),
            jump(JUMP_IF_EQUAL, 0, 1, 0),
            forbidden,
            load(offset_argument(1)),
            jump(JUMP_IF_EQUAL, libc::RLIMIT_CORE, 0, 1),
            give(fail_with(0)),
            give(ALLOW),
        ],
        Verdict::OwnPriority { kinds: [first, second] } => vec![
            load(offset_argument(1)),
            jump(JUMP_IF_EQUAL, 0, 0, 3),
            load(offset_argument(0)),
            jump(JUMP_IF_EQUAL, first, 2, 0),
            jump(JUMP_IF_EQUAL, second, 1, 0),
            forbidden,
            give(ALLOW),
        ],
        Verdict::SetPolicyOf => vec![
            load(offset_argument(0)),
            jump(JUMP_IF_EQUAL, 0, 4, 0),
            load(offset_argument(1)),
            jump(JUMP_IF_EQUAL, libc::SCHED_OTHER.cast_unsigned(), 2, 0),
            jump(JUMP_IF_EQUAL, libc::SCHED_FIFO.cast_unsigned(), 1, 0),
            jump(JUMP_IF_EQUAL, libc::SCHED_RR.cast_unsigned(), 0, 1),
            give(ALLOW),
            forbidden,
        ],
    }
}

/// Type and protocol of a socket of the internet.
fn internet_socket() -> Vec<Instruction> {
    let mut code = vec![
        load(offset_argument(1)),
        jump(JUMP_IF_ANY_BIT, OTHER_SOCKET_TYPES, 0, 1),
        give(fail_with(libc::ESOCKTNOSUPPORT)),
        load(offset_argument(2)),
    ];
    code.extend(any_of(&INTERNET_PROTOCOLS));
    code.extend([give(fail_with(libc::EPROTONOSUPPORT)), give(ALLOW)]);
    code
}

/// Skips the instruction behind it when the accumulator is any of the values.
fn any_of(values: &[u32]) -> impl Iterator<Item = Instruction> {
    let count = values.len();
    values.iter().enumerate().map(move |(index, value)| jump(JUMP_IF_EQUAL, *value, (count - index) as u8, 0))
}

const fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD, if_true: 0, if_false: 0, value: offset }
}

const fn give(verdict: u32) -> Instruction {
    Instruction { code: RETURN, if_true: 0, if_false: 0, value: verdict }
}

const fn jump(code: u16, value: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code, if_true, if_false, value }
}

#[cfg(test)]
mod tests;
