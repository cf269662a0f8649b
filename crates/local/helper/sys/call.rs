//! The one instruction.

use core::arch::asm;

use super::{Errno, Result};

/// A value as the kernel takes it, in a register.
pub(crate) trait Word {
    /// The register's content.
    fn word(self) -> usize;
}

impl Word for usize {
    fn word(self) -> usize {
        self
    }
}

impl Word for u64 {
    fn word(self) -> usize {
        self as usize
    }
}

impl Word for u32 {
    fn word(self) -> usize {
        self as usize
    }
}

/// Signed ones keep their sign: `AT_FDCWD`, "every process", "for ever".
impl Word for i32 {
    fn word(self) -> usize {
        self as isize as usize
    }
}

impl Word for i64 {
    fn word(self) -> usize {
        self as usize
    }
}

/// The other side of the call reads and writes there, so the pointer's permission goes with it.
impl<T> Word for *const T {
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Word for *mut T {
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

/// Calls the kernel: number, then up to six arguments.
///
/// # Safety
///
/// What the call's manual asks for: pointers to what it takes them to be, alive until it returns.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::sys::call::call($number, [$($crate::sys::call::Word::word($argument)),*])
    };
}

/// [`call!`] with the arguments as they are.
///
/// # Safety
///
/// As there.
#[inline(always)]
pub(super) unsafe fn call<const COUNT: usize>(number: libc::c_long, given: [usize; COUNT]) -> Result<usize> {
    let mut all = [0; 6];
    all[..COUNT].copy_from_slice(&given);
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the registers are those of the system call interface, the kernel changes no others, and nothing lies below the
    // stack pointer. What the call itself does is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") all[0], in("rsi") all[1], in("rdx") all[2], in("r10") all[3], in("r8") all[4], in("r9") all[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") all[0] => result,
            in("x1") all[1], in("x2") all[2], in("x3") all[3], in("x4") all[4], in("x5") all[5],
            options(nostack),
        );
    }
    // The kernel's errors are the last 4095 values.
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}
