//! The compiled filter against an interpreter of its instructions, for every number.

use super::*;

/// What the kernel would return for a call.
fn run(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let word = |offset: u32| match offset {
        OFFSET_NUMBER => number,
        OFFSET_ARCHITECTURE => architecture,
        offset => (arguments[(offset as usize - 16) / 8] >> (8 * (offset % 8))) as u32,
    };
    let (mut accumulator, mut at) = (0, 0);
    loop {
        let instruction = program[at];
        at += 1;
        let go = |taken: bool| usize::from(if taken { instruction.if_true } else { instruction.if_false });
        match instruction.code {
            LOAD => accumulator = word(instruction.value),
            JUMP => at += instruction.value as usize,
            JUMP_IF_EQUAL => at += go(accumulator == instruction.value),
            JUMP_IF_AT_LEAST => at += go(accumulator >= instruction.value),
            JUMP_IF_ANY_BIT => at += go(accumulator & instruction.value != 0),
            RETURN => return instruction.value,
            code => panic!("unknown instruction {code:#x}"),
        }
    }
}

fn call(number: libc::c_long, arguments: [u64; 6]) -> u32 {
    run(&program(), ARCHITECTURE, number as u32, arguments)
}

#[test]
fn s_16_every_number_gets_its_own_verdict() {
    let program = program();
    let checked: Vec<u32> = CHECKED.iter().map(|(call, _)| *call as u32).collect();
    for number in 0..2000u32 {
        if checked.contains(&number) {
            continue;
        }
        let long = libc::c_long::from(number);
        let expected = if ALLOWED.contains(&long) {
            ALLOW
        } else if DANGEROUS.contains(&long) {
            fail_with(libc::EPERM)
        } else {
            fail_with(libc::ENOSYS)
        };
        assert_eq!(run(&program, ARCHITECTURE, number, [0; 6]), expected, "call {number}");
    }
}

#[test]
fn s_16_no_call_is_in_two_lists() {
    let mut all: Vec<libc::c_long> = ALLOWED.iter().chain(DANGEROUS).copied().collect();
    all.extend(CHECKED.iter().map(|(call, _)| *call));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn s_16_other_entries_to_the_kernel_are_shut() {
    let program = program();
    const I386: u32 = 0x4000_0003;
    assert_eq!(run(&program, I386, 20, [0; 6]), KILL_PROCESS);
    for number in [X32, X32 + 39, X32 + 520, u32::MAX] {
        assert_eq!(run(&program, ARCHITECTURE, number, [0; 6]), fail_with(libc::ENOSYS));
    }
}

#[test]
fn s_13_new_namespaces_are_refused_in_any_combination() {
    for bit in 0..32 {
        let flag = 1u64 << bit;
        let forbidden = NEW_NAMESPACES & (1 << bit) != 0;
        let expected = if forbidden { fail_with(libc::EPERM) } else { ALLOW };
        assert_eq!(call(libc::SYS_clone, [flag | 17, 0, 0, 0, 0, 0]), expected, "clone {flag:#x}");
        let forbidden = forbidden || bit == 7;
        let expected = if forbidden { fail_with(libc::EPERM) } else { ALLOW };
        assert_eq!(call(libc::SYS_unshare, [flag, 0, 0, 0, 0, 0]), expected, "unshare {flag:#x}");
    }
    assert_eq!(call(libc::SYS_clone3, [0; 6]), fail_with(libc::ENOSYS));
}

#[test]
fn s_11_typing_into_terminals_is_refused_whatever_the_high_bits() {
    for request in [0x5412u64, 0x1_0000_5412, 0x541c, 0xffff_ffff_0000_541c, 0x5423, 0x1_0000_5423] {
        assert_eq!(call(libc::SYS_ioctl, [0, request, 0, 0, 0, 0]), fail_with(libc::EPERM));
    }
    for request in [0x5413u64, 0x5410, 0x5401] {
        assert_eq!(call(libc::SYS_ioctl, [0, request, 0, 0, 0, 0]), ALLOW);
    }
}

#[test]
fn s_19_only_four_socket_families() {
    for family in 0..50u64 {
        let expected = match family {
            1 | 2 | 10 | 16 => ALLOW,
            _ => fail_with(libc::EAFNOSUPPORT),
        };
        assert_eq!(call(libc::SYS_socket, [family, 1, 0, 0, 0, 0]), expected, "family {family}");
    }
    for protocol in 1..30u64 {
        let netlink = call(libc::SYS_socket, [16, 3, protocol, 0, 0, 0]);
        assert_eq!(netlink, fail_with(libc::EPROTONOSUPPORT), "netlink protocol {protocol}");
    }
}

#[test]
fn s_19_internet_sockets_of_known_types_and_protocols_only() {
    for family in [2, 10] {
        for kind in 0..11u64 {
            let expected = if kind < 4 { ALLOW } else { fail_with(libc::ESOCKTNOSUPPORT) };
            // SOCK_CLOEXEC and SOCK_NONBLOCK change nothing.
            for flags in [0, 0o2_000_000, 0o2_004_000] {
                assert_eq!(
                    call(libc::SYS_socket, [family, kind | flags, 0, 0, 0, 0]),
                    expected,
                    "type {kind}"
                );
            }
        }
        for protocol in 0..300u64 {
            let known = INTERNET_PROTOCOLS.contains(&(protocol as u32));
            let expected = if known { ALLOW } else { fail_with(libc::EPROTONOSUPPORT) };
            assert_eq!(call(libc::SYS_socket, [family, 1, protocol, 0, 0, 0]), expected, "{protocol}");
        }
    }
    // Local sockets have more types and no protocols.
    assert_eq!(call(libc::SYS_socketpair, [1, 5, 0, 0, 0, 0]), ALLOW);
}

#[test]
fn s_12_tracing_is_looking_and_takes_no_options() {
    // PTRACE_TRACEME, POKEDATA, SINGLESTEP, OLDSETOPTIONS, SYSCALL, SETOPTIONS, SEIZE, INTERRUPT, LISTEN.
    for request in [0u64, 5, 9, 21, 24, 0x4200, 0x4206, 0x4207, 0x4208, 0x1_0000_4206] {
        assert_eq!(call(libc::SYS_ptrace, [request, 0, 0, 0, 0, 0]), fail_with(libc::EPERM), "{request:#x}");
    }
    for request in TRACE_REQUESTS {
        assert_eq!(call(libc::SYS_ptrace, [request.into(), 0, 0, 0, 0, 0]), ALLOW, "{request:#x}");
    }
}

#[test]
fn s_48_the_limit_of_core_dumps_stays() {
    let core = u64::from(libc::RLIMIT_CORE);
    for resource in 0..16u64 {
        let expected = if resource == core { fail_with(0) } else { ALLOW };
        assert_eq!(call(SETRLIMIT, [resource, 1, 0, 0, 0, 0]), expected);
        for new in [1u64, 1 << 32, u64::MAX] {
            assert_eq!(call(libc::SYS_prlimit64, [0, resource, new, 0, 0, 0]), expected);
        }
    }
}

#[test]
fn the_limits_of_others_can_be_asked_and_not_set() {
    for other in [1u64, 77, 1 << 32 | 77] {
        assert_eq!(call(libc::SYS_prlimit64, [other, 7, 0, 1, 0, 0]), ALLOW);
        for new in [1u64, 1 << 32] {
            assert_eq!(call(libc::SYS_prlimit64, [other, 7, new, 0, 0, 0]), fail_with(libc::EPERM));
        }
    }
}

#[test]
fn agent_and_shims_keep_their_priority() {
    let refused = fail_with(libc::EPERM);
    for number in [libc::SYS_sched_setaffinity, libc::SYS_sched_setparam] {
        assert_eq!(call(number, [1, 0, 0, 0, 0, 0]), refused);
        assert_eq!(call(number, [1 << 32 | 1, 0, 0, 0, 0, 0]), refused);
        assert_eq!(call(number, [0; 6]), ALLOW);
        assert_eq!(call(number, [11, 0, 0, 0, 0, 0]), ALLOW);
    }
    assert_eq!(call(libc::SYS_sched_setattr, [0; 6]), ALLOW);
    assert_eq!(call(libc::SYS_sched_setattr, [11, 0, 0, 0, 0, 0]), refused);
    for policy in 0..8u64 {
        assert_eq!(call(libc::SYS_sched_setscheduler, [0, policy, 0, 0, 0, 0]), ALLOW);
        let expected = if policy <= 2 { ALLOW } else { refused };
        assert_eq!(call(libc::SYS_sched_setscheduler, [11, policy, 0, 0, 0, 0]), expected, "policy {policy}");
    }
    for (number, first) in [(libc::SYS_setpriority, 0u64), (libc::SYS_ioprio_set, 1)] {
        for kind in 0..4u64 {
            let expected = if (first..first + 2).contains(&kind) { ALLOW } else { refused };
            assert_eq!(call(number, [kind, 0, 0, 0, 0, 0]), expected, "kind {kind}");
            assert_eq!(call(number, [kind, 11, 0, 0, 0, 0]), refused, "kind {kind}");
        }
    }
}

#[test]
fn personality_can_be_asked_and_not_changed() {
    assert_eq!(call(libc::SYS_personality, [0; 6]), ALLOW);
    assert_eq!(call(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(call(libc::SYS_personality, [0x40000, 0, 0, 0, 0, 0]), fail_with(libc::EPERM));
}

#[test]
fn the_filter_stays_short() {
    assert!(program().len() < 400, "{} instructions", program().len());
}
