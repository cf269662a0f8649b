//! A user's sandboxes are that user's alone.

use std::os::unix::fs::PermissionsExt;

use super::driver::{Call, skipped};
use super::place::{Place, no_such};

/// The number of a user who is nobody here.
const OTHER: &str = "65533";

/// As another user, who must be able to start the program.
fn other(call: Call) -> Call {
    call.below(&["setpriv", "--reuid", OTHER, "--regid", OTHER, "--clear-groups"])
}

/// What is said of a directory that others can get into.
const NOT_ALONE: &str = "the directory of sandboxes is not this user's alone, so nothing in it is believed";

/// Asserts that nothing comes of whatever the other user tries in this place.
#[track_caller]
fn refused(place: &Place, handle: &str, why: &str) {
    for args in [
        &["ps"][..],
        &["inspect", handle],
        &["renew", handle],
        &["rm", handle],
        &["rm", "-f", handle],
        &["rm", "--all", "-f"],
        &["prune"],
        &["create", "--keep"],
    ] {
        let done = other(place.call(args.iter().copied())).done();
        assert_eq!((done.status, done.out()), (Some(125), ""), "{args:?}: {done:?}");
        assert!(done.stderr.contains(why), "{args:?}: {done:?}");
    }
}

#[test]
fn another_user_neither_sees_nor_reaches_nor_removes() {
    if !rustix::process::geteuid().is_root() {
        skipped("another_user_neither_sees_nor_reaches_nor_removes", "root, to become another user");
        return;
    }
    let place = Place::new();
    let handle = place.keep(&["--label", "a=b"]);
    // The way to it is open and the handle at hand; then even the directory is.
    let open = |path: &str, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    open(place.path(), 0o755);
    let directory = format!("{}/ringfence", place.path());
    refused(&place, &handle, "Permission denied (os error 13)");
    open(&directory, 0o755);
    refused(&place, &handle, NOT_ALONE);
    // Others may have been in it, so its owner does not believe it either.
    let own = place.call(["ps"]).done();
    assert!(own.status == Some(125) && own.stderr.contains(NOT_ALONE), "{own:?}");
    open(&directory, 0o700);
    assert_eq!(place.handles(&[]), [handle.as_str()]);
    // Control: in a place of its own the same user's commands work, and do not find it either.
    let own = Place::new();
    std::os::unix::fs::chown(own.path(), Some(65533), Some(65533)).unwrap();
    let at_home = |args: &[&str]| other(own.call(args.iter().copied())).done();
    let theirs = super::place::handle_of(&at_home(&["create", "--keep"]));
    assert_eq!(at_home(&["ps", "-q"]).out(), format!("{theirs}\n"));
    at_home(&["inspect", &handle]).assert(125, "", &no_such(&handle));
    at_home(&["rm", &theirs]).assert(0, "", "");
    assert_eq!(at_home(&["ps", "-q"]).out(), "");
    // Root does not believe that user's directory either.
    std::fs::remove_dir_all(format!("{}/ringfence", own.path())).unwrap();
}
