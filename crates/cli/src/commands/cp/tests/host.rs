//! What lands on this machine.

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence::{SkipReason, TreeGate};

use super::*;

async fn put(gate: &mut TreeGate<'_>, name: &str, content: &str) {
    gate.file(name.as_bytes(), false, content.len() as u64, &mut content.as_bytes()).await.unwrap();
}

/// Puts what `tell` tells into `target`, under `name`; returns how many things were left out.
async fn tell(target: &Path, name: Option<&[u8]>, tell: impl AsyncFnOnce(&mut TreeGate<'_>)) -> Outcome {
    let mut skips = silent();
    let mut sink = OntoHost::new(place(target, name).map_err(|failure| failure.to_string())?, &mut skips);
    let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
    tell(&mut gate).await;
    sink.finish().map_err(|error| error.to_string())?;
    Ok(skips.count())
}

#[test]
fn s_40_a_tree_is_put_where_it_belongs_over_what_is_there() {
    block_on(async {
        let folder = Folder::new();
        folder.file("t/d/old", "stays");
        folder.file("t/a", "replaced");
        folder.file("t/l", "replaced by a link");
        let left_out = tell(folder.0.path(), Some(b"t"), async |gate| {
            gate.enter(b"").await.unwrap();
            gate.symlink(b"l", b"d/b").await.unwrap();
            put(gate, "a", "one").await;
            gate.enter(b"d").await.unwrap();
            gate.file(b"b", true, 3, &mut b"two".as_slice()).await.unwrap();
            gate.symlink(b"up", b"../a").await.unwrap();
            gate.enter(b"new\nline").await.unwrap();
            put(gate, "-rf", "").await;
            gate.leave().unwrap();
            gate.leave().unwrap();
            gate.file(b"\xff", false, 1, &mut b"x".as_slice()).await.unwrap();
            gate.leave().unwrap();
        })
        .await;
        assert_eq!(left_out, Ok(0));
        let expected = [
            ("t", "/"),
            ("t/a", "one"),
            ("t/d", "/"),
            ("t/d/b", "*two"),
            ("t/d/new\\nline", "/"),
            ("t/d/new\\nline/-rf", ""),
            ("t/d/old", "stays"),
            ("t/d/up", "-> ../a"),
            ("t/l", "-> d/b"),
            ("t/\\xff", "x"),
        ];
        assert_eq!(folder.all(), these(&expected));
        use std::os::unix::fs::PermissionsExt;
        let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o7777;
        let umask = rustix::process::umask(rustix::fs::Mode::empty());
        rustix::process::umask(umask);
        let masked = |mode: u32| mode & !umask.as_raw_mode();
        assert_eq!((mode("t/a"), mode("t/d/b")), (masked(0o644), masked(0o755)));
        assert_eq!(mode("t/d/new\nline"), masked(0o755));
    });
}

#[test]
fn a_tree_gets_the_name_that_was_typed_or_its_own() {
    block_on(async {
        let folder = Folder::new();
        let one = async |gate: &mut TreeGate<'_>| put(gate, "", "one").await;
        let tree = async |gate: &mut TreeGate<'_>| {
            gate.enter(b"").await.unwrap();
            put(gate, "a", "one").await;
            gate.leave().unwrap();
        };
        fs::create_dir(folder.path("in")).unwrap();
        assert_eq!(tell(&folder.path("in"), Some(b"f"), one).await, Ok(0));
        assert_eq!(tell(&folder.path("f"), Some(b"other"), one).await, Ok(0));
        assert_eq!(tell(&folder.path("t/"), Some(b"other"), tree).await, Ok(0));
        assert_eq!(tell(&folder.path("in"), None, tree).await, Ok(0));
        assert_eq!(tell(&folder.path("made"), None, tree).await, Ok(0));
        let expected = [
            ("f", "one"),
            ("in", "/"),
            ("in/a", "one"),
            ("in/f", "one"),
            ("made", "/"),
            ("made/a", "one"),
            ("t", "/"),
            ("t/a", "one"),
        ];
        assert_eq!(folder.all(), these(&expected));
        let missing = tell(&folder.path("no/where"), Some(b"x"), one).await.unwrap_err();
        assert!(missing.ends_with("No such file or directory (os error 2)"), "{missing}");
        // A file is no directory, and is not made one.
        let mut skips = silent();
        let mut sink = OntoHost::new(place(&folder.path("f"), Some(b"x")).unwrap(), &mut skips);
        let refused = TreeGate::new("b", TreeLimits::default(), &mut sink).enter(b"").await.unwrap_err();
        assert!(refused.to_string().contains("Not a directory"), "{refused}");
        let mut sink = OntoHost::new(place(&folder.path("g/"), Some(b"x")).unwrap(), &mut skips);
        let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
        let refused = gate.file(b"", false, 0, &mut b"".as_slice()).await.unwrap_err();
        assert_eq!(refused.hint_text(), Some("give the name that the file gets"));
        assert_eq!(folder.all(), these(&expected));
    });
}

#[test]
fn s_40_links_that_lie_at_the_destination_are_not_followed() {
    block_on(async {
        let folder = Folder::new();
        folder.file("elsewhere/kept", "mine");
        fs::create_dir_all(folder.path("t/d")).unwrap();
        symlink(folder.path("elsewhere"), folder.path("t/away")).unwrap();
        symlink("../../elsewhere", folder.path("t/d/away")).unwrap();
        symlink(folder.path("elsewhere/kept"), folder.path("t/file")).unwrap();
        symlink(folder.path("elsewhere/planted"), folder.path("t/dangling")).unwrap();
        symlink(folder.path("elsewhere"), folder.path("t/link")).unwrap();
        let left_out = tell(folder.0.path(), Some(b"t"), async |gate| {
            gate.enter(b"").await.unwrap();
            gate.enter(b"away").await.unwrap();
            put(gate, "kept", "yours").await;
            gate.enter(b"deep").await.unwrap();
            put(gate, "planted", "yours").await;
            gate.leave().unwrap();
            gate.symlink(b"l", b"planted").await.unwrap();
            gate.skip(b"s", SkipReason::Special).await.unwrap();
            gate.leave().unwrap();
            gate.enter(b"d").await.unwrap();
            gate.enter(b"away").await.unwrap();
            put(gate, "planted", "yours").await;
            gate.leave().unwrap();
            put(gate, "control", "copied").await;
            gate.leave().unwrap();
            put(gate, "file", "new").await;
            put(gate, "dangling", "new").await;
            gate.symlink(b"link", b"d").await.unwrap();
            gate.leave().unwrap();
        })
        .await;
        // Each of the two directories, said once.
        assert_eq!(left_out, Ok(2));
        let away = format!("-> {}", folder.path("elsewhere").display());
        let expected = [
            ("elsewhere", "/"),
            ("elsewhere/kept", "mine"),
            ("t", "/"),
            ("t/away", away.as_str()),
            ("t/d", "/"),
            ("t/d/away", "-> ../../elsewhere"),
            ("t/d/control", "copied"),
            ("t/dangling", "new"),
            ("t/file", "new"),
            ("t/link", "-> d"),
        ];
        assert_eq!(folder.all(), these(&expected));
        // The tree's own place is no way out either, unless it is what the person typed.
        symlink("elsewhere", folder.path("named")).unwrap();
        let mut skips = silent();
        let mut sink = OntoHost::new(place(folder.0.path(), Some(b"named")).unwrap(), &mut skips);
        let refused = TreeGate::new("b", TreeLimits::default(), &mut sink).enter(b"").await.unwrap_err();
        let source = std::error::Error::source(&refused).unwrap().downcast_ref::<std::io::Error>().unwrap();
        // The kernel's word for a link where none may be, or for what is not a directory.
        let errno = rustix::io::Errno::from_io_error(source).unwrap();
        assert!([rustix::io::Errno::LOOP, rustix::io::Errno::NOTDIR].contains(&errno), "{errno}");
        let left_out =
            tell(&folder.path("named"), Some(b"x"), async |gate| put(gate, "", "typed").await).await;
        assert_eq!(
            (left_out, fs::read_to_string(folder.path("elsewhere/x")).unwrap()),
            (Ok(0), "typed".to_owned())
        );
    });
}

#[test]
fn s_40_links_of_a_tree_stay_in_it_and_come_last() {
    block_on(async {
        let folder = Folder::new();
        let left_out = tell(folder.0.path(), Some(b"t"), async |gate| {
            gate.enter(b"").await.unwrap();
            for (name, target) in [
                ("absolute", "/etc/passwd"),
                ("out", "../x"),
                ("far", "d/../../x"),
                ("here", "."),
                ("good", "d/f"),
                ("nowhere", "not/there"),
            ] {
                gate.symlink(name.as_bytes(), target.as_bytes()).await.unwrap();
            }
            // Not there until the end, so nothing could lie behind them.
            assert!(!folder.path("t/good").is_symlink());
            gate.enter(b"d").await.unwrap();
            gate.symlink(b"out", b"../../x").await.unwrap();
            put(gate, "f", "x").await;
            gate.leave().unwrap();
            gate.leave().unwrap();
        })
        .await;
        assert_eq!(left_out, Ok(4));
        let expected = [
            ("t", "/"),
            ("t/d", "/"),
            ("t/d/f", "x"),
            ("t/good", "-> d/f"),
            ("t/here", "-> ."),
            ("t/nowhere", "-> not/there"),
        ];
        assert_eq!(folder.all(), these(&expected));
    });
}

#[test]
fn what_cannot_be_put_there_does_not_keep_the_rest() {
    block_on(async {
        let folder = Folder::new();
        folder.file("t/file/f", "a directory is here");
        folder.file("t/directory", "a file is here");
        folder.file("t/link/f", "a directory is here");
        let left_out = tell(folder.0.path(), Some(b"t"), async |gate| {
            gate.enter(b"").await.unwrap();
            put(gate, "file", "x").await;
            gate.enter(b"directory").await.unwrap();
            put(gate, "f", "x").await;
            gate.leave().unwrap();
            gate.symlink(b"link", b"file").await.unwrap();
            gate.skip(b"fifo", SkipReason::Special).await.unwrap();
            put(gate, "z", "copied").await;
            gate.leave().unwrap();
        })
        .await;
        assert_eq!(left_out, Ok(4));
        let expected = [
            ("t", "/"),
            ("t/directory", "a file is here"),
            ("t/file", "/"),
            ("t/file/f", "a directory is here"),
            ("t/link", "/"),
            ("t/link/f", "a directory is here"),
            ("t/z", "copied"),
        ];
        assert_eq!(folder.all(), these(&expected));
    });
}

#[test]
fn ex_04_a_file_that_is_not_whole_leaves_the_old_one() {
    block_on(async {
        let folder = Folder::new();
        folder.file("t/short", "ORIGINAL");
        folder.file("t/stopped", "ORIGINAL");
        let left_out = tell(folder.0.path(), Some(b"t"), async |gate| {
            gate.enter(b"").await.unwrap();
            gate.file(b"short", false, 4, &mut b"ab".as_slice()).await.unwrap();
            gate.file(b"new", false, 1, &mut b"ab".as_slice()).await.unwrap();
            // Given up in the middle, as by Ctrl-C.
            let (_writer, mut endless) = tokio::io::duplex(16);
            let stopped = gate.file(b"stopped", false, 4, &mut endless);
            assert!(tokio::time::timeout(std::time::Duration::from_millis(20), stopped).await.is_err());
        })
        .await;
        assert_eq!(left_out, Ok(2));
        let expected = [("t", "/"), ("t/short", "ORIGINAL"), ("t/stopped", "ORIGINAL")];
        assert_eq!(folder.all(), these(&expected));
    });
}

/// Somebody else on this machine changes the destination as fast as possible.
#[test]
fn s_37_a_destination_that_is_swapped_for_a_link_leads_nowhere() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("elsewhere")).unwrap();
    fs::create_dir_all(folder.path("t/d")).unwrap();
    symlink("../elsewhere", folder.path("t/link")).unwrap();
    let done = AtomicBool::new(false);
    let exchange = || {
        let t = fs::File::open(folder.path("t")).unwrap();
        while !done.load(Ordering::Relaxed) {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            // Swapped with itself and back: there is always something of each name.
            rustix::fs::renameat_with(&t, "d", &t, "link", flags).unwrap();
        }
    };
    let (mut entered, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(exchange);
        block_on(async {
            for round in 0.. {
                let left_out = tell(folder.0.path(), Some(b"t"), async |gate| {
                    gate.enter(b"").await.unwrap();
                    gate.enter(b"d").await.unwrap();
                    put(gate, "planted", "x").await;
                    gate.leave().unwrap();
                    gate.leave().unwrap();
                })
                .await;
                match left_out {
                    Ok(0) => entered += 1,
                    _ => refused += 1,
                }
                if (entered > 100 && refused > 100) || round > 100_000 {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    });
    // Both were met, so both were tried.
    assert!(entered > 100 && refused > 100, "{entered} entered, {refused} refused");
    assert_eq!(fs::read_dir(folder.path("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_file_alone_is_copied_or_it_is_a_failure() {
    block_on(async {
        let folder = Folder::new();
        folder.file("f", "ORIGINAL");
        fs::create_dir_all(folder.path("in/f")).unwrap();
        let mut skips = silent();
        let mut sink = OntoHost::new(place(&folder.path("f"), Some(b"f")).unwrap(), &mut skips);
        let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
        let refused = gate.file(b"", false, 3, &mut b"x".as_slice()).await.unwrap_err();
        assert_eq!(refused.to_string(), "copy the file: it changed while it was copied");
        let mut sink = OntoHost::new(place(&folder.path("in"), Some(b"f")).unwrap(), &mut skips);
        let mut gate = TreeGate::new("b", TreeLimits::default(), &mut sink);
        let refused = gate.file(b"", false, 1, &mut b"x".as_slice()).await.unwrap_err();
        assert!(refused.to_string().contains("Is a directory"), "{refused}");
        assert_eq!(folder.all(), these(&[("f", "ORIGINAL"), ("in", "/"), ("in/f", "/")]));
    });
}
