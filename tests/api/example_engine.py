"""Engines that the tests name: the example's, with failures that prompts ask for."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "examples" / "plugin"))

from llgtrt_example_plugin.ngram import Ngram

logger = logging.getLogger("example_engine")


class Faulty(Ngram):  # type: ignore[misc]
    """Fails as the texts that it holds say."""

    def forward(self, batch: list[tuple[int, int, list[int], int]], rows: memoryview[float]) -> Any:
        super().forward(batch, rows)
        row = 0
        for slot, _, _, wanted in batch:
            text = bytes(token for token in self._held[slot] if token < 256)
            if wanted and b"please fail" in text:
                raise RuntimeError("a secret of the operator")
            if wanted and b"please exit" in text:
                raise SystemExit(1)
            if wanted and b"please return" in text:
                return rows
            if b"please forget" in text:
                for index in range(row, row + wanted):
                    rows[index, 65] = float("nan")
            row += wanted
        return None

    def close(self) -> None:
        logger.warning("the engine was closed, with %d tokens held", sum(map(len, self._held)))


class NoForward:
    vocab_size = 260


class NoVocabulary(Ngram):  # type: ignore[misc]
    vocab_size = None


class Small(Ngram):  # type: ignore[misc]
    vocab_size = 256


class Breaks(Ngram):  # type: ignore[misc]
    def __init__(self, model: Path | None, arguments: Any) -> None:
        raise RuntimeError("no weights here")
