//! Archives that come out, and hostile ones that go in.

use ringfence::{SkipReason, TreeGate};
use tar::{EntryType, Header};

use super::*;

/// One entry of an archive, as bytes.
fn entry(kind: u8, name: &[u8], link: &[u8], mode: u32, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::new(kind));
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let padding = content.len().next_multiple_of(512) - content.len();
    [header.as_bytes().as_slice(), content, &[0; 512][..padding]].concat()
}

fn file(name: &str, content: &str) -> Vec<u8> {
    entry(b'0', name.as_bytes(), b"", 0o644, content.as_bytes())
}

fn symlink(name: &str, target: &str) -> Vec<u8> {
    entry(b'2', name.as_bytes(), target.as_bytes(), 0o777, b"")
}

/// A record of an extended header.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
    // The length counts its own digits.
    let length = (1..).find(|length: &usize| *length == length.to_string().len() + rest.len()).unwrap();
    [length.to_string().as_bytes(), &rest].concat()
}

fn pax(records: &[Vec<u8>]) -> Vec<u8> {
    entry(b'x', b"PaxHeaders/x", b"", 0o644, &records.concat())
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

/// Unpacks into `/t` of a backend that records; returns what was written, and how it went.
async fn unpack(bytes: &[u8], limits: TreeLimits) -> (Vec<(String, String)>, Outcome) {
    let (guest, backend) = Guest::recording().await;
    let path = GuestPath::new("/t").unwrap();
    let mut skips = silent();
    let copied = from_stdin(&guest.inside(&path, limits), bytes, &mut skips).await;
    let written = backend.writes().into_iter();
    let written =
        written.map(|write| (write.path.to_string(), String::from_utf8_lossy(&write.content).into_owned()));
    (written.collect(), outcome(copied, &skips))
}

fn unpacked(bytes: &[u8]) -> (Vec<(String, String)>, Outcome) {
    block_on(unpack(bytes, TreeLimits::default()))
}

#[test]
fn s_40_no_entry_of_an_archive_leads_out_of_its_place() {
    let bad: [(&str, Vec<u8>); 14] = [
        ("back", file("../x", "bad")),
        ("back in the middle", file("a/../../x", "bad")),
        ("back at the end", file("a/..", "bad")),
        ("absolute", file("/etc/x", "bad")),
        ("absolute directory", entry(b'5', b"/etc", b"", 0o755, b"")),
        ("absolute link", symlink("l", "/etc/passwd")),
        ("link out", symlink("l", "../x")),
        ("link out by another", symlink("l", "a/../../x")),
        ("second name of what is outside", entry(b'1', b"h", b"../x", 0o644, b"")),
        ("second name of an absolute path", entry(b'1', b"h", b"/etc/passwd", 0o644, b"")),
        ("character device", entry(b'3', b"dev", b"", 0o666, b"")),
        ("block device", entry(b'4', b"dev", b"", 0o666, b"")),
        ("FIFO", entry(b'6', b"fifo", b"", 0o644, b"")),
        ("unknown", entry(b'Z', b"z", b"", 0o644, b"what")),
    ];
    for (what, bad) in bad {
        let (written, outcome) = unpacked(&archive(&[bad, file("a", "good")]));
        assert_eq!((written, outcome), (these(&[("/t/a", "good")]), Ok(1)), "{what}");
    }
    // By the words of extended headers too.
    for (what, bad) in [
        ("path", [pax(&[record("path", b"../x")]), file("x", "bad")].concat()),
        ("absolute", [pax(&[record("path", b"/x")]), file("x", "bad")].concat()),
        ("NUL", [pax(&[record("path", b"a\0b")]), file("x", "bad")].concat()),
        ("link", [pax(&[record("linkpath", b"/x")]), symlink("l", "a")].concat()),
        ("sparse", [pax(&[record("GNU.sparse.major", b"1")]), file("x", "bad")].concat()),
        ("long name", [entry(b'L', b"././@LongLink", b"", 0o644, b"../x\0"), file("x", "bad")].concat()),
        ("long link", [entry(b'K', b"././@LongLink", b"", 0o644, b"/x\0"), symlink("l", "a")].concat()),
        ("too long a name", [pax(&[record("path", &[b'n'; 256])]), file("x", "bad")].concat()),
    ] {
        let (written, outcome) = unpacked(&archive(&[bad, file("a", "good")]));
        assert_eq!((written, outcome), (these(&[("/t/a", "good")]), Ok(1)), "{what}");
    }
}

#[test]
fn an_archive_is_read_as_other_programs_write_it() {
    let long = format!("{}/f", "d".repeat(200));
    let bytes = archive(&[
        entry(b'g', b"pax_global_header", b"", 0o644, &record("comment", b"0123")),
        entry(b'5', b"./", b"", 0o755, b""),
        file("./a", "one"),
        entry(b'7', b"contiguous", b"", 0o644, b"two"),
        entry(0, b"old", b"", 0o644, b"three"),
        entry(0, b"old-directory/", b"", 0o644, b""),
        pax(&[record("mtime", b"1.5"), record("path", b"new\nline\n12 path=x\n")]),
        file("ignored", "four"),
        entry(b'L', b"././@LongLink", b"", 0o644, format!("{long}\0").as_bytes()),
        file("ignored", "five"),
        file("b//c/./d", "six"),
    ]);
    let (written, outcome) = unpacked(&bytes);
    let long = format!("/t/{long}");
    let expected = [
        ("/t/a", "one"),
        ("/t/contiguous", "two"),
        ("/t/old", "three"),
        ("/t/new\\nline\\n12 path=x\\n", "four"),
        (long.as_str(), "five"),
        ("/t/b/c/d", "six"),
    ];
    assert_eq!((written, outcome), (these(&expected), Ok(0)));
    // A size of an extended header counts for the file and for nothing else.
    let mut large = file("f", "123456789");
    let mut header = Header::from_byte_slice(&large[..512]).clone();
    header.set_size(1);
    header.set_cksum();
    large[..512].copy_from_slice(header.as_bytes());
    let (written, outcome) = unpacked(&archive(&[pax(&[record("size", b"9")]), large, file("a", "b")]));
    assert_eq!((written, outcome), (these(&[("/t/f", "123456789"), ("/t/a", "b")]), Ok(0)));
}

#[test]
fn s_40_an_archive_that_readers_understand_differently_is_refused() {
    let not = "this is not a tar archive, or a broken one: ";
    let sparse = "sparse files are not understood; make it without --sparse";
    for (bad, why) in [
        (b"not compressed".repeat(100), "a header without the right sum"),
        (b"short".to_vec(), "it is shorter than any"),
        (archive(&[entry(b'2', b"l", b"a", 0o777, &file("hidden", ""))]), "what is no file has content"),
        (archive(&[entry(b'5', b"d", b"", 0o755, &file("hidden", ""))]), "what is no file has content"),
        (archive(&[entry(b'1', b"h", b"a", 0o644, &file("hidden", ""))]), "what is no file has content"),
        (archive(&[pax(&[record("size", b"512")]), symlink("l", "a")]), "what is no file has content"),
        (
            archive(&[
                pax(&[record("path", b"../x"), record("size", b"18446744073709551615")]),
                file("hidden", ""),
            ]),
            "a size that nothing can have",
        ),
        (archive(&[entry(b'S', b"s", b"", 0o644, b"")]), sparse),
        (archive(&[pax(&[b"9 size=x\n".to_vec()]), file("a", "")]), "an extended header that cannot be read"),
        (
            archive(&[pax(&[b"99 path=x\n".to_vec()]), file("a", "")]),
            "an extended header that cannot be read",
        ),
        (archive(&[pax(&[b"2 a=b\n".to_vec()]), file("a", "")]), "an extended header that cannot be read"),
        (archive(&vec![pax(&[record("path", b"a")]); 17]), "too much is said about one entry"),
        (
            archive(&[entry(b'L', b"l", b"", 0o644, &vec![b'a'; (1 << 20) + 1])]),
            "what is said about an entry is longer than 1 MiB",
        ),
    ] {
        let (written, outcome) = unpacked(&bad);
        assert_eq!((written, outcome), (Vec::new(), Err(format!("{not}{why}"))));
    }
    for (magic, name) in [
        (&b"\x1f\x8b"[..], "something packed with gzip"),
        (b"BZh", "something packed with bzip2"),
        (b"\xfd7zXZ\0", "something packed with xz"),
        (b"\x28\xb5\x2f\xfd", "something packed with zstd"),
        (b"PK\x03\x04", "a zip file"),
    ] {
        for length in [0, 10, 10_000] {
            let packed = [magic, &vec![7; length]].concat();
            assert_eq!(unpacked(&packed), (Vec::new(), Err(format!("this is no tar archive but {name}"))));
        }
    }
}

#[test]
fn ex_18_an_archive_that_breaks_off_is_never_a_whole_one() {
    let whole = archive(&[file("a", "one"), pax(&[record("path", b"b")]), file("x", "two")]);
    for length in (0..whole.len() - 512).step_by(64) {
        let (written, outcome) = unpacked(&whole[..length]);
        let told = match length {
            0 => "no archive came: standard input is empty",
            1..512 => "this is not a tar archive, or a broken one: it is shorter than any",
            _ => "the archive ends in the middle; what came before is copied",
        };
        assert_eq!(outcome, Err(told.to_owned()), "cut to {length}");
        // Never a part of a file.
        assert!(written.iter().all(|(_, content)| content == "one" || content == "two"), "{written:?}");
    }
    assert_eq!(unpacked(&whole).1, Ok(0));
}

#[test]
fn s_40_counts_and_sizes_of_an_archive_are_bounded() {
    let limits = TreeLimits { max_entries: 1000, max_bytes: 5000, ..TreeLimits::default() };
    let many: Vec<Vec<u8>> = (0..2000).map(|number| file(&format!("f{number}"), "")).collect();
    let (written, outcome) = block_on(unpack(&archive(&many), limits));
    let told = "more than 1000 entries are to be copied, which is the limit";
    // The directory itself is one.
    assert_eq!((written.len(), outcome), (999, Err(told.to_owned())));
    // 1 TiB, by its header, of which nothing has to come.
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..1].copy_from_slice(b"f");
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(1 << 40);
    header.set_cksum();
    let (written, outcome) = block_on(unpack(header.as_bytes(), limits));
    let told = "f: more than 5000 bytes are to be copied, which is the limit";
    assert_eq!((written, outcome), (Vec::new(), Err(told.to_owned())));
}

/// Whatever is changed about an archive, what is written lies in its place.
#[test]
fn s_40_a_changed_byte_leads_nowhere_else() {
    let whole = archive(&[
        file("dir/a", "one"),
        pax(&[record("path", b"b/c"), record("size", b"3")]),
        file("x", "two"),
        symlink("l", "dir/a"),
        entry(b'1', b"h", b"dir/a", 0o644, b""),
    ]);
    for index in 0..whole.len() {
        for value in [0, b'/', b'.', b'9', 0xff] {
            let mut changed = whole.clone();
            changed[index] = value;
            // The sum would refuse nearly all of them.
            for start in (0..changed.len()).step_by(512) {
                let mut header = Header::from_byte_slice(&changed[start..start + 512]).clone();
                if header.as_bytes().iter().any(|byte| *byte != 0) && header.as_bytes()[257..262] == *b"ustar"
                {
                    header.set_cksum();
                    changed[start..start + 512].copy_from_slice(header.as_bytes());
                }
            }
            let (written, _) = unpacked(&changed);
            for (path, _) in written {
                assert!(
                    path.starts_with("/t/") && !path.contains("/../") && !path.ends_with("/.."),
                    "{path}"
                );
            }
        }
    }
}

/// A tree that is told by hand, as an archive.
async fn told(prefix: &str, tell: impl AsyncFnOnce(&mut TreeGate<'_>)) -> (Vec<u8>, u64) {
    let mut bytes = Vec::new();
    let mut skips = silent();
    let write = |part: &[u8]| {
        bytes.extend_from_slice(part);
        Ok(())
    };
    let mut sink = OntoStdout::new(prefix.as_bytes().to_vec(), write, &mut skips);
    let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
    tell(&mut gate).await;
    sink.finish().unwrap();
    drop(sink);
    (bytes, skips.count())
}

/// What an archive holds, read by somebody else's program.
fn listed(bytes: &[u8]) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(bytes);
    let entries = archive.entries().unwrap().map(|entry| {
        use std::io::Read;
        let mut entry = entry.unwrap();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        let name = entry.path_bytes().escape_ascii().to_string();
        let link = entry.link_name_bytes().map(|link| format!("-> {}", link.escape_ascii()));
        let mode = entry.header().mode().unwrap();
        (name, link.unwrap_or_else(|| format!("{mode:o} {content}")))
    });
    entries.collect()
}

#[test]
fn a_tree_comes_out_as_an_archive_that_others_can_read() {
    block_on(async {
        let long = "n".repeat(255);
        let target = "t/".repeat(150);
        let (bytes, skipped) = told("tree", async |gate| {
            gate.enter(b"").await.unwrap();
            gate.file(b"a", true, 3, &mut b"run".as_slice()).await.unwrap();
            gate.file(&[0xff], false, 512, &mut b"x".repeat(512).as_slice()).await.unwrap();
            gate.enter(long.as_bytes()).await.unwrap();
            gate.file(b"f", false, 0, &mut b"".as_slice()).await.unwrap();
            gate.symlink(b"l", target.as_bytes()).await.unwrap();
            gate.leave().unwrap();
            gate.symlink(b"out", b"/etc/passwd").await.unwrap();
            gate.skip(b"fifo", SkipReason::Special).await.unwrap();
            gate.leave().unwrap();
        })
        .await;
        let expected = [
            ("tree/".to_owned(), "755 ".to_owned()),
            ("tree/a".to_owned(), "755 run".to_owned()),
            ("tree/\\xff".to_owned(), format!("644 {}", "x".repeat(512))),
            (format!("tree/{long}/"), "755 ".to_owned()),
            (format!("tree/{long}/f"), "644 ".to_owned()),
            (format!("tree/{long}/l"), format!("-> {target}")),
            ("tree/out".to_owned(), "-> /etc/passwd".to_owned()),
        ];
        assert_eq!((listed(&bytes), skipped), (expected.to_vec(), 1));
        assert_eq!(bytes.len() % 512, 0);

        // One file, and the content of a directory.
        let (bytes, _) = told("f", async |gate| {
            gate.file(b"", false, 1, &mut b"x".as_slice()).await.unwrap();
        })
        .await;
        assert_eq!(listed(&bytes), these(&[("f", "644 x")]));
        let (bytes, _) = told("", async |gate| {
            gate.enter(b"").await.unwrap();
            gate.file(b"f", false, 1, &mut b"x".as_slice()).await.unwrap();
            gate.leave().unwrap();
        })
        .await;
        assert_eq!(listed(&bytes), these(&[("./", "755 "), ("f", "644 x")]));
    });
}

#[test]
fn ex_18_a_file_that_is_not_whole_leaves_an_archive_that_can_be_read_on() {
    block_on(async {
        let (bytes, skipped) = told("t", async |gate| {
            gate.enter(b"").await.unwrap();
            gate.file(b"short", false, 4, &mut b"ab".as_slice()).await.unwrap();
            gate.file(b"next", false, 1, &mut b"x".as_slice()).await.unwrap();
            gate.leave().unwrap();
        })
        .await;
        let expected = [("t/", "755 "), ("t/short", "644 ab\0\0"), ("t/next", "644 x")];
        assert_eq!((listed(&bytes), skipped), (these(&expected), 1));
    });
}
