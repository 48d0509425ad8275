//! A mixture of experts that says what the demo model says: all of its experts are what the demo model has in their place.

#![allow(unreachable_pub, reason = "a module of each test binary")]

use super::tensors::{ALIGNMENT, layer, read};

pub const EXPERTS: usize = 3;
/// That each token goes to.
const CHOSEN: u32 = 2;
const UINT32: u32 = 4;
const FLOAT32: u32 = 0;

struct Part {
    name: String,
    /// The length of each dimension, and the type.
    shape: (Vec<u64>, u32),
    data: Vec<u8>,
}

/// As the head has them: how many dimensions there are, each one, and the type.
fn shape(head: &[u8]) -> (Vec<u64>, u32) {
    let (lengths, kind) = head[4..].split_at(head.len() - 8);
    let lengths = lengths.chunks(8).map(|length| u64::from_le_bytes(length.try_into().unwrap()));
    (lengths.collect(), u32::from_le_bytes(kind.try_into().unwrap()))
}

/// The weights that choose experts: a token's scores are as good as drawn.
fn router(width: u64, layer: usize) -> Vec<u8> {
    let mut state = layer as u32 + 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..width * EXPERTS as u64).flat_map(|_| (next() / 4.0).to_le_bytes()).collect()
}

/// The demo model as a mixture.
pub fn mixture(gguf: &[u8]) -> Vec<u8> {
    let (end, tensors) = read(gguf);
    let mut parts = Vec::new();
    for tensor in tensors {
        let (mut lengths, kind) = shape(&gguf[tensor.shape.clone()]);
        let mut data = gguf[tensor.data.clone()].to_vec();
        let mut name = tensor.name.clone();
        let part = layer(&tensor.name).and_then(|(number, name)| {
            let part = name.strip_prefix("ffn_")?.strip_suffix(".weight")?;
            ["gate", "up", "down"].contains(&part).then_some((number, part))
        });
        if let Some((number, part)) = part {
            if part == "gate" {
                parts.push(Part {
                    name: format!("blk.{number}.ffn_gate_inp.weight"),
                    shape: (vec![lengths[0], EXPERTS as u64], FLOAT32),
                    data: router(lengths[0], number),
                });
            }
            lengths.push(EXPERTS as u64);
            data = data.repeat(EXPERTS);
            name = format!("blk.{number}.ffn_{part}_exps.weight");
        }
        parts.push(Part { name, shape: (lengths, kind), data });
    }

    let mut file = gguf[..end].to_vec();
    let values = u64::from_le_bytes(gguf[16..24].try_into().unwrap());
    file[8..16].copy_from_slice(&(parts.len() as u64).to_le_bytes());
    file[16..24].copy_from_slice(&(values + 2).to_le_bytes());
    for (key, value) in [("llama.expert_count", EXPERTS as u32), ("llama.expert_used_count", CHOSEN)] {
        file.extend((key.len() as u64).to_le_bytes());
        file.extend(key.as_bytes());
        file.extend(UINT32.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    let mut offset = 0;
    for part in &parts {
        let (lengths, kind) = &part.shape;
        file.extend((part.name.len() as u64).to_le_bytes());
        file.extend(part.name.as_bytes());
        file.extend((lengths.len() as u32).to_le_bytes());
        file.extend(lengths.iter().flat_map(|length| length.to_le_bytes()));
        file.extend(kind.to_le_bytes());
        file.extend((offset as u64).to_le_bytes());
        offset += part.data.len().next_multiple_of(ALIGNMENT);
    }
    for part in &parts {
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        file.extend(&part.data);
    }
    file
}
