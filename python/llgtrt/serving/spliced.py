"""Writes the object of an answer that has many log-probabilities.

The core wrote them as JSON already. To read that and write it again would keep all other threads waiting, the
event loop's too, for as long as each of the two takes: they are put between the other members as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from pydantic_core import to_json

from llgtrt.engine import ChoiceDelta, Delta

MANY_TOKENS = 64
"""Of one choice, with their alternatives: less is written within a millisecond."""

PART_CHARS = 64 * 1024
MEMBERS = ("logprobs", "prompt_logprobs")


def has_many(delta: Delta) -> bool:
    """Whether an answer has many log-probabilities."""
    return any(
        (choice.token_count > MANY_TOKENS and choice.logprobs is not None)
        or choice.prompt_logprobs is not None
        for choice in delta.choices
    )


def spliced(plain: Callable[[Delta], dict[str, Any]], delta: Delta) -> list[bytes]:
    """The parts of the response object.

    Args:
        plain: builds the object, in which each choice has the ``index`` of its delta.
        delta: the answer.
    """
    raw = {choice.index: {name: getattr(choice, name) for name in MEMBERS} for choice in delta.choices}
    response = plain(cast(Delta, _Bare(delta, choices=[_bare(choice) for choice in delta.choices])))
    return list(_grouped(_object(response, raw)))


class _Bare:
    """Something of the core with other values of some attributes."""

    def __init__(self, whole: Delta | ChoiceDelta, **instead: Any) -> None:
        self.__dict__.update(instead)
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


def _bare(choice: ChoiceDelta) -> _Bare:
    given = {name: None if getattr(choice, name) is None else "null" for name in MEMBERS}
    return _Bare(choice, **given)


def _object(response: dict[str, Any], raw: dict[int, dict[str, str | None]]) -> Iterator[bytes]:
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


def _members(choice: dict[str, Any], raw: dict[str, str | None]) -> Iterator[bytes]:
    written = {name: text for name, text in raw.items() if text is not None and name in choice}
    yield to_json({name: value for name, value in choice.items() if name not in written})[1:-1]
    for name, text in written.items():
        yield b',"%b":' % name.encode()
        for start in range(0, len(text), PART_CHARS):
            yield text[start : start + PART_CHARS].encode()


def _grouped(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Parts that are worth a call each."""
    group: list[bytes] = []
    size = 0
    for part in parts:
        group.append(part)
        size += len(part)
        if size >= PART_CHARS:
            yield b"".join(group)
            group, size = [], 0
    yield b"".join(group)
