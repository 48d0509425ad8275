//! Two models that say the same, one of which takes less time: the first layers of the demo model, and the same with many
//! more that add nothing.

#![allow(unreachable_pub, reason = "a module of each test binary")]

use super::tensors::{ALIGNMENT, Tensor, layer, read};

/// Layers of the small one.
const LAYERS: usize = 4;

/// Layers that the other one has more.
const IDLE: usize = 60;

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
