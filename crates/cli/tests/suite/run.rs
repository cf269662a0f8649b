use std::time::Duration;

use serde_json::{Value, json};

use super::driver::{Call, assert_nothing_left, marker, sh, skipped};

#[test]
fn the_streams_and_the_status_are_the_commands_own() {
    sh("echo out; echo err >&2; exit 7").done().assert(7, "out\n", "err\n");
    Call::new(["run", "--", "true"]).done().assert(0, "", "");
    Call::new(["run", "--", "false"]).done().assert(1, "", "");
}

#[test]
fn arguments_reach_the_program_as_they_are() {
    let odd = ["a b", "", "$HOME", "*", "--json", "'\"", "\n"];
    let done = Call::new(["run", "--", "printf", "[%s]"].into_iter().chain(odd)).done();
    done.assert(0, "[a b][][$HOME][*][--json]['\"][\n]", "");
}

#[cfg(target_os = "linux")]
#[test]
fn an_argument_that_is_not_utf_8_reaches_the_program() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let args =
        ["run", "--", "printf", "%s"].map(OsStr::new).into_iter().chain([OsStr::from_bytes(b"\xff\xfe")]);
    let done = Call::new(args).done();
    assert_eq!((done.status, done.stdout.as_slice()), (Some(0), &b"\xff\xfe"[..]));
}

#[test]
fn p_48_a_signal_is_128_plus_its_number_and_json_tells_it_from_an_exit() {
    sh("kill -9 $$").done().assert(137, "", "");
    sh("exit 137").done().assert(137, "", "");
    let ending = |script| {
        let document = Call::new(["run", "--json", "--", "sh", "-c", script]).done().json();
        json!([document["ending"], document["exit_code"], document["signal"], document["status"]])
    };
    assert_eq!(ending("kill -9 $$"), json!(["signalled", null, 9, 137]));
    assert_eq!(ending("exit 137"), json!(["exited", 137, null, 137]));
}

#[test]
fn a_program_of_the_host_that_is_not_inside_is_told_how_to_get_there() {
    let try_line = "  try: only the host's /usr is visible inside; bring files in with --input, or show a directory \
                    with backends.local.read_only_paths\n";
    let run = |program: &str, advice: &str| {
        let call = Call::new(["run", "--", program]).file("script.py", "").file("bin/mytool", "");
        let path = format!("/usr/bin:{}", call.cwd().join("bin").display());
        let stderr =
            format!("ringfence: {program}: not found in the sandbox, or its interpreter is not\n{advice}");
        call.env("PATH", &path).done().assert(127, "", &stderr);
    };
    run("script.py", try_line);
    run("mytool", try_line);
    run("/srv/no-such-program", try_line);
    run("./script.py", try_line);
    run("no-such-program", "");
    // A program that was found and ends with the same status is not meant.
    Call::new(["run", "--", "/usr/bin/sh", "-c", "exit 127"]).done().assert(127, "", "");
    let script = "echo ringfence: x: not found in the sandbox >&2; echo y >&2; exit 127";
    let said = "ringfence: x: not found in the sandbox\ny\n";
    Call::new(["run", "--", "/usr/bin/sh", "-c", script]).done().assert(127, "", said);
}

#[test]
fn the_json_of_a_program_that_is_not_inside_has_the_backends_line_only() {
    let done = Call::new(["run", "--json", "--", "./script.py"]).file("script.py", "").done();
    let said = "ringfence: ./script.py: not found in the sandbox, or its interpreter is not\n";
    let stderr = &done.json()["stderr"]["text"];
    assert_eq!((done.status, stderr.as_str(), done.stderr.as_str()), (Some(127), Some(said), ""));
}

#[test]
fn a_program_that_is_not_there_is_127_and_one_that_cannot_be_executed_126() {
    for (args, status) in [
        (&["run", "--", "no-such-program"][..], 127),
        (&["run", "--", "/no/such/program"], 127),
        (&["run", "--", ""], 127),
        (&["run", "--", "/tmp"], 126),
        (&["run", "--", "/etc/passwd"], 126),
    ] {
        let done = Call::new(args).done();
        assert_eq!((done.status, done.out()), (Some(status), ""), "{args:?}: {}", done.stderr);
        assert!(done.stderr.starts_with("ringfence: "), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn p_17_p_12_partial_output_survives_a_timeout_which_is_124_and_said() {
    let marker = marker();
    let done =
        Call::new(["run", "--timeout", "1s", "--", "sh", "-c", &format!("echo a; sleep {marker}")]).done();
    done.assert(124, "a\n", "ringfence: timed out after 1s\n");
    assert!(done.elapsed < Duration::from_secs(4), "{:?}", done.elapsed);
    assert_nothing_left(&marker);
    let document =
        Call::new(["run", "--json", "--timeout", "0.5", "--", "sh", "-c", "echo a; sleep 60"]).done().json();
    assert_eq!(
        json!([document["ending"], document["exit_code"], document["status"], document["stdout"]["text"]]),
        json!(["timed_out", null, 124, "a\n"])
    );
    assert_eq!(json!([document["timeout_seconds"], document["timeout_from"]]), json!([0.5, "--timeout"]));
}

#[test]
fn p_19_a_default_timeout_applies_and_is_reported() {
    let document = Call::new(["run", "--json", "--", "true"]).done().json();
    assert_eq!(json!([document["timeout_seconds"], document["timeout_from"]]), json!([3600.0, "default"]));
}

#[test]
fn p_01_p_30_a_background_child_that_holds_the_streams_does_not_hold_us() {
    for script in ["sleep 8 &", "(sleep 8 &) ; true", "nohup sh -c 'sleep 8' & true", "setsid sleep 8 & true"]
    {
        let done = sh(script).done();
        assert_eq!(done.status, Some(0), "{script}: {}", done.stderr);
        assert!(done.elapsed < Duration::from_secs(4), "{script}: {:?}", done.elapsed);
    }
}

#[test]
fn p_05_standard_input_that_is_empty_ends_at_once() {
    sh("read x; echo got:$x").done().assert(0, "got:\n", "");
}

#[test]
fn p_42_megabytes_pass_through_standard_input_and_output() {
    let bytes: Vec<u8> = (0..8u32 << 20).map(|i| ((i * 31) >> 3).to_le_bytes()[0]).collect();
    let done = Call::new(["run", "--", "cat"]).stdin(bytes.clone()).done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
    assert!(done.stdout == bytes, "{} bytes came back", done.stdout.len());
}

#[test]
fn p_43_input_that_nobody_reads_is_no_error() {
    Call::new(["run", "--", "true"]).stdin(vec![b'x'; 4 << 20]).done().assert(0, "", "");
}

#[test]
fn p_45_a_long_line_of_input_arrives_whole() {
    let mut line = vec![b'x'; 10_000];
    line.push(b'\n');
    let done = Call::new(["run", "--", "wc", "-c"]).stdin(line).done();
    assert_eq!((done.status, done.out().trim()), (Some(0), "10001"));
}

#[test]
fn standard_input_that_stays_open_does_not_hold_us() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let done = Call::new(["run", "--", "true"]).with(|command| {
        command.stdin(reader);
    });
    let done = done.done();
    assert_eq!(done.status, Some(0));
    assert!(done.elapsed < Duration::from_secs(4), "{:?}", done.elapsed);
}

#[test]
fn p_32_p_33_p_36_large_and_binary_output_is_exact() {
    let done = sh("head -c 200000 /dev/zero").done();
    assert!(done.status == Some(0) && done.stdout == vec![0; 200_000], "{}", done.stdout.len());
    let done = sh("i=0; while [ $i -lt 10 ]; do head -c 100000 /dev/zero | tr '\\0' e >&2; echo >&2; i=$((i+1)); done; false").done();
    let line = format!("{}\n", "e".repeat(100_000));
    assert!(done.status == Some(1) && done.stderr == line.repeat(10), "{}", done.stderr.len());
    let done = sh("printf '\\377\\376\\000ok'").done();
    assert_eq!(done.stdout, b"\xff\xfe\x00ok");
}

#[test]
fn output_streams_while_the_command_runs() {
    use std::io::Read;
    let mut running = Call::new(["run", "--", "sh", "-c", "echo first; sleep 3; echo second"])
        .with(|command| {
            command.stderr(std::process::Stdio::inherit());
        })
        .start_unread();
    let mut stdout = running.child.stdout.take().unwrap();
    let started = std::time::Instant::now();
    let mut first = [0; 6];
    stdout.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    assert!(started.elapsed() < Duration::from_millis(2500), "{:?}", started.elapsed());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "second\n");
    assert_eq!(running.done().status, Some(0));
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    use std::io::Read;
    let mut running = Call::new(["run", "--", "sh", "-c", "yes y"]).start_unread();
    let mut stdout = running.child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 2]).unwrap();
    drop(stdout);
    let done = running.done();
    assert_eq!(done.status, Some(141), "{}", done.stderr);
    assert_eq!(done.stderr, "");
}

#[test]
fn a_reader_that_stalls_holds_off_neither_the_timeout_nor_the_end() {
    let running = Call::new(["run", "--timeout", "1", "--", "yes"]).start_unread();
    let done = running.done();
    assert_eq!(done.status, Some(124), "{}", done.stderr);
    assert!(done.stderr.contains("timed out after 1s"), "{}", done.stderr);
    assert!(done.elapsed < Duration::from_secs(15), "{:?}", done.elapsed);
}

#[test]
fn p_39_p_40_json_keeps_the_end_of_a_flood_and_counts_all_of_it() {
    let script = "head -c 20000000 /dev/zero | tr '\\0' x";
    let document =
        Call::new(["run", "--json", "--output-limit", "64k", "--", "sh", "-c", script]).done().json();
    let stdout = &document["stdout"];
    assert_eq!(json!([stdout["truncated"], stdout["total_bytes"]]), json!([true, 20_000_000]));
    assert_eq!(stdout["text"].as_str().unwrap(), "x".repeat(64 << 10));
}

#[test]
fn json_is_one_object_with_the_statement() {
    let done = Call::new([
        "run",
        "--json",
        "--env",
        "A=b",
        "--",
        "sh",
        "-c",
        "echo out; printf '\\377' >&2; exit 3",
    ])
    .done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(3), ""));
    let document = done.json();
    let mut keys: Vec<&String> = document.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "backend",
            "ending",
            "exit_code",
            "sandbox",
            "sandbox_lost",
            "signal",
            "statement",
            "status",
            "stderr",
            "stdout",
            "timeout_from",
            "timeout_seconds",
            "timings_ms",
            "version",
        ]
    );
    assert_eq!(document["stdout"], json!({"text": "out\n", "truncated": false, "total_bytes": 4}));
    assert_eq!(document["stderr"], json!({"base64": "/w==", "truncated": false, "total_bytes": 1}));
    let network =
        document["statement"]["rows"].as_array().unwrap().iter().find(|row| row["field"] == "network");
    assert_ne!(network.unwrap()["evidence"], "not_asked", "{document}");
    for part in ["before", "create", "run", "destroy"] {
        assert!(document["timings_ms"][part].as_f64().unwrap() >= 0.0, "{document}");
    }
}

#[test]
fn s_42_values_of_variables_are_exact() {
    let value = "a'b\"c\n$(id) \\ é";
    let done =
        Call::new(["run", "--env", &format!("V={value}"), "--env", "MINE", "--", "printenv", "V", "MINE"])
            .env("MINE", "own")
            .done();
    done.assert(0, &format!("{value}\nown\n"), "");
}

#[test]
fn nothing_of_our_own_environment_gets_in() {
    let done = Call::new(["run", "--", "env"]).env("SECRET_TOKEN", "hunter2").done();
    assert_eq!(done.status, Some(0));
    assert!(!done.out().contains("hunter2") && !done.out().contains("SECRET_TOKEN"), "{}", done.out());
}

#[test]
fn later_variables_win_and_the_file_is_weaker_than_the_flag() {
    let done = Call::new(["run", "--env-file", "vars", "--env", "B=flag", "--", "printenv", "A", "B"])
        .file("vars", "A=file # kept\nB=file\n")
        .done();
    done.assert(0, "file # kept\nflag\n", "");
}

#[test]
fn s_44_the_workdir_is_created_and_is_where_the_command_starts() {
    Call::new(["run", "--workdir", "/workspace/deep/er", "--", "pwd"]).done().assert(
        0,
        "/workspace/deep/er\n",
        "",
    );
    let done = Call::new(["run", "--", "sh", "-c", "touch f && pwd"]).done();
    assert_eq!(done.status, Some(0), "{}", done.stderr);
}

#[test]
fn a_run_leaves_no_process_behind() {
    let marker = marker();
    let done = sh(&format!("setsid sleep {marker} & sleep {marker} & echo done")).done();
    done.assert(0, "done\n", "");
    assert_nothing_left(&marker);
}

#[test]
fn p_115_the_memory_limit_is_said_or_refused_by_name() {
    let args = ["run", "--json", "--memory", "64MiB", "--", "sh", "-c", "head -c 300000000 /dev/zero | tail"];
    let done = Call::new(args).done();
    let document = done.json();
    if document.get("error").is_some() {
        assert_eq!(
            json!([document["error"]["kind"], document["error"]["field"]]),
            json!(["refused", "limits.memory"])
        );
        skipped("p_115_the_memory_limit_is_said_or_refused_by_name", "a memory controller");
        return;
    }
    let memory: Vec<&Value> = document["statement"]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["field"] == "memory")
        .collect();
    assert_ne!(memory[0]["evidence"], "not_asked", "{document}");
    assert_eq!(document["ending"], "memory_exceeded", "{document}");
    assert_eq!(done.status, Some(137));
    assert!(done.stderr.contains("the memory limit of 64MiB ended the command"), "{}", done.stderr);
}

#[test]
fn a_lifetime_ends_the_sandbox_and_is_said() {
    let marker = marker();
    let done = Call::new(["run", "--lifetime", "1s", "--", "sleep", &marker]).done();
    done.assert(124, "", "ringfence: the sandbox ended with its lifetime of 1s\n");
    assert!(done.elapsed < Duration::from_secs(8), "{:?}", done.elapsed);
    assert_nothing_left(&marker);
}

#[test]
fn a_broken_pipe_inside_is_what_it_is_anywhere() {
    sh("yes | head -1").done().assert(0, "y\n", "");
}

#[test]
fn output_that_cannot_be_stored_is_a_failure_and_not_a_reader_that_went_away() {
    let told = "ringfence: write to standard output: No space left on device (os error 28)\n";
    for args in [
        &["run", "--", "echo", "hi"][..],
        &["run", "--json", "--", "echo", "hi"],
        &["config"],
        &["doctor"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let done = Call::new(args)
            .with(|command| {
                command.stdout(full);
            })
            .done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(125), told), "{args:?}");
    }
}

#[test]
fn notices_and_json_to_a_reader_that_stalls_end_with_their_grace() {
    let (_reader, writer) = std::io::pipe().unwrap();
    let both = Call::new(["run", "--timeout", "0.2", "--", "yes"]).with(|command| {
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
    });
    let json = Call::new(["run", "--json", "--timeout", "2", "--", "head", "-c", "200000", "/dev/zero"]);
    let (both, json) = (both.start_unread(), json.start_unread());
    let (both, json) = (both.done(), json.done());
    assert_eq!((both.status, json.status), (Some(124), Some(125)));
    let told = "ringfence: the rest of the output was dropped because its reader had stalled\n";
    assert_eq!(json.stderr, told);
    assert!(both.elapsed.max(json.elapsed) < Duration::from_secs(20), "{both:?}");
}

#[test]
fn a_limit_on_the_size_of_files_is_a_failure_with_its_remedy() {
    let program = env!("CARGO_BIN_EXE_ringfence");
    let done = std::process::Command::new("sh")
        .args(["-c", "ulimit -f 0; exec \"$0\" config", program])
        .stdout(tempfile::tempfile().unwrap())
        .output();
    let done = done.unwrap();
    let told = "ringfence: write to standard output: File too large (os error 27)\n  try: `ulimit -f unlimited` before: \
                the limit on the size of files also holds for what ringfence writes\n";
    assert_eq!((done.status.code(), String::from_utf8(done.stderr).unwrap().as_str()), (Some(125), told));
}
