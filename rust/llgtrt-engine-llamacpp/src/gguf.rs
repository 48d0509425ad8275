//! Reads the head of a GGUF file to refuse what llama.cpp would answer with an abort.
//!
//! llama.cpp reports most defects of a model file as an error, but asserts on some numbers and repeated
//! token texts, and divides by others. Runs once, before loading, on the thread that starts the server.
//! It must not trust a length it read: every one is checked against the size of the file.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use llgtrt_core::{Error, Result};

/// GGUF value types.
const U8: u32 = 0;
const I8: u32 = 1;
const U16: u32 = 2;
const I16: u32 = 3;
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const U64: u32 = 10;
const I64: u32 = 11;
const F64: u32 = 12;

/// Limits that no published model comes near.
const MAX_TENSORS: u64 = 1 << 20;
const MAX_KEYS: u64 = 1 << 16;
const MAX_DIMENSIONS: u32 = 4;

/// Whole numbers that llama.cpp divides by or sizes its arrays with: suffix of the key, least, most.
const NUMBERS: [(&str, u64, u64); 7] = [
    (".block_count", 1, 512),
    (".context_length", 1, 1 << 28),
    (".embedding_length", 1, 1 << 20),
    (".feed_forward_length", 0, 1 << 22),
    (".attention.head_count", 0, 1 << 14),
    (".attention.head_count_kv", 0, 1 << 14),
    (".expert_count", 0, 512),
];

/// Checks the head of the file at `path`.
///
/// # Errors
/// [`ErrorKind::Configuration`](llgtrt_core::ErrorKind::Configuration) in one sentence with the file's name.
pub(crate) fn check(path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fail = |reason: &str| Error::configuration(format!("model file {name}: {reason}"));
    let file = File::open(path).map_err(|error| fail(&format!("cannot be opened: {error}")))?;
    let size = file.metadata().map_err(|error| fail(&format!("cannot be read: {error}")))?.len();
    let mut head = Head { reader: BufReader::with_capacity(1 << 16, file), left: size };
    head.check(size).map_err(|defect| fail(defect.reason()))
}

enum Defect {
    Truncated,
    Invalid(&'static str),
}

impl Defect {
    fn reason(&self) -> &'static str {
        match self {
            Self::Truncated => "is truncated",
            Self::Invalid(reason) => reason,
        }
    }
}

struct Head {
    reader: BufReader<File>,
    left: u64,
}

impl Head {
    fn check(&mut self, size: u64) -> Result<(), Defect> {
        let magic: [u8; 4] = self.bytes().map_err(|_| Defect::Invalid("is not a GGUF file"))?;
        if &magic != b"GGUF" {
            return Err(Defect::Invalid("is not a GGUF file"));
        }
        match self.u32()? {
            2 | 3 => {}
            version if matches!(version.swap_bytes(), 2 | 3) => {
                return Err(Defect::Invalid("is in the byte order of another machine"));
            }
            _ => return Err(Defect::Invalid("has a GGUF version that is not supported")),
        }
        let tensors = self.u64()?;
        let keys = self.u64()?;
        if tensors > MAX_TENSORS || keys > MAX_KEYS {
            return Err(Defect::Invalid("is corrupt: too many tensors or keys"));
        }
        for _ in 0..keys {
            self.key_value()?;
        }
        let mut last_offset = 0;
        for _ in 0..tensors {
            last_offset = last_offset.max(self.tensor()?);
        }
        let data_start = size - self.left;
        if tensors > 0 && data_start.saturating_add(last_offset) >= size {
            return Err(Defect::Truncated);
        }
        Ok(())
    }

    fn key_value(&mut self) -> Result<(), Defect> {
        let key = self.string()?;
        let key = String::from_utf8(key).map_err(|_| Defect::Invalid("is corrupt: a key is not text"))?;
        match self.u32()? {
            STRING => self.skip_string(),
            ARRAY => {
                let (item, count) = (self.u32()?, self.u64()?);
                if key == "tokenizer.ggml.tokens" {
                    return self.token_texts(item, count);
                }
                self.skip_array(item, count)
            }
            scalar => {
                let value = self.scalar(scalar)?;
                if let Some((_, least, most)) = NUMBERS.iter().find(|(suffix, ..)| key.ends_with(suffix)) {
                    if !value.is_some_and(|value| (*least..=*most).contains(&value)) {
                        return Err(Defect::Invalid("is corrupt: a dimension is out of range"));
                    }
                }
                Ok(())
            }
        }
    }

    /// llama.cpp asserts that all token texts differ.
    fn token_texts(&mut self, item: u32, count: u64) -> Result<(), Defect> {
        if item != STRING || count == 0 || count > self.left / 8 {
            return Err(Defect::Invalid("is corrupt: its token list is unusable"));
        }
        let mut seen = HashSet::with_capacity(count as usize);
        for _ in 0..count {
            let text = self.string()?;
            // It gives empty texts a name of their own.
            if !text.is_empty() && !seen.insert(text) {
                return Err(Defect::Invalid("is corrupt: two tokens have the same text"));
            }
        }
        Ok(())
    }

    fn tensor(&mut self) -> Result<u64, Defect> {
        self.skip_string()?;
        let dimensions = self.u32()?;
        if dimensions > MAX_DIMENSIONS {
            return Err(Defect::Invalid("is corrupt: a tensor has too many dimensions"));
        }
        let mut elements = 1_u64;
        for _ in 0..dimensions {
            elements = self
                .u64()?
                .checked_mul(elements)
                .filter(|&n| n > 0 && n < 1 << 48)
                .ok_or(Defect::Invalid("is corrupt: a tensor has an impossible size"))?;
        }
        self.u32()?;
        self.u64()
    }

    fn skip_array(&mut self, item: u32, count: u64) -> Result<(), Defect> {
        if item == STRING {
            for _ in 0..count {
                self.skip_string()?;
            }
            return Ok(());
        }
        let bytes = width(item)?.checked_mul(count).ok_or(Defect::Truncated)?;
        self.skip(bytes)
    }

    /// The value of a scalar if it is a whole number that is not negative.
    fn scalar(&mut self, kind: u32) -> Result<Option<u64>, Defect> {
        let mut bytes = [0; 8];
        let width = width(kind)? as usize;
        self.read(&mut bytes[..width])?;
        let value = u64::from_le_bytes(bytes);
        let negative = bytes[width - 1] & 0x80 != 0;
        Ok(match kind {
            U8 | U16 | U32 | U64 => Some(value),
            I8 | I16 | I32 | I64 if !negative => Some(value),
            _ => None,
        })
    }

    fn string(&mut self) -> Result<Vec<u8>, Defect> {
        let length = self.u64()?;
        if length > self.left {
            return Err(Defect::Truncated);
        }
        let mut bytes = vec![0; length as usize];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    fn skip_string(&mut self) -> Result<(), Defect> {
        let length = self.u64()?;
        self.skip(length)
    }

    fn u32(&mut self) -> Result<u32, Defect> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, Defect> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Defect> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Defect> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(Defect::Truncated)?;
        self.reader.read_exact(bytes).map_err(|_| Defect::Invalid("cannot be read"))
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Defect> {
        self.left = self.left.checked_sub(bytes).ok_or(Defect::Truncated)?;
        let buffered = self.reader.buffer().len() as u64;
        let moved = if bytes <= buffered {
            self.reader.seek_relative(bytes as i64)
        } else {
            self.reader.seek(SeekFrom::Current(bytes as i64)).map(drop)
        };
        moved.map_err(|_| Defect::Invalid("cannot be read"))
    }
}

fn width(kind: u32) -> Result<u64, Defect> {
    match kind {
        U8 | I8 | BOOL => Ok(1),
        U16 | I16 => Ok(2),
        U32 | I32 | F32 => Ok(4),
        U64 | I64 | F64 => Ok(8),
        _ => Err(Defect::Invalid("is corrupt: a value has an unknown type")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }

    /// A head with one number, a token list and one tensor with 32 bytes of data.
    fn file(blocks: u32, tokens: &[&str]) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(2_u64.to_le_bytes());
        string(&mut bytes, "llama.block_count");
        bytes.extend(U32.to_le_bytes());
        bytes.extend(blocks.to_le_bytes());
        string(&mut bytes, "tokenizer.ggml.tokens");
        bytes.extend(ARRAY.to_le_bytes());
        bytes.extend(STRING.to_le_bytes());
        bytes.extend((tokens.len() as u64).to_le_bytes());
        for token in tokens {
            string(&mut bytes, token);
        }
        string(&mut bytes, "output.weight");
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(8_u64.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend([0; 32]);
        bytes
    }

    fn verdict(name: &str, bytes: &[u8]) -> Result<()> {
        let path = std::env::temp_dir().join(format!("llgtrt-gguf-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let verdict = check(&path);
        std::fs::remove_file(&path).unwrap();
        verdict
    }

    #[test]
    fn a_sound_head_passes_and_every_cut_of_it_is_refused() {
        let sound = file(2, &["a", "b", "", ""]);
        verdict("sound", &sound).unwrap();
        for length in 0..=sound.len() - 32 {
            let error = verdict("cut", &sound[..length]).unwrap_err();
            assert_eq!(error.kind, llgtrt_core::ErrorKind::Configuration, "{length}");
        }
    }

    #[test]
    fn numbers_and_texts_that_llama_cpp_asserts_on_are_refused() {
        let reason = |name, bytes: &[u8]| verdict(name, bytes).unwrap_err().message;
        assert!(reason("zero", &file(0, &["a"])).contains("dimension"));
        assert!(reason("many", &file(100_000, &["a"])).contains("dimension"));
        assert!(reason("same", &file(2, &["a", "a"])).contains("same text"));
        assert!(reason("none", &file(2, &[])).contains("token list"));
        assert!(reason("text", b"hello, world").contains("not a GGUF file"));
        let mut version = file(2, &["a"]);
        version[4..8].copy_from_slice(&3_u32.to_be_bytes());
        assert!(reason("order", &version).contains("byte order"));
        let mut endless = file(2, &["a"]);
        endless[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(reason("endless", &endless).contains("truncated"));
    }
}
