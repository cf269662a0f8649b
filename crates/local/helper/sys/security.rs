//! Giving up privileges: capabilities, Landlock, seccomp.

use alloc::vec::Vec;
use core::ptr;

use super::fd::{BorrowedFd, OwnedFd, RawFd};
use super::{Errno, Result};

/// Empties every capability set of this process, the bounding set included (S6).
pub(crate) fn drop_capabilities() -> Result<()> {
    for capability in 0..64 {
        // SAFETY: takes integers only.
        match unsafe { call!(libc::SYS_prctl, libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } {
            Ok(_) => {}
            // The kernel knows no capability of this number or above.
            Err(Errno(libc::EINVAL)) => break,
            Err(error) => return Err(error),
        }
    }
    // SAFETY: takes integers only.
    unsafe { call!(libc::SYS_prctl, libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) }?;
    // _LINUX_CAPABILITY_VERSION_3 for this process, then two words each of effective, permitted, inheritable.
    let header: [u32; 2] = [0x2008_0522, 0];
    let sets: [u32; 6] = [0; 6];
    // SAFETY: the layouts are those of version 3; both outlive the call.
    unsafe { call!(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }.map(drop)
}

/// What Landlock of ABI 1 to 3 handles for files, as bits.
pub(crate) mod access {
    /// Execute a file.
    pub(crate) const EXECUTE: u64 = 1;
    /// Open a file for writing.
    pub(crate) const WRITE_FILE: u64 = 1 << 1;
    /// Open a file for reading.
    pub(crate) const READ_FILE: u64 = 1 << 2;
    /// List a directory.
    pub(crate) const READ_DIR: u64 = 1 << 3;
    /// Everything of ABI 1.
    pub(crate) const ABI_1: u64 = (1 << 13) - 1;
    /// Make a character or a block device.
    const MAKE_DEVICE: u64 = 1 << 6 | 1 << 11;
    /// What a writable directory allows: all but device nodes.
    pub(crate) const WRITABLE: u64 = ABI_1 & !MAKE_DEVICE | REFER | TRUNCATE;
    /// Link or rename across directories.
    pub(crate) const REFER: u64 = 1 << 13;
    /// Truncate.
    pub(crate) const TRUNCATE: u64 = 1 << 14;
}

const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
const SCOPE_SIGNAL: u64 = 2;
const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
const LANDLOCK_RULE_PATH_BENEATH: libc::c_uint = 1;

/// A Landlock ruleset being filled.
#[derive(Debug)]
pub(crate) struct Landlock {
    ruleset: OwnedFd,
    handled: u64,
    /// The kernel's ABI version.
    pub(crate) abi: u32,
}

#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: RawFd,
}

impl Landlock {
    /// Creates a ruleset with everything this kernel can handle; `None` where Landlock is absent or off.
    pub(crate) fn new() -> Result<Option<Self>> {
        let none: *const RulesetAttributes = ptr::null();
        // SAFETY: asking for the version takes no attributes.
        let version =
            unsafe { call!(libc::SYS_landlock_create_ruleset, none, 0, LANDLOCK_CREATE_RULESET_VERSION) };
        let abi = match version {
            Ok(abi) => abi as u32,
            Err(Errno(libc::ENOSYS | libc::EOPNOTSUPP)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut handled = access::ABI_1;
        if abi >= 2 {
            handled |= access::REFER;
        }
        if abi >= 3 {
            handled |= access::TRUNCATE;
        }
        let scoped = if abi >= 6 { SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL } else { 0 };
        let attributes = RulesetAttributes { handled_access_fs: handled, handled_access_net: 0, scoped };
        // Older kernels take a shorter structure: they refuse bytes they do not know only when those are not zero.
        let (given, size) = (ptr::from_ref(&attributes), size_of::<RulesetAttributes>());
        // SAFETY: the attributes outlive the call and have the size given.
        let fd = unsafe { call!(libc::SYS_landlock_create_ruleset, given, size, 0) }?;
        // SAFETY: a fresh descriptor.
        let ruleset = unsafe { OwnedFd::new(fd) };
        Ok(Some(Self { ruleset, handled, abi }))
    }

    /// Allows `rights` (as far as handled) below an open directory.
    pub(crate) fn allow(&self, directory: BorrowedFd<'_>, rights: u64) -> Result<()> {
        let rule = PathBeneath { allowed_access: rights & self.handled, parent_fd: directory.as_raw_fd() };
        let (ruleset, kind) = (self.ruleset.as_raw_fd(), LANDLOCK_RULE_PATH_BENEATH);
        // SAFETY: the rule outlives the call.
        unsafe { call!(libc::SYS_landlock_add_rule, ruleset, kind, ptr::from_ref(&rule), 0) }.map(drop)
    }

    /// Binds this process and all its descendants.
    pub(crate) fn enforce(self) -> Result<()> {
        // SAFETY: takes integers only.
        unsafe { call!(libc::SYS_landlock_restrict_self, self.ruleset.as_raw_fd(), 0) }.map(drop)
    }
}

/// Loads a seccomp filter: 8 bytes an instruction, as the kernel lays them out.
pub(crate) fn load_filter(program: &[u8]) -> Result<()> {
    if program.is_empty() || !program.len().is_multiple_of(8) {
        return Err(Errno(libc::EINVAL));
    }
    let instructions: Vec<libc::sock_filter> = program
        .chunks_exact(8)
        .map(|bytes| libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
        .collect();
    let length = u16::try_from(instructions.len()).map_err(|_| Errno(libc::EINVAL))?;
    let program = libc::sock_fprog { len: length, filter: instructions.as_ptr().cast_mut() };
    // SAFETY: the program and its instructions outlive the call, which only reads them.
    unsafe { call!(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, ptr::from_ref(&program)) }.map(drop)
}
