//! `cp` as a program: between this machine and a sandbox that another process made.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use super::driver::{Call, Done};
use super::place::{Place, no_such};

/// A login with a sandbox in it, and a folder of this machine.
struct Desk {
    place: Place,
    handle: String,
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let place = Place::new();
        let handle = place.keep(&["--disk", "512MiB"]);
        Self { place, handle, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.handle)
    }

    fn cp(&self, args: &[&str]) -> Call {
        self.place.call([&["cp"], args].concat())
    }

    #[track_caller]
    fn copied(&self, from: &str, to: &str) {
        self.cp(&[from, to]).done().assert(0, "", "");
    }
}

fn tar(args: &[&str], input: Option<&[u8]>) -> Vec<u8> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child =
        Command::new("tar").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.unwrap_or_default()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "tar {args:?}");
    output.stdout
}

#[test]
fn what_is_copied_in_by_one_process_is_copied_out_by_another() {
    let desk = Desk::new();
    fs::create_dir_all(desk.path("t/d/empty")).unwrap();
    fs::write(desk.path("t/a"), "one").unwrap();
    fs::write(desk.path("t/d/large"), vec![7; 5 << 20]).unwrap();
    symlink("../a", desk.path("t/d/up")).unwrap();
    desk.copied(&desk.path("t"), &desk.inside(""));
    desk.copied(&desk.inside("t"), &desk.path("back"));
    for (path, back) in [("t/a", "back/a"), ("t/d/large", "back/d/large")] {
        assert!(fs::read(desk.path(path)).unwrap() == fs::read(desk.path(back)).unwrap(), "{path}");
    }
    assert!(Path::new(&desk.path("back/d/empty")).is_dir());
    assert_eq!(fs::read_link(desk.path("back/d/up")).unwrap(), Path::new("../a"));
    desk.copied(&desk.inside("/workspace/t/a"), &desk.path("back/d"));
    assert_eq!(fs::read_to_string(desk.path("back/d/a")).unwrap(), "one");
}

#[test]
fn archives_go_through_standard_streams() {
    let desk = Desk::new();
    fs::create_dir(desk.path("t")).unwrap();
    fs::write(desk.path("t/a"), "one").unwrap();
    symlink("a", desk.path("t/l")).unwrap();
    let archive = tar(&["c", "-C", &desk.path(""), "t"], None);
    desk.cp(&["-", &desk.inside("in")]).stdin(archive).done().assert(0, "", "");
    let out = desk.cp(&[&desk.inside("in/t"), "-"]).done();
    assert_eq!((out.status, out.stderr.as_str()), (Some(0), ""));
    let mut listed: Vec<_> =
        String::from_utf8(tar(&["t"], Some(&out.stdout))).unwrap().lines().map(str::to_owned).collect();
    listed.sort();
    assert_eq!(listed, ["t/", "t/a", "t/l"]);
    // From one sandbox to another.
    let other = desk.place.keep(&[]);
    desk.cp(&["-", &format!("{other}:")]).stdin(out.stdout).done().assert(0, "", "");
    desk.copied(&format!("{other}:t/l"), &desk.path("l"));
    assert_eq!(fs::read_to_string(desk.path("l")).unwrap(), "one");
    let broken = desk.cp(&["-", &desk.inside("in")]).stdin("no archive").done();
    let told = "ringfence: this is not a tar archive, or a broken one: it is shorter than any\n  try: a compressed one is \
                unpacked first: gzip -dc archive.tar.gz | ringfence cp - HANDLE:PATH\n";
    broken.assert(125, "", told);
    let empty = desk.cp(&["-", &desk.inside("in")]).stdin("").done();
    empty.assert(125, "", "ringfence: no archive came: standard input is empty\n");
    // However small: less than one header of an archive.
    fs::write(desk.path("small"), "x").unwrap();
    let packed = tar(&["cz", "-C", &desk.path(""), "small"], None);
    assert!(packed.len() < 512);
    let done = desk.cp(&["-", &desk.inside("in")]).stdin(packed.clone()).done();
    let told = "ringfence: this is no tar archive but something packed with gzip\n  \
                try: unpack it on the way: gzip -dc FILE | ringfence cp - HANDLE:PATH\n";
    done.assert(125, "", told);
    // As a file it is a file like any other.
    fs::write(desk.path("small.tgz"), &packed).unwrap();
    desk.copied(&desk.path("small.tgz"), &desk.inside(""));
    desk.copied(&desk.inside("small.tgz"), &desk.path("back.tgz"));
    assert_eq!(fs::read(desk.path("back.tgz")).unwrap(), packed);
}

#[test]
fn s_40_what_is_left_out_is_said_and_is_1() {
    let desk = Desk::new();
    fs::create_dir(desk.path("t")).unwrap();
    symlink("/etc/passwd", desk.path("t/l")).unwrap();
    fs::write(desk.path("t/a"), "one").unwrap();
    let told = format!(
        "ringfence: not copied: {}: its link leads to an absolute path: /etc/passwd\n",
        desk.path("t/l")
    );
    desk.cp(&[&desk.path("t"), &desk.inside("")]).done().assert(1, "", &told);
    // The rest is there.
    desk.copied(&desk.inside("t/a"), &desk.path("a"));
    let missing = desk.cp(&[&desk.inside("t/l"), &desk.path("x")]).done();
    let told = "ringfence: local: copy the tree: it does not exist, path t/l";
    assert!(missing.status == Some(125) && missing.stderr.starts_with(told), "{missing:?}");
}

#[test]
fn s_40_limits_are_refusals_that_name_the_flag() {
    let desk = Desk::new();
    fs::create_dir(desk.path("t")).unwrap();
    for name in 0..20 {
        fs::write(desk.path(&format!("t/{name}")), "0123456789").unwrap();
    }
    desk.copied(&desk.path("t"), &desk.inside(""));
    let (inside, outside) = (desk.inside("t"), desk.path("u"));
    let refused = |args: &[&str], flag: &str| {
        let done = desk.cp(args).done();
        assert_eq!((done.status, done.out()), (Some(125), ""), "{done:?}");
        assert!(done.stderr.ends_with(&format!("\n  try: raise it with {flag}\n")), "{}", done.stderr);
    };
    let source = desk.path("t");
    let again = desk.inside("again");
    for (from, to) in [(inside.as_str(), outside.as_str()), (source.as_str(), again.as_str())] {
        refused(&["--max-entries", "10", from, to], "--max-entries");
        refused(&["--max-size", "99B", from, to], "--max-size");
        // The control: as many as there are.
        desk.cp(&["--max-entries", "21", "--max-size", "200B", from, to]).done().assert(0, "", "");
    }
}

#[test]
fn what_cannot_be_meant_is_2_and_what_is_not_there_is_125() {
    let desk = Desk::new();
    let both = "ringfence: both are in a sandbox; one of them has to be here\n  \
                try: pipe from one to the other: ringfence cp HANDLE:SRC - | ringfence cp - HANDLE:DST\n";
    desk.cp(&[&desk.inside("a"), &desk.inside("b")]).done().assert(2, "", both);
    let neither = "ringfence: neither of the two is in a sandbox\n  \
                   try: HANDLE:PATH, such as local:sb-0123456789ab:/workspace; `ringfence ps` shows the handles\n";
    desk.cp(&["a", "b"]).done().assert(2, "", neither);
    for args in [&["a"] as &[&str], &["local:sb-1", "b"], &["--max-size", "0x", "a", "local:sb-1:b"]] {
        assert_eq!(desk.cp(args).done().status, Some(2), "{args:?}");
    }
    let gone = "local:sb-0123456789ab";
    for args in [[&format!("{gone}:a") as &str, "b"], ["/etc/hostname", &format!("{gone}:a")]] {
        desk.cp(&args).done().assert(125, "", &no_such(gone));
    }
}

#[test]
fn what_is_in_the_way_or_missing_is_named_with_what_to_do() {
    let desk = Desk::new();
    fs::create_dir_all(desk.path("d/deep")).unwrap();
    fs::write(desk.path("file"), "x").unwrap();
    desk.copied(&desk.path("d"), &desk.inside(""));
    desk.copied(&desk.path("file"), &desk.inside(""));
    let handle = &desk.handle;
    let bare = format!("{}:x", handle.strip_prefix("local:").unwrap());
    for (from, to, status, told, remedy) in [
        (
            desk.path("absent"),
            desk.inside(""),
            125,
            format!("read {}: No such file", desk.path("absent")),
            String::new(),
        ),
        (
            bare.clone(),
            desk.inside(""),
            125,
            format!("read {bare}: No such file"),
            format!("a path in that sandbox is local:{bare}"),
        ),
        (
            bare.clone(),
            "here".to_owned(),
            2,
            "neither of the two".to_owned(),
            format!("a path in that sandbox is local:{bare}"),
        ),
        (
            desk.inside("absent"),
            desk.path("y"),
            125,
            "it does not exist, path absent".to_owned(),
            format!("`ringfence ls {handle}`"),
        ),
        (
            desk.path("d"),
            desk.inside("file"),
            125,
            format!("{handle}:file is a file, and a directory"),
            "give another name".to_owned(),
        ),
        (
            desk.path("file"),
            desk.inside("file/"),
            125,
            format!("{handle}:file/ names a directory, and is a file"),
            "give another name".to_owned(),
        ),
        (
            desk.inside("d"),
            desk.path("file"),
            125,
            format!("{}: Not a directory", desk.path("file")),
            "give another name".to_owned(),
        ),
        (
            desk.inside("file"),
            desk.path("new/"),
            125,
            "is to be a directory, and a file is copied".to_owned(),
            "give the name".to_owned(),
        ),
        (
            desk.inside("file"),
            desk.path("no/where/x"),
            125,
            format!("{}: No such file", desk.path("no/where")),
            format!("`mkdir -p {}`", desk.path("no/where")),
        ),
    ] {
        let done = desk.cp(&[&from, &to]).done();
        assert_eq!((done.status, done.out()), (Some(status), ""), "{from} {to}: {done:?}");
        assert!(done.stderr.contains(&told) && done.stderr.contains(&remedy), "{from} {to}: {}", done.stderr);
    }
    assert_eq!(fs::read_to_string(desk.path("file")).unwrap(), "x");
}

/// 64 MiB each way, and the program that passes it on stays small (P63).
#[test]
fn p_63_copies_pass_through_bounded_memory() {
    const MOST_KIB: u64 = 40 << 10;
    let desk = Desk::new();
    fs::write(desk.path("large"), vec![7; 64 << 20]).unwrap();
    let peak = |from: &str, to: &str| -> u64 {
        let before = Instant::now();
        let mut running = desk.cp(&[from, to]).start_unread();
        let mut peak = 0;
        loop {
            let status =
                fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0);
            peak = peak.max(kib);
            if running.child.try_wait().unwrap().is_some() {
                break;
            }
            assert!(before.elapsed().as_secs() < 60);
        }
        let done: Done = running.done();
        assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
        peak
    };
    let (inside, back) = (desk.inside("large"), desk.path("back"));
    let peaks = [peak(&desk.path("large"), &inside), peak(&inside, &back)];
    assert!(peaks.iter().all(|peak| (1..MOST_KIB).contains(peak)), "{peaks:?} KiB");
    assert!(fs::read(desk.path("large")).unwrap() == fs::read(back).unwrap());
}

#[test]
fn s_40_a_signal_leaves_neither_half_a_file_nor_a_temporary_one() {
    let desk = Desk::new();
    let path = desk.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    // The archive promises a file and never gives it.
    let mut writer = std::process::Command::new("sh")
        .args(["-c", "exec 3>\"$1\"; head -c 300000 /dev/zero > \"$2\"; tar c -C \"$3\" f | head -c 200000 >&3; exec sleep 60", "sh"])
        .args([&path, &desk.path("f"), &desk.path("")])
        .spawn()
        .unwrap();
    let running = desk
        .cp(&["-", &desk.inside("d")])
        .with(|command| {
            command.stdin(fs::File::open(&path).unwrap());
        })
        .start();
    // Until there is something to put away.
    let started = Instant::now();
    loop {
        let out = desk.cp(&[&desk.inside("d/."), "-"]).done();
        let listed = if out.status == Some(0) { tar(&["t"], Some(&out.stdout)) } else { Vec::new() };
        if String::from_utf8(listed).unwrap().contains("ringfence") {
            break;
        }
        assert!(started.elapsed().as_secs() < 30);
    }
    running.signal(rustix::process::Signal::TERM);
    running.done().assert(143, "", "");
    writer.kill().unwrap();
    writer.wait().unwrap();
    let started = Instant::now();
    loop {
        let out = desk.cp(&[&desk.inside("d/."), "-"]).done();
        if String::from_utf8(tar(&["t"], Some(&out.stdout))).unwrap() == "./\n" {
            break;
        }
        assert!(started.elapsed().as_secs() < 30, "{out:?}");
    }
}

#[test]
fn what_others_read_or_write_through_is_not_replaced_by_a_copy() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::FileTypeExt;
    let desk = Desk::new();
    let fifo = desk.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::create_dir(desk.path("t")).unwrap();
    fs::write(desk.path("t/fifo"), "one").unwrap();
    desk.copied(&desk.path("t"), &desk.inside(""));
    let why = "a device, a FIFO or a socket is in its place, and stays";
    let done = desk.cp(&[&desk.inside("t/fifo"), &fifo]).done();
    assert_eq!((done.status, done.out()), (Some(125), ""), "{done:?}");
    assert!(
        done.stderr.contains(why) && done.stderr.contains("\n  try: give another name; `-` copies"),
        "{done:?}"
    );
    // In a tree it is left out, and said.
    fs::remove_file(desk.path("t/fifo")).unwrap();
    fs::rename(&fifo, desk.path("t/fifo")).unwrap();
    let told = format!("ringfence: not copied: {}: {why}\n", desk.path("t/fifo"));
    desk.cp(&[&desk.inside("t"), &desk.path("")]).done().assert(1, "", &told);
    assert!(fs::symlink_metadata(desk.path("t/fifo")).unwrap().file_type().is_fifo());
    let names: Vec<_> =
        fs::read_dir(desk.path("t")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["fifo"], "nothing half made is left");
}
