//! Where the kernel enters the cell: its addresses are put right, its argument is found, and it runs.
#![expect(unsafe_code, reason = "a program without a C library has to read its own headers and its stack")]

use core::arch::global_asm;
use core::ffi::{CStr, c_char};
use core::ptr;

// The kernel leaves the stack pointer at the count of arguments, and nothing else in registers
// (System V ABI, 3.4 Process Initialization; the same on aarch64).
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start",
    ".hidden __ehdr_start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "lea rsi, [rip + __ehdr_start]",
    "and rsp, -16",
    "call {enter}",
    "ud2",
    enter = sym enter,
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl _start",
    ".hidden __ehdr_start",
    "_start:",
    "mov x29, xzr",
    "mov x30, xzr",
    "mov x0, sp",
    "adrp x1, __ehdr_start",
    "add x1, x1, :lo12:__ehdr_start",
    "bl {enter}",
    "brk 1",
    enter = sym enter,
);

/// `R_X86_64_RELATIVE`, `R_AARCH64_RELATIVE`: the one kind a program without libraries has.
const RELATIVE: usize = if cfg!(target_arch = "x86_64") { 8 } else { 1027 };

/// The front of the program's file (elf(5)), as far as it is of use here.
#[repr(C)]
struct Header {
    before: [u8; 32],
    programs_at: usize,
    between: [u8; 16],
    programs: u16,
}

/// What of the file lies where in memory.
#[repr(C)]
struct Segment {
    kind: u32,
    access: u32,
    offset: usize,
    address: usize,
    after: [usize; 4],
}

/// One entry of the dynamic section: tag, value.
#[repr(C)]
struct Dynamic(usize, usize);

/// One relocation: where, kind, what.
#[repr(C)]
struct Relocation(usize, usize, usize);

/// The first function of the program.
///
/// # Safety
/// As the kernel starts a program: `stack` is at the argument count, `base` where the program's file begins in memory.
unsafe extern "C" fn enter(stack: *const usize, base: *mut u8) -> ! {
    // SAFETY: the caller's promise; nothing that has to be put right was used so far.
    unsafe { relocate(base) };
    // SAFETY: the kernel put the count there.
    if unsafe { stack.read() } != 2 {
        crate::run(None)
    }
    // SAFETY: and after it as many pointers.
    let argument = ptr::with_exposed_provenance::<c_char>(unsafe { stack.wrapping_add(2).read() });
    // SAFETY: each is to a text that ends in a zero byte, which lives as long as the program.
    crate::run(Some(unsafe { CStr::from_ptr(argument) }.to_bytes()))
}

/// Adds to each address in the program's data where the kernel has put it: what a dynamic loader would do. Touches no such
/// address itself: inlined, and without a call that could.
///
/// # Safety
/// `base` is where the program's file begins in memory.
#[inline(always)]
unsafe fn relocate(base: *mut u8) {
    const DYNAMIC: u32 = 2; // PT_DYNAMIC
    const TABLE: usize = 7; // DT_RELA
    const TABLE_BYTES: usize = 8; // DT_RELASZ
    let (mut table, mut bytes) = (0, 0);
    let header = base.cast::<Header>();
    // SAFETY: the linker maps the header with the program, and the list it tells of.
    let Header { programs_at: at, programs: count, .. } = unsafe { header.read() };
    let segments = base.wrapping_add(at).cast::<Segment>();
    let mut entry = ptr::null::<Dynamic>();
    for index in 0..usize::from(count) {
        // SAFETY: as above.
        let Segment { kind, address, .. } = unsafe { segments.wrapping_add(index).read() };
        if kind == DYNAMIC {
            entry = base.wrapping_add(address).cast();
        }
    }
    // Without one the linker has given the program its place for good, and nothing has to be put right.
    while !entry.is_null() {
        // SAFETY: the section is a list that ends with tag zero, and is not gone past it.
        let Dynamic(tag, value) = unsafe { entry.read() };
        match tag {
            0 => break,
            TABLE => table = value,
            TABLE_BYTES => bytes = value,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    for index in 0..bytes / size_of::<Relocation>() {
        let one = base.wrapping_add(table).cast::<Relocation>().wrapping_add(index);
        // SAFETY: the linker put so many relocations at this place of the program.
        let Relocation(place, kind, addend) = unsafe { one.read() };
        if kind == RELATIVE {
            // SAFETY: the linker names a place in the program's own writable data, of the size of an address.
            unsafe { base.wrapping_add(place).cast::<usize>().write(base.wrapping_add(addend).expose_provenance()) };
        }
    }
}

/// Named by the compiled library of collections, which can unwind; here a panic ends the program, so it is never called.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    sandbox::sys::exit_now(crate::UNREADABLE)
}
