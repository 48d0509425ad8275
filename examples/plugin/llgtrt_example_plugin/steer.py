"""A logits processor: bans tokens, and makes others likelier the longer they were not said."""

from __future__ import annotations

import math
from typing import Any


class Steer:
    """The processor of one answer.

    Args of a request: ``ban``, token ids that are not said; ``wait``, an object of token id to how much its
    logit grows with each token that was drawn since it was said the last time.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        unknown = arguments.keys() - {"ban", "wait"}
        if unknown:
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
        self._ban = [int(token) for token in arguments.get("ban", [])]
        self._wait = {int(token): float(step) for token, step in arguments.get("wait", {}).items()}

    def __call__(
        self, prompt_ids: tuple[int, ...], generated_ids: list[int], logits: memoryview[float]
    ) -> None:
        """Changes the row of the next token. With NumPy, ``numpy.asarray(logits)`` is the same memory."""
        for token in self._ban:
            logits[token] = -math.inf
        for token, step in self._wait.items():
            # Of what was generated, not of a counter of its own: tokens may be withdrawn.
            said = generated_ids[::-1].index(token) if token in generated_ids else len(generated_ids)
            logits[token] += step * said
