"""Writes a GGUF file of random weights in the shape of a llama of one thousand million weights.

Speed depends on shapes and types, not on values: such a file stands in for one that would have to be
downloaded. The tokenizer comes from another file. Runs in the environment of the peers, which has ``gguf``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter

LAYERS, WIDTH, HEADS, KV_HEADS, INNER, CONTEXT = 16, 2048, 32, 8, 8192, 4096
HEAD = WIDTH // HEADS
FILE_TYPES = {"Q4_K_M": 15, "Q8_0": 7}
Q4_K, Q6_K, Q8_0 = GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K, GGMLQuantizationType.Q8_0
# Bytes of a block, weights in it, and its halves: (offset, value), small enough for finite activations.
BLOCKS: dict[Any, tuple[int, int, list[tuple[int, float]]]] = {
    Q4_K: (144, 256, [(0, 0.0002), (2, 0.0015)]),
    Q6_K: (210, 256, [(208, 0.00005)]),
    Q8_0: (34, 32, [(0, 0.0004)]),
}


def weights(generator: np.random.Generator, rows: int, columns: int, kind: Any) -> np.ndarray:
    """The bytes of ``rows`` x ``columns`` random weights of one type, one line per row."""
    size, count, halves = BLOCKS[kind]
    blocks = generator.integers(0, 256, (rows * columns // count, size), dtype=np.uint8)
    for offset, value in halves:
        blocks[:, offset : offset + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def copy_field(writer: GGUFWriter, name: str, field: Any) -> None:
    kind = field.types[0]
    inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
    writer.add_key_value(name, field.contents(), kind, sub_type=inner)


def finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copy_tokenizer(source: GGUFReader, writer: GGUFWriter) -> int:
    """Copies the tokenizer's fields; returns the number of tokens."""
    for name, field in source.fields.items():
        if name.startswith("tokenizer."):
            copy_field(writer, name, field)
    return len(source.fields["tokenizer.ggml.tokens"].data)


def write(tokenizer: Path, target: Path, file_type: str) -> None:
    writer = GGUFWriter(target, "llama")
    vocabulary = copy_tokenizer(GGUFReader(tokenizer), writer)
    writer.add_file_type(FILE_TYPES[file_type])
    writer.add_quantization_version(2)
    writer.add_name(f"random-1b-{file_type}")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(vocabulary)

    generator = np.random.default_rng(0)
    # llama.cpp's Q4_K_M has six bits where they matter most: the head, and some of two matrices per layer.
    usual, better = (Q4_K, Q6_K) if file_type == "Q4_K_M" else (Q8_0, Q8_0)

    def matrix(name: str, rows: int, columns: int, kind: Any) -> None:
        writer.add_tensor(f"{name}.weight", weights(generator, rows, columns, kind), raw_dtype=kind)

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))

    matrix("token_embd", vocabulary, WIDTH, better)
    norm("output_norm")
    matrix("output", vocabulary, WIDTH, better)
    for layer in range(LAYERS):
        eighth = LAYERS // 8
        some = layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2
        at = f"blk.{layer}"
        norm(f"{at}.attn_norm")
        norm(f"{at}.ffn_norm")
        matrix(f"{at}.attn_q", WIDTH, WIDTH, usual)
        matrix(f"{at}.attn_k", KV_HEADS * HEAD, WIDTH, usual)
        matrix(f"{at}.attn_v", KV_HEADS * HEAD, WIDTH, better if some else usual)
        matrix(f"{at}.attn_output", WIDTH, WIDTH, usual)
        matrix(f"{at}.ffn_gate", INNER, WIDTH, usual)
        matrix(f"{at}.ffn_up", INNER, WIDTH, usual)
        matrix(f"{at}.ffn_down", WIDTH, INNER, better if some else usual)
    finish(writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--type", choices=FILE_TYPES, required=True)
    arguments = parser.parse_args()
    # A file that is there is a whole one.
    part = arguments.output.with_suffix(".part")
    write(arguments.tokenizer, part, arguments.type)
    part.rename(arguments.output)


if __name__ == "__main__":
    main()
