"""Writes a GGUF file of random weights in the shape of a known model.

That is a llama of one thousand million weights, or some layers of a mixture of experts.

Speed depends on shapes and types, not on values: such a file stands in for one that would have to be
downloaded. The tokenizer comes from another file. Runs in the environment of the peers, which has ``gguf``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter

CONTEXT = 4096
Q4_K, Q6_K, Q8_0 = GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K, GGMLQuantizationType.Q8_0
MXFP4 = GGMLQuantizationType.MXFP4
# Bytes of a block, weights in it, and its halves: (offset, value), small enough for finite activations.
BLOCKS: dict[Any, tuple[int, int, list[tuple[int, float]]]] = {
    Q4_K: (144, 256, [(0, 0.0002), (2, 0.0015)]),
    Q6_K: (210, 256, [(208, 0.00005)]),
    Q8_0: (34, 32, [(0, 0.0004)]),
    MXFP4: (17, 32, []),
}
#: The exponent of an MXFP4 block, of two, and 127 more.
EXPONENT = 119


@dataclass(frozen=True)
class Shape:
    """``better`` is the type of the head and of what has more bits in some layers."""

    architecture: str
    file_type: int
    usual: Any
    better: Any
    layers: int = 16
    width: int = 2048
    heads: int = 32
    kv_heads: int = 8
    head: int = 64
    inner: int = 8192
    #: Of a mixture, and how many a token goes to; their type is ``experts_type``.
    experts: int = 0
    chosen: int = 0
    experts_type: Any = None


# The mixtures have the shapes of Qwen3-30B-A3B and gpt-oss-20b, which have 48 and 24 layers.
SHAPES = {
    "Q4_K_M": Shape("llama", 15, Q4_K, Q6_K),
    "Q8_0": Shape("llama", 7, Q8_0, Q8_0),
    "qwen3moe": Shape(
        "qwen3moe", 15, Q4_K, Q6_K, layers=4, kv_heads=4, head=128, inner=768, experts=128, chosen=8
    ),
    "gpt-oss": Shape(
        "gpt-oss", 38, Q8_0, Q8_0, layers=3, width=2880, heads=64, inner=2880, experts=32, chosen=4,
        experts_type=MXFP4,
    ),
}  # fmt: skip


def weights(generator: np.random.Generator, rows: int, columns: int, kind: Any) -> np.ndarray:
    """The bytes of ``rows`` x ``columns`` random weights of one type, one line per row."""
    size, count, halves = BLOCKS[kind]
    blocks = generator.integers(0, 256, (rows * columns // count, size), dtype=np.uint8)
    for offset, value in halves:
        blocks[:, offset : offset + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    if kind is MXFP4:
        blocks[:, 0] = EXPONENT
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


def write_head(writer: GGUFWriter, name: str, shape: Shape, vocabulary: int) -> None:
    writer.add_file_type(shape.file_type)
    writer.add_quantization_version(2)
    writer.add_name(f"random-{name}")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(vocabulary)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.chosen)
        writer.add_expert_feed_forward_length(shape.inner)
    if shape.architecture == "gpt-oss":
        writer.add_sliding_window(128)


def write(tokenizer: Path, target: Path, name: str) -> None:
    shape = SHAPES[name]
    writer = GGUFWriter(target, shape.architecture)
    vocabulary = copy_tokenizer(GGUFReader(tokenizer), writer)
    write_head(writer, name, shape, vocabulary)
    generator = np.random.default_rng(0)
    usual, better, width, experts = shape.usual, shape.better, shape.width, shape.experts
    queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head

    def matrix(name: str, rows: int, columns: int, kind: Any) -> None:
        writer.add_tensor(f"{name}.weight", weights(generator, rows, columns, kind), raw_dtype=kind)

    def matrices(name: str, rows: int, columns: int, kind: Any) -> None:
        kind = shape.experts_type or kind
        blocks = weights(generator, experts * rows, columns, kind).reshape(experts, rows, -1)
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=kind)

    def vector(name: str, length: int, value: float) -> None:
        writer.add_tensor(name, np.full(length, value, np.float32))

    matrix("token_embd", vocabulary, width, better)
    vector("output_norm.weight", width, 1)
    matrix("output", vocabulary, width, better)
    for layer in range(shape.layers):
        # llama.cpp's Q4_K_M has six bits where they matter most: the head, some of two matrices per layer.
        eighth = shape.layers // 8
        some = layer < eighth or layer >= 7 * shape.layers // 8 or (layer - eighth) % 3 == 2
        at = f"blk.{layer}"
        vector(f"{at}.attn_norm.weight", width, 1)
        matrix(f"{at}.attn_q", queries, width, usual)
        matrix(f"{at}.attn_k", keys, width, usual)
        matrix(f"{at}.attn_v", keys, width, better if some else usual)
        matrix(f"{at}.attn_output", width, queries, usual)
        if shape.architecture == "qwen3moe":
            vector(f"{at}.attn_q_norm.weight", shape.head, 1)
            vector(f"{at}.attn_k_norm.weight", shape.head, 1)
        if shape.architecture == "gpt-oss":
            vector(f"{at}.attn_sinks.weight", shape.heads, 0)
            for part, length in (("q", queries), ("k", keys), ("v", keys), ("output", width)):
                vector(f"{at}.attn_{part}.bias", length, 0)
            vector(f"{at}.ffn_gate_inp.bias", experts, 0)
            for part, length in (("gate", shape.inner), ("up", shape.inner), ("down", width)):
                writer.add_tensor(f"{at}.ffn_{part}_exps.bias", np.zeros((experts, length), np.float32))
            vector(f"{at}.post_attention_norm.weight", width, 1)
        else:
            vector(f"{at}.ffn_norm.weight", width, 1)
        if experts:
            router = generator.normal(0, 0.02, (experts, width)).astype(np.float32)
            writer.add_tensor(f"{at}.ffn_gate_inp.weight", router)
        add, end = (matrices, "_exps") if experts else (matrix, "")
        add(f"{at}.ffn_gate{end}", shape.inner, width, usual)
        add(f"{at}.ffn_up{end}", shape.inner, width, usual)
        add(f"{at}.ffn_down{end}", width, shape.inner, better if some else usual)
    finish(writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--type", choices=SHAPES, required=True)
    arguments = parser.parse_args()
    # A file that is there is a whole one.
    part = arguments.output.with_suffix(".part")
    write(arguments.tokenizer, part, arguments.type)
    part.rename(arguments.output)


if __name__ == "__main__":
    main()
