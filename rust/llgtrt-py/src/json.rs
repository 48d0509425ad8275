//! What crosses from Python as JSON: unknown members are refused, and what is wrong is named by its path.

use llgtrt_core::Error;
use serde::Deserialize;

/// Reads `text`.
///
/// # Errors
/// What `error` makes of a message, with the path of what is wrong as its `param` where there is one.
pub(crate) fn read<'de, T: Deserialize<'de>>(
    text: &'de [u8],
    error: impl FnOnce(&str) -> Error,
) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|wrong| {
        // Keeping the path in mind costs time, so that is left to reading once more.
        let again = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(text));
        let path = again.err().map(|wrong| wrong.path().to_string()).filter(|path| path != ".");
        match path {
            Some(path) => error(&format!("{path}: {wrong}")).with_param(path),
            None => error(&wrong.to_string()),
        }
    })
}
