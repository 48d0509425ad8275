//! Two models that say the same, one of which takes less time: the first layers of the demo model, and the same with many
//! more that add nothing.

#![allow(unreachable_pub, reason = "a module of each test binary")]

use std::ops::Range;

/// Layers of the small one.
const LAYERS: usize = 4;

/// Layers that the other one has more.
const IDLE: usize = 60;

/// The alignment of tensors where a file says nothing of it.
const ALIGNMENT: usize = 32;

const STRING: u32 = 8;
const ARRAY: u32 = 9;

struct Tensor {
    name: String,
    /// What the head says of it between its name and the offset of its data.
    shape: Range<usize>,
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
fn layer(name: &str) -> Option<(usize, &str)> {
    let (number, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

/// The demo model's first layers, and `idle` more that add nothing. `block_count` is where the number of layers is in its
/// file.
fn write(gguf: &[u8], block_count: usize, idle: usize) -> Vec<u8> {
    let (end, tensors) = read(gguf);
    let mut kept: Vec<(String, &Tensor, bool)> = tensors
        .iter()
        .filter(|tensor| layer(&tensor.name).is_none_or(|(number, _)| number < LAYERS))
        .map(|tensor| (tensor.name.clone(), tensor, false))
        .collect();
    for number in LAYERS..LAYERS + idle {
        kept.extend(tensors.iter().filter_map(|tensor| {
            let (_, name) = layer(&tensor.name).filter(|&(number, _)| number == 0)?;
            // What a layer adds comes through these.
            let nothing = name == "attn_output.weight" || name == "ffn_down.weight";
            Some((format!("blk.{number}.{name}"), tensor, nothing))
        }));
    }
    let mut file = gguf[..end].to_vec();
    file[8..16].copy_from_slice(&(kept.len() as u64).to_le_bytes());
    file[block_count..block_count + 4].copy_from_slice(&((LAYERS + idle) as u32).to_le_bytes());
    let mut offset = 0;
    for (name, tensor, _) in &kept {
        file.extend((name.len() as u64).to_le_bytes());
        file.extend(name.as_bytes());
        file.extend(&gguf[tensor.shape.clone()]);
        file.extend((offset as u64).to_le_bytes());
        offset += tensor.data.len().next_multiple_of(ALIGNMENT);
    }
    for (_, tensor, nothing) in &kept {
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        if *nothing {
            file.resize(file.len() + tensor.data.len(), 0);
        } else {
            file.extend(&gguf[tensor.data.clone()]);
        }
    }
    file
}

/// The slow one and the small one. `block_count` is where the number of layers is in the demo model's file.
pub fn pair(gguf: &[u8], block_count: usize) -> (Vec<u8>, Vec<u8>) {
    (write(gguf, block_count, IDLE), write(gguf, block_count, 0))
}
