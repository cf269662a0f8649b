//! The first instructions, and what a C library would be needed for otherwise.
//!
//! The kernel loads the program at an address of its choice, so the addresses in its data are corrected first; nothing before
//! that may use one.

use core::arch::global_asm;
use core::panic::PanicInfo;
use core::ptr;

use super::process;

/// A correction of one address: where, of which kind, and the address as if the program began at 0.
#[repr(C)]
struct Relocation {
    offset: usize,
    kind: usize,
    addend: usize,
}

/// A fact about the program, for whoever loads it.
#[repr(C)]
struct Fact {
    tag: usize,
    value: usize,
}

const DT_NULL: usize = 0;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const PAGE: usize = 4096;

#[cfg(target_arch = "x86_64")]
const RELATIVE: usize = 8;
#[cfg(target_arch = "aarch64")]
const RELATIVE: usize = 1027;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "and rsp, -16",
    "lea rdi, [rip + __ehdr_start]",
    "lea rsi, [rip + _DYNAMIC]",
    "call {begin}",
    "ud2",
    begin = sym begin,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl _start",
    "_start:",
    "mov x29, xzr",
    "mov x30, xzr",
    "adrp x0, __ehdr_start",
    "add x0, x0, :lo12:__ehdr_start",
    "adrp x1, _DYNAMIC",
    "add x1, x1, :lo12:_DYNAMIC",
    "bl {begin}",
    "brk 1",
    begin = sym begin,
);

/// Begins: `header` is where the program lies, `facts` what is known of it.
unsafe extern "C" fn begin(header: *const u8, facts: *const Fact) -> ! {
    // SAFETY: both come from the linker by way of the instructions above.
    unsafe { relocate(header, facts) };
    // SAFETY: as above, and nothing is corrected any more.
    unsafe { protect(header) };
    process::exit(crate::run())
}

/// Corrects the addresses in the program's data.
///
/// # Safety
///
/// To be called first, with what the linker says.
unsafe fn relocate(header: *const u8, mut facts: *const Fact) {
    let (mut table, mut bytes) = (0, 0);
    loop {
        // SAFETY: the list ends with `DT_NULL`, and this is not behind it.
        let fact = unsafe { facts.read() };
        match fact.tag {
            DT_NULL => break,
            DT_RELA => table = fact.value,
            DT_RELASZ => bytes = fact.value,
            _ => {}
        }
        facts = facts.wrapping_add(1);
    }
    let table: *const Relocation = header.wrapping_add(table).cast();
    for index in 0..bytes / size_of::<Relocation>() {
        // SAFETY: inside the table.
        let relocation = unsafe { table.wrapping_add(index).read() };
        if relocation.kind == RELATIVE {
            let place: *mut usize = header.wrapping_add(relocation.offset).cast_mut().cast();
            // SAFETY: the linker names only aligned words of the program's writable data.
            unsafe { place.write(header as usize + relocation.addend) };
        }
    }
}

/// Makes the corrected addresses read-only, as a dynamic loader does.
///
/// # Safety
///
/// To be called with the program's header, after [`relocate`].
unsafe fn protect(header: *const u8) {
    let file: *const libc::Elf64_Ehdr = header.cast();
    // SAFETY: the header lies in front of the program, in memory too.
    let file = unsafe { file.read() };
    let parts: *const libc::Elf64_Phdr = header.wrapping_add(file.e_phoff as usize).cast();
    for index in 0..usize::from(file.e_phnum) {
        // SAFETY: the table has this many entries.
        let part = unsafe { parts.wrapping_add(index).read() };
        if part.p_type == libc::PT_GNU_RELRO {
            let first = (header as usize + part.p_vaddr as usize) & !(PAGE - 1);
            let end = (header as usize + (part.p_vaddr + part.p_memsz) as usize) & !(PAGE - 1);
            let place: *const u8 = ptr::with_exposed_provenance(first);
            // The program works without it too.
            // SAFETY: nothing there is written from here on.
            drop(unsafe { call!(libc::SYS_mprotect, place, end - first, libc::PROT_READ) });
        }
    }
}

/// Nobody could read a message; the owner sees the socket close.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    process::exit(101)
}

// The compiled core library can unwind. Nothing here does: a panic ends the program.
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _Unwind_Resume, rust_eh_personality", "_Unwind_Resume:", "rust_eh_personality:", "ud2");
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _Unwind_Resume, rust_eh_personality", "_Unwind_Resume:", "rust_eh_personality:", "brk 1");

// What the compiler makes of copies and comparisons. In assembler, because the compiler would make calls of itself of a loop.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl memcpy, memmove, memset, memcmp, bcmp",
    "memmove:",
    "mov rax, rdi",
    "sub rax, rsi",
    "cmp rax, rdx",
    "jae memcpy",
    // The target begins inside the source: backwards.
    "mov rax, rdi",
    "mov rcx, rdx",
    "lea rdi, [rdi + rcx - 1]",
    "lea rsi, [rsi + rcx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "memcpy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "memset:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "memcmp:",
    "bcmp:",
    "xor eax, eax",
    "xor ecx, ecx",
    "2:",
    "cmp rcx, rdx",
    "jae 3f",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx r8d, byte ptr [rsi + rcx]",
    "inc rcx",
    "sub eax, r8d",
    "je 2b",
    "3:",
    "ret",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl memcpy, memmove, memset, memcmp, bcmp",
    "memmove:",
    "sub x3, x0, x1",
    "cmp x3, x2",
    "b.hs memcpy",
    // The target begins inside the source: backwards.
    "2:",
    "cbz x2, 3f",
    "sub x2, x2, #1",
    "ldrb w3, [x1, x2]",
    "strb w3, [x0, x2]",
    "b 2b",
    "3:",
    "ret",
    "memcpy:",
    "mov x4, x0",
    "2:",
    "cmp x2, #8",
    "b.lo 3f",
    "ldr x3, [x1], #8",
    "str x3, [x4], #8",
    "sub x2, x2, #8",
    "b 2b",
    "3:",
    "cbz x2, 4f",
    "ldrb w3, [x1], #1",
    "strb w3, [x4], #1",
    "sub x2, x2, #1",
    "b 3b",
    "4:",
    "ret",
    "memset:",
    "mov x4, x0",
    "2:",
    "cbz x2, 3f",
    "strb w1, [x4], #1",
    "sub x2, x2, #1",
    "b 2b",
    "3:",
    "ret",
    "memcmp:",
    "bcmp:",
    "mov w3, #0",
    "2:",
    "cbz x2, 3f",
    "ldrb w3, [x0], #1",
    "ldrb w4, [x1], #1",
    "sub x2, x2, #1",
    "subs w3, w3, w4",
    "b.eq 2b",
    "3:",
    "mov w0, w3",
    "ret",
);
