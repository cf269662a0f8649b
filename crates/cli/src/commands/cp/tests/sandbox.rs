//! There and back over real sandboxes.

use std::os::unix::fs::symlink;

use super::*;

async fn export(guest: &Guest, path: &str, target: &Path) -> Outcome {
    let path = GuestPath::new(path).unwrap();
    let mut skips = silent();
    outcome(onto_host(&guest.inside(&path, TreeLimits::default()), target, &mut skips).await, &skips)
}

async fn import(guest: &Guest, source: &Path, path: &str, limits: TreeLimits) -> Outcome {
    let path = GuestPath::new(path).unwrap();
    let mut skips = silent();
    outcome(from_host(&guest.inside(&path, limits), source, &mut skips).await, &skips)
}

#[test]
fn a_tree_goes_in_and_comes_out_as_it_was() {
    block_on(async {
        let guest = Guest::local().await;
        let folder = Folder::new();
        folder.file("t/a", "one");
        folder.file("t/d/e/f", "two");
        folder.file("t/new\nline/-n", "three");
        folder.file("t/large", &"x".repeat(3 << 20));
        fs::write(folder.path("t").join(OsStr::from_bytes(b"\xff")), "four").unwrap();
        fs::create_dir_all(folder.path("t/empty/in")).unwrap();
        fs::set_permissions(folder.path("t/a"), std::os::unix::fs::PermissionsExt::from_mode(0o4755))
            .unwrap();
        symlink("../a", folder.path("t/d/up")).unwrap();
        symlink("d/e", folder.path("t/down")).unwrap();
        symlink("-s", folder.path("t/-s")).unwrap();
        symlink("nowhere", folder.path("t/new\nline/dangling")).unwrap();
        let limits = TreeLimits::default();
        assert_eq!(import(&guest, &folder.path("t"), ".", limits).await, Ok(0));
        // Again, over itself.
        assert_eq!(import(&guest, &folder.path("t/."), "/workspace/t", limits).await, Ok(0));
        let modes = guest.run("stat -c '%a %n' t/a t/large t/d").await;
        assert_eq!(modes, "755 t/a\n644 t/large\n755 t/d\n");
        fs::create_dir(folder.path("out")).unwrap();
        assert_eq!(export(&guest, "t", &folder.path("out")).await, Ok(0));
        let all = folder.all();
        let below = |top: &str| -> Vec<_> {
            let inside = all.iter().filter_map(|(path, what)| Some((path.strip_prefix(top)?, what)));
            inside.filter(|(path, _)| path.starts_with('/')).collect()
        };
        assert_eq!(below("out/t"), below("t"));
        assert_eq!(below("t").len(), 14);

        // Through archives, in memory.
        let path = GuestPath::new("t").unwrap();
        let mut bytes = Vec::new();
        let mut skips = silent();
        let write = |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        onto_stdout(&guest.inside(&path, limits), write, &mut skips).await.unwrap();
        let path = GuestPath::new("again").unwrap();
        from_stdin(&guest.inside(&path, limits), bytes.as_slice(), &mut skips).await.unwrap();
        assert_eq!(skips.count(), 0);
        assert_eq!(guest.run("diff -r --no-dereference t again/t && stat -c %a again/t/a").await, "755\n");
    });
}

#[test]
fn what_is_typed_says_where_it_goes() {
    block_on(async {
        let guest = Guest::local().await;
        let folder = Folder::new();
        folder.file("f", "x");
        folder.file("t/a", "x");
        let limits = TreeLimits::default();
        guest.run("mkdir d && printf old > file").await;
        for (source, target) in [
            ("f", "d"),
            ("f", "d/"),
            ("f", "file"),
            ("f", "made/deep/g"),
            ("t", "d"),
            ("t/.", "d"),
            ("t", "new"),
            ("t", "slash/"),
            ("t/.", "made/contents"),
        ] {
            assert_eq!(
                import(&guest, &folder.path(source), target, limits).await,
                Ok(0),
                "{source} {target}"
            );
        }
        let expected = "d/a\nd/f\nd/t/a\nfile\nmade/contents/a\nmade/deep/g\nnew/a\nslash/a\n";
        assert_eq!(guest.run("find * -type f | LC_ALL=C sort").await, expected);
        assert_eq!(guest.run("cat file").await, "x");
        for (source, target) in
            [("f", "no/"), ("t", "file"), ("f", "file/x"), ("f", "file/"), ("missing", "d")]
        {
            let refused = import(&guest, &folder.path(source), target, limits).await;
            assert!(refused.is_err(), "{source} {target}: {refused:?}");
        }
        assert_eq!(guest.run("find * -type f | LC_ALL=C sort").await, expected);
    });
}

#[test]
fn s_37_a_link_in_a_source_picks_nothing_up() {
    block_on(async {
        let guest = Guest::local().await;
        let folder = Folder::new();
        folder.file("secret", "key");
        folder.file("t/a", "one");
        symlink(folder.path("secret"), folder.path("t/absolute")).unwrap();
        symlink("../secret", folder.path("t/out")).unwrap();
        symlink("a/../../secret", folder.path("t/far")).unwrap();
        symlink("..", folder.path("t/up")).unwrap();
        symlink("a", folder.path("t/good")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(folder.path("t/fifo")).status().unwrap().success());
        let limits = TreeLimits::default();
        assert_eq!(import(&guest, &folder.path("t"), ".", limits).await, Ok(5));
        assert_eq!(guest.run("ls -A t; readlink t/good").await, "a\ngood\na\n");
        // What is typed is followed.
        assert_eq!(import(&guest, &folder.path("t/out"), "typed", limits).await, Ok(0));
        assert_eq!(guest.run("cat typed").await, "key");
        let fifo = import(&guest, &folder.path("t/fifo"), "x", limits).await.unwrap_err();
        assert!(fifo.ends_with("neither a regular file nor a directory"), "{fifo}");
    });
}

#[test]
fn s_40_what_goes_in_is_bounded() {
    block_on(async {
        let guest = Guest::local().await;
        let folder = Folder::new();
        for name in 0..50 {
            folder.file(&format!("t/d/{name}"), "0123456789");
        }
        let limits = TreeLimits { max_entries: 20, ..TreeLimits::default() };
        let told = format!("{}: there are more entries than the limit", folder.path("t/d").display());
        assert_eq!(import(&guest, &folder.path("t"), "many", limits).await, Err(told));
        let limits = TreeLimits { max_bytes: 45, ..TreeLimits::default() };
        let refused = import(&guest, &folder.path("t"), "large", limits).await.unwrap_err();
        assert!(refused.ends_with("more than 45 bytes are to be copied, which is the limit"), "{refused}");
        let sparse = fs::File::create(folder.path("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let refused = import(&guest, &folder.path("sparse"), "sparse", TreeLimits::default()).await;
        assert!(refused.unwrap_err().ends_with("which is the limit"));
        assert_eq!(guest.run("ls").await, "large\n");
        let mut path = folder.path("deep");
        for _ in 0..200 {
            path.push("d");
        }
        fs::create_dir_all(&path).unwrap();
        let refused = import(&guest, &folder.path("deep"), "deep", TreeLimits::default()).await.unwrap_err();
        assert!(refused.ends_with("directories lie more than 128 deep in each other"), "{refused}");
    });
}

/// What a sandbox makes of the place where things go is its own affair, and stays in it.
#[test]
fn s_40_a_hostile_archive_is_contained_in_a_real_sandbox() {
    block_on(async {
        let guest = Guest::local().await;
        guest.run("mkdir t && ln -s /etc t/etc && ln -s ../outside t/kept").await;
        let mut bytes = Vec::new();
        {
            let mut builder = tar::Builder::new(&mut bytes);
            let mut add = |kind, name: &str, link: &str, mode, content: &[u8]| {
                let mut header = tar::Header::new_ustar();
                header.set_entry_type(kind);
                header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
                header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
                header.set_mode(mode);
                header.set_size(content.len() as u64);
                header.set_cksum();
                builder.append(&header, content).unwrap();
            };
            use tar::EntryType;
            // Its own link, then a file through it: the link is made last, and finds the directory of the file.
            add(EntryType::Symlink, "l", "d", 0o777, b"");
            add(EntryType::Regular, "l/f", "", 0o644, b"in a directory");
            add(EntryType::Regular, "etc/planted", "", 0o644, b"into the read-only part");
            add(EntryType::Regular, "suid", "", 0o6755, b"x");
            add(EntryType::Link, "again", "suid", 0o644, b"");
            add(EntryType::Link, "nothing", "missing", 0o644, b"");
            add(EntryType::Symlink, "good", "suid", 0o777, b"");
            add(EntryType::Char, "null", "", 0o666, b"");
            builder.finish().unwrap();
        }
        let path = GuestPath::new("t").unwrap();
        let mut skips = silent();
        let inside = guest.inside(&path, TreeLimits::default());
        from_stdin(&inside, bytes.as_slice(), &mut skips).await.unwrap();
        // The link in whose place is a directory, the file in the read-only part, the name of nothing, the device.
        assert_eq!(skips.count(), 4);
        let listed = guest.run("cd t && stat -c '%a %h %N' * l/f | LC_ALL=C sort -k 3").await;
        let expected = "755 2 'again'\n777 1 'etc' -> '/etc'\n777 1 'good' -> 'suid'\n777 1 'kept' -> '../outside'\n\
                        755 2 'l'\n644 1 'l/f'\n755 2 'suid'\n";
        assert_eq!(listed, expected);
    });
}

/// Somebody else on this machine changes the source as fast as possible.
#[test]
fn s_37_a_source_that_is_swapped_for_a_link_picks_nothing_up() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let folder = Folder::new();
    folder.file("elsewhere/f", "key");
    folder.file("t/d/f", "mine");
    symlink("../elsewhere", folder.path("t/link")).unwrap();
    let done = AtomicBool::new(false);
    let exchange = || {
        let t = fs::File::open(folder.path("t")).unwrap();
        while !done.load(Ordering::Relaxed) {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(&t, "d", &t, "link", flags).unwrap();
        }
    };
    let (mut as_directory, mut as_link) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(exchange);
        block_on(async {
            for _ in 0..100_000 {
                let (guest, backend) = Guest::recording().await;
                import(&guest, &folder.path("t"), "/t", TreeLimits::default()).await.unwrap();
                let written = backend.writes();
                assert!(written.iter().all(|write| write.content == b"mine"), "{written:?}");
                let at = |path: &str| written.iter().any(|write| write.path.as_bytes() == path.as_bytes());
                as_directory += u32::from(at("/t/d/f"));
                as_link += u32::from(!at("/t/d/f"));
                if as_directory > 100 && as_link > 100 {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    });
    assert!(as_directory > 100 && as_link > 100, "{as_directory} as directory, {as_link} as link");
}
