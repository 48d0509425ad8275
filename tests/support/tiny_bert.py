"""Small GGUF files of BERTs with random weights, and what they compute, by numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from support.gguf import Array, write_model

CLS, SEP, UNKNOWN, PAD, MASK = 0, 1, 2, 3, 4
WORDS = ("cats", "dogs", "sleep", "run", "a", "the", "red", "blue", "house", "tree", "on", "in", "and")
TOKENS = ("[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]", *(f"▁{word}" for word in WORDS))
WIDTH, INNER, LAYERS, HEADS, CONTEXT = 32, 64, 2, 4, 48
EPSILON = 1e-12


@dataclass(frozen=True)
class Bert:
    """A BERT of random weights, whose words are :data:`WORDS`.

    Attributes:
        tensors: by the names that GGUF has for them.
        pooling: llama.cpp's number: 1 mean, 2 the first token, 4 a score.
    """

    tensors: dict[str, Array]
    pooling: int

    @classmethod
    def random(cls, pooling: int, seed: int = 1) -> Bert:
        """A new one; with a classifier of one score if ``pooling`` is 4."""
        draw = np.random.default_rng(seed)

        def matrix(*shape: int, scale: float = 0.3) -> Array:
            drawn: Array = (draw.standard_normal(shape) * scale).astype(np.float32)
            return drawn

        tensors = {
            "token_embd.weight": matrix(len(TOKENS), WIDTH, scale=1),
            "position_embd.weight": matrix(CONTEXT, WIDTH),
            "token_types.weight": matrix(2, WIDTH),
            "token_embd_norm.weight": 1 + matrix(WIDTH),
            "token_embd_norm.bias": matrix(WIDTH),
        }
        for layer in range(LAYERS):
            at = f"blk.{layer}."
            for name, rows, columns in (
                ("attn_q", WIDTH, WIDTH),
                ("attn_k", WIDTH, WIDTH),
                ("attn_v", WIDTH, WIDTH),
                ("attn_output", WIDTH, WIDTH),
                ("ffn_up", INNER, WIDTH),
                ("ffn_down", WIDTH, INNER),
            ):
                tensors |= {f"{at}{name}.weight": matrix(rows, columns), f"{at}{name}.bias": matrix(rows)}
            for name in ("attn_output_norm", "layer_output_norm"):
                tensors |= {f"{at}{name}.weight": 1 + matrix(WIDTH), f"{at}{name}.bias": matrix(WIDTH)}
        if pooling == 4:
            tensors |= {"cls.weight": matrix(WIDTH, WIDTH), "cls.bias": matrix(WIDTH)}
            tensors |= {"cls.output.weight": matrix(1, WIDTH, scale=1), "cls.output.bias": matrix(1)}
        return cls(tensors, pooling)

    def write(self, path: Path) -> Path:
        """The GGUF file."""
        metadata: dict[str, Any] = {
            "general.architecture": "bert",
            "bert.context_length": CONTEXT,
            "bert.embedding_length": WIDTH,
            "bert.feed_forward_length": INNER,
            "bert.block_count": LAYERS,
            "bert.attention.head_count": HEADS,
            "bert.attention.layer_norm_epsilon": EPSILON,
            "bert.attention.causal": False,
            "bert.pooling_type": self.pooling,
            "tokenizer.ggml.model": "bert",
            "tokenizer.ggml.tokens": list(TOKENS),
            "tokenizer.ggml.token_type": [3] * 5 + [1] * len(WORDS),
            "tokenizer.ggml.token_type_count": 2,
            "tokenizer.ggml.bos_token_id": CLS,
            "tokenizer.ggml.cls_token_id": CLS,
            "tokenizer.ggml.seperator_token_id": SEP,
            "tokenizer.ggml.unknown_token_id": UNKNOWN,
            "tokenizer.ggml.padding_token_id": PAD,
            "tokenizer.ggml.mask_token_id": MASK,
        }
        write_model(path, metadata, self.tensors)
        return path

    def of_text(self, text: str) -> Array:
        """The vector of a text of known words, with length 1."""
        states = self.states([CLS, *self.ids(text), SEP])
        vector = states.mean(axis=0) if self.pooling == 1 else states[0]
        normal: Array = vector / np.linalg.norm(vector)
        return normal

    def of_pair(self, query: str, document: str) -> float:
        """The score of a document for a query."""
        states = self.states([CLS, *self.ids(query), SEP, *self.ids(document), SEP])
        hidden = np.tanh(self._linear(states[0], "cls"))
        return float(self._linear(hidden, "cls.output")[0])

    @staticmethod
    def ids(text: str) -> list[int]:
        """The tokens of a text of known words."""
        return [TOKENS.index(f"▁{word}") for word in text.split()]

    def states(self, tokens: list[int]) -> Array:
        """What the last layer gives for each token: ``[tokens, WIDTH]``."""
        get = self.tensors
        x: Array = get["token_embd.weight"][tokens] + get["position_embd.weight"][: len(tokens)]
        x = self._norm(x + get["token_types.weight"][0], "token_embd_norm")
        for layer in range(LAYERS):
            at = f"blk.{layer}."
            x = self._norm(x + self._attention(x, at), f"{at}attn_output_norm")
            up = self._linear(x, f"{at}ffn_up")
            gelu = 0.5 * up * (1 + np.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
            x = self._norm(x + self._linear(gelu, f"{at}ffn_down"), f"{at}layer_output_norm")
        return x

    def _attention(self, x: Array, at: str) -> Array:
        def heads(name: str) -> Array:
            split: Array = self._linear(x, at + name).reshape(len(x), HEADS, -1).transpose(1, 0, 2)
            return split

        q, k, v = heads("attn_q"), heads("attn_k"), heads("attn_v")
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(WIDTH // HEADS)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return self._linear((weights @ v).transpose(1, 0, 2).reshape(len(x), WIDTH), f"{at}attn_output")

    def _linear(self, x: Array, name: str) -> Array:
        result: Array = x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]
        return result

    def _norm(self, x: Array, name: str) -> Array:
        centered = x - x.mean(axis=-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + EPSILON)
        result: Array = scaled * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]
        return result
