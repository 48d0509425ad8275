//! Sends llama.cpp's log lines to `tracing`, two levels down: its "info" is a page per model load.
//! Called by whichever thread runs llama.cpp; must not block on anything but its own short lock.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, Once, PoisonError};

use llama_cpp_sys_2 as sys;

/// A line may arrive in pieces.
struct Pending {
    line: String,
    level: sys::ggml_log_level,
    error: Option<String>,
}

static PENDING: Mutex<Pending> =
    Mutex::new(Pending { line: String::new(), level: sys::GGML_LOG_LEVEL_DEBUG, error: None });

/// Installs the redirection; later calls do nothing.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    // SAFETY: `on_line` has the expected signature, ignores its user data and never unwinds.
    INSTALLED.call_once(|| unsafe { sys::llama_log_set(Some(on_line), std::ptr::null_mut()) });
}

/// The first error llama.cpp logged since the last call: it says why a null pointer came back, and the later
/// ones only that it did. Without the C++ names in front.
pub(crate) fn take_error() -> Option<String> {
    let line = PENDING.lock().unwrap_or_else(PoisonError::into_inner).error.take()?;
    let plain = line.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start_matches(": ");
    let plain = plain.strip_prefix("error loading model: ").unwrap_or(plain);
    Some(if plain.is_empty() { line } else { plain.to_owned() })
}

unsafe extern "C" fn on_line(level: sys::ggml_log_level, text: *const c_char, _: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated string that outlives the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    if level != sys::GGML_LOG_LEVEL_CONT {
        pending.level = level;
        pending.line.clear();
    }
    pending.line.push_str(&text);
    if !pending.line.ends_with('\n') {
        return;
    }
    let (line, level) = (std::mem::take(&mut pending.line), pending.level);
    let line = line.trim_end();
    if level == sys::GGML_LOG_LEVEL_ERROR {
        pending.error.get_or_insert_with(|| line.to_owned());
    }
    drop(pending);
    match level {
        sys::GGML_LOG_LEVEL_ERROR => tracing::warn!(target: "llama_cpp", "{line}"),
        sys::GGML_LOG_LEVEL_WARN | sys::GGML_LOG_LEVEL_INFO => tracing::debug!(target: "llama_cpp", "{line}"),
        _ => tracing::trace!(target: "llama_cpp", "{line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_remembered_once_and_in_plain_words() {
        let say = |level, text: &CStr| {
            // SAFETY: the string is NUL-terminated.
            unsafe { on_line(level, text.as_ptr(), std::ptr::null_mut()) };
        };
        say(sys::GGML_LOG_LEVEL_ERROR, c"llama_model_load: error loading model: bad ");
        say(sys::GGML_LOG_LEVEL_CONT, c"magic\n");
        say(sys::GGML_LOG_LEVEL_ERROR, c"llama_load: failed\n");
        assert_eq!(take_error().as_deref(), Some("bad magic"));
        assert_eq!(take_error(), None);
    }
}
