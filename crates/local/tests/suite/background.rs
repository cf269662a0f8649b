//! Commands that nobody waits for: read from any offset, fed, signalled, waited for, by whoever reaches the sandbox.

use std::time::{Duration, SystemTime};

use ringfence_core::claim::claim;
use ringfence_core::{
    Attachable, Backend, Background, BackgroundRequest, ByteSize, Claimant, CommandId, CommandResult,
    CommandState, CommandStatus, Ending, EnvMap, Error, ErrorKind, Invocation, Lease, Limits, OutputChunk,
    Pids, Reach, SandboxSpec, StreamName,
};
use ringfence_local::LocalBackend;

use super::kept::Place;
use super::support::{
    Box, Marker, Said, assert_took, has_cgroups, has_process_limit, is_alone, limit, path, seconds, shell,
    skip, slowness, timed, until,
};

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;

use StreamName::{Stderr, Stdout};

fn background(command: &str) -> BackgroundRequest {
    BackgroundRequest {
        invocation: Invocation::Shell(command.to_owned()),
        timeout: None,
        output_limit: limit(1 << 20),
        stdin: false,
        workdir: None,
        env: EnvMap::default(),
    }
}

fn fed(command: &str) -> BackgroundRequest {
    BackgroundRequest { stdin: true, ..background(command) }
}

fn chunk(offset: u64, bytes: &str, end: bool) -> OutputChunk {
    OutputChunk { offset, bytes: bytes.as_bytes().to_vec().into(), end }
}

fn kind(error: &Error) -> ErrorKind {
    error.kind().clone()
}

impl Box {
    async fn start(&self, command: &str) -> CommandId {
        self.begin(background(command)).await
    }

    async fn begin(&self, request: BackgroundRequest) -> CommandId {
        self.backend.start_command(&self.id, request).await.unwrap()
    }

    async fn status(&self, command: CommandId) -> Result<CommandStatus, ErrorKind> {
        self.backend.wait_command(&self.id, command, NOW).await.map_err(|error| kind(&error))
    }

    /// How it ended, once it has.
    async fn ending(&self, command: CommandId) -> Ending {
        match self.backend.wait_command(&self.id, command, LONG).await.unwrap().state {
            CommandState::Ended(ending) => ending,
            CommandState::Running => panic!("{command} runs"),
        }
    }

    /// A command that sleeps and has seen another one meet the memory limit. While that one ends, the kernel may take the next one too.
    async fn survivor_of_an_eater(&self) -> CommandId {
        loop {
            let sleeper = self.start("sleep 1000").await;
            let eater = self.start(EAT).await;
            assert_eq!(self.ending(eater).await, Ending::MemoryExceeded);
            let stands = self.backend.wait_command(&self.id, sleeper, Duration::ZERO).await.unwrap();
            match stands.state {
                CommandState::Running => return sleeper,
                CommandState::Ended(ending) => assert_eq!(ending, Ending::MemoryExceeded),
            }
        }
    }

    async fn output(&self, command: CommandId, stream: StreamName, offset: u64) -> OutputChunk {
        self.backend.read_output(&self.id, command, stream, offset, LONG).await.unwrap()
    }

    /// Standard output from the start to the end.
    async fn whole(&self, command: CommandId) -> String {
        let (mut text, mut offset) = (Vec::new(), 0);
        loop {
            let chunk = self.output(command, Stdout, offset).await;
            assert_eq!(chunk.offset, offset);
            text.extend_from_slice(&chunk.bytes);
            offset += chunk.bytes.len() as u64;
            if chunk.end {
                return String::from_utf8(text).unwrap();
            }
        }
    }

    async fn feed(&self, command: CommandId, bytes: &[u8], end: bool) -> Result<usize, ErrorKind> {
        let fed = self.backend.write_stdin(&self.id, command, bytes, end, Duration::from_millis(300)).await;
        fed.map_err(|error| kind(&error))
    }

    async fn signal(&self, command: CommandId, signal: Option<i32>) -> Result<(), ErrorKind> {
        self.backend.signal_command(&self.id, command, signal).await.map_err(|error| kind(&error))
    }
}

#[tokio::test]
async fn output_is_read_from_an_offset_by_a_reader_that_was_away() {
    let sandbox = Box::new().await;
    let command =
        sandbox.start("echo one; echo bad >&2; until [ -e go ]; do sleep 0.02; done; echo two; exit 3").await;
    assert_eq!(command.to_string(), "c1");
    assert_eq!(sandbox.output(command, Stdout, 0).await, chunk(0, "one\n", false));
    assert_eq!(sandbox.output(command, Stderr, 0).await, chunk(0, "bad\n", false));
    // What was read can be read again, and what has not come yet is not waited for beyond the patience.
    assert_eq!(sandbox.output(command, Stdout, 2).await, chunk(2, "e\n", false));
    let none = sandbox.backend.read_output(&sandbox.id, command, Stdout, 4, Duration::from_millis(50)).await;
    assert_eq!(none.unwrap(), chunk(4, "", false));
    let reader = sandbox.output(command, Stdout, 4);
    assert!(tokio::time::timeout(Duration::from_millis(100), reader).await.is_err());
    assert_eq!(sandbox.write("go", b"").await, Ok(()));
    assert_eq!(sandbox.ending(command).await, Ending::Exited(3));
    assert_eq!(sandbox.output(command, Stdout, 4).await, chunk(4, "two\n", true));
    assert_eq!(sandbox.output(command, Stdout, 8).await, chunk(8, "", true));
    assert_eq!(sandbox.output(command, Stdout, 99).await, chunk(99, "", true));
    assert_eq!(sandbox.output(command, Stderr, 4).await, chunk(4, "", true));
    let status = sandbox.status(command).await.unwrap();
    let expected = CommandStatus {
        id: command,
        state: CommandState::Ended(Ending::Exited(3)),
        age: status.age,
        stdout_bytes: 8,
        stderr_bytes: 4,
    };
    assert_eq!(status, expected);
    assert!(status.age > Duration::from_millis(150), "{status:?}");
}

#[tokio::test]
async fn p_40_the_tail_is_kept_and_its_offset_says_what_was_dropped() {
    let sandbox = Box::new().await;
    let request =
        |command: &str, bytes| BackgroundRequest { output_limit: limit(bytes), ..background(command) };
    let pieces =
        "printf 0123456789; sleep 0.1; printf abcdefg; sleep 0.1; printf ABCDEFGHIJKLMNOPQRSTUVW >&2";
    let command = sandbox.begin(request(pieces, 10)).await;
    assert_eq!(sandbox.ending(command).await, Ending::Exited(0));
    assert_eq!(sandbox.output(command, Stdout, 0).await, chunk(7, "789abcdefg", true));
    assert_eq!(sandbox.output(command, Stdout, 9).await, chunk(9, "9abcdefg", true));
    assert_eq!(sandbox.output(command, Stderr, 0).await, chunk(13, "NOPQRSTUVW", true));
    let one = sandbox.begin(request("printf xyz", 1)).await;
    assert_eq!(sandbox.ending(one).await, Ending::Exited(0));
    assert_eq!(sandbox.output(one, Stdout, 0).await, chunk(2, "z", true));
}

#[tokio::test]
async fn p_32_large_output_comes_whole_in_pieces() {
    let sandbox = Box::new().await;
    let command = sandbox.start("seq 100000").await;
    let expected: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(sandbox.whole(command).await, expected);
    // The same when it has ended.
    assert_eq!(sandbox.ending(command).await, Ending::Exited(0));
    assert_eq!(sandbox.whole(command).await, expected);
}

#[tokio::test]
async fn input_is_written_in_pieces_and_closed() {
    let sandbox = Box::new().await;
    let command = sandbox.begin(fed("while read -r line; do echo \"<$line>\"; done; echo end")).await;
    assert_eq!(sandbox.feed(command, b"a\nb", false).await, Ok(3));
    assert_eq!(sandbox.output(command, Stdout, 0).await, chunk(0, "<a>\n", false));
    assert_eq!(sandbox.feed(command, b"", false).await, Ok(0));
    assert_eq!(sandbox.feed(command, b"c\n", true).await, Ok(2));
    assert_eq!(sandbox.ending(command).await, Ending::Exited(0));
    assert_eq!(sandbox.whole(command).await, "<a>\n<bc>\nend\n");
    // It is closed, and stays so.
    assert_eq!(sandbox.feed(command, b"d", false).await, Err(ErrorKind::InvalidArgument));
}

#[tokio::test]
async fn p_46_input_that_is_not_read_is_taken_as_far_as_there_is_room() {
    let sandbox = Box::new().await;
    let command = sandbox.begin(fed("until [ -e go ]; do sleep 0.02; done; wc -c")).await;
    let bytes = vec![b'x'; 200_000];
    let (taken, took) = timed(sandbox.feed(command, &bytes, true)).await;
    let taken = taken.unwrap();
    assert!((4096..200_000).contains(&taken), "{taken}");
    assert_took(took, 0.29, 0.3);
    assert_eq!(sandbox.write("go", b"").await, Ok(()));
    let rest = sandbox.backend.write_stdin(&sandbox.id, command, &bytes[taken..], true, LONG).await;
    assert_eq!(rest.unwrap(), 200_000 - taken);
    assert_eq!(sandbox.whole(command).await, "200000\n");
}

#[tokio::test]
async fn p_43_input_that_nobody_can_read_is_refused_and_harms_nothing() {
    let sandbox = Box::new().await;
    let without = sandbox.start("cat; sleep 60").await;
    assert_eq!(sandbox.feed(without, b"x", false).await, Err(ErrorKind::InvalidArgument));
    let closing = sandbox.begin(fed("exec <&-; echo closed; sleep 60")).await;
    assert_eq!(sandbox.output(closing, Stdout, 0).await, chunk(0, "closed\n", false));
    assert_eq!(sandbox.feed(closing, b"x", false).await, Err(ErrorKind::InvalidArgument));
    for command in [without, closing] {
        assert_eq!(sandbox.status(command).await.unwrap().state, CommandState::Running);
    }
}

#[tokio::test]
async fn pieces_of_two_writers_do_not_mix() {
    let sandbox = Box::new().await;
    let command = sandbox.begin(fed("until [ -e go ]; do sleep 0.02; done; tr -s ab")).await;
    let write = |byte: u8| {
        let (sandbox, bytes) = (&sandbox, vec![byte; 30_000]);
        async move { sandbox.backend.write_stdin(&sandbox.id, command, &bytes, false, LONG).await.unwrap() }
    };
    let written = async { tokio::join!(write(b'a'), write(b'b'), write(b'a'), write(b'b')) };
    let go = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        sandbox.write("go", b"").await
    };
    assert_eq!(tokio::join!(written, go), ((30_000, 30_000, 30_000, 30_000), Ok(())));
    assert_eq!(sandbox.feed(command, b"", true).await, Ok(0));
    assert_eq!(sandbox.whole(command).await, "abab");
}

#[tokio::test]
async fn waiting_has_patience_and_no_more() {
    let sandbox = Box::new().await;
    let command = sandbox.start("until [ -e go ]; do sleep 0.02; done").await;
    let (status, took) = timed(sandbox.status(command)).await;
    assert_eq!(status.unwrap().state, CommandState::Running);
    assert_took(took, 0.0, 0.05);
    let patience = Duration::from_millis(300);
    let (status, took) = timed(sandbox.backend.wait_command(&sandbox.id, command, patience)).await;
    assert_eq!(status.unwrap().state, CommandState::Running);
    assert_took(took, 0.29, 0.3);
    let (ending, written) = tokio::join!(sandbox.ending(command), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        sandbox.write("go", b"").await
    });
    assert_eq!((ending, written), (Ending::Exited(0), Ok(())));
    // More patience than a clock has.
    let status = sandbox.backend.wait_command(&sandbox.id, command, Duration::MAX).await.unwrap();
    assert_eq!(status.state, CommandState::Ended(Ending::Exited(0)));
}

#[tokio::test]
async fn whoever_hangs_up_changes_nothing() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let command = sandbox.begin(fed(&format!("sleep {marker}"))).await;
    for _ in 0..3 {
        let waiting = sandbox.backend.wait_command(&sandbox.id, command, LONG);
        assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err());
        let reading = sandbox.backend.read_output(&sandbox.id, command, Stdout, 0, LONG);
        assert!(tokio::time::timeout(Duration::from_millis(50), reading).await.is_err());
        let bytes = vec![0; 100_000];
        let writing = sandbox.backend.write_stdin(&sandbox.id, command, &bytes, false, LONG);
        assert!(tokio::time::timeout(Duration::from_millis(50), writing).await.is_err());
    }
    assert!(marker.lives().await);
    assert_eq!(sandbox.status(command).await.unwrap().state, CommandState::Running);
}

#[tokio::test]
async fn p_03_a_kill_ends_the_whole_tree_and_returns_when_it_is_gone() {
    let sandbox = Box::new().await;
    let other = Marker::new();
    let neighbour = sandbox.start(&format!("sleep {other} & wait")).await;
    assert!(other.lives().await);
    let marker = Marker::new();
    let tree = format!(
        "trap '' TERM; setsid sh -c 'sleep {marker} & sleep {marker}' & (setsid sleep {marker} &); echo up; sleep {marker}"
    );
    let command = sandbox.start(&tree).await;
    assert_eq!(sandbox.output(command, Stdout, 0).await, chunk(0, "up\n", false));
    assert!(until(5.0, || marker.processes().len() >= 4).await);
    assert_eq!(sandbox.signal(command, None).await, Ok(()));
    marker.assert_dead();
    assert_eq!(sandbox.ending(command).await, Ending::Signalled(9));
    assert_eq!(sandbox.output(command, Stdout, 0).await, chunk(0, "up\n", true));
    // Again, and of what is gone: as wanted.
    assert_eq!(sandbox.signal(command, None).await, Ok(()));
    assert!(!other.processes().is_empty());
    assert_eq!(sandbox.signal(neighbour, None).await, Ok(()));
    other.assert_dead();
}

#[tokio::test]
async fn p_01_what_a_command_leaves_goes_on_until_it_is_killed_and_its_ending_stays() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let leave =
        format!("(while :; do echo late; sleep 0.05; done) & setsid sleep {marker} & echo left; exit 4");
    let command = sandbox.start(&leave).await;
    let (ending, took) = timed(sandbox.ending(command)).await;
    assert_eq!(ending, Ending::Exited(4));
    assert_took(took, 0.0, 0.3);
    let status = sandbox.status(command).await.unwrap();
    // What is written later is nobody's: an end that was told is one.
    let said = sandbox.output(command, Stdout, 0).await;
    assert!(said.end && said.bytes.len() as u64 == status.stdout_bytes, "{said:?} {status:?}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(sandbox.output(command, Stdout, 0).await, said);
    assert!(marker.lives().await);
    assert_eq!(sandbox.signal(command, Some(9)).await, Ok(()));
    assert!(!marker.processes().is_empty(), "the signal is for the command's first process");
    assert_eq!(sandbox.signal(command, None).await, Ok(()));
    marker.assert_dead();
    assert_eq!(sandbox.ending(command).await, Ending::Exited(4));
}

#[tokio::test]
async fn a_signal_reaches_the_first_process_alone() {
    let sandbox = Box::new().await;
    let command = sandbox.start("trap 'echo got; exit 7' USR1; echo up; while :; do sleep 0.02; done").await;
    assert_eq!(sandbox.output(command, Stdout, 0).await, chunk(0, "up\n", false));
    for none in [0, -9, 65, i32::MAX] {
        assert_eq!(sandbox.signal(command, Some(none)).await, Err(ErrorKind::InvalidArgument), "{none}");
    }
    assert_eq!(sandbox.signal(command, Some(libc::SIGUSR1)).await, Ok(()));
    assert_eq!(sandbox.ending(command).await, Ending::Exited(7));
    assert_eq!(sandbox.whole(command).await, "up\ngot\n");
    assert_eq!(sandbox.signal(command, Some(libc::SIGTERM)).await, Ok(()));
    let stopped = sandbox.start("sleep 60").await;
    for signal in [libc::SIGSTOP, libc::SIGCONT, libc::SIGTERM] {
        assert_eq!(sandbox.signal(stopped, Some(signal)).await, Ok(()));
    }
    assert_eq!(sandbox.ending(stopped).await, Ending::Signalled(libc::SIGTERM));
}

#[tokio::test]
async fn p_06_a_timeout_ends_it_and_all_it_started() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let timeout = 0.5 * slowness();
    let tree = format!("echo up; trap '' TERM; setsid sleep {marker} & sleep {marker}");
    let request = BackgroundRequest { timeout: Some(seconds(timeout)), ..background(&tree) };
    let command = sandbox.begin(request).await;
    let (ending, took) = timed(sandbox.ending(command)).await;
    assert_eq!(ending, Ending::TimedOut);
    assert_took(took, timeout, timeout + 2.5);
    marker.assert_dead();
    assert_eq!(sandbox.whole(command).await, "up\n");
    // Beside another command, where the walk has to do it.
    let other = Marker::new();
    let neighbour = sandbox.start(&format!("sleep {other}")).await;
    let request = BackgroundRequest { timeout: Some(seconds(timeout)), ..background(&tree) };
    let command = sandbox.begin(request).await;
    assert_eq!(sandbox.ending(command).await, Ending::TimedOut);
    marker.assert_dead();
    assert_eq!(sandbox.status(neighbour).await.unwrap().state, CommandState::Running);
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_is_an_error() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.write("plain", b"#!/bin/sh\n").await, Ok(()));
    let program = |name: &str| BackgroundRequest {
        invocation: Invocation::Program(vec![name.as_bytes().to_vec()]),
        ..background("")
    };
    let nowhere = BackgroundRequest { workdir: Some(path("nowhere")), ..background("true") };
    let in_file = BackgroundRequest { workdir: Some(path("plain")), ..background("true") };
    for (request, expected, named) in [
        (program("no-such-program"), ErrorKind::NotFound, Some("no-such-program")),
        (program("/no/such"), ErrorKind::NotFound, Some("/no/such")),
        (program("/workspace/plain"), ErrorKind::PermissionDenied, Some("/workspace/plain")),
        (nowhere, ErrorKind::NotFound, None),
        (in_file, ErrorKind::NotADirectory, None),
        (program("nul\0"), ErrorKind::InvalidArgument, None),
    ] {
        let error = sandbox.backend.start_command(&sandbox.id, request).await.unwrap_err();
        assert_eq!((kind(&error), error.fact("program")), (expected, named), "{error}");
    }
    // None of them is there.
    assert_eq!(sandbox.backend.list_commands(&sandbox.id).await.unwrap(), []);
    let place = BackgroundRequest {
        workdir: Some(path("/tmp")),
        env: EnvMap::new([("A", "b")]).unwrap(),
        ..background("pwd; echo $A")
    };
    let command = sandbox.begin(place).await;
    assert_eq!(sandbox.whole(command).await, "/tmp\nb\n");
}

#[tokio::test]
async fn what_ended_first_is_forgotten_first() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let long = sandbox.start(&format!("sleep {marker}")).await;
    let mut commands = Vec::new();
    for number in 0..70 {
        let command = sandbox.start(&format!("echo {number}")).await;
        assert_eq!(sandbox.ending(command).await, Ending::Exited(0));
        commands.push(command);
    }
    let listed = sandbox.backend.list_commands(&sandbox.id).await.unwrap();
    let listed: Vec<(CommandId, bool)> =
        listed.iter().map(|status| (status.id, status.state == CommandState::Running)).collect();
    let kept = commands[6..].iter().map(|command| (*command, false));
    assert_eq!(listed, [(long, true)].into_iter().chain(kept).collect::<Vec<_>>());
    assert_eq!(sandbox.status(commands[5]).await, Err(ErrorKind::NotFound));
    assert_eq!(sandbox.whole(commands[6]).await, "6\n");
    // None of the ended ones has a process.
    assert_eq!(sandbox.run("set -- /proc/[0-9]*; echo $#").await, Said::ok("5\n"));
    // One that ends now is the last that has ended, whenever it was started.
    assert_eq!(sandbox.signal(long, None).await, Ok(()));
    assert_eq!(sandbox.status(commands[6]).await, Err(ErrorKind::NotFound));
    assert_eq!(sandbox.ending(long).await, Ending::Signalled(9));
}

#[tokio::test]
async fn one_that_is_forgotten_leaves_alone_what_it_left() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let first =
        sandbox.start(&format!("(while sleep 0.02; do echo x; done) & setsid sleep {marker} &")).await;
    assert_eq!(sandbox.ending(first).await, Ending::Exited(0));
    for _ in 0..65 {
        let command = sandbox.start("true").await;
        assert_eq!(sandbox.ending(command).await, Ending::Exited(0));
    }
    assert_eq!(sandbox.status(first).await, Err(ErrorKind::NotFound));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!marker.processes().is_empty());
}

#[tokio::test]
async fn a_command_that_kills_its_shim_counts_as_killed_and_its_output_is_there() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let other = sandbox.start("until [ -e go ]; do sleep 0.02; done; echo fine").await;
    let kill = format!(
        "echo before; setsid sleep {marker} & until [ -e now ]; do sleep 0.02; done; kill -KILL $PPID; sleep {marker}"
    );
    let command = sandbox.start(&kill).await;
    assert_eq!(sandbox.output(command, Stdout, 0).await, chunk(0, "before\n", false));
    // Whoever waits just then is answered all the same.
    let (ending, output, killed, written) = tokio::join!(
        sandbox.ending(command),
        sandbox.output(command, Stdout, 7),
        async {
            assert!(marker.lives().await);
            tokio::time::sleep(Duration::from_millis(100)).await;
            sandbox.signal(other, Some(libc::SIGCONT)).await
        },
        async {
            assert!(marker.lives().await);
            sandbox.write("now", b"").await
        }
    );
    assert_eq!((ending, killed, written), (Ending::Signalled(9), Ok(()), Ok(())));
    assert_eq!(output, chunk(7, "", true));
    assert!(marker.dies_within(2.0).await);
    assert_eq!(sandbox.signal(command, None).await, Ok(()));
    assert_eq!(sandbox.feed(command, b"x", false).await, Err(ErrorKind::InvalidArgument));
    assert_eq!(sandbox.whole(command).await, "before\n");
    assert_eq!(sandbox.write("go", b"").await, Ok(()));
    assert_eq!(sandbox.whole(other).await, "fine\n");
    // One that stops its shim, which would answer nobody.
    let stop = format!("until [ -e stop ]; do sleep 0.02; done; kill -STOP $PPID; sleep {marker}");
    let stopping = sandbox.start(&stop).await;
    assert_eq!(sandbox.write("stop", b"").await, Ok(()));
    assert_eq!(sandbox.ending(stopping).await, Ending::Signalled(9));
    assert!(marker.dies_within(2.0).await);
}

#[tokio::test]
async fn one_that_grows_faster_than_it_can_be_stopped_is_killed() {
    const TEST: &str = "one_that_grows_faster_than_it_can_be_stopped_is_killed";
    if !has_process_limit(TEST).await {
        return;
    }
    let limits = Limits { pids: Some(Pids::new(64).unwrap()), ..Limits::default() };
    let sandbox = Box::limited(limits).await;
    let ended = sandbox.start("echo ended").await;
    assert_eq!(sandbox.whole(ended).await, "ended\n");
    let marker = Marker::new();
    let bomb = format!("f() {{ f {marker} & f {marker} & }}; echo up; f {marker}; sleep {marker}");
    let command = sandbox.begin(background(&format!("exec 2>/dev/null; {bomb}"))).await;
    assert_eq!(sandbox.output(command, Stdout, 0).await.bytes, "up\n");
    assert_eq!(sandbox.signal(command, None).await, Ok(()));
    let CommandState::Ended(_) = sandbox.status(command).await.unwrap().state else { panic!("it runs") };
    marker.assert_dead();
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
    assert_eq!(sandbox.whole(ended).await, "ended\n");
}

#[tokio::test]
async fn p_39_output_that_nobody_reads_takes_bounded_memory() {
    const TEST: &str = "p_39_output_that_nobody_reads_takes_bounded_memory";
    if !has_cgroups() {
        return skip(TEST, "a memory cgroup");
    }
    let memory = ringfence_core::ByteSize::from_bytes(48 << 20).unwrap();
    let sandbox = Box::limited(Limits { memory: Some(memory), ..Limits::default() }).await;
    let flood = "head -c 400000000 /dev/zero; head -c 100000000 /dev/zero >&2; printf tail";
    let command = sandbox.start(flood).await;
    assert_eq!(sandbox.ending(command).await, Ending::Exited(0));
    let status = sandbox.status(command).await.unwrap();
    assert_eq!((status.stdout_bytes, status.stderr_bytes), (400_000_004, 100_000_000));
    let last = sandbox.output(command, Stdout, 400_000_000).await;
    assert_eq!(last, chunk(400_000_000, "tail", true));
    let oldest = sandbox.output(command, Stdout, 0).await;
    assert_eq!((oldest.offset, oldest.end), (400_000_004 - (1 << 20), false));
}

#[tokio::test]
async fn p_114_a_full_sandbox_spares_what_runs_in_the_background_on_purpose() {
    const TEST: &str = "p_114_a_full_sandbox_spares_what_runs_in_the_background_on_purpose";
    if !has_process_limit(TEST).await {
        return;
    }
    let sandbox = Box::limited(Limits { pids: Some(Pids::new(12).unwrap()), ..Limits::default() }).await;
    // Agent and two for each of these.
    let marker = Marker::new();
    let sleeper = BackgroundRequest {
        invocation: Invocation::Program(["sleep", &marker.0].map(|word| word.as_bytes().to_vec()).to_vec()),
        ..background("")
    };
    let mut commands = Vec::new();
    let error = loop {
        match sandbox.backend.start_command(&sandbox.id, sleeper.clone()).await {
            Ok(command) => commands.push(command),
            Err(error) => break error,
        }
    };
    assert_eq!(
        (kind(&error), error.message()),
        (ErrorKind::Unavailable, "no more processes in this sandbox")
    );
    assert_eq!(commands.len(), 5);
    // Not even by the second command in a row that finds no room.
    let refused = Said::ended(Ending::PidsExceeded, "", "ringfence: no more processes in this sandbox\n");
    for _ in 0..3 {
        assert_eq!(sandbox.run("/bin/true").await, refused);
    }
    assert_eq!(marker.processes().len(), 5);
    // To kill one takes no process.
    assert_eq!(sandbox.signal(commands[0], None).await, Ok(()));
    let mut said = sandbox.run("echo on").await;
    while said.ending == Ending::PidsExceeded {
        said = sandbox.run("echo on").await;
    }
    assert_eq!(said, Said::ok("on\n"));
    // What an ended one has left gives way, as all that was left does.
    for command in &commands[1..] {
        assert_eq!(sandbox.signal(*command, None).await, Ok(()));
    }
    let left = Marker::new();
    let fill = sandbox.start(&format!("for i in 1 2 3 4 5 6 7 8 9; do sleep {left} & done; echo left")).await;
    assert_eq!(sandbox.ending(fill).await, Ending::Exited(0));
    assert!(until(5.0, || left.processes().len() == 9).await);
    let first = sandbox.run("/bin/true").await;
    assert_eq!(first.ending, Ending::PidsExceeded, "{first:?}");
    assert!(first.stderr.contains("ends all of that first"), "{first:?}");
    assert_eq!(sandbox.run("echo on").await.stdout, "on\n");
    assert!(left.dies_within(2.0).await);
    assert_eq!(sandbox.whole(fill).await, "left\n");
}

#[tokio::test]
async fn whoever_waits_is_told_at_once_that_the_sandbox_is_destroyed() {
    let sandbox = Box::new().await;
    let command = sandbox.begin(fed("sleep 60")).await;
    let id = &sandbox.id;
    let full = vec![0; 1 << 20];
    let (answers, took) = timed(async {
        tokio::join!(
            sandbox.backend.wait_command(id, command, LONG),
            sandbox.backend.read_output(id, command, Stdout, 0, LONG),
            sandbox.backend.write_stdin(id, command, &full, false, LONG),
            async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                sandbox.destroy().await;
            }
        )
    })
    .await;
    assert_took(took, 0.2, 0.2);
    let kinds = (
        answers.0.map_err(|error| kind(&error)),
        answers.1.map_err(|error| kind(&error)),
        answers.2.map_err(|error| kind(&error)),
    );
    let lost = ErrorKind::SandboxLost;
    assert_eq!(kinds, (Err(lost.clone()), Err(lost.clone()), Err(lost.clone())));
    assert_eq!(sandbox.status(command).await, Err(lost.clone()));
    let again = sandbox.backend.start_command(id, background("true")).await;
    assert_eq!(again.map_err(|error| kind(&error)), Err(lost));
}

#[tokio::test]
async fn an_unknown_command_is_not_found() {
    let sandbox = Box::new().await;
    let known = sandbox.start("true").await;
    assert_eq!(sandbox.ending(known).await, Ending::Exited(0));
    for number in [0, 2, u64::MAX] {
        let command = CommandId(number);
        let error = sandbox.backend.wait_command(&sandbox.id, command, LONG).await.unwrap_err();
        assert_eq!((kind(&error), error.fact("command")), (ErrorKind::NotFound, Some(&*command.to_string())));
        assert_eq!(sandbox.signal(command, None).await, Err(ErrorKind::NotFound));
        assert_eq!(sandbox.feed(command, b"x", false).await, Err(ErrorKind::NotFound));
        let read = sandbox.backend.read_output(&sandbox.id, command, Stdout, 0, LONG).await;
        assert_eq!(read.map_err(|error| kind(&error)), Err(ErrorKind::NotFound));
    }
}

#[tokio::test]
async fn those_who_wait_for_one_command_are_bounded_and_whoever_only_asks_is_answered() {
    let sandbox = Box::new().await;
    let command = sandbox.start("sleep 60").await;
    let waiting = || sandbox.backend.wait_command(&sandbox.id, command, LONG);
    let mut held = Vec::new();
    for _ in 0..64 {
        let mut one = std::boxed::Box::pin(waiting());
        assert!(tokio::time::timeout(Duration::from_millis(2), &mut one).await.is_err());
        held.push(one);
    }
    assert_eq!(waiting().await.map_err(|error| kind(&error)), Err(ErrorKind::Unavailable));
    assert_eq!(sandbox.status(command).await.unwrap().state, CommandState::Running);
    // Who hangs up makes room.
    held.truncate(60);
    let mut one = std::boxed::Box::pin(waiting());
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut one).await.is_err());
    assert_eq!(sandbox.signal(command, None).await, Ok(()));
    held.push(one);
    for one in held {
        assert_eq!(one.await.unwrap().state, CommandState::Ended(Ending::Signalled(9)));
    }
}

async fn run(backend: &LocalBackend, id: &ringfence_core::SandboxId, command: &str) -> CommandResult {
    backend.run_command(id, shell(command, 20.0)).await.unwrap()
}

#[test]
fn a_command_survives_its_starter_and_others_read_feed_kill_and_wait() {
    const TEST: &str = "a_command_survives_its_starter_and_others_read_feed_kill_and_wait";
    if is_alone(&format!("suite::background::{TEST}")) {
        tokio::runtime::Runtime::new().unwrap().block_on(survive());
    }
}

async fn survive() {
    let place = Place::new();
    let starter = place.backend();
    let id = starter.create_reachable(&SandboxSpec::new(), ringfence_core::Reach::Kept).await.unwrap().id;
    let echo =
        starter.start_command(&id, fed("while read -r line; do echo \"<$line>\"; done")).await.unwrap();
    let marker = Marker::new();
    let sleep = starter.start_command(&id, background(&format!("sleep {marker}"))).await.unwrap();
    drop(starter);
    let (feeder, reader) = (place.backend(), place.backend());
    let (read, fed) = tokio::join!(
        reader.read_output(&id, echo, Stdout, 0, LONG),
        feeder.write_stdin(&id, echo, b"hello\n", true, LONG)
    );
    assert_eq!((read.unwrap().bytes, fed.unwrap()), ("<hello>\n".into(), 6));
    let listed = place.backend().list_commands(&id).await.unwrap();
    assert_eq!(listed.iter().map(|status| status.id).collect::<Vec<_>>(), [echo, sleep]);
    let (ended, killed) =
        tokio::join!(reader.wait_command(&id, sleep, LONG), feeder.signal_command(&id, sleep, None));
    assert_eq!(ended.unwrap().state, CommandState::Ended(Ending::Signalled(9)));
    assert_eq!(killed.map_err(|error| kind(&error)), Ok(()));
    marker.assert_dead();
    assert_eq!(
        place.backend().wait_command(&id, echo, LONG).await.unwrap().state,
        CommandState::Ended(Ending::Exited(0))
    );
    assert_eq!(run(&reader, &id, "echo on").await, CommandResult::exited(0, "on\n", ""));
    reader.destroy(&id).await.unwrap();
    // What was done is written down, by whoever did it.
    let events: Vec<_> = place.events();
    let find = |event: &str| {
        let lines = events.iter().filter(|(name, _)| name == event).map(|(_, line)| line);
        lines.map(|line| (line["kind"].clone(), line["id"].clone())).collect::<Vec<_>>()
    };
    let started = |id: &str| ("background".into(), id.into());
    assert_eq!(find("command")[..2], [started("c1"), started("c2")]);
    assert_eq!(find("signal"), [(serde_json::Value::Null, "c2".into())]);
}

#[tokio::test]
async fn s_54_a_stale_holder_can_do_nothing_to_a_command() {
    let place = Place::new();
    let id = place.kept(SandboxSpec::new().with_owner("team").unwrap()).await;
    let lease = Lease::new(Duration::from_secs(30)).unwrap();
    let claimant = |holder: &str| Claimant::new("team").unwrap().with_holder(holder).unwrap();
    let backend = place.backend();
    let first = claim(&backend, &id, &claimant("one"), lease, SystemTime::now()).await.unwrap();
    let command = backend.start_command(first.sandbox(), fed("cat")).await.unwrap();
    let later = SystemTime::now() + Duration::from_secs(60);
    let second = claim(&place.backend(), &id, &claimant("two"), lease, later).await.unwrap();
    let stale = first.sandbox();
    let lost = ErrorKind::ClaimLost;
    let outcomes = [
        backend.start_command(stale, background("true")).await.map(drop),
        backend.list_commands(stale).await.map(drop),
        backend.wait_command(stale, command, LONG).await.map(drop),
        backend.read_output(stale, command, Stdout, 0, LONG).await.map(drop),
        backend.write_stdin(stale, command, b"x", true, LONG).await.map(drop),
        backend.signal_command(stale, command, None).await,
        backend.signal_command(stale, command, Some(9)).await,
    ];
    for outcome in outcomes {
        assert_eq!(outcome.map_err(|error| kind(&error)), Err(lost.clone()));
    }
    let holder = second.sandbox();
    assert_eq!(backend.list_commands(holder).await.unwrap().len(), 1);
    assert_eq!(backend.write_stdin(holder, command, b"mine", true, LONG).await.unwrap(), 4);
    assert_eq!(
        backend.wait_command(holder, command, LONG).await.unwrap().state,
        CommandState::Ended(Ending::Exited(0))
    );
    assert_eq!(backend.read_output(holder, command, Stdout, 0, LONG).await.unwrap(), chunk(0, "mine", true));
    backend.destroy(holder).await.unwrap();
}

#[tokio::test]
async fn a_command_that_runs_is_use_of_the_sandbox_and_one_that_has_ended_is_not() {
    let place = Place::new();
    let idle = Duration::from_secs_f64(1.0 * slowness());
    let id = place.kept(SandboxSpec::new().with_idle(idle).unwrap()).await;
    let backend = place.backend();
    let long = format!("sleep {}; setsid sleep 1000 & echo over", idle.as_secs_f64() * 2.5);
    let command = backend.start_command(&id, background(&long)).await.unwrap();
    let state = backend.wait_command(&id, command, LONG).await.unwrap().state;
    assert_eq!(state, CommandState::Ended(Ending::Exited(0)));
    let ended = std::time::Instant::now();
    // Looking at it is none either.
    while !place.names().is_empty() {
        drop(backend.wait_command(&id, command, NOW).await);
        assert!(ended.elapsed() < idle * 20, "nobody ended it");
        tokio::time::sleep(idle / 10).await;
    }
    assert!(ended.elapsed() >= idle * 9 / 10, "{:?}", ended.elapsed());
    assert_eq!(place.end_reason().as_deref(), Some("idle"));
}

#[tokio::test]
async fn inspect_shows_what_runs_and_nothing_of_ours() {
    let place = Place::new();
    let id = place.kept(SandboxSpec::new()).await;
    let backend = place.backend();
    let sleeper = BackgroundRequest {
        invocation: Invocation::Program(vec![b"sleep".to_vec(), b"1000".to_vec()]),
        ..background("")
    };
    backend.start_command(&id, sleeper).await.unwrap();
    let ended = backend.start_command(&id, background("true")).await.unwrap();
    backend.wait_command(&id, ended, LONG).await.unwrap();
    let seen = backend.inspect(&id).await.unwrap();
    let commands: Vec<_> = seen.processes.iter().map(|process| process.command.clone()).collect();
    assert_eq!(commands, [b"sleep\x001000\0".to_vec()]);
    backend.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn bk_11_the_capability_is_claimed_and_there() {
    let sandbox = Box::new().await;
    assert!(sandbox.backend.capabilities().background);
    let background = Backend::background(&sandbox.backend).unwrap();
    assert_eq!(background.list_commands(&sandbox.id).await.unwrap(), []);
}

/// Fills memory by a variable of the shell.
const EAT: &str = "x=x; while :; do x=$x$x; done";

#[tokio::test]
async fn p_115_a_background_command_that_meets_the_memory_limit_says_so() {
    const TEST: &str = "p_115_a_background_command_that_meets_the_memory_limit_says_so";
    if !has_cgroups() {
        return skip(TEST, "control groups");
    }
    let place = Place::new();
    let creator = place.backend();
    let limits = Limits { memory: Some(ByteSize::from_bytes(64 << 20).unwrap()), ..Limits::default() };
    let spec = SandboxSpec::new().with_limits(limits);
    let id = creator.create_reachable(&spec, Reach::Listed).await.unwrap().id;
    let sandbox = Box { backend: place.backend(), id };
    // Who meets it and has a status of its own.
    let tough = sandbox.start(&format!("({EAT}) 2> /dev/null; exit 42")).await;
    assert_eq!(sandbox.ending(tough).await, Ending::Exited(42));
    for command in [EAT.to_owned(), format!("({EAT}) 2> /dev/null; exit $?")] {
        let eats = sandbox.start(&command).await;
        assert_eq!(sandbox.ending(eats).await, Ending::MemoryExceeded, "{command}");
        // It stays, whoever asks, and whatever the limit does later.
        let again = Box { backend: place.backend(), id: sandbox.id.clone() };
        assert_eq!(again.ending(eats).await, Ending::MemoryExceeded);
        assert_eq!(again.ending(tough).await, Ending::Exited(42));
    }
    // Who was there when it struck and is killed by request was not ended by it, whichever way that is asked for.
    for signal in [Some(9), None] {
        let killed = sandbox.survivor_of_an_eater().await;
        sandbox.signal(killed, signal).await.unwrap();
        assert_eq!(sandbox.ending(killed).await, Ending::Signalled(9), "{signal:?}");
    }
    // Nothing of the counters arrives in a command.
    let look = sandbox.start("ls -l /proc/self/fd | grep -c cgroup; ls /proc/self/fd | wc -l").await;
    assert_eq!(sandbox.whole(look).await, "0\n4\n");
    creator.destroy(&sandbox.id).await.unwrap();
}

#[tokio::test]
async fn p_114_a_background_command_that_meets_the_process_limit_says_so() {
    const TEST: &str = "p_114_a_background_command_that_meets_the_process_limit_says_so";
    if !has_cgroups() {
        return skip(TEST, "control groups");
    }
    let limits = || Limits { pids: Some(Pids::new(16).unwrap()), ..Limits::default() };
    const STORM: &str = "for i in $(seq 40); do sleep 1000 & done 2>/dev/null; exit 5";
    let (sandbox, foreground) = (Box::limited(limits()).await, Box::limited(limits()).await);
    let storm = sandbox.start(STORM).await;
    // bash tries for a quarter of a minute, gives up where it cannot fork, and says so by its status.
    let (ending, said) = tokio::join!(sandbox.ending(storm), foreground.run(STORM));
    assert!([Ending::PidsExceeded, Ending::Exited(5)].contains(&ending), "{ending:?}");
    assert_eq!(said.ending, ending, "the same as for one that is waited for");
    sandbox.signal(storm, None).await.unwrap();
    let own = sandbox.start("exit 254").await;
    assert_eq!(sandbox.ending(own).await, Ending::Exited(254));
}
