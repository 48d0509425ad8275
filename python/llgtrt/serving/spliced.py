"""Writes the object of an answer that has many log-probabilities.

The core wrote them as JSON already. To read that and write it again would keep all other threads waiting, the
event loop's too, for as long as each of the two takes: they are put between the other members as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from pydantic_core import to_json

from llgtrt.engine import ChoiceDelta, Delta
from llgtrt.patient_json import grouped

MANY_TOKENS = 64
"""Of one choice, with their alternatives: less is written within a millisecond."""

PIECE_BYTES = 64 * 1024
MEMBERS = ("logprobs", "prompt_logprobs")


def has_many(delta: Delta) -> bool:
    """Whether an answer has many log-probabilities."""
    return any(
        (choice.token_count > MANY_TOKENS and choice.logprobs_bytes is not None)
        or choice.prompt_logprobs_bytes is not None
        for choice in delta.choices
    )


def spliced(plain: Callable[[Delta], dict[str, Any]], delta: Delta) -> list[bytes]:
    """The parts of the response object.

    Args:
        plain: builds the object, in which each choice has the ``index`` of its delta.
        delta: the answer.
    """
    raw = {choice.index: choice for choice in delta.choices}
    response = plain(cast(Delta, _Bare(delta, choices=[_bare(choice) for choice in delta.choices])))
    return list(grouped(_object(response, raw)))


class _Bare:
    """Something of the core with other values of some attributes."""

    def __init__(self, whole: Delta | ChoiceDelta, **instead: Any) -> None:
        self.__dict__.update(instead)
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


def _bare(choice: ChoiceDelta) -> _Bare:
    given = {name: None if getattr(choice, f"{name}_bytes") is None else "null" for name in MEMBERS}
    return _Bare(choice, **given)


def _object(response: dict[str, Any], raw: dict[int, ChoiceDelta]) -> Iterator[bytes]:
    before = b"{"
    for name, value in response.items():
        yield before + to_json(name) + b":"
        before = b","
        if name == "choices":
            yield b"["
            for position, choice in enumerate(value):
                yield b"{" if position == 0 else b",{"
                yield from _members(choice, raw[choice["index"]])
                yield b"}"
            yield b"]"
        else:
            yield to_json(value)
    yield b"}"


def _members(choice: dict[str, Any], raw: ChoiceDelta) -> Iterator[bytes]:
    sizes = {name: getattr(raw, f"{name}_bytes") for name in MEMBERS if name in choice}
    written = {name: size for name, size in sizes.items() if size is not None}
    yield to_json({name: value for name, value in choice.items() if name not in written})[1:-1]
    for name, size in written.items():
        yield b',"%b":' % name.encode()
        piece = getattr(raw, f"{name}_piece")
        for start in range(0, size, PIECE_BYTES):
            yield piece(start, PIECE_BYTES)
