//! Threads with stacks large enough for llguidance's recursion.
//!
//! llguidance recurses over schemas, regular expressions and rules. A stack overflow ends the
//! process and cannot be caught, so its code runs only on threads made here. 64 MB survive about
//! 7000 nested schemas; the admission checks refuse far less. Pages are committed when touched.

use std::cell::Cell;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Stack size of compile and mask threads, in bytes.
pub(crate) const STACK_BYTES: usize = 64 << 20;

thread_local! {
    static BIG_STACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether the current thread has a stack of 64 MB, so that masks may be computed on it.
pub fn on_big_stack_thread() -> bool {
    BIG_STACK.get()
}

/// Marks the current thread; for threads whose stack size is set elsewhere (the mask pool's).
pub(crate) fn mark_big_stack_thread() {
    BIG_STACK.set(true);
}

/// Starts a named thread with a stack of 64 MB. An engine's own thread is started with it, so that
/// [`MaskPool`](crate::MaskPool) computes masks right there.
///
/// # Errors
/// The operating system refused the thread.
pub fn spawn_big_stack<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(move || {
        mark_big_stack_thread();
        f()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_threads_count() {
        assert!(!on_big_stack_thread());
        let thread = spawn_big_stack("big", || {
            let name = std::thread::current().name().map(str::to_owned);
            (on_big_stack_thread(), name)
        });
        assert_eq!(thread.unwrap().join().unwrap(), (true, Some("big".to_owned())));
        assert!(!on_big_stack_thread());
    }
}
