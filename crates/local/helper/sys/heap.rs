//! The heap. Blocks are powers of two, and freed ones of a size are kept for the next of that size: a launcher that makes
//! thousands of sandboxes one after the other stays as small as with one. Large blocks are the kernel's business.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;

/// The smallest block, and the alignment of all of them.
const LEAST: usize = 16;
/// The largest block that is kept.
const MOST: usize = 32 << 10;
/// How many sizes there are.
const SIZES: usize = (MOST / LEAST).trailing_zeros() as usize + 1;
/// What is asked of the kernel at once.
const CHUNK: usize = 128 << 10;

#[cfg_attr(ringfence_embedded, global_allocator)]
#[cfg_attr(not(ringfence_embedded), expect(dead_code, reason = "only the static program has no other"))]
static HEAP: Heap =
    Heap(UnsafeCell::new(Blocks { free: [ptr::null_mut(); SIZES], rest: ptr::null_mut(), rest_bytes: 0 }));

struct Heap(UnsafeCell<Blocks>);

/// A free block holds the address of the next one.
struct Blocks {
    free: [*mut *mut u8; SIZES],
    rest: *mut u8,
    rest_bytes: usize,
}

// SAFETY: the helper has one thread (module rule).
unsafe impl Sync for Heap {}

/// The place of the block's size among the sizes; `None` for what the kernel manages.
fn size_class(layout: Layout) -> Option<usize> {
    let size = layout.size().max(LEAST).next_power_of_two();
    (size <= MOST && layout.align() <= LEAST).then(|| (size / LEAST).trailing_zeros() as usize)
}

// SAFETY: blocks of one size class do not overlap: each is cut once from a chunk of the kernel's, is on the list of its size
// when free and on none when not.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = size_class(layout) else { return from_kernel(layout.size()) };
        // SAFETY: one thread, and nothing below comes back here.
        let blocks = unsafe { &mut *self.0.get() };
        let block = blocks.free[class];
        if block.is_null() {
            return blocks.cut(LEAST << class);
        }
        // SAFETY: a free block holds the next one's address.
        blocks.free[class] = unsafe { block.read() }.cast();
        block.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(class) = size_class(layout) else {
            // SAFETY: it came from `from_kernel`, in this size, and is used no more.
            drop(unsafe { call!(libc::SYS_munmap, block, layout.size()) });
            return;
        };
        // SAFETY: as in `alloc`.
        let blocks = unsafe { &mut *self.0.get() };
        let block: *mut *mut u8 = block.cast();
        // SAFETY: it is a block of ours, large enough and aligned for an address, and used no more.
        unsafe { block.write(blocks.free[class].cast()) };
        blocks.free[class] = block;
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that is valid with this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if size_class(layout).is_some() && size_class(layout) == size_class(wanted) {
            return block;
        }
        // SAFETY: as the caller promises for this call.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both are at least as long as the shorter one, and apart.
            unsafe { ptr::copy_nonoverlapping(block, new, layout.size().min(size)) };
            // SAFETY: as the caller promises for this call.
            unsafe { self.dealloc(block, layout) };
        }
        new
    }
}

impl Blocks {
    /// Cuts a new block; null when the kernel has no memory.
    fn cut(&mut self, size: usize) -> *mut u8 {
        if self.rest_bytes < size {
            let chunk = from_kernel(CHUNK);
            if chunk.is_null() {
                return chunk;
            }
            // What was left of the old one is less than the largest block, and lost.
            (self.rest, self.rest_bytes) = (chunk, CHUNK);
        }
        let block = self.rest;
        self.rest = block.wrapping_add(size);
        self.rest_bytes -= size;
        block
    }
}

/// Whole pages of zeros; null when there are none.
fn from_kernel(size: usize) -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let nowhere: *mut u8 = ptr::null_mut();
    // SAFETY: a new mapping where nothing is.
    match unsafe { call!(libc::SYS_mmap, nowhere, size, protection, flags, -1, 0) } {
        Ok(address) => ptr::with_exposed_provenance_mut(address),
        Err(_) => ptr::null_mut(),
    }
}
