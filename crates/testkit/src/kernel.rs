//! Kernels that lack a primitive, made from the one that is there (S21).

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::thread;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// A system call that the kernel answers with an error, whoever makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingCall {
    /// The number of the call.
    pub number: i64,
    /// Only with this first argument, for calls that are many in one, such as `prctl`. Compared in its low 32 bits.
    pub first_argument: Option<u32>,
    /// What the kernel answers.
    pub errno: i32,
}

impl MissingCall {
    /// Runs `act` on a thread for which the call is missing, and for all that the thread starts: threads and programs.
    ///
    /// # Panics
    ///
    /// If this machine takes no filter of system calls, and when `act` panics.
    pub fn around<T: Send>(self, act: impl FnOnce() -> T + Send) -> T {
        self.with(SeccompAction::Errno(self.errno.cast_unsigned()), act)
    }

    /// The same with a kernel that kills whoever makes the call, with SIGSYS.
    ///
    /// # Panics
    ///
    /// As [`Self::around`].
    pub fn killing<T: Send>(self, act: impl FnOnce() -> T + Send) -> T {
        self.with(SeccompAction::KillProcess, act)
    }

    fn with<T: Send>(self, answer: SeccompAction, act: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let limited = scope.spawn(|| {
                // A filter is for the thread that loads it and its descendants, and stays. So the thread goes.
                let loaded = self
                    .filter(answer)
                    .and_then(|filter| seccompiler::apply_filter(&filter).map_err(Into::into));
                assert!(loaded.is_ok(), "{loaded:?}");
                act()
            });
            limited.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn filter(self, answer: SeccompAction) -> Result<BpfProgram, Box<dyn std::error::Error>> {
        let rules = match self.first_argument {
            Some(value) => {
                let first =
                    SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(value))?;
                vec![SeccompRule::new(vec![first])?]
            }
            None => Vec::new(),
        };
        let rules = BTreeMap::from([(self.number, rules)]);
        let architecture = std::env::consts::ARCH.try_into()?;
        Ok(SeccompFilter::new(rules, SeccompAction::Allow, answer, architecture)?.try_into()?)
    }
}

/// The ways into a mount namespace in which a test may mount: root's own, and a user's with the rights of root over it.
#[must_use]
pub fn own_mounts() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() {
        &["unshare", "--mount", "--propagation", "private"]
    } else {
        &["unshare", "--user", "--map-root-user", "--mount"]
    }
}

/// Whether the way of [`own_mounts`] can be gone here.
#[must_use]
pub fn can_mount() -> bool {
    let [program, arguments @ ..] = own_mounts() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).args(["mount", "-t", "tmpfs", "none", "/mnt"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
