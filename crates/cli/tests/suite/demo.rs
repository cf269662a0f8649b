use super::driver::Call;

#[test]
fn the_demo_comes_out_as_it_should() {
    let done = Call::new(["demo"]).done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""), "{}", done.out());
    for needle in
        ["write_file(", "run_command(", "read_file(", "list_directory(", "status 2", "sandbox destroyed"]
    {
        assert!(done.out().contains(needle), "{needle}: {}", done.out());
    }
    assert!(!done.out().contains("not what was expected"), "{}", done.out());
}

#[test]
fn a_demo_that_nobody_reads_ends_quietly() {
    let done = Call::new(["demo"])
        .with(|command| {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            command.stdout(writer);
        })
        .done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(141), ""));
}
