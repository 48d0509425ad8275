"""A small GGUF file of a llama with random weights, whose tokens are bytes and some control tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from support.gguf import Array, write_model

BOS, EOS, PREFIX, SUFFIX, MIDDLE = 1, 2, 3, 4, 5
CONTROL = ("<unk>", "<s>", "</s>", "<PRE>", "<SUF>", "<MID>")
FIRST_BYTE = len(CONTROL)
TOKENS = (*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁")
"""The last one is a blank, as SentencePiece writes it."""
WIDTH, INNER, LAYERS, HEADS, CONTEXT = 32, 64, 2, 4, 256


def tokens_of(text: str) -> list[int]:
    """The tokens of a text without names of control tokens."""
    blank = len(TOKENS) - 1
    return [blank if byte == ord(" ") else FIRST_BYTE + byte for byte in text.encode()]


def write_llama(path: Path, more: dict[str, Any] | None = None, *, seed: int = 1) -> Path:
    """The file, with more metadata. The model can fill in: its metadata names the three tokens for that."""
    draw = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Array:
        drawn: Array = (draw.standard_normal((rows, columns)) * 0.3).astype(np.float32)
        return drawn

    ones = np.ones(WIDTH, np.float32)
    tensors = {
        "token_embd.weight": matrix(len(TOKENS), WIDTH),
        "output_norm.weight": ones,
        "output.weight": matrix(len(TOKENS), WIDTH),
    }
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        tensors |= {f"{at}attn_norm.weight": ones, f"{at}ffn_norm.weight": ones}
        tensors |= {f"{at}attn_{name}.weight": matrix(WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        tensors |= {f"{at}ffn_{name}.weight": matrix(INNER, WIDTH) for name in ("gate", "up")}
        tensors[f"{at}ffn_down.weight"] = matrix(WIDTH, INNER)
    normal, unknown, control, byte = 1, 2, 3, 6
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.context_length": CONTEXT,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": INNER,
        "llama.block_count": LAYERS,
        "llama.attention.head_count": HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": WIDTH // HEADS,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(TOKENS),
        "tokenizer.ggml.scores": [0.0] * len(TOKENS),
        "tokenizer.ggml.token_type": [unknown, *[control] * (FIRST_BYTE - 1), *[byte] * 256, normal],
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.fim_pre_token_id": PREFIX,
        "tokenizer.ggml.fim_suf_token_id": SUFFIX,
        "tokenizer.ggml.fim_mid_token_id": MIDDLE,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
        **(more or {}),
    }
    write_model(path, metadata, tensors)
    return path
