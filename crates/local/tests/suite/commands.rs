//! Commands: how they end, when they end, and what is left of them.

use std::time::Duration;

use ringfence_core::{
    Backend, CommandRequest, CommandResult, Ending, EnvMap, ErrorKind, Invocation, Limits, Pids, SandboxSpec,
    Timeout,
};

use ringfence_local::{LocalBackend, LocalConfig};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::support::{
    Box, Marker, Said, assert_took, ended, has_process_limit, has_program, limit, name_of, parent_of, path,
    program, seconds, shell, slowness, timed, until,
};

#[tokio::test]
async fn bk_10_a_command_runs_and_its_failure_is_a_result() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.request(shell("echo hello", 60.0)).await, CommandResult::exited(0, "hello\n", ""));
    let failed = sandbox.request(shell("echo bad >&2; exit 3", 60.0)).await;
    assert_eq!(failed, CommandResult::exited(3, "", "bad\n"));
}

#[tokio::test]
async fn p_01_a_background_child_does_not_hold_the_call() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let (said, took) = timed(sandbox.run_for(&format!("sh -c 'sleep {marker} &'"), 1.0)).await;
    assert_eq!(said, Said::ok(""));
    assert_took(took, 0.0, 0.1);
    // The timeout was the call's, not the child's.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(marker.processes().len(), 1);
    sandbox.destroy().await;
    marker.assert_dead();
}

#[tokio::test]
async fn p_03_a_forked_child_does_not_outlive_the_timeout() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let (said, took) = timed(sandbox.run_for(&format!("sh -c 'sleep {marker} & wait'"), 0.5)).await;
    assert_eq!(said, Said::timed_out(""));
    assert_took(took, 0.5, 2.5);
    marker.assert_dead();
}

#[tokio::test]
async fn p_04_a_background_job_without_hangup_does_not_hold_the_call() {
    let sandbox = Box::new().await;
    let (said, took) = timed(sandbox.run_for("nohup sh -c 'sleep 5' &", 10.0)).await;
    assert_eq!(said, Said::ok(""));
    assert_took(took, 0.0, 0.1);
}

#[tokio::test]
async fn p_05_a_prompt_reads_the_end_of_its_input() {
    let sandbox = Box::new().await;
    let (said, took) = timed(sandbox.run_for("read x; echo \"$? <$x>\"", 10.0)).await;
    assert_eq!(said, Said::ok("1 <>\n"));
    assert_took(took, 0.0, 0.1);
}

/// Two seconds and several times what perl needs here, at this moment, to begin with a server.
async fn time_to_start(sandbox: &Box) -> f64 {
    let (said, took) = timed(sandbox.run("perl -MIO::Socket::INET -e1")).await;
    assert_eq!(said, Said::ok(""));
    2.0 + 4.0 * took.as_secs_f64()
}

#[tokio::test]
async fn p_05_a_server_ends_with_the_timeout() {
    if !has_program("p_05_a_server_ends_with_the_timeout", "perl") {
        return;
    }
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let server = format!(
        "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => \"127.0.0.1:8000\", Listen => 1) \
         or die; $| = 1; print \"listening\\n\"; $s->accept' {marker}"
    );
    let timeout = time_to_start(&sandbox).await;
    let (said, took) = timed(sandbox.run_for(&server, timeout)).await;
    assert_eq!(said, Said::timed_out("listening\n"));
    assert_took(took, timeout, timeout + 2.0);
    marker.assert_dead();
}

#[tokio::test]
async fn p_06_the_timeout_ends_the_command_when_it_passes() {
    let sandbox = Box::new().await;
    let (said, took) = timed(sandbox.run_for("sleep 5; echo hello", 0.5)).await;
    assert_eq!(said, Said::timed_out(""));
    assert_took(took, 0.5, 0.5);
}

#[tokio::test]
async fn p_07_a_here_document_is_written() {
    let sandbox = Box::new().await;
    sandbox.prepare("cat << 'EOF' > f\nline 'one'\n$HOME\nEOF\n").await;
    assert_eq!(sandbox.read("f").await, Ok(b"line 'one'\n$HOME\n".to_vec()));
}

#[tokio::test]
async fn p_08_every_command_has_a_shell_of_its_own() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.run("cd /tmp; x=1; exit 1").await, Said::ended(Ending::Exited(1), "", ""));
    assert_eq!(sandbox.run("echo \"hi $PWD $x\"").await, Said::ok("hi /workspace \n"));
}

#[tokio::test]
async fn p_10_a_stuck_command_does_not_touch_another() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let command = format!("sleep {marker}");
    let (stuck, parallel) = tokio::join!(sandbox.run_for(&command, 1.0), async {
        assert!(marker.lives().await);
        timed(sandbox.run("echo ok")).await
    });
    assert_eq!(stuck, Said::timed_out(""));
    assert_eq!(parallel.0, Said::ok("ok\n"));
    assert_took(parallel.1, 0.0, 0.1);
}

#[tokio::test]
async fn p_12_a_timeout_is_reported_as_one() {
    let sandbox = Box::new().await;
    let result = sandbox.request(shell("sleep 10", 0.2)).await;
    assert_eq!(result, ended(Ending::TimedOut, "", ""));
    assert_eq!(result.ending.shell_status(), 124);
}

#[tokio::test]
async fn p_13_nothing_runs_after_the_timeout() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    assert_eq!(sandbox.run_for(&format!("sleep {marker}"), 0.3).await, Said::timed_out(""));
    marker.assert_dead();
    sandbox.empties().await;
}

#[tokio::test]
async fn p_14_the_port_of_a_killed_child_is_free() {
    if !has_program("p_14_the_port_of_a_killed_child_is_free", "perl") {
        return;
    }
    let sandbox = Box::new().await;
    let server = "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => \"127.0.0.1:3000\", \
                  Listen => 1) or die \"taken\"; $| = 1; print \"listening\\n\"; sleep 60' & wait";
    let timeout = time_to_start(&sandbox).await;
    for _ in 0..2 {
        assert_eq!(sandbox.run_for(server, timeout).await, Said::timed_out("listening\n"));
    }
}

#[tokio::test]
async fn p_16_an_endless_loop_ends_with_the_timeout() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let (said, took) = timed(sandbox.run_for(&format!("while :; do :; done # {marker}"), 0.5)).await;
    assert_eq!(said, Said::timed_out(""));
    assert_took(took, 0.5, 2.5);
    marker.assert_dead();
}

#[tokio::test]
async fn p_17_partial_output_survives_a_timeout() {
    let sandbox = Box::new().await;
    let result = sandbox.request(shell("echo a; echo b >&2; sleep 60", 0.3 * slowness())).await;
    assert_eq!(result, ended(Ending::TimedOut, "a\n", "b\n"));
}

#[tokio::test]
async fn p_18_a_slow_writer_keeps_what_it_wrote() {
    let sandbox = Box::new().await;
    let timeout = 0.65 * slowness();
    let said = sandbox.run_for("while :; do echo x; sleep 0.1; done", timeout).await;
    assert_eq!(said.ending, Ending::TimedOut);
    let lines = said.stdout.matches("x\n").count();
    assert_eq!(said.stdout, "x\n".repeat(lines));
    assert!(lines >= 3 && lines as f64 <= 1.0 + timeout / 0.1, "{lines} lines in {timeout} s");
}

#[tokio::test]
async fn p_20_a_grandchild_that_holds_the_pipes_ends_too() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let command = format!("sh -c '(sleep {marker} >&2)& sleep {marker}'");
    let (said, took) = timed(sandbox.run_for(&command, 0.5)).await;
    assert_eq!(said, Said::timed_out(""));
    assert_took(took, 0.5, 2.5);
    marker.assert_dead();
}

#[tokio::test]
async fn p_21_waiting_is_bounded_by_the_timeout_alone() {
    let sandbox = Box::new().await;
    let result = sandbox.request(shell("sleep 1.5; echo done", 400.0)).await;
    assert_eq!(result, CommandResult::exited(0, "done\n", ""));
}

#[test]
fn p_22_timeouts_that_are_none_are_refused() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e18] {
        let error = Timeout::from_secs_f64(bad).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidArgument, "{bad}");
    }
    assert_eq!(*Timeout::new(Duration::ZERO).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[tokio::test]
async fn p_22_the_longest_timeout_overflows_nothing() {
    let sandbox = Box::new().await;
    let request = CommandRequest::shell("echo x", Timeout::new(Timeout::MAX).unwrap(), limit(10));
    assert_eq!(sandbox.request(request).await, CommandResult::exited(0, "x\n", ""));
}

#[tokio::test]
async fn p_23_the_shortest_timeout_is_not_none() {
    let sandbox = Box::new().await;
    let (said, took) = timed(sandbox.run_for("sleep 60", 1e-9)).await;
    assert_eq!(said, Said::timed_out(""));
    assert_took(took, 0.0, 2.0);
}

#[tokio::test]
async fn p_29_no_zombies_are_left_by_200_short_commands() {
    let sandbox = Box::new().await;
    for _ in 0..200 {
        sandbox.prepare("sh -c 'sleep 0.01 & exit'").await;
    }
    let count = "z=0; n=0; for s in /proc/[0-9]*/stat; do n=$((n+1)); case $(cat $s) in *') Z '*) z=$((z+1));; esac; \
                 done; echo $n $z";
    let mut said = sandbox.run(count).await;
    // The last of them may still be sleeping.
    for _ in 0..100 {
        if said == Said::ok("3 0\n") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        said = sandbox.run(count).await;
    }
    assert_eq!(said, Said::ok("3 0\n"));
}

#[tokio::test]
async fn p_30_a_detached_child_holds_no_call_with_or_without_the_streams() {
    let sandbox = Box::new().await;
    for command in ["(sleep 3 &) ; true", "(sleep 3 &) >/dev/null 2>&1"] {
        let (said, took) = timed(sandbox.run(command)).await;
        assert_eq!(said, Said::ok(""));
        assert_took(took, 0.0, 0.1);
    }
}

#[tokio::test]
async fn p_30_a_command_that_ignores_the_polite_signal_ends_after_the_grace() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let timeout = 0.3 * slowness();
    let command = format!("trap '' TERM; echo on; sleep {marker}");
    let (said, took) = timed(sandbox.run_for(&command, timeout)).await;
    assert_eq!(said, Said::timed_out("on\n"));
    assert_took(took, timeout + 2.0, timeout + 2.0);
    marker.assert_dead();
}

#[tokio::test]
async fn p_31_a_late_writer_meets_no_end_of_its_pipe() {
    let sandbox = Box::new().await;
    sandbox.prepare("mkdir /tmp/sub").await;
    let mut request = shell("pwd; (sleep 0.2; echo late && echo more >&2 && echo wrote > done) &", 60.0);
    request.workdir = Some(path("/tmp/sub"));
    // What comes after the end belongs to no call any more.
    assert_eq!(sandbox.request(request).await, CommandResult::exited(0, "/tmp/sub\n", ""));
    for _ in 0..200 {
        if sandbox.read("/tmp/sub/done").await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(sandbox.read("/tmp/sub/done").await, Ok(b"wrote\n".to_vec()));
}

#[tokio::test]
async fn p_31_a_late_writer_is_not_stopped_by_a_full_pipe() {
    let sandbox = Box::new().await;
    sandbox.prepare("(sleep 0.1; head -c 1000000 /dev/zero; echo $? > /tmp/done) &").await;
    for _ in 0..200 {
        if sandbox.read("/tmp/done").await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(sandbox.read("/tmp/done").await, Ok(b"0\n".to_vec()));
}

#[tokio::test]
async fn bk_11_new_sessions_and_double_forks_do_not_escape_the_timeout() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let command = format!(
        "setsid sleep {marker} & (setsid sh -c 'sleep {marker} & exec setsid sleep {marker}' &) ; \
         (trap '' TERM HUP; setsid nohup sleep {marker} > /dev/null 2>&1 &) ; sleep {marker}"
    );
    let (said, took) = timed(sandbox.run_for(&command, 0.7)).await;
    assert_eq!(said, Said::timed_out(""));
    assert_took(took, 0.7, 2.7);
    marker.assert_dead();
}

#[tokio::test]
async fn bk_11_stopped_processes_end_with_the_timeout() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let command = format!("sleep {marker} & kill -STOP $!; kill -STOP $$");
    let (said, took) = timed(sandbox.run_for(&command, 0.5)).await;
    assert_eq!(said, Said::timed_out(""));
    assert_took(took, 0.5, 2.5);
    marker.assert_dead();
}

#[tokio::test]
async fn bk_11_a_command_that_kills_its_shim_is_ended_with_all_it_started() {
    let sandbox = Box::new().await;
    let (own, other) = (Marker::new(), Marker::new());
    sandbox.prepare(&format!("sleep {other} &")).await;
    let command = format!("setsid sleep {own} & echo before; kill -9 $PPID; sleep {own}");
    let (said, took) = timed(sandbox.run_for(&command, 30.0)).await;
    assert_eq!(said, Said::ended(Ending::Signalled(9), "before\n", ""));
    assert_took(took, 0.0, 0.1);
    assert!(own.dies_within(1.0).await);
    // What others left running goes on, and so does the sandbox.
    assert_eq!(other.processes().len(), 1);
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn bk_11_a_command_that_stops_its_shim_does_not_outlive_the_timeout() {
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let command = format!("kill -STOP $PPID; sleep {marker}");
    let (_, took) = timed(sandbox.run_for(&command, 0.5)).await;
    assert_took(took, 0.0, 2.5);
    assert!(marker.dies_within(1.0).await);
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

/// Waits until that many processes have the marker, and lowers the limit of open files of their shim: from outside, so that what fails
/// then is not the command's doing.
async fn limit_shim_of(marker: &Marker, count: usize, open_files: u64) {
    // The first child of a shim has its name until it is the program.
    let shim = || marker.processes().into_iter().map(parent_of).find(|pid| name_of(*pid) == "ringfence");
    assert!(until(10.0, || marker.processes().len() == count && shim().is_some()).await);
    let shim = Pid::from_raw(shim().unwrap().try_into().unwrap());
    let limit = Rlimit { current: Some(open_files), maximum: Some(open_files) };
    prlimit(shim, Resource::Nofile, limit).unwrap();
}

#[tokio::test]
async fn bk_11_a_shim_that_fails_leaves_nothing_of_its_command() {
    let sandbox = Box::new().await;
    let (own, other) = (Marker::new(), Marker::new());
    sandbox.prepare(&format!("sleep {other} &")).await;
    // The first one's end wakes the shim. Of the others one has left its session, one is stopped.
    let command = format!(
        "(sh -c 'until [ -e go ]; do sleep 0.02; done' > /dev/null &)
         (setsid sh -c 'sleep {own} & kill -STOP $$' &); exec sleep {own}"
    );
    let (said, ()) = tokio::join!(sandbox.run_for(&command, 60.0), async {
        // The kernel refuses to wait for more descriptors than one may have: EINVAL.
        limit_shim_of(&own, 3, 0).await;
        assert_eq!(sandbox.write("go", b"").await, Ok(()));
    });
    assert_eq!(said, Said::ended(Ending::Signalled(9), "", ""));
    assert!(own.dies_within(2.0).await, "{:?}", own.processes());
    // What others left running goes on, and so does the sandbox.
    assert_eq!(other.processes().len(), 1);
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn bk_11_a_shim_that_cannot_end_its_command_leaves_that_to_the_agent() {
    let sandbox = Box::new().await;
    let (own, other) = (Marker::new(), Marker::new());
    sandbox.prepare(&format!("sleep {other} &")).await;
    let command = format!("setsid sleep {own} & exec sleep {own}");
    // The call is dropped then.
    tokio::select! {
        said = sandbox.run_for(&command, 60.0) => panic!("{said:?}"),
        // Enough to wait, and none to look at processes: EMFILE.
        () = limit_shim_of(&own, 2, 3) => {}
    }
    assert!(own.dies_within(8.0).await, "{:?}", own.processes());
    assert_eq!(other.processes().len(), 1);
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn bk_11_a_signal_to_everything_ends_everything_but_the_sandbox() {
    let sandbox = Box::new().await;
    let (own, other) = (Marker::new(), Marker::new());
    sandbox.prepare(&format!("setsid sleep {other} &")).await;
    assert!(other.lives().await);
    // All it may signal: shims of others too, whose processes are ended then by the agent.
    let said = sandbox.run(&format!("sleep {own} & kill -9 -1; sleep {own}")).await;
    assert_eq!(said.ending, Ending::Signalled(9));
    assert!(own.dies_within(1.0).await && other.dies_within(1.0).await);
    sandbox.empties().await;
}

#[tokio::test]
async fn rc_two_hundred_calls_at_once() {
    let sandbox = std::sync::Arc::new(Box::new().await);
    let calls: Vec<_> = (0..200)
        .map(|number| {
            let sandbox = std::sync::Arc::clone(&sandbox);
            tokio::spawn(async move {
                let mut request = shell("cat; cat f 2> /dev/null; true", 60.0 * slowness());
                request.stdin = ringfence_core::Stdin::Bytes(format!("{number}\n").into());
                sandbox.backend.run_command(&sandbox.id, request).await
            })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        let said = call.await.unwrap();
        // Each call takes a few descriptors here; a host that allows too few refuses some, and no call hangs.
        match said {
            Ok(result) => assert_eq!(result, CommandResult::exited(0, format!("{number}\n"), "")),
            Err(error) => assert_eq!(*error.kind(), ErrorKind::Unexpected, "{error:?}"),
        }
    }
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn bk_11_the_agent_cannot_be_ended_from_inside() {
    let sandbox = Box::new().await;
    let said = sandbox.run("kill -9 1; kill -STOP 1; kill -TERM 1; echo $?").await;
    assert_eq!(said, Said::ok("0\n"));
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn p_114_a_fork_bomb_ends_with_the_timeout() {
    if !has_process_limit("p_114_a_fork_bomb_ends_with_the_timeout").await {
        return;
    }
    let limits = Limits { pids: Some(Pids::new(64).unwrap()), ..Limits::default() };
    let sandbox = Box::limited(limits).await;
    let marker = Marker::new();
    let command = format!("bomb() {{ bomb | bomb & }}; bomb; sleep {marker}");
    let request = CommandRequest::shell(command, seconds(0.7), limit(100));
    let (result, took) = timed(sandbox.request(request)).await;
    assert_eq!((result.ending, result.sandbox_lost), (Ending::TimedOut, false));
    assert_took(took, 0.7, 2.7);
    marker.assert_dead();
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn p_114_a_fork_bomb_ends_when_its_call_is_dropped() {
    if !has_process_limit("p_114_a_fork_bomb_ends_when_its_call_is_dropped").await {
        return;
    }
    let limits = Limits { pids: Some(Pids::new(64).unwrap()), ..Limits::default() };
    let sandbox = Box::limited(limits).await;
    let marker = Marker::new();
    let command = format!("bomb() {{ bomb | bomb & }}; bomb; sleep {marker}");
    tokio::select! {
        said = sandbox.run(&command) => panic!("{said:?}"),
        lives = until(10.0, || marker.processes().len() > 30) => assert!(lives),
    }
    assert!(marker.dies_within(3.0).await);
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn rc_a_dropped_call_ends_its_command_and_no_other() {
    let sandbox = Box::new().await;
    let (dropped, other) = (Marker::new(), Marker::new());
    let command = format!("setsid sleep {dropped} & trap '' TERM; sleep {dropped}");
    let others = format!("sleep {other} & sleep 1; echo done");
    let other_call = sandbox.run(&others);
    let cancelled = async {
        tokio::select! {
            said = sandbox.run(&command) => panic!("{said:?}"),
            lives = until(10.0, || dropped.processes().len() >= 2) => assert!(lives),
        }
        // No polite signal: nobody waits for what it would still say.
        assert!(dropped.dies_within(0.5).await);
    };
    let (said, ()) = tokio::join!(other_call, cancelled);
    assert_eq!(said, Said::ok("done\n"));
    assert_eq!(other.processes().len(), 1);
}

#[tokio::test]
async fn rc_a_large_process_ends_in_time() {
    // Putting gigabytes away takes the kernel longer than a look at the process table.
    if !has_program("rc_a_large_process_ends_in_time", "perl") {
        return;
    }
    let sandbox = Box::new().await;
    let marker = Marker::new();
    let command = format!(
        "perl -e '$SIG{{TERM}} = \"IGNORE\"; $x = \"\"; vec($x, (256 << 20) - 1, 8) = 1; $| = 1; print \"full\\n\"; sleep 60' {marker}"
    );
    let result = sandbox.request(shell(&command, 1.5 * slowness())).await;
    assert_eq!(result, ended(Ending::TimedOut, "full\n", ""));
    marker.assert_dead();
}

#[tokio::test]
async fn rc_commands_run_at_the_same_time() {
    let sandbox = std::sync::Arc::new(Box::new().await);
    let calls: Vec<_> = (0..30)
        .map(|number| {
            let sandbox = std::sync::Arc::clone(&sandbox);
            // None of them ends before all of them have begun.
            let command = format!(
                "> {number}; set -- *; while [ $# -lt 30 ]; do sleep 0.1; set -- *; done; echo {number}"
            );
            tokio::spawn(async move { sandbox.run(&command).await })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), Said::ok(&format!("{number}\n")));
    }
}

#[tokio::test]
async fn bk_a_program_runs_without_a_shell() {
    let sandbox = Box::new().await;
    let result = sandbox.request(program(&["printf", "<%s>", "a b", "$HOME", "", "'"])).await;
    assert_eq!(result, CommandResult::exited(0, "<a b><$HOME><><'>", ""));
    let bytes = vec![b"printf".to_vec(), b"%s".to_vec(), b"\xff\xfe\n".to_vec()];
    let request = CommandRequest::new(Invocation::Program(bytes), seconds(60.0), limit(100));
    assert_eq!(sandbox.request(request).await, CommandResult::exited(0, &b"\xff\xfe\n"[..], ""));
}

#[tokio::test]
async fn bk_a_program_that_cannot_start_ends_as_in_a_shell() {
    let sandbox = Box::new().await;
    for name in ["no-such-program", "/no/such/program"] {
        let missing = format!("ringfence: {name}: not found in the sandbox, or its interpreter is not\n");
        assert_eq!(sandbox.request(program(&[name])).await, CommandResult::exited(127, "", missing));
    }
    for name in ["/etc/passwd", "/tmp"] {
        let denied = format!("ringfence: {name}: cannot execute: Permission denied (os error 13)\n");
        assert_eq!(sandbox.request(program(&[name])).await, CommandResult::exited(126, "", denied));
    }
}

#[tokio::test]
async fn bk_05_commands_that_cannot_be_are_refused() {
    let sandbox = Box::new().await;
    let kind =
        async |request| sandbox.backend.run_command(&sandbox.id, request).await.unwrap_err().kind().clone();
    assert_eq!(kind(shell("echo \0", 1.0)).await, ErrorKind::InvalidArgument);
    assert_eq!(kind(program(&[])).await, ErrorKind::InvalidArgument);
    assert_eq!(kind(shell(&"x".repeat(128 << 10), 1.0)).await, ErrorKind::InvalidArgument);
    assert_eq!(sandbox.run("echo on").await, Said::ok("on\n"));
}

#[tokio::test]
async fn p_51_a_long_command_runs_up_to_what_the_kernel_takes() {
    let sandbox = Box::new().await;
    let command = format!("echo ok #{}", "x".repeat((128 << 10) - 10));
    assert_eq!(sandbox.run(&command).await, Said::ok("ok\n"));
}

#[tokio::test]
async fn rc_the_working_directory_is_the_one_asked_for() {
    let sandbox = Box::new().await;
    sandbox.prepare("mkdir -p sub/'a b' && mkdir -m 000 closed && touch file && ln -s sub link").await;
    let run = async |workdir: &str| {
        let mut request = shell("pwd", 60.0);
        request.workdir = Some(path(workdir));
        let result = sandbox.backend.run_command(&sandbox.id, request).await;
        result.map(|result| result.stdout.text().into_owned()).map_err(|error| error.kind().clone())
    };
    assert_eq!(run("sub/a b").await, Ok("/workspace/sub/a b\n".to_owned()));
    assert_eq!(run("link").await, Ok("/workspace/sub\n".to_owned()));
    assert_eq!(run("/usr/bin").await, Ok("/usr/bin\n".to_owned()));
    assert_eq!(run("missing").await, Err(ErrorKind::NotFound));
    assert_eq!(run("file").await, Err(ErrorKind::NotADirectory));
    assert_eq!(run("closed").await, Err(ErrorKind::PermissionDenied));
}

#[tokio::test]
async fn rc_a_command_gets_three_descriptors_and_default_signals() {
    let sandbox = Box::new().await;
    // The third is the directory that `ls` reads.
    assert_eq!(
        sandbox.request(program(&["ls", "/proc/self/fd"])).await,
        CommandResult::exited(0, "0\n1\n2\n3\n", "")
    );
    let status = sandbox.request(program(&["grep", "^Sig[BI]", "/proc/self/status"])).await;
    let none = "0".repeat(16);
    let expected = format!("SigBlk:\t{none}\nSigIgn:\t{none}\n");
    assert_eq!(status, CommandResult::exited(0, expected, ""));
}

#[tokio::test]
async fn rc_the_streams_can_be_opened_by_name() {
    let sandbox = Box::new().await;
    let mut request =
        shell("cat /dev/stdin; echo out > /dev/stdout; echo err | tee /dev/stderr > /dev/fd/1", 60.0);
    request.stdin = ringfence_core::Stdin::Bytes("in\n".into());
    assert_eq!(sandbox.request(request).await, CommandResult::exited(0, "in\nout\nerr\n", "err\n"));
    assert_eq!(sandbox.run("cat < /dev/stdin").await, Said::ok(""));
}

#[tokio::test]
async fn rc_a_second_runtime_can_go_on_with_a_sandbox() {
    let sandbox = Box::new().await;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(sandbox.run("echo other"))
        });
        assert_eq!(other.join().unwrap(), Said::ok("other\n"));
    });
    assert_eq!(sandbox.run("echo first").await, Said::ok("first\n"));
}

#[tokio::test]
async fn p_112_variables_of_the_spec_reach_every_command() {
    let env = EnvMap::new([("A", "1 '$x'"), ("HOME", "/tmp"), ("PATH", "/usr/bin")]).unwrap();
    let sandbox = Box::with(SandboxSpec::new().with_env(env)).await;
    for _ in 0..2 {
        let said = sandbox.run("printf '%s|' \"$A\" \"$HOME\" \"$PATH\"").await;
        assert_eq!(said, Said::ok("1 '$x'|/tmp|/usr/bin|"));
    }
    let mut request = shell("printf '%s|' \"$A\" \"$B\"", 60.0);
    request.env = EnvMap::new([("A", "2"), ("B", "3")]).unwrap();
    assert_eq!(sandbox.request(request).await, CommandResult::exited(0, "2|3|", ""));
}

#[tokio::test]
async fn p_03_a_storm_that_ignores_the_polite_signal_ends_in_time() {
    const TEST: &str = "p_03_a_storm_that_ignores_the_polite_signal_ends_in_time";
    if !has_program(TEST, "/usr/bin/python3") || !has_process_limit(TEST).await {
        return;
    }
    // As many as can be ended before the sandbox is given up, which takes longer on a slow machine.
    let storm_size = if slowness() > 1.0 { 64 } else { 500 };
    let limits = Limits { pids: Some(Pids::new(storm_size).unwrap()), ..Limits::default() };
    let backend = LocalBackend::new(LocalConfig::default());
    let created = backend.create(&SandboxSpec::new().with_limits(limits)).await.unwrap();
    let storm = "import os, signal
signal.signal(15, signal.SIG_IGN)
while True:
    try: os.fork()
    except OSError: pass
";
    let mut request = super::support::program(&["/usr/bin/python3", "-c", storm]);
    request.timeout = seconds(1.0);
    let (result, took) = timed(backend.run_command(&created.id, request)).await;
    let result = result.unwrap();
    assert_eq!((result.ending, result.sandbox_lost), (Ending::TimedOut, false));
    // The timeout, the grace, and what two processors need for five hundred busy processes.
    assert_took(took, 1.0, 3.0 + 1.5 * slowness());
    let after = backend.run_command(&created.id, shell("echo on", 60.0)).await.unwrap();
    assert_eq!(after, CommandResult::exited(0, "on\n", ""));
}

#[tokio::test]
async fn p_03_only_a_lone_commands_tree_is_ended_by_one_signal() {
    let sandbox = Box::new().await;
    let left = Marker::new();
    // Left behind by a command that has ended, so no descendant of the one that will be ended.
    sandbox.prepare(&format!("sleep {left} &")).await;
    let marker = Marker::new();
    let command = format!("trap '' TERM; sleep {marker} & sleep {marker}; wait");
    assert_eq!(sandbox.run_for(&command, 0.3).await.ending, Ending::TimedOut);
    marker.assert_dead();
    assert_eq!(left.processes().len(), 1);
    // What anybody can send is not taken for a shim's word.
    assert_eq!(sandbox.run("kill -USR1 1; sleep 0.2; echo on").await, Said::ok("on\n"));
    assert_eq!(left.processes().len(), 1);
}
