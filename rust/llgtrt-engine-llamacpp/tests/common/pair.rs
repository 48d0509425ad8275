//! Two models that say the same, one of which takes less time: the first layers of the demo model, and all of its layers, of
//! which the others add nothing.

#![allow(unreachable_pub, reason = "a module of each test binary")]

use std::ops::Range;

/// Layers of the small one.
const LAYERS: usize = 4;

/// The alignment of tensors where a file says nothing of it.
const ALIGNMENT: usize = 32;

const STRING: u32 = 8;
const ARRAY: u32 = 9;

struct Tensor {
    name: String,
    /// Its entry in the head, without the offset at the end.
    entry: Range<usize>,
    data: Range<usize>,
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
fn read(gguf: &[u8]) -> (usize, Vec<Tensor>) {
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
            let start = reader.at;
            let name = reader.text();
            reader.at += 8 * reader.number(4) + 4;
            let entry = start..reader.at;
            (name, entry, reader.number(8))
        })
        .collect();
    let data = reader.at.next_multiple_of(ALIGNMENT);
    let next = |offset: usize| heads.iter().map(|head| head.2).filter(|&other| other > offset).min();
    let place = |offset: usize| data + offset..next(offset).map_or(gguf.len(), |next| data + next);
    let tensors = heads.iter().map(|(name, entry, offset)| Tensor {
        name: name.clone(),
        entry: entry.clone(),
        data: place(*offset),
    });
    (end, tensors.collect())
}

fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// The slow one and the small one. `block_count` is where the number of layers is in the demo model's file.
pub fn pair(gguf: &[u8], block_count: usize) -> (Vec<u8>, Vec<u8>) {
    let (end, tensors) = read(gguf);
    let mut slow = gguf.to_vec();
    for tensor in &tensors {
        let adds = tensor.name.ends_with("attn_output.weight") || tensor.name.ends_with("ffn_down.weight");
        if adds && layer(&tensor.name).is_some_and(|layer| layer >= LAYERS) {
            slow[tensor.data.clone()].fill(0);
        }
    }
    let kept: Vec<&Tensor> =
        tensors.iter().filter(|tensor| layer(&tensor.name).is_none_or(|layer| layer < LAYERS)).collect();
    let mut small = gguf[..end].to_vec();
    small[8..16].copy_from_slice(&(kept.len() as u64).to_le_bytes());
    small[block_count..block_count + 4].copy_from_slice(&(LAYERS as u32).to_le_bytes());
    let mut offset = 0;
    for tensor in &kept {
        small.extend(&gguf[tensor.entry.clone()]);
        small.extend((offset as u64).to_le_bytes());
        offset += tensor.data.len().next_multiple_of(ALIGNMENT);
    }
    for tensor in &kept {
        small.resize(small.len().next_multiple_of(ALIGNMENT), 0);
        small.extend(&gguf[tensor.data.clone()]);
    }
    (slow, small)
}
