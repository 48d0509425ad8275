"""Reads arguments that stand between tags, or in a call of Python's, and makes JSON of them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from llgtrt.tools.json_arguments import JsonNesting
from llgtrt.tools.markup import Markup, overlap
from llgtrt.tools.pair_kinds import Kind, PairTexts

_PYTHON = {"True": "true", "False": "false", "None": "null"}


@dataclass
class _Frame:
    """An object or a list that is not complete.

    Attributes:
        kinds: of the values that may come in it, by name.
        end: what ends it; empty for the arguments as a whole, which end with anything else.
        is_list: its values have no names.
        written: values so far.
    """

    kinds: dict[str, Kind]
    end: str = ""
    is_list: bool = False
    written: int = 0


class PairReader:
    """Makes one JSON object of pairs."""

    def __init__(self, texts: PairTexts, markup: Markup, kinds: dict[str, Kind]) -> None:
        self._texts = texts
        self._markup = markup
        self._frames = [_Frame(kinds)]
        self._buffer = ""
        self._end = ""
        self._may_be_quoted = False
        self._kind: Kind | None = None
        self._nesting = JsonNesting()
        self._out: list[str] = []

    def feed(self, text: str) -> tuple[str, str | None]:
        """See :class:`~llgtrt.tools.arguments.ArgumentReader`."""
        self._buffer += text
        rest = None
        while True:
            if self._kind is None:
                step = self._begin()
                if step == "end":
                    self._close_all()
                    rest, self._buffer = self._buffer, ""
                if step != "value":
                    break
            elif not self._value():
                break
        out, self._out = "".join(self._out), []
        return out, rest

    def finish(self) -> str:
        """What is held back is not certain: a cut answer ends before it."""
        return ""

    def _begin(self) -> str:
        frame = self._frames[-1]
        if frame.end:
            if self._buffer.startswith(frame.end):
                self._buffer = self._buffer[len(frame.end) :]
                self._close()
                return "value"
            if frame.end.startswith(self._buffer):
                return "wait"
        join = self._texts.join if frame.written else ""
        for key, kind in frame.kinds.items():
            before, behind = self._texts.around(key)
            begin = self._markup.shown(join + before)
            if self._buffer.startswith(begin):
                self._buffer = self._buffer[len(begin) :]
                self._open(frame, key, kind, self._markup.shown(behind))
                return "value"
            if begin.startswith(self._buffer):
                return "wait"
        return "end" if self._buffer else "wait"

    def _open(self, frame: _Frame, key: str, kind: Kind, end: str) -> None:
        """A value begins."""
        if frame.written:
            self._out.append(", ")
        elif not frame.end:
            self._out.append("{")
        if not frame.is_list:
            self._out.append(f"{json.dumps(key, ensure_ascii=False)}: ")
        frame.written += 1
        if kind.items is not None:
            self._out.append("[")
            self._frames.append(_Frame({self._texts.item: kind.items}, end, is_list=True))
        elif kind.members:
            self._out.append("{")
            self._frames.append(_Frame({name: one for name, (one, _) in kind.members.items()}, end))
        else:
            if kind.raw:
                self._out.append('"')
            self._kind = kind
            self._end = end
            self._may_be_quoted = kind.raw and kind.choices is None and self._texts.quotes is not None

    def _close(self) -> None:
        self._out.append("]" if self._frames.pop().is_list else "}")

    def _close_all(self) -> None:
        while len(self._frames) > 1:
            self._close()
        self._out.append("}" if self._frames[0].written else "{}")

    def _value(self) -> bool:
        assert self._kind is not None
        return self._raw() if self._kind.raw else self._json()

    def _raw(self) -> bool:
        if self._may_be_quoted and not self._find_quotes():
            return False
        end = self._end
        at = self._buffer.find(end)
        if at < 0:
            at = len(self._buffer) - overlap(self._buffer, end)
            self._out.append(json.dumps(self._buffer[:at], ensure_ascii=False)[1:-1])
            self._buffer = self._buffer[at:]
            return False
        self._out.append(json.dumps(self._buffer[:at], ensure_ascii=False)[1:])
        self._buffer = self._buffer[at + len(end) :]
        self._kind = None
        return True

    def _find_quotes(self) -> bool:
        """Whether it is known if the string stands between quotes."""
        assert self._texts.quotes is not None
        before, behind = map(self._markup.shown, self._texts.quotes)
        if self._buffer.startswith(before):
            self._buffer = self._buffer[len(before) :]
            self._end = behind + self._end
        elif before.startswith(self._buffer):
            return False
        self._may_be_quoted = False
        return True

    def _json(self) -> bool:
        """JSON goes on as it is, up to what cannot belong to it."""
        stops = self._end[:1] or ",)"
        nesting = self._nesting
        for at, character in enumerate(self._buffer):
            if nesting.depth == 0 and not nesting.in_string and character in stops:
                self._show(at)
                if len(self._buffer) < len(self._end):
                    return False
                self._buffer = self._buffer[len(self._end) :]
                self._kind = None
                return True
            nesting.take(character)
        if self._kind is not None and self._kind.choices is None:
            self._show(len(self._buffer))
        # A word of Python's is shown when it is complete.
        return False

    def _show(self, length: int) -> None:
        text = self._buffer[:length]
        self._buffer = self._buffer[length:]
        assert self._kind is not None
        if self._kind.choices is not None:
            text = _PYTHON.get(text, text)
        self._out.append(text)
