//! What the README shows of kept sandboxes works as it is printed.

use std::path::Path;

use super::driver::Call;
use super::place::Place;

const README: &str = include_str!("../../../../README.md");

/// A command as printed, and what is printed under it.
struct Shown {
    command: String,
    output: Vec<String>,
}

/// The first console block of a section.
fn shown(section: &str) -> Vec<Shown> {
    let (_, rest) = README.split_once(&format!("\n## {section}\n")).unwrap();
    let (_, block) = rest.split_once("```console\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let mut found: Vec<Shown> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => found.push(Shown { command: command.to_owned(), output: Vec::new() }),
            None if line.is_empty() => {}
            None => found.last_mut().unwrap().output.push(line.to_owned()),
        }
    }
    found
}

/// The words of a line without what is different each time: ids, times, and widths of columns.
fn comparable(line: &str) -> Vec<String> {
    let varies = |word: &str| {
        let digits = word.trim_end_matches(['s', 'm', 'h']);
        let is_time = !digits.is_empty()
            && digits.len() < word.len()
            && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_time || word.starts_with("local:sb-")
    };
    line.split_whitespace().map(|word| if varies(word) { "_".to_owned() } else { word.to_owned() }).collect()
}

#[test]
fn each_line_about_keeping_a_sandbox_works_as_pasted() {
    const END: &str = "end of a command";
    let place = Place::new();
    let all = shown("Keep a sandbox");
    // One shell for all, as the person has: a variable stays.
    let script: String = all.iter().map(|shown| format!("{}\necho '{END}'\n", shown.command)).collect();
    let program = Path::new(env!("CARGO_BIN_EXE_ringfence")).parent().unwrap().to_str().unwrap();
    let main = "import sys, time\nif '--serve' in sys.argv:\n    print('listening', flush=True)\n    time.sleep(600)\n\
                open('src/result.csv', 'w').write('a\\nb\\nc\\n')\nprint('3 rows')\n";
    let script = format!("PATH={program}:$PATH\nset -e\n{script}");
    let call = Call::new(Vec::<&str>::new()).env("XDG_RUNTIME_DIR", place.path());
    let done = call.file("src/main.py", main).below(&["sh", "-c", &script, "sh"]).done();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""), "{}", done.out());
    let end = format!("{END}\n");
    let mut printed = done.out().split(end.as_str()).map(|part| part.lines().collect::<Vec<_>>());
    for Shown { command, output } in &all {
        let printed: Vec<_> = printed.next().unwrap().iter().map(|line| comparable(line)).collect();
        let output: Vec<_> = output.iter().map(|line| comparable(line)).collect();
        assert_eq!(printed, output, "{command}");
    }
    let commands = all.iter().map(|shown| shown.command.as_str()).collect::<Vec<_>>().join("\n");
    for word in
        ["create", "ps", "exec", "exec --detach", "wait", "logs", "kill", "read", "ls", "cp", "renew", "rm"]
    {
        assert!(
            commands
                .split("ringfence ")
                .any(|rest| { rest.split([' ', '\n']).take(word.split(' ').count()).eq(word.split(' ')) }),
            "{word} is not shown"
        );
    }
    assert_eq!(place.handles(&[]), Vec::<String>::new(), "the last line removes it");
}
