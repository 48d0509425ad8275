"""The model's logits as outputs of Triton's routes: how many there may be, and how they are written.

A row has one number per token of the vocabulary. Some hundreds of rows are hundreds of megabytes, so they are
asked for within a bound and written row by row.
"""

from __future__ import annotations

from collections.abc import Iterator

from llgtrt.engine import Logits, ServerFields

LOGITS = frozenset({"context_logits", "generation_logits"})
"""The outputs."""

MAX_LOGITS_BYTES = 256 * 1024 * 1024
"""Bytes of logits, as 32-bit floats, that a request may ask for."""

TEXT_FACTOR = 4
"""So many times larger are they as JSON, at most about: there may be so many times fewer."""


def logits_fields(wanted: frozenset[str], *, binary: bool) -> ServerFields | None:
    """What the core is asked for outputs of these names; None: no logits."""
    if not wanted & LOGITS:
        return None
    return {
        "return_context_logits": "context_logits" in wanted,
        "return_generation_logits": "generation_logits" in wanted,
        "max_logits_bytes": MAX_LOGITS_BYTES if binary else MAX_LOGITS_BYTES // TEXT_FACTOR,
    }


def number_list(rows: Logits | None) -> Iterator[bytes]:
    """All numbers of the rows as one JSON array, in pieces."""
    yield b"["
    for index in range(0 if rows is None else len(rows)):
        assert rows is not None
        if index > 0:
            yield b","
        yield rows.json(index)
    yield b"]"


class LogitsTensor:
    """Rows of several sequences as one tensor; shorter ones are filled up with rows of zeros.

    Attributes:
        shape: its dimensions: the batch, tokens, vocabulary.
    """

    def __init__(self, rows: list[Logits | None], batch: list[int]) -> None:
        self._rows = rows
        self._longest = max((0 if one is None else len(one) for one in rows), default=0)
        columns = max((0 if one is None else one.columns for one in rows), default=0)
        self.shape = [*batch, self._longest, columns]
        self._columns = columns

    @property
    def size(self) -> int:
        """Bytes of it as 32-bit floats."""
        return len(self._rows) * self._longest * self._columns * 4

    def raw(self) -> Iterator[bytes]:
        """Its elements as 32-bit floats, row by row."""
        zeros = bytes(self._columns * 4)
        for rows, index in self._places():
            yield zeros if rows is None else rows.raw(index)

    def json(self) -> Iterator[bytes]:
        """Its elements as a JSON array, in pieces."""
        zeros = b",".join([b"0.0"] * self._columns)
        yield b"["
        for count, (rows, index) in enumerate(self._places()):
            if count > 0:
                yield b","
            yield zeros if rows is None else rows.json(index)
        yield b"]"

    def _places(self) -> Iterator[tuple[Logits | None, int]]:
        for rows in self._rows:
            length = 0 if rows is None else len(rows)
            for index in range(self._longest):
                yield (rows if index < length else None), index
