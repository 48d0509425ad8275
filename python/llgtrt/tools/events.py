"""What a model's answer consists of, once its markup is understood.

Every encoder of an API gets these, in order; the texts of one kind belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of the thinking before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """The model calls a tool. ``index`` counts the calls of an answer from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The arguments of a call are complete."""

    index: int


Event: TypeAlias = "Text | Reasoning | CallBegun | CallArguments | CallEnded"


def merged(events: list[Event]) -> list[Event]:
    """The same events with neighbouring texts of one kind as one."""
    result: list[Event] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, Text) and isinstance(last, Text):
            result[-1] = Text(last.text + event.text)
        elif isinstance(event, Reasoning) and isinstance(last, Reasoning):
            result[-1] = Reasoning(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments):
            if last.index == event.index:
                result[-1] = CallArguments(last.index, last.text + event.text)
            else:
                result.append(event)
        else:
            result.append(event)
    return result
