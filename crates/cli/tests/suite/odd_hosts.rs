//! Hosts that lack something (P87 to P90, S21, S22), each made in mount and user namespaces of its own: it works there, or refuses
//! and names what is missing and what to do. Never is there a weaker sandbox, so what works is asked to show that.

use ringfence_testkit::{can_mount, own_mounts};

use super::driver::{Call, skipped};

/// Whether hosts can be made here; where not, the test is skipped.
pub(super) fn can_make_hosts(test: &str) -> bool {
    let can = can_mount();
    if !can {
        skipped(test, "namespaces to mount in, and unshare");
    }
    can
}

/// The program on a host that this script of sh has made of the real one.
pub(super) fn on(host: &str, arguments: &[&str]) -> Call {
    let script = format!("set -e\n{host}\nexec \"$@\"");
    Call::new(arguments).below(&[own_mounts(), &["sh", "-c", &script, "sh"]].concat())
}

/// Prints `sound` if this is the sandbox it should be: no capabilities, a filter, no way out through the network, nothing of the host.
pub(super) const LOOK: &str = "grep -q '^CapBnd:.0*$' /proc/self/status && grep -q '^Seccomp:.2$' /proc/self/status &&
grep -q '^NoNewPrivs:.1$' /proc/self/status && [ \"$(cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' ')\" = lo ] &&
[ ! -e /root ] && [ ! -e /run ] && ! touch /usr/x 2>/dev/null && touch /dev/shm/x /tmp/x ~/x x && echo sound";

fn looks(host: &str) -> Call {
    on(host, &["run", "--", "sh", "-c", LOOK])
}

const MASKED: &str = "ringfence: local: create a sandbox: this machine does not allow a step of creation: create /proc: Operation not permitted (os error 1)
  try: this process's own /proc is partly hidden, as in a container, so no new one may be mounted: run the container with an \
     unmasked /proc (Docker: --security-opt systempaths=unconfined)\n";

#[test]
fn p_87_a_masked_proc_is_refused_with_the_way_out() {
    if !can_make_hosts("p_87_a_masked_proc_is_refused_with_the_way_out") {
        return;
    }
    // One whole /proc anywhere would do for the kernel, and who else uses this machine may have one.
    let alone =
        "awk '$0 ~ / - proc / && $5 != \"/proc\" { print $5 }' /proc/self/mountinfo | while read -r place; do
        mount -t tmpfs none \"$place\"; done";
    // As container engines do it: a file covered, a directory covered, a part made read-only, with what is mounted on it as it has
    // to be in a user namespace.
    for mask in [
        "mount --bind /dev/null /proc/interrupts",
        "mount -t tmpfs -o ro none /proc/irq",
        "mount --rbind /proc/sys /proc/sys; mount -o remount,bind,ro,nosuid,nodev,noexec /proc/sys",
    ] {
        looks(&format!("{alone}\n{mask}")).done().assert(125, "", MASKED);
    }
    // Control: the same host with nothing covered.
    looks(alone).done().assert(0, "sound\n", "");
}

#[test]
fn p_88_p_90_no_user_namespaces_is_refused_with_the_way_out() {
    if !can_make_hosts("p_88_p_90_no_user_namespaces_is_refused_with_the_way_out") {
        return;
    }
    let nested = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"];
    let off = |arguments: &[&str]| {
        let script = "echo 0 >/proc/sys/user/max_user_namespaces; exec \"$@\"";
        Call::new(arguments).below(&[&nested[..], &[script, "sh"]].concat()).done()
    };
    let refused = "this machine does not allow a step of creation: create user, mount, pid, ipc, uts and cgroup namespaces: No space left on device (os error 28)";
    let remedy = "user namespaces are used up or switched off: raise user.max_user_namespaces (sysctl)";
    let said = format!("ringfence: local: create a sandbox: {refused}\n  try: {remedy}\n");
    off(&["run", "--", "true"]).assert(125, "", &said);
    // The doctor tries and does not ask for versions.
    let doctor = off(&["doctor"]);
    assert_eq!(doctor.status, Some(1), "{doctor:?}");
    assert!(doctor.out().contains(refused) && doctor.out().contains(remedy), "{doctor:?}");
}

#[test]
fn p_89_a_sandbox_in_namespaces_of_a_user_is_whole() {
    if !can_make_hosts("p_89_a_sandbox_in_namespaces_of_a_user_is_whole") {
        return;
    }
    let run = ["run", "--", "sh", "-c", LOOK];
    for nested in [
        &["unshare", "--user", "--map-root-user", "--mount"][..],
        &["unshare", "--user", "--map-current-user", "--mount"],
        &[
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "--net",
            "--ipc",
            "--uts",
            "--pid",
            "--fork",
            "--mount-proc",
        ],
    ] {
        Call::new(run).below(nested).done().assert(0, "sound\n", "");
    }
}

#[test]
fn p_77_a_home_that_is_read_only_missing_or_not_named_does_not_matter() {
    if !can_make_hosts("p_77_a_home_that_is_read_only_missing_or_not_named_does_not_matter") {
        return;
    }
    looks("mount -t tmpfs -o ro none $HOME; ! touch $HOME/x 2>&-").done().assert(0, "sound\n", "");
    looks("export HOME=/nonexistent").done().assert(0, "sound\n", "");
    looks("unset HOME").done().assert(0, "sound\n", "");
}

#[test]
fn s_21_no_control_groups_refuses_the_limits_that_need_them_and_nothing_else() {
    if !can_make_hosts("s_21_no_control_groups_refuses_the_limits_that_need_them_and_nothing_else") {
        return;
    }
    let hidden = "mount -t tmpfs none /sys/fs/cgroup";
    // What is mounted below a folder that is read-only is read-only by itself.
    let read_only =
        "awk '$5 ~ \"^/sys/fs/cgroup\" { print $5 }' /proc/self/mountinfo | while read -r place; do
            mount -o remount,bind,ro,nosuid,nodev,noexec $place; done";
    for host in [hidden, read_only] {
        looks(host).done().assert(0, "sound\n", "");
        for (flag, value, field, what) in [
            ("--memory", "64MiB", "limits.memory", "no memory cgroup"),
            ("--cpus", "1", "limits.cpus", "no cpu cgroup"),
        ] {
            let refused = on(host, &["run", flag, value, "--", "true"]).done();
            assert_eq!((refused.status, refused.out()), (Some(125), ""), "{host}: {refused:?}");
            let said = format!(
                "{what} can be written by this process, field {field}, asked for by {flag}\n  try: run where cgroups"
            );
            assert!(refused.stderr.contains(&said), "{refused:?}");
        }
    }
}

#[test]
fn p_71_shared_memory_is_the_sandboxes_own() {
    if !can_make_hosts("p_71_shared_memory_is_the_sandboxes_own") {
        return;
    }
    // The host's /dev has the devices and no shm.
    let host = "mount -t tmpfs none /mnt; for name in null zero full random urandom tty; do
        : >/mnt/$name; mount --bind /dev/$name /mnt/$name; done; mount --rbind /mnt /dev; [ ! -e /dev/shm ]";
    looks(host).done().assert(0, "sound\n", "");
}

#[test]
fn s_21_a_missing_device_is_named() {
    if !can_make_hosts("s_21_a_missing_device_is_named") {
        return;
    }
    let bare =
        "mount -t tmpfs none /mnt; : >/mnt/null; mount --bind /dev/null /mnt/null; mount --rbind /mnt /dev";
    let refused = on(bare, &["run", "--", "true"]).done();
    assert_eq!((refused.status, refused.out()), (Some(125), ""), "{refused:?}");
    assert!(refused.stderr.contains("show device /dev/zero: No such file or directory"), "{refused:?}");
    let refused = on("mount -t tmpfs none /dev", &["run", "--", "true"]).done();
    assert_eq!((refused.status, refused.out()), (Some(125), ""), "{refused:?}");
    assert!(refused.stderr.contains("try: that needs /proc, /dev/null, the sysctl"), "{refused:?}");
}

#[test]
fn p_89_temporary_places_that_cannot_execute_or_be_written_do_not_matter() {
    if !can_make_hosts("p_89_temporary_places_that_cannot_execute_or_be_written_do_not_matter") {
        return;
    }
    let host = "mount -t tmpfs -o noexec none /mnt; for place in /tmp /var/tmp /dev/shm /run; do
        mount -t tmpfs -o noexec,ro none $place; done";
    // Inside, programs can be made and started in all of the writable places.
    let make =
        "for place in . ~ /tmp /dev/shm; do cp /usr/bin/true $place/t && $place/t || exit; done; echo made";
    let cwd = format!("cd /; {host}; export TMPDIR=/tmp");
    on_program_elsewhere(&cwd, &["run", "--", "sh", "-c", make]).done().assert(0, "made\n", "");
}

/// As [`on`]; the host may cover the place where the program is.
fn on_program_elsewhere(host: &str, arguments: &[&str]) -> Call {
    let script = format!("set -e\nexec 9<\"$1\"; shift\n{host}\nexec /proc/self/fd/9 \"$@\"");
    Call::new(arguments).below(&[own_mounts(), &["sh", "-c", &script, "sh"]].concat())
}

#[test]
fn s_21_few_open_files_are_enough_or_the_limit_is_named() {
    let limited = |count: u32| {
        let script = format!("ulimit -n {count}; exec \"$@\"");
        Call::new(["run", "--", "sh", "-c", LOOK]).below(&["sh", "-c", &script, "sh"]).done()
    };
    limited(64).assert(0, "sound\n", "");
    let remedy = "try: `ulimit -n 64` or more before: the limit on open files also holds for ringfence\n";
    for count in [5, 8, 12, 16, 20, 31] {
        let refused = limited(count);
        assert_eq!((refused.status, refused.out()), (Some(125), ""), "{count}: {refused:?}");
        assert!(refused.stderr.contains("Too many open files"), "{count}: {refused:?}");
        assert!(refused.stderr.ends_with(remedy), "{count}: {refused:?}");
    }
}

#[test]
fn p_77_the_callers_umask_changes_nothing_inside() {
    let look = "touch f; mkdir d; stat -c '%a' f d . /tmp ~ /etc/passwd /dev/shm; umask";
    for mask in ["000", "022", "077", "777"] {
        let script = format!("umask {mask}; exec \"$@\"");
        let call = Call::new(["run", "--", "sh", "-c", look]).below(&["sh", "-c", &script, "sh"]);
        call.done().assert(0, "644\n755\n755\n1777\n700\n644\n1777\n0022\n", "");
    }
}
