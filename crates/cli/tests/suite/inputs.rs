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
    assert_eq!((done.status, done.out()), (Some(125), ""));
    assert!(done.stderr.starts_with("ringfence: read absent: "), "{}", done.stderr);
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
