//! Machines that lack a primitive (S21): each is taken away in turn, and there is no sandbox then, with the step and a way out said.
//! The program `ringfence` has the same test, with machines made by other means.

use ringfence_core::{
    Backend, Created, EnforcementRow, Error, ErrorKind, Evidence, Result, SandboxSpec, SpecField,
};
use ringfence_local::{LocalBackend, LocalConfig};
use ringfence_testkit::MissingCall;

use super::security_support::skipped;
use super::support::{children_of, is_alone, shell};

/// What a remedy says for a call that is forbidden, and for one that the kernel does not have.
const FORBIDDEN: [&str; 2] = ["ringfence doctor", "Linux 5.12 or newer is needed"];

const LAYOUT: &str =
    "user, mount, pid, ipc, uts, net and cgroup namespaces; no capabilities; seccomp allow-list; ";

/// A primitive, the call that is taken away, the field that a refusal names, and the step and remedies that it says.
type Row =
    (&'static str, libc::c_long, Option<libc::c_int>, Option<SpecField>, &'static str, [&'static str; 2]);

/// `clone3` stands apart: the C library of the test needs it too, unless it is not there at all.
const PRIMITIVES: [Row; 21] = [
    (
        "network namespace",
        libc::SYS_unshare,
        None,
        Some(SpecField::Network),
        "make the network namespace",
        FORBIDDEN,
    ),
    ("entering it", libc::SYS_setns, None, Some(SpecField::Network), "make the network namespace", FORBIDDEN),
    (
        "its loopback",
        libc::SYS_socket,
        None,
        Some(SpecField::Network),
        "make the network namespace",
        FORBIDDEN,
    ),
    ("file systems", libc::SYS_fsopen, None, Some(SpecField::Disk), "create the root file system", FORBIDDEN),
    (
        "their options",
        libc::SYS_fsconfig,
        None,
        Some(SpecField::Disk),
        "create the root file system",
        FORBIDDEN,
    ),
    ("mounts", libc::SYS_fsmount, None, Some(SpecField::Disk), "create the root file system", FORBIDDEN),
    ("attaching mounts", libc::SYS_move_mount, None, None, "mount the root file system", FORBIDDEN),
    ("bind mounts", libc::SYS_open_tree, None, None, "show host path read-only at /", FORBIDDEN),
    ("read-only mounts", libc::SYS_mount_setattr, None, None, "show host path read-only at /", FORBIDDEN),
    ("private mounts", libc::SYS_mount, None, None, "make the mount tree private", FORBIDDEN),
    ("a root of its own", libc::SYS_pivot_root, None, None, "make the new root the root", FORBIDDEN),
    ("letting go of the old root", libc::SYS_umount2, None, None, "make the new root the root", FORBIDDEN),
    ("a user of its own", libc::SYS_setresuid, None, None, "become the sandbox's user", FORBIDDEN),
    ("a host name", libc::SYS_sethostname, None, None, "set the host name", FORBIDDEN),
    ("capabilities", libc::SYS_capset, None, None, "drop capabilities", FORBIDDEN),
    ("bounding set", libc::SYS_prctl, Some(libc::PR_CAPBSET_DROP), None, "drop capabilities", FORBIDDEN),
    (
        "no new privileges",
        libc::SYS_prctl,
        Some(libc::PR_SET_NO_NEW_PRIVS),
        None,
        "forbid new privileges",
        FORBIDDEN,
    ),
    (
        "a hidden memory",
        libc::SYS_prctl,
        Some(libc::PR_SET_DUMPABLE),
        None,
        "hide the agent's memory",
        FORBIDDEN,
    ),
    (
        "an end with its owner",
        libc::SYS_prctl,
        Some(libc::PR_SET_PDEATHSIG),
        None,
        "tie the sandbox to",
        FORBIDDEN,
    ),
    ("seccomp", libc::SYS_seccomp, None, None, "load the seccomp filter", ["CONFIG_SECCOMP_FILTER"; 2]),
    (
        "a launcher from memory",
        libc::SYS_memfd_create,
        None,
        None,
        "start the launcher",
        ["vm.memfd_noexec"; 2],
    ),
];

/// Creates a sandbox where a call is missing, and looks at what is left once the backend is gone.
fn create(number: libc::c_long, first: Option<libc::c_int>, errno: i32) -> Result<Created> {
    let missing = MissingCall { number, first_argument: first.map(libc::c_int::cast_unsigned), errno };
    let runtime = runtime();
    missing.around(|| {
        runtime.block_on(async {
            let backend = LocalBackend::new(LocalConfig::default());
            let created = backend.create(&SandboxSpec::new()).await;
            // What a machine can is what it does when it is tried (P90).
            let found = backend.probe().await.unwrap();
            assert_eq!(found.can_isolate(), created.is_ok(), "{found:?}");
            created
        })
    })
}

/// Made where nothing is missing: it is the test's.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn errno_of(error: &Error) -> Option<i32> {
    std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?.raw_os_error()
}

#[test]
fn s_21_each_primitive_that_is_missing_is_an_error_that_names_it_and_leaves_nothing() {
    const TEST: &str = "s_21_each_primitive_that_is_missing_is_an_error_that_names_it_and_leaves_nothing";
    if !is_alone(&format!("suite::security_primitives::{TEST}")) {
        return;
    }
    for (primitive, number, first, field, step, remedies) in PRIMITIVES {
        for (errno, remedy) in [libc::EPERM, libc::ENOSYS].into_iter().zip(remedies) {
            let error = create(number, first, errno).unwrap_err();
            assert_eq!(
                (error.is_terminal(), error.field(), errno_of(&error)),
                (true, field, Some(errno)),
                "{primitive}: {error:?}"
            );
            // A field is refused; what every sandbox needs is not there.
            let refused = *error.kind() == ErrorKind::Refused;
            assert_eq!(refused, field.is_some(), "{primitive}: {error:?}");
            let hint = error.hint_text().unwrap_or_default();
            assert!(error.message().contains(step) && hint.contains(remedy), "{primitive}: {error:?}");
            assert!(children_of(std::process::id()).is_empty(), "{primitive}");
        }
    }
    // Control: a call that is taken away does no harm by itself.
    let created = create(libc::SYS_swapoff, None, libc::EPERM).unwrap();
    assert!(isolation(&created).mechanism.starts_with(LAYOUT), "{created:?}");
}

#[test]
fn s_21_no_namespaces_at_all_is_an_error_with_the_way_out_of_a_container() {
    let error = create(libc::SYS_clone3, None, libc::ENOSYS).unwrap_err();
    let message = "this machine does not allow a step of creation: create user, mount, pid, ipc, uts and cgroup namespaces";
    assert_eq!((error.kind(), error.message()), (&ErrorKind::Unavailable, message));
    assert!(error.hint_text().is_some_and(|hint| hint.contains("Docker: --security-opt")), "{error:?}");
}

/// Before it could say anything: no step is named then.
#[test]
fn s_21_a_launcher_that_cannot_serve_is_an_error() {
    for (number, what) in [
        (libc::SYS_setsid, "a session"),
        (libc::SYS_prlimit64, "limits"),
        (libc::SYS_close_range, "closing descriptors"),
        (libc::SYS_epoll_create1, "waiting"),
    ] {
        let error = create(number, None, libc::EPERM).unwrap_err();
        assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::Unavailable, true), "{what}: {error:?}");
    }
}

fn isolation(created: &Created) -> &EnforcementRow {
    created.statement.row(SpecField::Isolation).unwrap()
}

/// The second wall is where the kernel has it. Without it the first one stands, and the statement does not say otherwise.
#[test]
fn s_21_without_landlock_the_statement_says_so_and_the_first_wall_holds() {
    for errno in [libc::ENOSYS, libc::EOPNOTSUPP] {
        let missing = MissingCall { number: libc::SYS_landlock_create_ruleset, first_argument: None, errno };
        let runtime = runtime();
        let (stated, written) = missing.around(|| {
            runtime.block_on(async {
                let backend = LocalBackend::new(LocalConfig::default());
                let created = backend.create(&SandboxSpec::new()).await.unwrap();
                let command = shell("touch x /tmp/x; LC_ALL=C touch /usr/x", 60.0);
                let written = backend.run_command(&created.id, command).await.unwrap();
                let report = backend.probe().await.unwrap();
                let check = report.checks.iter().find(|check| check.name == "Landlock").unwrap();
                assert_eq!((check.outcome, report.can_isolate()), (ringfence_core::Outcome::Absent, true));
                assert!(check.remedy.as_ref().is_some_and(|remedy| remedy.contains("lsm=landlock")));
                (isolation(&created).clone(), written.stderr.text().into_owned())
            })
        });
        let expected = EnforcementRow {
            strength: Some("shared kernel".to_owned()),
            ..EnforcementRow::new(
                SpecField::Isolation,
                format!("{LAYOUT}no Landlock on this kernel"),
                Evidence::Applied,
            )
        };
        assert_eq!(stated, expected);
        assert_eq!(written, "touch: cannot touch '/usr/x': Read-only file system\n");
    }
}

/// Absence is one thing; a kernel that has it and does not do it is another.
#[test]
fn s_21_a_landlock_that_cannot_be_applied_is_an_error() {
    const TEST: &str = "s_21_a_landlock_that_cannot_be_applied_is_an_error";
    let created = create(libc::SYS_swapoff, None, libc::EPERM).unwrap();
    if isolation(&created).mechanism.contains("no Landlock") {
        return skipped(TEST, "Landlock");
    }
    for number in
        [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self]
    {
        let error = create(number, None, libc::EPERM).unwrap_err();
        let message = "this machine does not allow a step of creation: apply Landlock";
        assert_eq!((error.kind(), error.message()), (&ErrorKind::Unavailable, message), "{error:?}");
        assert_eq!(errno_of(&error), Some(libc::EPERM));
    }
}
