"""Logits processors that the tests name: tokens of the simulated engine are bytes."""

from __future__ import annotations

import math
import time
from typing import Any


class Say:
    """Leaves one byte after the other of a text; without a text, of the prompt."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        text = arguments.get("text")
        if text is not None and not isinstance(text, str):
            raise ValueError("text must be a string")
        self._text = None if text is None else text.encode()

    def __call__(
        self, prompt_ids: tuple[int, ...], generated_ids: list[int], logits: memoryview[float]
    ) -> None:
        text = prompt_ids if self._text is None else self._text
        only(logits, text[len(generated_ids) % len(text)])


class Count:
    """Says of each answer how often this object was called: each answer has one of its own."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._calls = 0

    def __call__(
        self, prompt_ids: tuple[int, ...], generated_ids: list[int], logits: memoryview[float]
    ) -> None:
        only(logits, ord("0") + self._calls)
        self._calls += 1
        # What a processor does to its arguments is its own affair.
        generated_ids.clear()


class Boost:
    """Makes the letter x likelier than all else, and lets the rest be."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        pass

    def __call__(
        self, prompt_ids: tuple[int, ...], generated_ids: list[int], logits: memoryview[float]
    ) -> None:
        logits[ord("x")] = 1e30


def same(arguments: dict[str, Any]) -> Any:
    """Changes nothing. A function that makes one is as good as a class."""
    return lambda prompt_ids, generated_ids, logits: None


class Wrong:
    """Goes wrong at the third token, in the way that the arguments say."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._how = arguments["how"]
        self._seconds = arguments.get("seconds", 0.0)

    def __call__(
        self, prompt_ids: tuple[int, ...], generated_ids: list[int], logits: memoryview[float]
    ) -> Any:
        if len(generated_ids) < 2:
            return None
        if self._how == "raise":
            raise RuntimeError("a secret of the operator")
        if self._how == "exit":
            raise SystemExit(3)
        if self._how == "slow":
            # What is wrong with it: it takes longer than the server lets it.
            time.sleep(self._seconds)
        if self._how == "nan":
            logits[5] = math.nan
        if self._how == "nothing":
            for token in range(len(logits)):
                logits[token] = -math.inf
        return logits if self._how == "return" else None


KEPT: list[memoryview[float]] = []


class Keep:
    """Keeps the row: it is memory that stays."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        pass

    def __call__(
        self, prompt_ids: tuple[int, ...], generated_ids: list[int], logits: memoryview[float]
    ) -> None:
        KEPT.append(logits)
        for view in KEPT:
            view[0] = 1.0


def only(logits: memoryview[float], token: int) -> None:
    """Leaves one token."""
    for other in range(len(logits)):
        logits[other] = -math.inf
    logits[token] = 0.0
