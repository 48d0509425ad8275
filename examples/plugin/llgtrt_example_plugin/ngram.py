"""An engine: a model of three letters, in Python. What it does with sampling, masks and requests is llgtrt's.

It learns from a text file, or from a few lines of its own, which byte follows which two, and knows no more.
Its tokens are bytes, so it needs no tokenizer.
"""

from __future__ import annotations

import collections
import math
from pathlib import Path
from typing import Any

LINES = "the quick brown fox jumps over the lazy dog. " * 3
END = 257
"""The token that ends a text, as the tokenizer of bytes has it."""


class Ngram:
    """The engine. ``py.engine_arguments``: ``{"slots": N}``."""

    vocab_size = 260
    context_tokens = 2048

    def __init__(self, model: Path | None, arguments: dict[str, Any] | None) -> None:
        self.slots = int((arguments or {}).get("slots", 4))
        self._held: list[list[int]] = [[] for _ in range(self.slots)]
        text = model.read_bytes() if model is not None else LINES.encode()
        counts: dict[tuple[int, ...], collections.Counter[int]] = collections.defaultdict(collections.Counter)
        for length in (1, 2):
            for index in range(len(text) - length):
                counts[tuple(text[index : index + length])][text[index + length]] += 1
        self._followers = {
            context: [(token, 8 + math.log(count)) for token, count in counter.items()]
            for context, counter in counts.items()
        }

    def forward(self, batch: list[tuple[int, int, list[int], int]], rows: memoryview[float]) -> None:
        """One pass: for each ``(slot, start, tokens, wanted)`` the rows behind its last ``wanted`` tokens."""
        row = 0
        for slot, start, tokens, wanted in batch:
            held = self._held[slot]
            del held[start:]
            for index, token in enumerate(tokens):
                held.append(token)
                if index >= len(tokens) - wanted:
                    self._write(rows, row, held)
                    row += 1

    def free(self, slot: int) -> None:
        """The sequence of a slot is over."""
        self._held[slot].clear()

    def _write(self, rows: memoryview[float], row: int, held: list[int]) -> None:
        for token in range(self.vocab_size):
            rows[row, token] = 0.0 if token < 256 or token == END else -math.inf
        for length in (1, 2):
            for token, logit in self._followers.get(tuple(held[-length:]), ()):
                rows[row, token] += logit
