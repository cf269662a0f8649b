//! Each primitive of a sandbox broken in turn (S21), and all of that again with nothing said (S22): the program fails with a status
//! of its own, and its JSON has what it would have said. Never is there a weaker sandbox and a warning.

use ringfence_testkit::MissingCall;
use rustix::io::Errno;

use super::driver::{Call, Done};
use super::odd_hosts::{LOOK, can_make_hosts, on};

/// How a primitive is taken away from the program.
#[derive(Debug, Clone, Copy)]
enum Broken {
    /// No namespace of this kind may be made any more, as by the setting `user.max_KIND_namespaces`.
    Namespaces(&'static str),
    /// A system call fails.
    Call(libc::c_long, Errno),
    /// A call with this first argument fails.
    CallWith(libc::c_long, libc::c_int, Errno),
    /// What this script of sh has made of the host.
    Host(&'static str),
}

use Broken::{Call as Missing, CallWith, Host, Namespaces};

/// A primitive that is missing, and what is said of it.
struct Case {
    primitive: &'static str,
    broken: Broken,
    /// What the run asks for besides.
    options: &'static [&'static str],
    kind: &'static str,
    field: Option<&'static str>,
    /// In the message: the step or the mechanism.
    says: &'static str,
    /// In the hint.
    remedy: &'static str,
    /// The status of `doctor`: 1 where no sandbox at all can be made.
    doctor: i32,
}

const fn machine(primitive: &'static str, broken: Broken, says: &'static str, remedy: &'static str) -> Case {
    Case { primitive, broken, options: &[], kind: "unavailable", field: None, says, remedy, doctor: 1 }
}

const fn field(
    field: &'static str,
    primitive: &'static str,
    broken: Broken,
    says: &'static str,
    remedy: &'static str,
) -> Case {
    Case { field: Some(field), kind: "refused", ..machine(primitive, broken, says, remedy) }
}

const fn limit(
    field_name: &'static str,
    options: &'static [&'static str],
    broken: Broken,
    says: &'static str,
) -> Case {
    Case {
        options,
        doctor: 0,
        ..field(field_name, "cgroup", broken, says, "run where cgroups can be written")
    }
}

const CLONE: &str = "create user, mount, pid, ipc, uts and cgroup namespaces: ";
const NETWORK: &str = "make the network namespace, field block_network: ";
const FORBIDDEN: &str = "a security module or the surrounding container forbids it";
const OUTSIDE: &str = "a surrounding sandbox or container forbids the call: start this outside of it";
const HIDDEN: &str = "mount -t tmpfs none /sys/fs/cgroup";
const READ_ONLY: &str =
    "awk '$5 ~ \"^/sys/fs/cgroup\" { print $5 }' /proc/self/mountinfo | while read -r place; do
    mount -o remount,bind,ro,nosuid,nodev,noexec $place; done";

const CASES: [Case; 28] = [
    machine("user namespaces", Namespaces("user"), CLONE, "raise user.max_user_namespaces (sysctl)"),
    machine("mount namespaces", Namespaces("mnt"), CLONE, "raise user.max_mnt_namespaces (sysctl)"),
    machine("pid namespaces", Namespaces("pid"), CLONE, "raise user.max_pid_namespaces (sysctl)"),
    machine("ipc namespaces", Namespaces("ipc"), CLONE, "raise user.max_ipc_namespaces (sysctl)"),
    machine("uts namespaces", Namespaces("uts"), CLONE, "raise user.max_uts_namespaces (sysctl)"),
    machine("cgroup namespaces", Namespaces("cgroup"), CLONE, "raise user.max_cgroup_namespaces (sysctl)"),
    field(
        "block_network",
        "net namespaces",
        Namespaces("net"),
        NETWORK,
        "raise user.max_net_namespaces (sysctl)",
    ),
    machine("clone3", Missing(libc::SYS_clone3, Errno::NOSYS), CLONE, "--security-opt seccomp=unconfined"),
    field("block_network", "unshare", Missing(libc::SYS_unshare, Errno::PERM), NETWORK, FORBIDDEN),
    field("block_network", "setns", Missing(libc::SYS_setns, Errno::PERM), NETWORK, FORBIDDEN),
    field(
        "limits.disk",
        "tmpfs",
        Missing(libc::SYS_fsopen, Errno::PERM),
        "create the root file system",
        FORBIDDEN,
    ),
    machine(
        "bind mounts",
        Missing(libc::SYS_open_tree, Errno::PERM),
        "show host path read-only at /usr",
        FORBIDDEN,
    ),
    machine(
        "read-only",
        Missing(libc::SYS_mount_setattr, Errno::NOSYS),
        "show host path",
        "Linux 5.12 or newer is needed",
    ),
    machine(
        "pivot_root",
        Missing(libc::SYS_pivot_root, Errno::PERM),
        "make the new root the root",
        FORBIDDEN,
    ),
    machine("capset", Missing(libc::SYS_capset, Errno::PERM), "drop capabilities", FORBIDDEN),
    machine(
        "no_new_privs",
        CallWith(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, Errno::INVAL),
        "forbid new privileges",
        "ringfence doctor",
    ),
    machine(
        "seccomp",
        Missing(libc::SYS_seccomp, Errno::NOSYS),
        "load the seccomp filter",
        "CONFIG_SECCOMP_FILTER",
    ),
    machine(
        "seccomp",
        Missing(libc::SYS_seccomp, Errno::INVAL),
        "load the seccomp filter",
        "CONFIG_SECCOMP_FILTER",
    ),
    machine("Landlock", Missing(libc::SYS_landlock_create_ruleset, Errno::PERM), "apply Landlock", FORBIDDEN),
    Case {
        kind: "unexpected",
        ..machine(
            "memory files",
            Missing(libc::SYS_memfd_create, Errno::PERM),
            "start the launcher",
            "vm.memfd_noexec",
        )
    },
    Case {
        kind: "unexpected",
        ..machine(
            "pidfd_open",
            Missing(libc::SYS_pidfd_open, Errno::PERM),
            "start the launcher",
            "(pidfd_open)",
        )
    },
    machine(
        "setsid",
        Missing(libc::SYS_setsid, Errno::PERM),
        "the launcher cannot begin a session of its own",
        OUTSIDE,
    ),
    machine(
        "close_range",
        Missing(libc::SYS_close_range, Errno::PERM),
        "the launcher cannot close what it inherited",
        OUTSIDE,
    ),
    Case {
        kind: "unexpected",
        ..machine("/proc", Host("mount -t tmpfs none /proc"), "start the launcher", "that needs /proc")
    },
    limit("limits.memory", &["--memory", "64MiB"], Host(HIDDEN), "no memory cgroup"),
    limit("limits.cpus", &["--cpus", "1"], Host(HIDDEN), "no cpu cgroup"),
    limit("limits.memory", &["--memory", "64MiB"], Host(READ_ONLY), "no memory cgroup"),
    limit("limits.cpus", &["--cpus", "1"], Host(READ_ONLY), "no cpu cgroup"),
];

impl Broken {
    /// Calls the program where the primitive is missing.
    fn call(self, arguments: &[&str], change: fn(Call) -> Call) -> Done {
        let without = |number, first_argument, errno: Errno| {
            let call = change(Call::new(arguments));
            MissingCall { number, first_argument, errno: errno.raw_os_error() }.around(|| call.done())
        };
        match self {
            Missing(number, errno) => without(number, None, errno),
            CallWith(number, first, errno) => without(number, Some(first.cast_unsigned()), errno),
            Host(script) => change(on(script, arguments)).done(),
            Namespaces(kind) => {
                let script = format!("echo 0 >/proc/sys/user/max_{kind}_namespaces; exec \"$@\"");
                let own = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"];
                change(Call::new(arguments).below(&own)).done()
            }
        }
    }
}

fn run<'a>(first: &[&'a str], options: &[&'a str]) -> Vec<&'a str> {
    [&["run"], first, options, &["--", "echo", "a sandbox"]].concat()
}

#[test]
fn s_21_each_primitive_that_is_missing_is_named_and_there_is_no_sandbox() {
    if !can_make_hosts("s_21_each_primitive_that_is_missing_is_named_and_there_is_no_sandbox") {
        return;
    }
    for Case { primitive, broken, options, field, says, remedy, doctor, .. } in CASES {
        let done = broken.call(&run(&[], options), |call| call);
        assert_eq!((done.status, done.out()), (Some(125), ""), "{primitive} {broken:?}: {done:?}");
        let (said, way_out) = done.stderr.split_once("\n  try: ").unwrap_or_else(|| panic!("{done:?}"));
        assert!(said.starts_with("ringfence: local: ") && said.contains(says), "{primitive}: {done:?}");
        assert!(way_out.contains(remedy), "{primitive}: {done:?}");
        assert!(field.is_none_or(|field| said.contains(field)), "{primitive}: {done:?}");
        // The doctor tries and so says the same.
        let found = broken.call(&["doctor"], |call| call);
        assert_eq!(found.status, Some(doctor), "{primitive}: {found:?}");
        assert!(found.out().contains(remedy), "{primitive}: {found:?}");
    }
}

#[test]
fn s_22_with_nothing_said_the_status_and_the_json_carry_it() {
    if !can_make_hosts("s_22_with_nothing_said_the_status_and_the_json_carry_it") {
        return;
    }
    for Case { primitive, broken, options, kind, field, says, remedy, .. } in CASES {
        let mute = |call: Call| call.env("RINGFENCE_LOG", "off").muted();
        let done = broken.call(&run(&[], options), mute);
        assert_eq!((done.status, done.out()), (Some(125), ""), "{primitive} {broken:?}: {done:?}");
        let done = broken.call(&run(&["--json"], options), mute);
        assert_eq!(done.status, Some(125), "{primitive}: {done:?}");
        let document = done.json();
        assert_eq!(document["status"], 125, "{primitive}: {document}");
        let error = &document["error"];
        assert_eq!(
            (error["backend"].as_str(), error["kind"].as_str()),
            (Some("local"), Some(kind)),
            "{primitive}"
        );
        assert_eq!(error["field"].as_str(), field, "{primitive}: {document}");
        assert!(
            error["message"].as_str().is_some_and(|message| message.contains(says)),
            "{primitive}: {document}"
        );
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains(remedy)), "{primitive}: {document}");
    }
}

/// Control: what takes the primitives away does no harm by itself, and Landlock, the second wall, is the one that may be missing.
#[test]
fn s_21_what_is_not_needed_or_is_the_second_wall_may_be_missing() {
    if !can_make_hosts("s_21_what_is_not_needed_or_is_the_second_wall_may_be_missing") {
        return;
    }
    for broken in [
        Namespaces("time"),
        Missing(libc::SYS_swapoff, Errno::PERM),
        CallWith(libc::SYS_prctl, -1, Errno::PERM),
        Host("true"),
        Missing(libc::SYS_landlock_create_ruleset, Errno::NOSYS),
        Missing(libc::SYS_landlock_create_ruleset, Errno::OPNOTSUPP),
    ] {
        let done = broken.call(&["run", "--", "sh", "-c", LOOK], |call| call);
        assert_eq!((done.status, done.out()), (Some(0), "sound\n"), "{broken:?}: {done:?}");
    }
    let done = Missing(libc::SYS_landlock_create_ruleset, Errno::NOSYS).call(&["doctor"], |call| call);
    assert_eq!(done.status, Some(0), "{done:?}");
    assert!(done.out().contains("this kernel has none, or it is switched off"), "{done:?}");
    assert!(done.out().contains("boot with lsm=landlock"), "{done:?}");
}

#[test]
fn s_21_a_filter_that_kills_is_told_from_one_that_refuses() {
    const TEST: &str = "s_21_a_filter_that_kills_is_told_from_one_that_refuses";
    if !can_make_hosts(TEST) {
        return;
    }
    let call = MissingCall { number: libc::SYS_setsid, first_argument: None, errno: 0 };
    let done = call.killing(|| Call::new(run(&[], &[])).done());
    assert_eq!((done.status, done.out()), (Some(125), ""), "{done:?}");
    let (said, way_out) = done.stderr.split_once("\n  try: ").unwrap_or_else(|| panic!("{done:?}"));
    assert!(said.contains("signal 31 ends the launcher as soon as it is started"), "{done:?}");
    assert!(way_out.contains("a surrounding system call filter kills"), "{done:?}");
}
