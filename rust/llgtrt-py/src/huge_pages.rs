//! Large blocks of Python's memory on huge pages.
//!
//! A text of a few megabytes is a block of its own that the system maps for it (`MALLOC_OPTIONS` of `app/process.py`). Its
//! pages come one by one as they are first written, a microsecond or two for each 4 KB, and Python writes a text in one go
//! with its lock held: of the time that all threads wait for a copy of 8 MB three quarters were this.

use std::ffi::{c_int, c_void};

use pyo3::prelude::*;
use rustix::mm::{Advice, madvise};

/// The least that is asked for: what a huge page has on most machines.
const LARGE: usize = 2 * 1024 * 1024;

/// `PYMEM_DOMAIN_RAW`: what Python's allocator of objects takes larger blocks from.
const RAW: c_int = 0;

/// `PyMemAllocatorEx`, as it has been since Python 3.5.
#[repr(C)]
struct Allocator {
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void),
}

// Not of the limited API, but in every Python since 3.4.
unsafe extern "C" {
    fn PyMem_GetAllocator(domain: c_int, allocator: *mut Allocator);
    fn PyMem_SetAllocator(domain: c_int, allocator: *const Allocator);
}

/// From now on large blocks of Python's are on huge pages, as far as the system has some. To be called once, before
/// there are other threads.
#[pyfunction]
pub(crate) fn use_huge_pages(_py: Python<'_>) {
    let mut under = std::mem::MaybeUninit::<Allocator>::uninit();
    // SAFETY: it writes all members.
    let under = unsafe {
        PyMem_GetAllocator(RAW, under.as_mut_ptr());
        under.assume_init()
    };
    // It is called for as long as the process lives.
    let under = Box::leak(Box::new(under));
    let context = std::ptr::from_mut(under).cast();
    let advising = Allocator { context, malloc, calloc, realloc, free };
    // SAFETY: the functions are what Python asks of an allocator, with the context that they need, and blocks that were
    // given out before are those of the same allocator.
    unsafe { PyMem_SetAllocator(RAW, &raw const advising) };
}

/// # Safety
/// `context` is that of [`use_huge_pages`].
unsafe fn under<'a>(context: *mut c_void) -> &'a Allocator {
    // SAFETY: it was leaked, and nothing writes to it.
    unsafe { &*context.cast::<Allocator>() }
}

unsafe extern "C" fn malloc(context: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: Python calls it with the context that it was given.
    let block = unsafe {
        let under = under(context);
        (under.malloc)(under.context, size)
    };
    advised(block, size)
}

unsafe extern "C" fn calloc(context: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // SAFETY: as above.
    let block = unsafe {
        let under = under(context);
        (under.calloc)(under.context, count, size)
    };
    advised(block, count.saturating_mul(size))
}

unsafe extern "C" fn realloc(context: *mut c_void, old: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as above, and the block is one of this allocator's.
    let block = unsafe {
        let under = under(context);
        (under.realloc)(under.context, old, size)
    };
    advised(block, size)
}

unsafe extern "C" fn free(context: *mut c_void, block: *mut c_void) {
    // SAFETY: as above.
    unsafe {
        let under = under(context);
        (under.free)(under.context, block);
    }
}

/// The block, which is on huge pages from here on if it is large.
fn advised(block: *mut c_void, size: usize) -> *mut c_void {
    if size >= LARGE && !block.is_null() {
        let page = rustix::param::page_size();
        // All pages that it has a part of: the mapping as a whole, which so stays one that can be moved.
        let before = block.addr() % page;
        // SAFETY: pages that are mapped; it changes how they are held, and nothing of what they hold. Where there are no
        // huge pages it is an error, and all is as it was.
        let _ = unsafe {
            madvise(block.byte_sub(before), (before + size).next_multiple_of(page), Advice::LinuxHugepage)
        };
    }
    block
}
