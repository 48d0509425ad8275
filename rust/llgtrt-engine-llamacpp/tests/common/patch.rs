//! Copies of the demo model with other metadata, for what the demo model itself does not have.

#![allow(dead_code, reason = "every test file uses its own part")]
#![allow(unreachable_pub, reason = "a module of each test binary")]

use std::path::{Path, PathBuf};

/// A file that is removed at the end of the test.
pub struct TempFile(PathBuf);

impl TempFile {
    pub fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("llgtrt-{}-{name}.gguf", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Nothing depends on it being gone.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Where the value of a metadata key starts, after its type.
pub fn value_of(gguf: &[u8], key: &str) -> usize {
    let mut field = (key.len() as u64).to_le_bytes().to_vec();
    field.extend(key.as_bytes());
    let start = gguf.windows(field.len()).position(|window| window == field).unwrap();
    start + field.len() + 4
}

/// Replaces a text by one of the same length.
pub fn set_text(gguf: &mut [u8], key: &str, text: &str) {
    let start = value_of(gguf, key) + 8;
    gguf[start..start + text.len()].copy_from_slice(text.as_bytes());
}
