//! Names that lead elsewhere: what a payload, a sibling, a shown directory or a planted program can make of the file operations.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use ringfence_core::{Backend, Ending, EnvMap, ErrorKind, ListRequest, SandboxSpec};
use ringfence_local::LocalBackend;
use tempfile::TempDir;

use super::security_support::{has_python, inside, is_root, lines, script, showing};
use super::support::{Box, Marker, Said, assert_took, path, program, seconds, shell, timed, until};

/// Another thing under the name `a` all the time: a directory, a link to a directory of the host, one to a file in it, a file.
const FLIP: &str = r"
import shutil
os.chdir('/workspace')
host = sys.argv[1]
def clear(name):
    try:
        os.unlink(name)
    except OSError:
        shutil.rmtree(name, ignore_errors=True)
def own(name):
    with open(name, 'w') as file: file.write('own')
def directory():
    os.mkdir('next')
    own('next/marker')
    clear('a')
    os.rename('next', 'a')
def link(target):
    os.symlink(target, 'next')
    os.rename('next', 'a')
def file():
    own('next')
    os.rename('next', 'a')
while True:
    for step in (directory, lambda: clear('a'), lambda: link(host), lambda: link(host + '/marker'), file, lambda: clear('a')):
        # What the file operations made at the same moment is in the way.
        try:
            step()
        except OSError:
            clear('next')
            clear('a')
";

/// One of the operations, as what it answered with.
async fn operation(sandbox: &Box, number: u32) -> String {
    let name = if number.is_multiple_of(2) { "a" } else { "a/marker" };
    let kind = |error: ErrorKind| error.name().to_owned();
    let text = |content: Vec<u8>| String::from_utf8_lossy(&content).into_owned();
    match number / 2 % 4 {
        0 => sandbox.read(name).await.map_or_else(kind, text),
        1 => sandbox.write(name, b"api").await.map_or_else(kind, |()| "written".to_owned()),
        2 => {
            let listed =
                sandbox.backend.list_directory(&sandbox.id, &path("a"), ListRequest::default()).await;
            listed.map_or_else(
                |error| kind(error.kind().clone()),
                |listing| {
                    // Another write's file on its way, and its name a moment later, may both be seen.
                    let names = listing.entries.into_iter().map(|entry| text(entry.name));
                    names.filter(|name| !name.starts_with(".ringfence-")).collect::<Vec<_>>().join(" ")
                },
            )
        }
        _ => {
            let mut sink = Vec::new();
            let copied = sandbox.backend.export_file(&sandbox.id, &path(name), 100, &mut sink).await;
            copied.map_or_else(|error| kind(error.kind().clone()), |_| text(sink))
        }
    }
}

#[tokio::test]
async fn s_37_a_name_that_changes_its_kind_all_the_time_leads_nowhere() {
    const TEST: &str = "s_37_a_name_that_changes_its_kind_all_the_time_leads_nowhere";
    const OPERATIONS: u32 = 10_000;
    if !has_python(TEST) {
        return;
    }
    // Where the sandbox can make a directory of the same name for itself: then nothing but the view keeps them apart.
    let host = TempDir::new_in("/tmp").unwrap();
    for name in ["marker", "host-only"] {
        fs::write(host.path().join(name), "of the host").unwrap();
        fs::set_permissions(host.path().join(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    fs::set_permissions(host.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let sandbox = Box::new().await;
    sandbox.write("/tmp/flip.py", script(FLIP)).await.unwrap();
    let marker = Marker::new();
    let flip = format!("python3 /tmp/flip.py {} {marker} >/tmp/flip.log 2>&1 &", host.path().display());
    sandbox.prepare(&flip).await;
    assert!(until(10.0, || !marker.processes().is_empty()).await);
    let some = |first: u32| {
        let sandbox = &sandbox;
        async move {
            let mut answers = BTreeSet::new();
            for number in (first..OPERATIONS).step_by(4) {
                answers.insert(operation(sandbox, number.wrapping_mul(7) % 8).await);
            }
            answers
        }
    };
    let (one, two, three, four) = tokio::join!(some(0), some(1), some(2), some(3));
    let answers: BTreeSet<String> = [one, two, three, four].into_iter().flatten().collect();
    let possible = [
        "",
        "api",
        "is_a_directory",
        "marker",
        "not_a_directory",
        "not_a_regular_file",
        "not_found",
        "own",
        "written",
    ];
    let possible: BTreeSet<String> = possible.map(str::to_owned).into();
    assert!(answers.is_subset(&possible), "{answers:?}");
    // It was all of these by turns.
    for kind in ["is_a_directory", "marker", "not_found", "own", "written"] {
        assert!(answers.contains(kind), "{kind} is not in {answers:?}");
    }
    assert_eq!(sandbox.read("/tmp/flip.log").await, Ok(Vec::new()));
    // Control: one who looks from outside and follows names is led to the host by the same flipping.
    let pid = marker.processes()[0];
    let outside = format!("/proc/{pid}/root/workspace/a");
    let led = until(10.0, || fs::read(&outside).is_ok_and(|content| content == b"of the host")).await;
    assert!(led, "nothing to be safe from");
    let names: BTreeSet<_> =
        fs::read_dir(host.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["host-only", "marker"].map(Into::into).into());
    for name in ["marker", "host-only"] {
        assert_eq!(fs::read_to_string(host.path().join(name)).unwrap(), "of the host");
    }
}

/// What stands in a file of one sandbox, and never in another's.
const SECRET: &[u8] = b"of the sibling";

/// A sandbox with a file, a directory and a listening socket of names that every sandbox may have.
async fn sibling(backend: &LocalBackend, abstract_name: &str) -> ringfence_core::SandboxId {
    let id = backend.create(&SandboxSpec::new()).await.unwrap().id;
    backend.write_file(&id, &path("/workspace/d/secret"), SECRET).await.unwrap();
    let listen = script(&format!(
        r"
for address in ['/workspace/socket', '\0{abstract_name}']:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    os.dup(listener.detach())
open('/workspace/listens', 'w').close()
signal.pause()
"
    ));
    backend.write_file(&id, &path("/tmp/listen.py"), listen.as_bytes()).await.unwrap();
    let wait = "python3 /tmp/listen.py >/tmp/log 2>&1 & until [ -e listens ] || [ -s /tmp/log ]; do sleep 0.01; done; cat /tmp/log";
    let said = backend.run_command(&id, shell(wait, 60.0)).await.unwrap();
    assert_eq!((said.ending, &said.stdout.bytes[..]), (Ending::Exited(0), &b""[..]));
    id
}

#[tokio::test]
async fn s_38_names_of_a_sibling_lead_to_ones_own_or_nowhere() {
    const TEST: &str = "s_38_names_of_a_sibling_lead_to_ones_own_or_nowhere";
    if !has_python(TEST) {
        return;
    }
    let sandbox = Box::new().await;
    let abstract_name = format!("ringfence-sibling-{}", std::process::id());
    let backend = &sandbox.backend;
    let sibling = &sibling(backend, &abstract_name).await;
    // The sibling's root as the host has it. No process of this sandbox has such a number.
    let marker = Marker::new();
    let hold = shell(&format!("sleep {marker} >/dev/null 2>&1 &"), 60.0);
    backend.run_command(sibling, hold).await.unwrap();
    let root = format!("/proc/{}/root/workspace", marker.sleeper().await);
    let links = [
        ("file", "/workspace/d/secret".to_owned()),
        ("directory", "/workspace/d".to_owned()),
        ("socket", "/workspace/socket".to_owned()),
        ("root", root.clone()),
        ("rooted", format!("{root}/d/secret")),
        ("up", "../../../../workspace/d/secret".to_owned()),
    ];
    sandbox.prepare("mkdir links x").await;
    for (name, target) in &links {
        sandbox.prepare(&format!("ln -s {target} links/{name}")).await;
    }
    for name in [
        "links/file",
        "links/directory/secret",
        "links/socket",
        "links/root/d/secret",
        "links/rooted",
        "links/up",
        &root,
    ] {
        assert_eq!(sandbox.read(name).await, Err(ErrorKind::NotFound), "read {name}");
        let mut sink = Vec::new();
        let exported = backend.export_file(&sandbox.id, &path(name), 100, &mut sink).await.unwrap_err();
        assert_eq!((exported.kind(), sink.len()), (&ErrorKind::NotFound, 0), "export {name}");
        let listed =
            backend.list_directory(&sandbox.id, &path(name), ListRequest::default()).await.unwrap_err();
        assert_eq!(*listed.kind(), ErrorKind::NotFound, "list {name}");
    }
    // Sockets have names too; the abstract ones belong to a network, of which each sandbox has its own.
    let connect = format!(
        r"
def connect(address): socket.socket(socket.AF_UNIX).connect(address)
for name in ['/workspace/socket', '/workspace/links/socket', {root:?} + '/socket', '\0{abstract_name}']:
    print(attempt(connect, name))
"
    );
    assert_eq!(inside(&sandbox, &connect).await, "ENOENT\nENOENT\nENOENT\nECONNREFUSED\n");
    // Written to, the names lead to ones own files, or are not to be made.
    for name in ["links/file", "links/up"] {
        assert_eq!(sandbox.write(name, b"mine").await, Ok(()), "write {name}");
        assert_eq!(sandbox.read("d/secret").await, Ok(b"mine".to_vec()), "control: {name}");
    }
    for name in ["links/rooted", "links/root/d/secret"] {
        let error = sandbox.write(name, b"mine").await.unwrap_err();
        assert!(
            matches!(error, ErrorKind::NotFound | ErrorKind::PermissionDenied),
            "write {name}: {error:?}"
        );
    }
    // Lexically within the working directory, and really the sandbox's own /etc: not the host's, which has other users.
    let users = sandbox.read("x/../../etc/passwd").await.unwrap();
    assert_eq!(sandbox.run("cat /etc/passwd").await, Said::ok(&String::from_utf8_lossy(&users)));
    assert_ne!(users, fs::read("/etc/passwd").unwrap());
    assert_eq!(sandbox.write("x/../../etc/passwd", b"mine").await, Err(ErrorKind::PermissionDenied));
    // Control: the sibling has its file and its sockets, untouched. What is refused here works there.
    assert_eq!(backend.read_file(sibling, &path("d/secret"), 100).await.unwrap(), SECRET);
    let socket = backend.read_file(sibling, &path("socket"), 100).await.unwrap_err();
    assert_eq!(*socket.kind(), ErrorKind::NotARegularFile);
    let own = script(&connect.replace("'/workspace/links/socket', ", "").replace(&root, "/workspace"));
    let own = backend.run_command(sibling, program(&["/usr/bin/python3", "-ISc", &own])).await.unwrap();
    assert_eq!(own.stdout.text(), "ok\nok\nok\n");
    // And the host, whose file it is, has it under the name that the link has.
    assert_eq!(fs::read(format!("{root}/d/secret")).unwrap(), SECRET);
}

#[tokio::test]
async fn s_39_a_hard_link_makes_nothing_of_a_shown_directory_writable() {
    const TEST: &str = "s_39_a_hard_link_makes_nothing_of_a_shown_directory_writable";
    if !has_python(TEST) {
        return;
    }
    // Not where temporary files go: a sandbox has directories of its own there.
    let host = TempDir::new_in(std::env::home_dir().unwrap()).unwrap();
    let shown = host.path().join("shown");
    fs::create_dir(&shown).unwrap();
    fs::set_permissions(&shown, fs::Permissions::from_mode(0o777)).unwrap();
    // Owner only; the second of it is a link that the host itself has made, to a file that is not shown.
    for (name, mode) in [("secret", 0o600), ("open", 0o666)] {
        fs::write(host.path().join(name), "of the host").unwrap();
        fs::set_permissions(host.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        fs::hard_link(host.path().join(name), shown.join(name)).unwrap();
    }
    let probe = format!(
        r"
base = {shown:?}
own = sys.argv[1:] or ['/tmp']
for name in ['secret', 'open']:
    print('out_' + name, attempt(os.link, f'{{base}}/{{name}}', f'{{own[0]}}/{{name}}-link'))
    print('beside_' + name, attempt(os.link, f'{{base}}/{{name}}', f'{{base}}/{{name}}-link'))
    print('write_' + name, attempt(os.open, f'{{base}}/{{name}}', os.O_WRONLY))
    print('truncate_' + name, attempt(os.open, f'{{base}}/{{name}}', os.O_WRONLY | os.O_TRUNC))
    print('remove_' + name, attempt(os.unlink, f'{{base}}/{{name}}-link'))
    print('mode_' + name, attempt(os.chmod, f'{{base}}/{{name}}', 0o666))
descriptor = os.open(f'{{base}}/open', os.O_RDONLY)
print('descriptor', call({linkat}, -100, f'/proc/self/fd/{{descriptor}}'.encode(), -100, f'{{own[0]}}/fd-link'.encode(), 0x400))
open(f'{{own[0]}}/mine', 'w').close()
print('mine', attempt(os.link, f'{{own[0]}}/mine', f'{{own[0]}}/mine-link'))
",
        linkat = libc::SYS_linkat,
    );
    let sandbox = showing(&[&shown]).await;
    let found = lines(&inside(&sandbox, &probe).await);
    // A user's sandbox is that user; the permissions are asked before the mount.
    let owner_only = if is_root() { "EACCES" } else { "EROFS" };
    // Landlock is asked last, the mount first: a link that is not to be removed may not be there, too.
    let expected = [
        ("out_secret", "EXDEV"),
        ("out_open", "EXDEV"),
        ("beside_secret", "EROFS"),
        ("beside_open", "EROFS"),
        ("write_secret", owner_only),
        ("write_open", "EROFS"),
        ("truncate_secret", "EROFS"),
        ("truncate_open", "EROFS"),
        ("remove_secret", "EROFS"),
        ("remove_open", "EROFS"),
        ("mode_secret", "EROFS"),
        ("mode_open", "EROFS"),
        ("descriptor", "EXDEV"),
        ("mine", "ok"),
    ];
    assert_eq!(found, expected.map(|(name, errno)| (name.to_owned(), errno.to_owned())).into());
    sandbox.prepare(&format!("ln -s {0}/open open; ln -s {0} shown", shown.display())).await;
    for name in ["open", "shown/open", "shown/secret", "shown/new"] {
        assert_eq!(sandbox.write(name, b"mine").await, Err(ErrorKind::PermissionDenied), "{name}");
    }
    assert_eq!(sandbox.read("shown/open").await, Ok(b"of the host".to_vec()));
    for name in ["secret", "open"] {
        let file = host.path().join(name);
        let metadata = fs::metadata(&file).unwrap();
        assert_eq!((fs::read(&file).unwrap(), metadata.nlink()), (b"of the host".to_vec(), 2), "{name}");
    }
    assert_eq!(fs::read_dir(&shown).unwrap().count(), 2);
    // Control: whoever owns them can do all of that on the host.
    let script = script(&probe);
    let output = Command::new("/usr/bin/python3").args(["-ISc", &script]).arg(host.path()).output().unwrap();
    let host = lines(&String::from_utf8_lossy(&output.stdout));
    let wrong: Vec<_> = host.iter().filter(|(_, errno)| *errno != "ok").collect();
    assert!(host.len() == 14 && wrong.is_empty(), "{wrong:?} {}", String::from_utf8_lossy(&output.stderr));
}

/// The tools that a backend over a shell would use, and those that others have fallen for.
const TOOLS: &str = "sh bash timeout tar ls cat env head base64 stat find mv rm mkdir chmod readlink dd printf test sleep kill ps python3";

#[tokio::test]
async fn s_41_planted_tools_and_variables_change_neither_files_nor_timeouts() {
    let planted = [
        ("PATH", "/workspace"),
        ("LD_PRELOAD", "/workspace/planted.so"),
        ("LD_LIBRARY_PATH", "/workspace"),
        ("BASH_ENV", "/workspace/rc"),
        ("ENV", "/workspace/rc"),
        ("PYTHONSTARTUP", "/workspace/rc"),
        ("IFS", "/r"),
    ];
    let sandbox = Box::with(SandboxSpec::new().with_env(EnvMap::new(planted).unwrap())).await;
    let trap = b"#!/bin/sh\necho \"$0\" >>/tmp/used\n";
    for name in TOOLS.split(' ').chain(["rc", ".bashrc"]) {
        sandbox.write(name, trap).await.unwrap();
    }
    sandbox.write("/home/sandbox/.bashrc", trap).await.unwrap();
    sandbox.write("/home/sandbox/.profile", trap).await.unwrap();
    let names: Vec<String> = TOOLS.split(' ').map(str::to_owned).collect();
    let chmod: Vec<&str> =
        ["/bin/chmod", "755"].into_iter().chain(names.iter().map(String::as_str)).collect();
    assert_eq!(sandbox.request(program(&chmod)).await.ending, Ending::Exited(0));
    // The files, each way they can be asked for.
    for size in [7, 1 << 20] {
        let content = vec![b'c'; size];
        sandbox.write("a/b", &content).await.unwrap();
        assert!(sandbox.read("a/b").await == Ok(content.clone()));
        let mut sink = Vec::new();
        sandbox.backend.export_file(&sandbox.id, &path("a/b"), 2 << 20, &mut sink).await.unwrap();
        assert!(sink == content);
        let listing =
            sandbox.backend.list_directory(&sandbox.id, &path("a"), ListRequest::default()).await.unwrap();
        let [entry] = &listing.entries[..] else { panic!("{listing:?}") };
        assert_eq!((&entry.name[..], entry.size_bytes), (&b"b"[..], Some(size as u64)));
    }
    // The timeout, and the end of all that was started.
    let marker = Marker::new();
    let mut sleep = program(&["/bin/sleep", &marker.0]);
    sleep.timeout = seconds(0.3);
    let (result, took) = timed(sandbox.request(sleep)).await;
    assert_eq!(result.ending, Ending::TimedOut);
    assert_took(took, 0.3, 0.8);
    marker.assert_dead();
    assert_eq!(sandbox.read("/tmp/used").await, Err(ErrorKind::NotFound));
    // A command is its sender's own: which shell it runs in is not for the sandbox to say, what its words mean is.
    let command = format!("/bin/sleep {marker} & /bin/sleep {marker}");
    let (said, took) = timed(sandbox.run_for(&command, 0.3)).await;
    assert_eq!((said.ending, said.stdout.as_str()), (Ending::TimedOut, ""));
    assert_took(took, 0.3, 0.8);
    marker.assert_dead();
    // Control: the traps work, all three kinds of them.
    let said = sandbox.run("ls; timeout 1 true").await;
    assert!(said.stderr.contains("/workspace/planted.so"), "{said:?}");
    let used = String::from_utf8(sandbox.read("/tmp/used").await.unwrap()).unwrap();
    let used: BTreeSet<&str> = used.lines().collect();
    assert!(used.contains("/workspace/ls") && used.contains("/workspace/timeout"), "{used:?}");
    if Path::new("/bin/bash").exists() {
        assert!(used.contains("/bin/bash") || used.contains("bash"), "{used:?}");
    }
}
