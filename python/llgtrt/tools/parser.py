"""Reads a model's answer piece by piece: thinking, text and calls.

However the answer is cut into pieces, the events, joined, are the same. What may be the beginning of a
mark is held back until it is decided, so that no part of a mark is ever shown as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from llgtrt.tools.arguments import ArgumentReader
from llgtrt.tools.events import (
    CallArguments,
    CallBegun,
    CallEnded,
    Event,
    Reasoning,
    Text,
    merged,
)
from llgtrt.tools.markup import CONTROL_CLOSE, CONTROL_OPEN, overlap, with_control, without_control
from llgtrt.tools.plan import AnswerPlan


class AnswerParser:
    """Reads one answer under a plan.

    Attributes:
        calls: calls that were begun.
        complete: the last of them has all of its arguments.
    """

    def __init__(self, plan: AnswerPlan) -> None:
        self._plan = plan
        self._show = plan.markup.shown
        self._plain = with_control if plan.show_control else without_control
        self._buffer = ""
        self._events: list[Event] = []
        self._options: dict[str, int | None] = {}
        self._reader: ArgumentReader | None = None
        self._mark = ""
        self.calls = 0
        self.complete = False
        thinking = plan.thinking
        if thinking is None:
            self._begin_body()
        elif thinking.open:
            self._begin_thinking()
        else:
            self._mark = self._show(thinking.format.begin)
            self._state: Callable[[], bool] = self._before_thinking

    def feed(self, text: str) -> list[Event]:
        """Takes the next piece and gives what is certain with it."""
        self._buffer += text
        while self._state():
            pass
        return self._take()

    def finish(self, *, cut: bool) -> list[Event]:
        """Gives what was held back, at the end of the answer.

        Args:
            cut: the answer ended because it was long, so that the beginning of a mark is none of its text.
        """
        rest, self._buffer = self._buffer, ""
        if self._state == self._arguments and self._reader is not None:
            self._call_arguments(self._reader.finish())
        elif self._state in (self._thinking, self._free):
            held = overlap(rest, self._mark)
            if cut and held:
                rest = rest[:-held]
            if self._state == self._thinking:
                self._emit(Reasoning(self._plain(rest).rstrip()))
            else:
                self._emit(Text(self._plain(rest)))
        elif self._state in (self._text, self._opening, self._before_thinking):
            self._emit(Text(self._plain(rest)))
        return self._take()

    # Thinking.

    def _before_thinking(self) -> bool:
        """The answer may begin with the tag."""
        text = self._buffer.lstrip()
        if text.startswith(self._mark):
            self._buffer = text[len(self._mark) :]
            self._begin_thinking()
        elif not self._mark.startswith(text):
            self._begin_body()
        else:
            return False
        return True

    def _begin_thinking(self) -> None:
        assert self._plan.thinking is not None
        self._mark = self._show(self._plan.thinking.format.end)
        self._state = self._before_thought

    def _before_thought(self) -> bool:
        self._buffer = self._buffer.lstrip()
        if self._buffer:
            self._state = self._thinking
        return bool(self._buffer)

    def _thinking(self) -> bool:
        at = self._buffer.find(self._mark)
        if at < 0:
            self._release(Reasoning)
            return False
        self._emit(Reasoning(self._plain(self._buffer[:at]).rstrip()))
        self._buffer = self._buffer[at + len(self._mark) :]
        self._state = self._after_thinking
        return True

    def _after_thinking(self) -> bool:
        self._buffer = self._buffer.lstrip()
        if self._buffer:
            self._begin_body()
        return bool(self._buffer)

    # Text.

    def _begin_body(self) -> None:
        plan = self._plan
        if plan.format is None or not plan.tools:
            self._state = self._text
            if plan.answer_mark:
                self._options = {self._show(plan.answer_mark): None}
                self._state = self._opening
        elif plan.required:
            self._begin_section(0)
        elif plan.free and plan.trigger:
            self._mark = self._show(plan.trigger)
            self._state = self._free
        else:
            self._options = self._openings()
            self._state = self._opening

    def _openings(self) -> dict[str, int | None]:
        """What an answer begins with that is a call, where calls are not marked in free text."""
        one = self._plan.format
        assert one is not None
        heads = one.openings or (one.section_begin + one.head,)
        options: dict[str, int | None] = {
            self._show(head.replace("{name}", tool.name).replace("{index}", "0")): number
            for head in heads
            for number, tool in enumerate(self._plan.tools)
        }
        if self._plan.answer_mark:
            options[self._show(self._plan.answer_mark)] = None
        return options

    def _text(self) -> bool:
        shown = _closed(self._buffer)
        self._emit(Text(self._plain(self._buffer[:shown])))
        self._buffer = self._buffer[shown:]
        return False

    def _free(self) -> bool:
        at = self._buffer.find(self._mark)
        if at < 0:
            self._release(Text)
            return False
        self._emit(Text(self._plain(self._buffer[:at]).rstrip()))
        self._buffer = self._buffer[at + len(self._mark) :]
        self._begin_section(len(self._mark))
        return True

    def _opening(self) -> bool:
        found, waiting = self._match()
        if waiting:
            return False
        if found is not None and self._options[found] is not None:
            return self._head()
        self._buffer = self._buffer[len(found or "") :]
        self._state = self._text
        return True

    def _release(self, kind: type[Text] | type[Reasoning]) -> None:
        """Shows what cannot be a part of the mark, or blanks before it."""
        shown = min(len(self._buffer) - overlap(self._buffer, self._mark), _closed(self._buffer))
        # A control token between the blanks and the mark is not shown: the blanks are before the mark.
        plain = self._plain(self._buffer[:shown])
        text = plain.rstrip()
        self._emit(kind(text))
        self._buffer = plain[len(text) :] + self._buffer[shown:]

    # Calls.

    def _begin_section(self, read: int) -> None:
        """Calls follow, of which so many characters were read."""
        one = self._plan.format
        assert one is not None
        begin = self._show(one.section_begin)
        self._options = {
            (begin + self._show(one.call_head(tool.name, 0)))[read:]: number
            for number, tool in enumerate(self._plan.tools)
        }
        self._state = self._head

    def _head(self) -> bool:
        found, waiting = self._match()
        if waiting:
            return False
        if found is None:
            # No grammar held the answer to the format: it is not lost.
            self._state = self._text
            return True
        number = self._options[found]
        self._buffer = self._buffer[len(found) :]
        if number is None:
            self._state = self._done
            return True
        tool = self._plan.tools[number]
        assert self._plan.format is not None
        self._reader = self._plan.format.arguments.of_model(self._plan.markup).reader(tool.schema)
        self._emit(CallBegun(self.calls, tool.name))
        self.calls += 1
        self.complete = False
        self._state = self._arguments
        return True

    def _arguments(self) -> bool:
        assert self._reader is not None
        json, rest = self._reader.feed(self._buffer)
        self._buffer = ""
        self._call_arguments(json)
        if rest is None:
            return False
        self._emit(CallEnded(self.calls - 1))
        self.complete = True
        self._buffer = rest
        one = self._plan.format
        assert one is not None
        tail, separator = self._show(one.tail), self._show(one.separator)
        self._options = {tail + self._show(one.section_end): None}
        if one.parallel and self._plan.parallel:
            for number, tool in enumerate(self._plan.tools):
                head = self._show(one.call_head(tool.name, self.calls))
                self._options[tail + separator + head] = number
        self._state = self._head
        return True

    def _done(self) -> bool:
        self._buffer = self._buffer.lstrip()
        if self._buffer:
            self._state = self._text
        return bool(self._buffer)

    def _call_arguments(self, json: str) -> None:
        if json:
            self._emit(CallArguments(self.calls - 1, json))

    def _match(self) -> tuple[str | None, bool]:
        """The longest option that the text begins with; and whether more text may still make it another."""
        found: str | None = None
        for option in self._options:
            if self._buffer.startswith(option):
                if found is None or len(option) > len(found):
                    found = option
            elif option.startswith(self._buffer):
                return None, True
        return found, False

    def _emit(self, event: Event) -> None:
        if not isinstance(event, Text | Reasoning) or event.text:
            self._events.append(event)

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return merged(events)


def parse_answer(plan: AnswerPlan, pieces: Iterable[str], *, cut: bool = False) -> list[Event]:
    """The events of a whole answer."""
    parser = AnswerParser(plan)
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    return merged(events + parser.finish(cut=cut))


def _closed(text: str) -> int:
    """How many characters come before the name of a control token that is not complete yet."""
    begin = text.find(CONTROL_OPEN, text.rfind(CONTROL_CLOSE) + 1)
    return len(text) if begin < 0 else begin
