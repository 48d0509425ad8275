//! An allocator that counts what is live, and a thread with a stack for deep schemas. Tests of several binaries and
//! crates include this file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one normalisation may have live at its peak, in bytes.
pub(crate) const MAX_LIVE: usize = 256 << 20;

/// Counts the bytes that are allocated, and the most that were.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the work gives, and the most bytes that were live beside those from before. For one thread at a time.
pub(crate) fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let answer = work();
    (answer, PEAK.load(Ordering::Relaxed).saturating_sub(before))
}

/// Does the work on a stack of 64 MB, where deep schemas may be dropped as well.
pub(crate) fn on_big_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, work);
        thread.expect("a thread").join().expect("no panic")
    })
}

/// Bytes that are live.
#[allow(dead_code, reason = "each test binary uses its own part")]
pub(crate) fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}
