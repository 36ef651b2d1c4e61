//! Memory without a C library: an allocator that only goes up, and the four functions compilers call.
#![expect(unsafe_code, reason = "an allocator, and functions whose names compilers give their meaning")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// What an ordinary recipe needs: no call to the kernel, and pages that are never touched are never had.
const FIRST_BYTES: usize = 256 << 10;
/// What is asked of the kernel at a time afterwards, at least.
const MORE_BYTES: usize = 1 << 20;

#[repr(C, align(4096))]
struct First([u8; FIRST_BYTES]);

/// What lies at the front of a part that was asked of the kernel: where the former one is, and how long this is.
#[repr(C)]
struct Part {
    former: *mut Part,
    bytes: usize,
}

/// Hands memory out from the front to the back, and takes back what was handed out last. For a program of one thread that
/// lives for moments, and then allocates no more.
struct Arena {
    first: UnsafeCell<First>,
    /// Where the next begins, and where the room ends; zero before the first.
    room: UnsafeCell<(usize, usize)>,
    /// The last part that was asked of the kernel; null before.
    last: UnsafeCell<*mut Part>,
}

// SAFETY: the program has one thread, and makes no other (`start`, `sandbox::sys::fork`).
unsafe impl Sync for Arena {}

impl Arena {
    const fn new() -> Self {
        Self {
            first: UnsafeCell::new(First([0; FIRST_BYTES])),
            room: UnsafeCell::new((0, 0)),
            last: UnsafeCell::new(ptr::null_mut()),
        }
    }

    fn take(&self, layout: Layout) -> Option<usize> {
        // SAFETY: one thread, and no reference to the pair is kept: it is copied out here and in below.
        let (mut next, mut end) = unsafe { *self.room.get() };
        if next == 0 {
            next = self.first.get().expose_provenance();
            end = next + FIRST_BYTES;
        }
        let mut at = next.checked_next_multiple_of(layout.align())?;
        if at.checked_add(layout.size())? > end {
            let bytes = layout.size().checked_add(layout.align())?.checked_add(size_of::<Part>())?.max(MORE_BYTES);
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: with no address asked for nothing that is mapped is replaced.
            let more = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags) }.ok()?;
            let part = more.cast::<Part>();
            // SAFETY: one thread.
            let former = unsafe { self.last.get().replace(part) };
            // SAFETY: it is as large as a part's front at least, aligned to a page, and nobody else's.
            unsafe { part.write(Part { former, bytes }) };
            next = more.expose_provenance() + size_of::<Part>();
            end = more.expose_provenance().checked_add(bytes)?;
            at = next.checked_next_multiple_of(layout.align())?;
        }
        // SAFETY: as above.
        unsafe { *self.room.get() = (at.checked_add(layout.size())?, end) };
        Some(at)
    }

    /// Moves the end of what was handed out last; not of anything else.
    fn resize_last(&self, from: usize, size: usize, new: usize) -> bool {
        // SAFETY: as in `take`.
        let (next, end) = unsafe { *self.room.get() };
        let fits = from.checked_add(size) == Some(next) && from.checked_add(new).is_some_and(|it| it <= end);
        if fits {
            // SAFETY: as in `take`.
            unsafe { *self.room.get() = (from + new, end) };
        }
        fits
    }
}

#[global_allocator]
static ARENA: Arena = Arena::new();

/// How far down the stack of a cell that builds reaches, at most.
const STACK_BYTES: usize = 256 << 10;

unsafe extern "C" {
    /// Where the program's file begins in memory, and where its code ends: the linker's names.
    static __ehdr_start: u8;
    static etext: u8;
}

/// Gives the kernel back everything that was ever allocated, what the stack has held further down, and the program's own
/// code, which comes again from its file where it is still run. So little is left of a cell that is an init from here on,
/// and nothing of what the run was given.
///
/// # Safety
/// Nothing that was allocated is used any more.
pub(crate) unsafe fn give_back() {
    // SAFETY: one thread.
    let mut part = unsafe { *ARENA.last.get() };
    drop_pages(ARENA.first.get().cast(), FIRST_BYTES);
    while !part.is_null() {
        // SAFETY: it was written when the part was made, and is read before it is given back.
        let Part { former, bytes } = unsafe { part.read() };
        drop_pages(part.cast(), bytes);
        part = former;
    }
    let here = 0_u8;
    // A page more than this function's own, for what it calls.
    let used = (&raw const here).addr().saturating_sub(2 * PAGE_BYTES);
    drop_pages(ptr::with_exposed_provenance_mut(used.saturating_sub(STACK_BYTES)), STACK_BYTES);
    let (begin, end) = (&raw const __ehdr_start, &raw const etext);
    let bytes = end.addr().saturating_sub(begin.addr());
    for at in (0..bytes).step_by(2 * AROUND_BYTES) {
        let block = begin.wrapping_add(at).cast_mut().cast();
        // SAFETY: the program's own code stays as it is; it says what a core file would hold, and there never is one.
        // Where it is refused more stays, and that is all.
        let _refused = unsafe { madvise(block, AROUND_BYTES, Advice::LinuxDontDump) };
    }
    drop_pages(begin.cast_mut(), bytes);
}

/// With a page the kernel maps those around it, up to sixteen, but none of another mapping: so every other block of this
/// size is made one of its own.
const AROUND_BYTES: usize = 2 * PAGE_BYTES;

/// The smallest page there is.
const PAGE_BYTES: usize = 4096;

/// What of this range is mapped is as it was when it was mapped: zero, or the file's. For memory nobody uses any more, or
/// that nobody has written; a page that is not all in the range stays.
fn drop_pages(from: *mut u8, bytes: usize) {
    let begin = from.addr().next_multiple_of(PAGE_BYTES);
    let end = from.addr().saturating_add(bytes) & !(PAGE_BYTES - 1);
    if let Some(length) = end.checked_sub(begin).filter(|it| *it > 0) {
        // SAFETY: what the callers give is what nobody uses any more, or the program's own code, which nobody writes.
        // Parts that are not mapped make this an error, after the others were given back.
        let _holes = unsafe { madvise(from.with_addr(begin).cast(), length, Advice::LinuxDontNeed) };
    }
}

// SAFETY: what is handed out lies in memory of the program's own, aligned and as large as asked, and is not handed out
// again before it is given back; nothing here unwinds.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout).map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        self.resize_last(place.expose_provenance(), layout.size(), 0);
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if self.resize_last(place.expose_provenance(), layout.size(), size) {
            return place;
        }
        let Ok(larger) = Layout::from_size_align(size, layout.align()) else { return ptr::null_mut() };
        // SAFETY: the size is not zero, as the caller promises of `size`.
        let new = unsafe { self.alloc(larger) };
        if !new.is_null() {
            // SAFETY: both hold as much, and do not overlap: the new was not handed out before.
            unsafe { ptr::copy_nonoverlapping(place, new, layout.size().min(size)) };
        }
        new
    }
}

/// `memcpy(3)`.
///
/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { forwards(to, from, length) };
    to
}

/// `memmove(3)`.
///
/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= length {
        // SAFETY: the caller's promise; what is written lies before what is still to be read, or nowhere near.
        unsafe { forwards(to, from, length) };
    } else {
        for index in (0..length).rev() {
            // SAFETY: the caller's promise: it has this byte. Volatile, or all were compiled to a call of itself.
            let byte = unsafe { from.wrapping_add(index).read_volatile() };
            // SAFETY: as above.
            unsafe { to.wrapping_add(index).write_volatile(byte) };
        }
    }
    to
}

/// `memset(3)`.
///
/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // The low byte is what C has it write.
    let [byte, ..] = byte.to_le_bytes();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the direction flag is clear, as the ABI has it.
    unsafe {
        core::arch::asm!("rep stosb", inout("rcx") length => _, inout("rdi") to => _, in("al") byte,
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    for index in 0..length {
        // SAFETY: the caller's promise. Volatile, or it were compiled to a call of itself.
        unsafe { to.wrapping_add(index).write_volatile(byte) };
    }
    to
}

/// `memcmp(3)`.
///
/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    for index in 0..length {
        // SAFETY: the caller's promise: it has this byte. Volatile, or all were compiled to a call of itself.
        let left = unsafe { left.wrapping_add(index).read_volatile() };
        // SAFETY: as above.
        let right = unsafe { right.wrapping_add(index).read_volatile() };
        if left != right {
            return i32::from(left) - i32::from(right);
        }
    }
    0
}

/// `bcmp(3)`.
///
/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(left, right, length) }
}

/// `strlen(3)`.
///
/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: the caller's promise: there is a zero byte, and all before it are the text's.
    while unsafe { text.wrapping_add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}

/// Copies from the front.
///
/// # Safety
/// Both have `length` bytes, and `to` does not lie within what comes after the first byte of `from`.
unsafe fn forwards(to: *mut u8, from: *const u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the direction flag is clear, as the ABI has it.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") length => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    for index in 0..length {
        // SAFETY: the caller's promise. Volatile, or all were compiled to a call of itself.
        let byte = unsafe { from.wrapping_add(index).read_volatile() };
        // SAFETY: as above.
        unsafe { to.wrapping_add(index).write_volatile(byte) };
    }
}
