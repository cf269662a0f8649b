use super::driver::Call;

#[test]
fn p_55_an_input_arrives_as_it_is() {
    let bytes: Vec<u8> = (0..=255u8).cycle().take(1 << 20).collect();
    let done =
        Call::new(["run", "--input", "data.bin", "--", "cat", "data.bin"]).file("data.bin", &bytes).done();
    assert!(done.status == Some(0) && done.stdout == bytes, "{:?} {}", done.status, done.stderr);
}

#[test]
fn inputs_go_where_they_are_told_also_whole_directories() {
    Call::new([
        "run",
        "--input",
        "a.txt:/tmp/x/b.txt",
        "--input",
        "src:code",
        "--",
        "cat",
        "/tmp/x/b.txt",
        "code/m/n.txt",
    ])
    .file("a.txt", "one\n")
    .file("src/m/n.txt", "two\n")
    .done()
    .assert(0, "one\ntwo\n", "");
}

#[test]
fn a_program_stays_one() {
    use std::os::unix::fs::PermissionsExt;
    let call = Call::new(["run", "--input", "tool", "--", "./tool"]).file("tool", "#!/bin/sh\necho ran\n");
    std::fs::set_permissions(call.cwd().join("tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
    call.done().assert(0, "ran\n", "");
}

#[test]
fn a_missing_input_is_said_before_there_is_a_sandbox() {
    let done = Call::new(["run", "--input", "absent", "--", "true"]).done();
    done.assert(125, "", "ringfence: --input absent: No such file or directory (os error 2)\n");
}

#[test]
fn s_37_a_link_out_of_the_directory_is_refused_and_one_within_is_followed() {
    let call = |target: &str| {
        let call = Call::new(["run", "--input", "src", "--", "cat", "src/link"])
            .file("secret", "secret\n")
            .file("src/plain", "plain\n");
        std::os::unix::fs::symlink(target, call.cwd().join("src/link")).unwrap();
        call
    };
    call("plain").done().assert(0, "plain\n", "");
    for target in ["../secret", "/etc/passwd", "..", "."] {
        let done = call(target).done();
        assert_eq!((done.status, done.out()), (Some(125), ""), "{target}");
        assert!(done.stderr.contains("src/link: the link leads to"), "{target}: {}", done.stderr);
    }
}

#[test]
fn an_input_that_is_no_file_is_refused_and_not_waited_for() {
    let done = Call::new(["run", "--input", "/dev/zero:z", "--", "true"]).done();
    assert_eq!(done.status, Some(125));
    assert!(done.stderr.contains("neither a regular file nor a directory"), "{}", done.stderr);
}

#[test]
fn programs_stay_programs_and_empty_directories_arrive_whatever_the_path_is() {
    use std::os::unix::fs::PermissionsExt;
    let call = Call::new([
        "run",
        "--env",
        "PATH=/x",
        "--input",
        "src",
        "--",
        "/bin/sh",
        "-c",
        "src/tool; echo src/e*",
    ])
    .file("src/tool", "#!/bin/sh\necho ran\n");
    std::fs::create_dir(call.cwd().join("src/empty")).unwrap();
    let tool = call.cwd().join("src/tool");
    std::fs::set_permissions(tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    call.done().assert(0, "ran\nsrc/empty\n", "");
}

#[test]
fn a_target_that_is_a_directory_is_told_in_words_of_the_command_line() {
    let done = Call::new(["run", "--input", "a:/tmp", "--", "true"]).file("a", "").done();
    let told = "ringfence: --input a: the target /tmp is a directory in the sandbox\n  \
                try: give the name that the file gets, such as /tmp/a\n";
    done.assert(125, "", told);
}

#[test]
fn a_name_cannot_forge_a_line_of_ours() {
    let name = "x\nringfence: all is well\u{202e}:t";
    let done = Call::new(["run", "--input", name, "--", "true"]).done();
    let told =
        "ringfence: --input x\\nringfence: all is well\\u{202e}: No such file or directory (os error 2)\n";
    done.assert(125, "", told);
}

#[test]
fn an_input_without_a_name_is_told_to_be_given_a_target_and_that_works() {
    for source in [".", "..", "/", "sub/.."] {
        let done = Call::new(["run", "--input", source, "--", "true"]).file("sub/a", "").done();
        let told = format!(
            "error: invalid value '{source}' for '--input <SRC[:DST]>': it has no name of its own to go under; \
             give the target too, such as {source}:.\n\nFor more information, try '--help'.\n"
        );
        done.assert(125, "", &told);
    }
    let done = Call::new(["run", "--input", ":x", "--", "true"]).done();
    let told = "error: invalid value ':x' for '--input <SRC[:DST]>': needs a source and, behind a colon, \
                a target: SRC:DST\n\nFor more information, try '--help'.\n";
    done.assert(125, "", told);
    let call = Call::new(["run", "--input", ".:.", "--", "cat", "a", "sub/b"]);
    call.file("a", "1\n").file("sub/b", "2\n").done().assert(0, "1\n2\n", "");
}
