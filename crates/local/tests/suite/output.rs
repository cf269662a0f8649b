//! Output and input: exact bytes, bounded memory, nobody stuck.

use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringfence_core::{
    Backend, Captured, CommandRequest, CommandResult, Ending, ErrorKind, OutputLimit, OutputObserver, Stdin,
    StreamName,
};
use tokio::io::{AsyncRead, ReadBuf};

use super::support::{Box, Marker, Said, assert_took, ended, has_program, limit, seconds, shell, timed};

fn keeping(bytes: usize, command: &str) -> CommandRequest {
    CommandRequest::shell(command, seconds(60.0), limit(bytes))
}

fn reading(stdin: impl Into<Vec<u8>>, command: &str) -> CommandRequest {
    keeping(16 << 20, command).with_stdin(Stdin::Bytes(Bytes::from(stdin.into())))
}

/// Bytes without a period that a ring buffer could hide behind.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn p_32_more_than_a_pipe_holds_comes_through() {
    let sandbox = Box::new().await;
    let result = sandbox.request(keeping(1 << 20, "head -c 200000 /dev/zero")).await;
    assert_eq!(result, CommandResult::exited(0, vec![0u8; 200_000], ""));
}

#[tokio::test]
async fn p_33_a_lot_on_standard_error_does_not_hang() {
    let sandbox = Box::new().await;
    let command =
        "for i in 1 2 3 4 5 6 7 8 9 10; do head -c 100000 /dev/zero | tr '\\0' e >&2; echo >&2; done; false";
    let result = sandbox.request(keeping(2 << 20, command)).await;
    assert_eq!(result, CommandResult::exited(1, "", format!("{}\n", "e".repeat(100_000)).repeat(10)));
}

#[tokio::test]
async fn p_34_one_long_line_is_cut_and_says_so() {
    let sandbox = Box::new().await;
    let result = sandbox.request(keeping(100_000, "head -c 20000000 /dev/zero | tr '\\0' x")).await;
    let kept = Captured { bytes: Bytes::from(vec![b'x'; 100_000]), truncated: true, total_bytes: 20_000_000 };
    assert_eq!(result, CommandResult { stdout: kept, ..CommandResult::exited(0, "", "") });
}

#[tokio::test]
async fn bk_08_a_cut_stream_starts_with_a_whole_line() {
    let sandbox = Box::new().await;
    let result = sandbox.request(keeping(10, "echo 1234567; echo abcdefg; echo >&2")).await;
    let kept = Captured { bytes: Bytes::from("abcdefg\n"), truncated: true, total_bytes: 16 };
    assert_eq!(result, CommandResult { stdout: kept, ..CommandResult::exited(0, "", "\n") });
}

#[tokio::test]
async fn p_36_bytes_that_are_no_text_are_kept_and_shown_replaced() {
    let sandbox = Box::new().await;
    let result = sandbox.request(shell("printf '\\xff\\xfe\\x00ok'", 60.0)).await;
    assert_eq!(result, CommandResult::exited(0, &b"\xff\xfe\0ok"[..], ""));
    assert_eq!(result.stdout.text(), "\u{fffd}\u{fffd}\0ok");
}

#[tokio::test]
async fn p_37_every_byte_value_comes_through_unchanged() {
    let sandbox = Box::new().await;
    let content = noise(300_000);
    let result = sandbox.request(reading(content.clone(), "gzip -c | gzip -dc")).await;
    assert_eq!(result, CommandResult::exited(0, content, ""));
}

#[tokio::test]
async fn p_38_newlines_are_kept() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.run("printf 'a\\nb\\n\\nc'").await, Said::ok("a\nb\n\nc"));
    assert_eq!(sandbox.run("printf '\\r\\n\\n'").await, Said::ok("\r\n\n"));
}

#[tokio::test]
async fn p_39_endless_output_takes_no_memory_here() {
    let sandbox = Box::new().await;
    sandbox.run("true").await;
    // A second, or five times what as much takes here without a sandbox.
    let bare = Instant::now();
    let status = Command::new("sh").args(["-c", "head -c 50M /dev/zero | cat > /dev/null"]).status().unwrap();
    assert!(status.success());
    let timeout = f64::max(1.0, 5.0 * bare.elapsed().as_secs_f64());
    let before = resident_bytes();
    let request = CommandRequest::shell("cat /dev/zero | cat", seconds(timeout), limit(1 << 20));
    let (result, took) = timed(sandbox.request(request)).await;
    let grown = resident_bytes().saturating_sub(before);
    assert_eq!((result.ending, result.stdout.truncated), (Ending::TimedOut, true));
    assert_eq!(result.stdout.bytes, vec![0u8; 1 << 20]);
    let total = result.stdout.total_bytes;
    assert!(total > 50 << 20, "only {total} bytes in {timeout} seconds");
    assert!(grown < 8 << 20, "{grown} bytes more are resident");
    assert_took(took, timeout, timeout + 2.0);
}

#[tokio::test]
async fn p_40_what_was_dropped_is_counted() {
    let sandbox = Box::new().await;
    let result = sandbox.request(keeping(1000, "head -c 1000000 /dev/zero; printf end >&2")).await;
    let kept = Captured { bytes: Bytes::from(vec![0u8; 1000]), truncated: true, total_bytes: 1_000_000 };
    assert_eq!(result, CommandResult { stdout: kept, ..CommandResult::exited(0, "", "end") });
}

#[tokio::test]
async fn p_40_exactly_the_limit_is_not_truncated() {
    let sandbox = Box::new().await;
    let result = sandbox.request(keeping(1000, "head -c 1000 /dev/zero")).await;
    assert_eq!(result, CommandResult::exited(0, vec![0u8; 1000], ""));
}

#[tokio::test]
async fn bk_05_output_limits_that_are_none_are_refused() {
    for bad in [0, OutputLimit::MAX_BYTES + 1, usize::MAX] {
        assert_eq!(*OutputLimit::new(bad).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let sandbox = Box::new().await;
    let result = sandbox.request(keeping(1, "printf ab")).await;
    let kept = Captured { bytes: Bytes::from("b"), truncated: true, total_bytes: 2 };
    assert_eq!(result, CommandResult { stdout: kept, ..CommandResult::exited(0, "", "") });
}

#[tokio::test]
async fn p_40_a_pipe_that_the_command_made_larger_is_emptied() {
    if !has_program("p_40_a_pipe_that_the_command_made_larger_is_emptied", "perl") {
        return;
    }
    let sandbox = Box::new().await;
    // F_SETPIPE_SZ; what does not fit any more blocks, so the whole is only there at the very end.
    let command = "perl -e 'fcntl(STDOUT, 1031, 1 << 20) or die; syswrite(STDOUT, \"x\" x (1 << 20)) == 1 << 20 or die'";
    for _ in 0..10 {
        let result = sandbox.request(keeping(2 << 20, command)).await;
        assert_eq!(result.ending, Ending::Exited(0));
        assert_eq!(result.stdout.total_bytes, 1 << 20);
    }
}

#[tokio::test]
async fn p_40_nothing_of_a_short_command_is_lost() {
    let sandbox = Box::new().await;
    for round in 0..100 {
        let said = sandbox.run("head -c 65536 /dev/zero | tr '\\0' x; echo err >&2").await;
        assert_eq!((said.stdout.len(), said.stderr.as_str()), (65536, "err\n"), "round {round}");
    }
}

#[tokio::test]
async fn p_42_eight_mebibytes_pass_through_cat() {
    let sandbox = Box::new().await;
    let content = noise(8 << 20);
    let result = sandbox.request(reading(content.clone(), "cat")).await;
    assert_eq!(result, CommandResult::exited(0, content, ""));
}

#[tokio::test]
async fn p_43_input_that_is_not_read_is_no_error() {
    let sandbox = Box::new().await;
    let (result, took) = timed(sandbox.request(reading(vec![b'x'; 4 << 20], "true"))).await;
    assert_eq!(result, CommandResult::exited(0, "", ""));
    assert_took(took, 0.0, 0.1);
    let result = sandbox.request(reading(vec![b'x'; 4 << 20], "head -c 3")).await;
    assert_eq!(result, CommandResult::exited(0, "xxx", ""));
}

#[tokio::test]
async fn p_43_input_that_nobody_reads_does_not_hold_the_timeout() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let mut request = reading(vec![b'x'; 4 << 20], &format!("sleep {marker}"));
    request.timeout = seconds(0.5);
    let (result, took) = timed(sandbox.request(request)).await;
    assert_eq!(result, ended(Ending::TimedOut, "", ""));
    assert_took(took, 0.5, 2.5);
    marker.assert_dead();
}

#[tokio::test]
async fn p_45_a_long_line_of_input_is_not_cut() {
    let sandbox = Box::new().await;
    let line = format!("{}\n", "x".repeat(10_000));
    assert_eq!(sandbox.request(reading(line, "wc -c")).await, CommandResult::exited(0, "10001\n", ""));
}

#[tokio::test]
async fn p_46_a_blocked_writer_stalls_no_other() {
    let sandbox = Box::new().await;
    let others = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let (said, took) = timed(sandbox.run("echo ok")).await;
            assert_eq!(said, Said::ok("ok\n"));
            slowest = slowest.max(took);
        }
        slowest
    };
    let (blocked, slowest) =
        tokio::join!(sandbox.request(reading(vec![b'x'; 1 << 20], "sleep 1; wc -c")), others);
    assert_eq!(blocked, CommandResult::exited(0, "1048576\n", ""));
    assert_took(slowest, 0.0, 0.1);
}

/// Yields a few chunks with pauses, then `last`.
struct Slow {
    chunks: Vec<&'static [u8]>,
    pause: Pin<std::boxed::Box<tokio::time::Sleep>>,
}

impl AsyncRead for Slow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        std::task::ready!(self.pause.as_mut().poll(context));
        if !self.chunks.is_empty() {
            buffer.put_slice(self.chunks.remove(0));
        }
        self.pause.as_mut().reset(tokio::time::Instant::now() + Duration::from_millis(50));
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn p_46_a_reader_is_passed_on_as_it_comes() {
    let sandbox = Box::new().await;
    let pause = std::boxed::Box::pin(tokio::time::sleep(Duration::from_millis(50)));
    let reader = Slow { chunks: vec![b"one\n", b"two\n", b"three"], pause };
    let request = keeping(1000, "while read -r line; do echo \"<$line>\"; done; echo \"<$line>\"")
        .with_stdin(Stdin::Reader(std::boxed::Box::pin(reader)));
    let result = sandbox.request(request).await;
    assert_eq!(result, CommandResult::exited(0, "<one>\n<two>\n<three>\n", ""));
}

/// Gives one line and then fails.
struct Failing(bool);

impl AsyncRead for Failing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()));
        }
        buffer.put_slice(b"half\n");
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn p_46_input_that_breaks_off_is_not_taken_for_its_end() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let command = format!("cat; sleep {marker}");
    let request = keeping(1000, &command).with_stdin(Stdin::Reader(std::boxed::Box::pin(Failing(false))));
    let error = sandbox.backend.run_command(&sandbox.id, request).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unexpected);
    assert!(marker.dies_within(2.0).await);
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn p_46_a_reader_that_never_yields_does_not_hold_the_command() {
    let sandbox = Box::new().await;
    let (_kept_open, reader) = tokio::io::duplex(10);
    let request = keeping(1000, "echo done").with_stdin(Stdin::Reader(std::boxed::Box::pin(reader)));
    let (result, took) = timed(sandbox.request(request)).await;
    assert_eq!(result, CommandResult::exited(0, "done\n", ""));
    assert_took(took, 0.0, 0.1);
}

#[tokio::test]
async fn p_47_fifty_megabytes_are_cut_at_the_limit() {
    let sandbox = Box::new().await;
    let result = sandbox.request(keeping(4096, "yes +line | head -c 50000000")).await;
    assert_eq!(result.ending, Ending::Exited(0));
    assert_eq!((result.stdout.truncated, result.stdout.total_bytes), (true, 50_000_000));
    // 4096 is no multiple of the line's six bytes; the partial first line is left out.
    let lines = "+line\n".repeat(4096 / 6);
    let expected = format!("{lines}{}", &"+line\n"[..50_000_000 % 6]);
    assert!(expected.ends_with(result.stdout.text().as_ref()), "{}", result.stdout.text());
    assert!(result.stdout.text().starts_with("+line\n"));
}

#[tokio::test]
async fn p_48_a_signal_and_a_status_are_told_apart() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.run("kill -9 $$").await, Said::ended(Ending::Signalled(9), "", ""));
    assert_eq!(sandbox.run("exit 137").await, Said::ended(Ending::Exited(137), "", ""));
    assert_eq!(sandbox.run("kill -TERM $$").await, Said::ended(Ending::Signalled(15), "", ""));
    assert_eq!(sandbox.run("exit 255").await, Said::ended(Ending::Exited(255), "", ""));
    assert_eq!(sandbox.run("exit 124").await, Said::ended(Ending::Exited(124), "", ""));
    assert_eq!(Ending::Signalled(9).shell_status(), 137);
}

/// Takes everything down.
#[derive(Debug, Default)]
struct Ear {
    heard: Mutex<(Vec<u8>, Vec<u8>)>,
}

impl OutputObserver for Ear {
    fn output(&self, stream: StreamName, offset: u64, bytes: &[u8]) {
        let mut heard = self.heard.lock().unwrap();
        let heard = match stream {
            StreamName::Stdout => &mut heard.0,
            StreamName::Stderr => &mut heard.1,
        };
        assert_eq!(offset, heard.len() as u64);
        heard.extend_from_slice(bytes);
    }
}

#[tokio::test]
async fn rc_an_observer_sees_every_byte_also_beyond_the_limit() {
    let sandbox = Box::new().await;
    let ear = Arc::new(Ear::default());
    let content = noise(3 << 20);
    let mut request = keeping(10, "tee /dev/stderr").with_stdin(Stdin::Bytes(content.clone().into()));
    request.observer = Some(Arc::clone(&ear) as Arc<dyn OutputObserver>);
    let result = sandbox.request(request).await;
    assert_eq!((result.ending, result.stdout.total_bytes), (Ending::Exited(0), 3 << 20));
    let heard = ear.heard.lock().unwrap();
    assert!(heard.0 == content, "{} bytes of standard output", heard.0.len());
    assert!(heard.1 == content, "{} bytes of standard error", heard.1.len());
}

#[tokio::test]
async fn rc_an_observer_sees_output_before_the_end() {
    let sandbox = Box::new().await;
    let ear = Arc::new(Ear::default());
    let mut request = shell("echo early; sleep 1; echo late", 60.0);
    request.observer = Some(Arc::clone(&ear) as Arc<dyn OutputObserver>);
    let watch = async {
        let heard = || ear.heard.lock().unwrap().0.clone();
        // Never again once it has ended.
        assert!(super::support::until(10.0, || heard() == b"early\n").await);
    };
    let (result, ()) = tokio::join!(sandbox.request(request), watch);
    assert_eq!(result, CommandResult::exited(0, "early\nlate\n", ""));
    assert_eq!(ear.heard.lock().unwrap().0, b"early\nlate\n");
}

#[tokio::test]
async fn rc_closed_streams_do_not_end_the_command() {
    let sandbox = Box::new().await;
    let result = sandbox.request(shell("exec >&- 2>&-; sleep 0.2; exit 3", 60.0)).await;
    assert_eq!(result, CommandResult::exited(3, "", ""));
}
