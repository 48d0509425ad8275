//! The parts of a GGUF file.

#![allow(dead_code, reason = "every test file uses its own part")]
#![allow(unreachable_pub, reason = "a module of each test binary")]

use std::ops::Range;

/// The alignment of tensors where a file says nothing of it.
pub const ALIGNMENT: usize = 32;

const STRING: u32 = 8;
const ARRAY: u32 = 9;

pub struct Tensor {
    pub name: String,
    /// What the head says of it between its name and the offset of its data.
    pub shape: Range<usize>,
    pub data: Range<usize>,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self, size: usize) -> usize {
        let mut whole = [0; 8];
        whole[..size].copy_from_slice(&self.bytes[self.at..self.at + size]);
        self.at += size;
        u64::from_le_bytes(whole) as usize
    }

    fn text(&mut self) -> String {
        let length = self.number(8);
        self.at += length;
        String::from_utf8_lossy(&self.bytes[self.at - length..self.at]).into_owned()
    }

    fn skip_value(&mut self, kind: u32) {
        match kind {
            STRING => drop(self.text()),
            ARRAY => {
                let kind = self.number(4) as u32;
                for _ in 0..self.number(8) {
                    self.skip_value(kind);
                }
            }
            0 | 1 | 7 => self.at += 1,
            2 | 3 => self.at += 2,
            4..=6 => self.at += 4,
            _ => self.at += 8,
        }
    }
}

/// Where the values of the head end, and what tensors follow.
pub fn read(gguf: &[u8]) -> (usize, Vec<Tensor>) {
    let mut reader = Reader { bytes: gguf, at: 8 };
    let (tensors, values) = (reader.number(8), reader.number(8));
    for _ in 0..values {
        reader.text();
        let kind = reader.number(4) as u32;
        reader.skip_value(kind);
    }
    let end = reader.at;
    let heads: Vec<(String, Range<usize>, usize)> = (0..tensors)
        .map(|_| {
            let name = reader.text();
            let start = reader.at;
            reader.at += 8 * reader.number(4) + 4;
            let shape = start..reader.at;
            (name, shape, reader.number(8))
        })
        .collect();
    let data = reader.at.next_multiple_of(ALIGNMENT);
    let next = |offset: usize| heads.iter().map(|head| head.2).filter(|&other| other > offset).min();
    let place = |offset: usize| data + offset..next(offset).map_or(gguf.len(), |next| data + next);
    let tensors = heads.iter().map(|(name, shape, offset)| Tensor {
        name: name.clone(),
        shape: shape.clone(),
        data: place(*offset),
    });
    (end, tensors.collect())
}

/// The number of a tensor's layer, and its name in there.
pub fn layer(name: &str) -> Option<(usize, &str)> {
    let (number, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}
