//! Panics that a test provokes on purpose, which would look like failures in a log. Process-wide, for tests only.

use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::{Mutex, Once};

static EXPECTED: Mutex<Vec<&str>> = Mutex::new(Vec::new());

/// Keeps panics with exactly this message out of the log, on whatever thread. All others are printed as before.
///
/// # Panics
/// Another test panicked while it called this.
pub fn silence_panics(message: &'static str) {
    static INSTALLED: Once = Once::new();
    EXPECTED.lock().expect("nothing panics under the lock").push(message);
    INSTALLED.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !is_expected(panic) {
                print(panic);
            }
        }));
    });
}

fn is_expected(panic: &PanicHookInfo<'_>) -> bool {
    let payload = panic.payload();
    let message =
        payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref().copied());
    // A panic while the list is locked is not one of those that are expected.
    message.is_some_and(|message| EXPECTED.try_lock().is_ok_and(|expected| expected.contains(&message)))
}
